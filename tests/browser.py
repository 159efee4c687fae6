"""A real browser without a network."""

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

needs_chromium = pytest.mark.skipif(not shutil.which("chromium"), reason="Chromium is not here")
COMMAND = (
    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


def shown_by_chromium(html, folder):
    """The document of a page, after its scripts have run."""
    page = folder / "page.html"
    page.write_text(f"<html><body>{html}</body></html>")
    command = [
        *COMMAND, "--virtual-time-budget=10000", f"--user-data-dir={folder / 'profile'}",
        "--dump-dom", f"file://{page}",
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


class Browser:
    """Chromium with one page, driven through DevTools' pipe; it keeps what the page complains of.

    Use it as a context manager.
    """

    def __init__(self, folder):
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        self._buffer, self._number, self._session = b"", 0, None
        self._events = []
        self._process = subprocess.Popen(
            [
                "bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash",
                *COMMAND, f"--user-data-dir={folder}", "--remote-debugging-pipe",
            ],
            pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)

    def __enter__(self):
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self._commands)
        self._process.wait(timeout=30)
        os.close(self._answers)

    def send(self, method, **parameters):
        """Call a method of the DevTools protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._events.append(answer)

    def _next(self):
        while b"\0" not in self._buffer:
            chunk = os.read(self._answers, 1 << 20)
            assert chunk, "Chromium has gone"
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, *, width=1280, height=900, dark=False):
        """Show a file, and wait until it is loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **metrics)
        self._events.clear()
        self.send("Page.navigate", url=f"file://{Path(path).resolve()}")
        self.wait("document.readyState === 'complete'")

    def evaluate(self, expression):
        """The value of a JavaScript expression in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression, seconds=120):
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"in {seconds} s it was never true: {expression}"
            time.sleep(0.05)

    def pictured(self):
        """The whole page as PNG."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def printed(self):
        """The page as PDF."""
        return base64.b64decode(
            self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"]
        )

    def complaints(self):
        """Exceptions, console messages, violations of the page's policy, and addresses asked for."""
        found = []
        for event in self._events:
            method, content = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(content["exceptionDetails"].get("exception", content))
            elif method == "Runtime.consoleAPICalled":
                found.append(content["args"])
            elif method == "Log.entryAdded":
                found.append(content["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                url = content["request"]["url"]
                if not url.startswith(("data:", "blob:")) and content.get("type") != "Document":
                    found.append(url)
        return found

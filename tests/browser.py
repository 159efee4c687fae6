"""A real browser without a network."""

import shutil
import subprocess

import pytest

needs_chromium = pytest.mark.skipif(not shutil.which("chromium"), reason="Chromium is not here")


def shown_by_chromium(html, folder):
    """The document of a page, after its scripts have run."""
    page = folder / "page.html"
    page.write_text(f"<html><body>{html}</body></html>")
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}",
        "--dump-dom", f"file://{page}",
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

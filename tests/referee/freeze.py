"""Results that a restructuring must not change: weights, verdicts, a run of a sweep, a page's data, help.

    python tests/referee/freeze.py [--into FOLDER] [NAME ...]

The command writes `NAME.json` for each NAME, and by default for every name in `RESULTS`.
tests/test_referee.py compares what the command writes today with the committed files.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import gzip
import hashlib
import html
import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}

HERE = Path(__file__).parent
SEED = 0
TINY: dict[str, Any] = {
    **{"d_model": 16, "d_head": 8, "n_heads": 2, "d_mlp": 32, "threads": 1, "device": "cpu"},
    **{"n_samples": 600, "batch_size": 64, "steps": 40, "warmup_steps": 5, "log_every": 10, "eval_every": 20},
}
"""A run of two seconds."""
ANCHORS = {"key_max": 40}
CUT_OFF_AT = 20
"""The step after which the run that is resumed was cut off."""
LEFT_OUT = {"path", "seconds", "sha256", "versions", "folder"}
"""Keys of JSON whose values belong to a machine, an installation or a moment."""


def stable(value: Any) -> Any:
    """JSON without the keys of `LEFT_OUT`; numbers have six significant digits."""
    if isinstance(value, dict):
        return {key: stable(inner) for key, inner in value.items() if key not in LEFT_OUT}
    if isinstance(value, list):
        return [stable(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def machine() -> dict[str, str]:
    """A hash of fixed arithmetic of the runs' sizes: machines with the same hash train the same weights."""
    import torch
    from torch.nn.functional import gelu, layer_norm

    generator = torch.Generator("cpu").manual_seed(SEED)
    digest = hashlib.sha256(torch.__version__.encode())
    for rows, width, hidden in ((576, 16, 32), (64, 16, 201), (576, 128, 256)):
        x = torch.randn(rows, width, generator=generator, device="cpu")
        w = torch.randn(width, hidden, generator=generator, device="cpu").requires_grad_()
        optimizer = torch.optim.AdamW([w], lr=1e-3)
        for _ in range(3):
            optimizer.zero_grad()
            y = gelu(layer_norm(x, (width,)) @ w)
            scores = (y.view(-1, 8, hidden) @ y.view(-1, 8, hidden).mT / hidden).softmax(-1)
            (scores.square().sum() + y.logsumexp(-1).exp().log().sum()).backward()
            optimizer.step()
        digest.update(w.detach().numpy().tobytes())
    return {"sha256_of_fixed_arithmetic": digest.hexdigest()}


def summary_of(result: Any) -> dict[str, Any]:
    """Hash, norms and sums of a run's final weights, and its log without seconds."""
    digest, tensors = hashlib.sha256(), {}
    for name, weight in sorted(result.checkpoint.weights.items()):
        digest.update(name.encode() + weight.contiguous().numpy().tobytes())
        tensors[name] = {"norm": weight.double().norm().item(), "sum": weight.double().sum().item()}
    log = [{key: value for key, value in line.items() if key != "seconds"} for line in result.log]
    text = json.dumps(log, sort_keys=True)
    log_sha256 = hashlib.sha256(text.encode()).hexdigest()
    return {"weights_sha256": digest.hexdigest(), "log_sha256": log_sha256, "tensors": tensors, "log": log}


def weights() -> dict[str, Any]:
    """Two tasks and two variants, a run that was cut off and resumed, two runs in one stack."""
    from anchorlens import preset, train, train_many

    def anchors(**fields: Any) -> Any:
        return preset("quick", **{**TINY, **ANCHORS, **fields})

    runs = {
        "two_anchor gpt2": anchors(),
        "two_anchor postnorm": anchors(variant="postnorm"),
        "addition gpt2": preset("addition", **TINY),
        "addition postnorm": preset("addition", **{**TINY, "variant": "postnorm"}),
    }
    found = {name: train(*run, progress=False) for name, run in runs.items()}
    found["two_anchor gpt2, resumed"] = resumed(runs["two_anchor gpt2"])
    stack = train_many([anchors(), anchors(seed=1, gamma=0.7)], progress=False)
    found |= {f"two_anchor gpt2, {k} of a stack of two": result for k, result in enumerate(stack, start=1)}
    return {name: summary_of(each) for name, each in found.items()}


def resumed(run: Any) -> Any:
    """The result of a run that was interrupted after `CUT_OFF_AT` steps and resumed."""
    from anchorlens import train

    def interrupt(line: dict[str, Any]) -> None:
        if line["step"] == CUT_OFF_AT:
            raise KeyboardInterrupt

    rare = dataclasses.replace(run.train_config, state_every_seconds=1e6)  # only the interrupt saves a state
    run = run._replace(train_config=rare)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        try:
            train(*run, out=out, on_log=interrupt, progress=False)
        except KeyboardInterrupt:
            if (out / "ckpt.pt").exists() or not (out / "state.pt").exists():
                raise AssertionError("the run must be cut off with a saved state") from None
        return train(*run, out=out, resume=True, progress=False)


def call(*words: str) -> str:
    """What the command `anchorlens` writes to stdout."""
    from typer.testing import CliRunner

    from anchorlens.cli import app

    done = CliRunner().invoke(app, list(words))
    if done.exit_code:
        raise AssertionError(f"anchorlens {' '.join(words)}: {done.output}") from done.exception
    return done.stdout


def verdicts() -> dict[str, Any]:
    """The lines of `classify --json` for the four shipped checkpoints, by the files' names."""
    from anchorlens import checkpoints

    lines = map(
        json.loads, call("classify", "--quick", "--json", *map(str, checkpoints.shipped())).splitlines()
    )
    return {line["subject"]["name"]: stable(line) for line in lines}


def sweep() -> dict[str, Any]:
    """A `cell.json` of a sweep of two runs, and the data that the page of its diagram embeds."""
    with tempfile.TemporaryDirectory() as folder:
        out, page = Path(folder) / "sweep", Path(folder) / "page.html"
        fields = {**TINY, **ANCHORS, "n_checkpoints": 0, "gamma": "0.4,0.7", "engine": "serial", "out": out}
        call("sweep", *(f"--{name.replace('_', '-')}={value}" for name, value in fields.items()))
        call("diagram", str(out), "--out", str(page))
        (cell, _) = sorted((out / "cells").glob("*/cell.json"))
        content = stable(json.loads(cell.read_text(encoding="utf-8")))
        return {"cell.json": content, "page": data_of_page(page.read_text(encoding="utf-8"), folder)}


def data_of_page(page: str, folder: str) -> dict[str, Any]:
    """The data that the page unpacks: the maps of each slice, and the report and the curve of each run."""
    texts = {}
    for name in ("slices", "runs", "curves"):
        (packed,) = re.findall(rf'<script [^>]*id="{name}"[^>]*>(.*?)</script>', page, flags=re.DOTALL)
        groups = [gzip.decompress(base64.b64decode(group)).decode() for group in packed.split("\n")]
        texts[name] = "\n".join(groups)
    return {
        "slices": stable(json.loads(texts["slices"])),
        "runs": [lines_of(json.loads(report), folder) for report in texts["runs"].splitlines()],
        "curves": [stable(json.loads(curve)) for curve in texts["curves"].splitlines()],
    }


def lines_of(report: str, folder: str) -> list[str]:
    """The lines that a reader sees of a piece of HTML, without the folder and the training time."""
    text = html.unescape(re.sub(r"<[^>]+>", "\n", report)).replace(folder, "FOLDER")
    text = re.sub(r"(after \d+ steps) · [^·\n]* ·", r"\1 · TIME ·", text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def help_texts() -> dict[str, list[str]]:
    """The lines of the help of every command, in short and in full, 100 columns wide."""
    import typer

    from anchorlens.cli import app

    commands = typer.main.get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    pages = [("--help",), *((name, flag) for name in commands for flag in ("--help", "--help-all"))]
    return {" ".join(page): call(*page).splitlines() for page in pages}


RESULTS: dict[str, Callable[[], dict[str, Any]]] = {
    "machine": machine,
    "weights": weights,
    "verdicts": verdicts,
    "sweep": sweep,
    "help_texts": help_texts,
}


def freeze(into: Path, names: Sequence[str]) -> None:
    """Write today's results."""
    import torch

    torch.set_num_threads(1)
    for name in names:
        text = json.dumps(RESULTS[name](), indent=1, sort_keys=True, ensure_ascii=False)
        (into / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=HERE)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RESULTS))
    options = parser.parse_args()
    freeze(options.into, options.names or list(RESULTS))

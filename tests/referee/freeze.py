"""What must not change unseen: weights, verdicts, a cell, a page's data, help texts; freeze.py writes them.

python tests/referee/freeze.py [NAME ...]      # writes tests/referee/NAME.json
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TINY = {"d_model": 16, "d_head": 8, "d_mlp": 32, "n_samples": 600, "batch_size": 64, "eval_every": 20}
TINY |= {"steps": 40, "log_every": 10, "warmup_steps": 5, "key_max": 40, "threads": 1}
COMMANDS = ("demo", "train", "evaluate", "classify", "probe", "sweep", "status", "diagram")
COMMANDS += ("control", "audit", "benchmark")
DATA = r'<script type="application/json" id="([\w-]+)"[^>]*>(.*?)</script>'
VOLATILE = re.compile(r"seconds|version|time|path|^out$|^file$|sha256|created|device|hostname|started|ended")
"""Keys of JSON whose values differ from run to run, or from machine to machine."""


def stable(value: Any, key: str = "") -> Any:
    """JSON without what differs from run to run; numbers with five digits."""
    if VOLATILE.search(key):
        return "(left out)"
    if isinstance(value, dict):
        return {name: stable(inner, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [stable(inner) for inner in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def bits_of_this_machine() -> str:
    """A hash of fixed arithmetic, by which a machine knows whether another one computes the same bits."""
    import torch

    generator = torch.Generator("cpu").manual_seed(0)
    digest = hashlib.sha256(torch.__version__.encode())
    for shape in ((64, 16), (576, 128), (192, 400)):
        x = torch.randn(shape, generator=generator, device="cpu").requires_grad_()
        loss = torch.nn.functional.gelu(x @ x.mT).exp().log_softmax(-1).sum()
        loss.backward()
        optimizer = torch.optim.AdamW([x], lr=1e-3)
        optimizer.step()
        digest.update(x.detach().numpy().tobytes())
    return digest.hexdigest()


def summary_of(result: Any) -> dict[str, Any]:
    """Hash and norms of the weights of a run, and its log without seconds."""
    digest, norms = hashlib.sha256(), {}
    for name, weight in sorted(result.checkpoint.weights.items()):
        digest.update(name.encode() + weight.numpy().tobytes())
        norms[name] = float(f"{weight.double().norm().item():.7g}")
    log = [{name: value for name, value in line.items() if name != "seconds"} for line in result.log]
    return {"sha256": digest.hexdigest(), "norms": norms, "log": log}


def weights() -> dict[str, Any]:
    """Six short runs: two tasks, two variants, a run that was cut off and resumed, two runs in one stack."""
    from anchorlens import preset, train, train_many

    def run(**fields: Any) -> Any:
        return preset("quick", **{**TINY, **fields})

    addition = dict(TINY)
    addition.pop("key_max")
    several = [run(seed=0), run(seed=1)]
    found = {
        "two_anchor gpt2": train(*run(seed=0), progress=False),
        "two_anchor postnorm": train(*run(variant="postnorm", n_heads=2), progress=False),
        "addition": train(*preset("addition", **addition), progress=False),
        "resumed": _resumed(run(seed=2)),
        **{f"stack {k}": each for k, each in enumerate(train_many(several, progress=False))},
    }
    return {"bits": bits_of_this_machine(), **{name: summary_of(result) for name, result in found.items()}}


def _resumed(run: Any) -> Any:
    """The run, cut off by an error after its state was saved, and resumed."""
    from dataclasses import replace

    from anchorlens import train

    run = run._replace(train_config=replace(run.train_config, state_every_seconds=0.001))

    def cut(line: dict[str, Any]) -> None:
        if line["step"] == 20:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        try:
            train(*run, out=out, on_log=cut, progress=False)
        except KeyboardInterrupt:
            assert not (out / "ckpt.pt").exists()
        return train(out=out, resume=True, progress=False)


def _call(*words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "anchorlens", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "OMP_NUM_THREADS": "1", **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def verdicts() -> list[Any]:
    """What `classify --json` says of the four shipped checkpoints."""
    from anchorlens import checkpoints

    lines = _call("classify", "--json", *map(str, checkpoints.shipped())).splitlines()
    return [stable(json.loads(line)) for line in lines]


def sweep() -> dict[str, Any]:
    """The cell.json of a small sweep's first run, and the data that its diagram embeds."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "sweep"
        options = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
        axes = ["--gamma=0.4,0.7", "--seed=0", "--engine=serial", "--n-checkpoints=0"]
        _call("sweep", *options, *axes, "--out", str(out))
        _call("diagram", str(out), "--out", str(Path(folder) / "page.html"))
        cells = sorted((out / "cells").glob("*/cell.json"))
        page = (Path(folder) / "page.html").read_text(encoding="utf-8")
        data = re.findall(
            r'<script type="application/json" id="([\w-]+)"[^>]*>(.*?)</script>', page, flags=re.S
        )
        return {
            "cell": stable(json.loads(cells[0].read_text())),
            "page": {name: stable(json.loads(text)) for name, text in data},
        }


def help_texts() -> dict[str, Any]:
    """The help of every command at 100 columns, in short and in full."""
    from typer.testing import CliRunner

    from anchorlens.cli import app

    def said(*words: str) -> list[str]:
        done = CliRunner().invoke(app, list(words), env={"COLUMNS": "100", "NO_COLOR": "1"})
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    texts = {"anchorlens": said("--help")}
    for name in COMMANDS:
        texts |= {f"{name} {flag}": said(name, flag) for flag in ("--help", "--help-all")}
    return texts


FROZEN: dict[str, Callable[[], Any]] = {
    "weights": weights,
    "verdicts": verdicts,
    "sweep": sweep,
    "help_texts": help_texts,
}


def frozen(name: str) -> Any:
    """What was frozen under a name."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def main(folder: Path, names: list[str]) -> None:
    """Write what there is now."""
    import torch

    torch.set_num_threads(1)
    for name in names or FROZEN:
        text = json.dumps(FROZEN[name](), indent=1, sort_keys=True, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(os.environ.get("FROZEN_IN", HERE)), sys.argv[1:])

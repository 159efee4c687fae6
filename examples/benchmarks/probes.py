"""What every probe costs: seconds, and the process's peak memory.

    python examples/benchmarks/probes.py runs/a/ckpt.pt
    python examples/benchmarks/probes.py --preset paper-gpt2

With a preset the weights are random. A model that cannot tell two targets apart is not patched; the row
`activation patches` is what all of them cost all the same.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import torch
from rich.console import Console
from rich.table import Table
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from transformer_lens import patching

from anchorlens import Checkpoint, build_model, load_checkpoint, preset
from anchorlens.probes import PROBES, apply
from anchorlens.probes.activation_patching import SITES, patch_effects, sequences_that_differ

IMPORTED = (go, TSNE, silhouette_score, patching)
"""What probes import when they need it, so that it is not timed."""


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes, and what it gives."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def peak_mib() -> float:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(checkpoint: Checkpoint, device: str) -> list[dict[str, Any]]:
    """One row for each probe: its seconds, its picture's, and the peak memory behind it."""
    model, initial = checkpoint.build_model(device), checkpoint.initial_model(device)
    rows: list[dict[str, Any]] = [
        {"probe": "(before)", "seconds": None, "plot": None, "peak_mib": peak_mib()}
    ]
    for probe in PROBES:
        took, result = seconds(lambda probe=probe: apply(probe, model, checkpoint.task, lambda: initial))
        drew, _ = seconds(result.plot)
        rows.append({"probe": probe.__name__, "seconds": took, "plot": drew, "peak_mib": peak_mib()})
    took = 0.0
    for change in range(3):
        pairs = sequences_that_differ(checkpoint.task, change, 2, 8, seed=0)
        took += seconds(lambda pairs=pairs: patch_effects(model, pairs, SITES))[0]
    rows.append({"probe": "activation patches", "seconds": took, "plot": None, "peak_mib": peak_mib()})
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows, and their sum without the last, which repeats a part of one."""
    shown = Table("probe", "seconds", "plot", "peak memory, MiB")
    for row in rows:
        times = ("" if row[name] is None else f"{row[name]:.2f}" for name in ("seconds", "plot"))
        shown.add_row(row["probe"], *times, f"{row['peak_mib']:.0f}")
    sums = [sum(row[name] or 0 for row in rows[:-1]) for name in ("seconds", "plot")]
    shown.add_row("all probes", *(f"{total:.2f}" for total in sums), f"{rows[-2]['peak_mib']:.0f}")
    return shown


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, nargs="?")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    if given.checkpoint:
        checkpoint = load_checkpoint(given.checkpoint)
    else:
        run = preset(given.preset)
        model = build_model(run.model, seed=run.train.seed)
        checkpoint = Checkpoint.from_model(model, run.model, run.task, train=run.train)
    rows = measure(checkpoint, given.device)
    if given.json:
        print(json.dumps({"threads": torch.get_num_threads(), "device": given.device, "rows": rows}))
    else:
        Console().print(table(rows))
        print(f"{checkpoint!r}, {torch.get_num_threads()} threads, {given.device}")


if __name__ == "__main__":
    main()

"""What every probe costs that does not train: seconds, and the process's peak memory.

    python examples/benchmarks/probes.py runs/a/ckpt.pt
    python examples/benchmarks/probes.py --preset paper-gpt2
    python examples/benchmarks/probes.py --deep

With a preset the weights are random. A model that cannot tell two targets apart is not patched; the row
`activation patches` is what all of them cost all the same. `--deep` is a model of 100 layers and 100
positions, for its memory: one edge of a layer is zeroed there, of every 25th layer 20 (a full batch), instead
of all 20,200, which would take days.
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
from torch import Tensor
from transformer_lens import patching

from anchorlens import AnchorTask, Checkpoint, ModelConfig, TrainConfig, build_model, load_checkpoint, preset
from anchorlens.probes import PROBES, REPORT_PROBES, apply
from anchorlens.probes.any_model.activation_patching import SITES
from anchorlens.probes.shared import edge_effects
from anchorlens.probes.shared.edge_effects import causal_edges
from anchorlens.probes.shared.interventions import patch_effects, sequences_that_differ

IMPORTED = (go, TSNE, silhouette_score, patching)
"""What probes import when they need it, so that it is not timed."""

REPORTED = tuple(probe for probe in REPORT_PROBES if probe in PROBES)
"""Those of a report about a dense model of a two-anchor task."""


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes, and what it gives."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def peak_mib() -> float:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(checkpoint: Checkpoint, device: str, *, patches: bool) -> list[dict[str, Any]]:
    """One row for each probe: its seconds, its picture's, and the peak memory behind it."""
    model, initial = checkpoint.build_model(device), checkpoint.initial_model(device)
    rows: list[dict[str, Any]] = [
        {"probe": "(before)", "seconds": None, "plot": None, "peak_mib": peak_mib()}
    ]
    for probe in REPORTED:
        took, result = seconds(lambda probe=probe: apply(probe, model, checkpoint.task, initial=initial))
        drew, _ = seconds(result.plot)
        rows.append({"probe": probe.__name__, "seconds": took, "plot": drew, "peak_mib": peak_mib()})
    if patches:
        took = 0.0
        for change in range(3):
            pairs = sequences_that_differ(checkpoint.task, change, 2, 8, seed=0)
            took += seconds(lambda pairs=pairs: patch_effects(model, pairs, SITES, (1.0, 0.0)))[0]
        rows.append({"probe": "activation patches", "seconds": took, "plot": None, "peak_mib": peak_mib()})
    return rows


def deep() -> Checkpoint:
    """A random model of 100 layers and 100 positions."""
    task = AnchorTask(seq_len=100)
    config = ModelConfig.for_task(task, n_layers=100, n_heads=4, d_model=64, d_head=16, d_mlp=128, gamma=0.5)
    return Checkpoint.from_model(build_model(config), config, task, train_config=TrainConfig())


class SomeEdges:
    """In place of all edges: one of a layer, 20 of every 25th."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *shape: int, **options: bool) -> Tensor:
        """As `causal_edges`."""
        self.calls += 1
        every = causal_edges(*shape, **options)
        return every[:: len(every) // 20] if self.calls % 25 == 0 else every[-1:]


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows, and the sum of the probes."""
    shown = Table("probe", "seconds", "plot", "peak memory, MiB")
    for row in rows:
        times = ("" if row[name] is None else f"{row[name]:.2f}" for name in ("seconds", "plot"))
        shown.add_row(row["probe"], *times, f"{row['peak_mib']:.0f}")
    probes = rows[1 : 1 + len(REPORTED)]
    sums = [sum(row[name] for row in probes) for name in ("seconds", "plot")]
    shown.add_row("all probes", *(f"{total:.2f}" for total in sums), f"{probes[-1]['peak_mib']:.0f}")
    return shown


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, nargs="?")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--deep", action="store_true", help="100 layers x 100 positions, edges sampled")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    if given.deep:
        checkpoint, edge_effects.causal_edges = deep(), SomeEdges()
    elif given.checkpoint:
        checkpoint = load_checkpoint(given.checkpoint)
    else:
        run = preset(given.preset)
        model = build_model(run.model_config, seed=run.train_config.seed)
        checkpoint = Checkpoint.from_model(model, run.model_config, run.task, train_config=run.train_config)
    rows = measure(checkpoint, given.device, patches=not given.deep)
    if given.json:
        print(json.dumps({"threads": torch.get_num_threads(), "device": given.device, "rows": rows}))
    else:
        Console().print(table(rows))
        print(f"{checkpoint!r}, {torch.get_num_threads()} threads, {given.device}")


if __name__ == "__main__":
    main()

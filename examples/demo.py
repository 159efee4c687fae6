"""Train a small model on the papers' task, save it, and say what it learnt.

Run it with `make demo`, or: python examples/demo.py [folder]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from anchorlens import preset, train
from anchorlens.printing import print_tables


def main(out: Path, **fields: object) -> None:
    """Train the `quick` preset at gamma 0.7 for 400 steps into `out` and print its accuracies."""
    run = preset("quick", **{"gamma": 0.7, "steps": 400, "n_checkpoints": 0, **fields})
    print(f"Training a {run.model.n_layers}-layer HookedTransformer for {run.train.total_steps} steps ...")
    result = train(*run, out=out)
    print_tables(result.checkpoint, result.behaviour)
    print(f"\nThe model is in {out / 'ckpt.pt'}, its log in {out / 'log.jsonl'}.")
    command = os.path.relpath(Path(sys.executable).parent / "anchorlens")
    print(f"Measure it again with: {command} evaluate {out / 'ckpt.pt'}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
    else:
        Path("runs").mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="demo-", dir="runs"))
    main(folder)

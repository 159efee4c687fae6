"""Log whether a model memorises or learns a rule, in a plain torch training loop and without a test set.

    python examples/ratio_in_a_loop.py [--seed 0] [--steps 8000]

An MLP learns addition modulo 31 from three fifths of the pairs. Every 500 steps the loop logs the holdout
ratio, which needs only the model and its training data. It also logs the accuracy on the other pairs.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from anchorlens.probes import holdout


def main(seed: int = 0, steps: int = 8000, every: int = 500, p: int = 31, share: float = 0.6) -> list[dict]:
    """Train an MLP on addition modulo p, and return the log."""
    torch.manual_seed(seed)
    pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p))[torch.randperm(p * p)]
    sums = pairs.sum(dim=1) % p
    n_trained = int(share * len(pairs))
    x, y = pairs[:n_trained], sums[:n_trained]
    model = nn.Sequential(
        nn.Embedding(p, 64), nn.Flatten(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, p)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1.0)
    log = []
    for step in range(1, steps + 1):
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % every == 0:
            right = (model(pairs).argmax(dim=-1) == sums).double()
            line = {
                "step": step,
                "train": float(right[:n_trained].mean()),
                "test": float(right[n_trained:].mean()),
            }
            if line["train"] >= 0.9:  # holdout refuses a model that does not fit its data yet
                found = holdout(model, training_set=(x, y))
                line |= {"ratio": found.holdout_ratio, "related_ratio": found.related_ratio}
            log.append(line)  # or wandb.log(line, step=step), or writer.add_scalar(name, line[name], step)
            print("  ".join(f"{name} {value}" for name, value in line.items()), flush=True)
    return log


if __name__ == "__main__":
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=8000)
    main(**vars(parser.parse_args()))

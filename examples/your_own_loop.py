"""Classify a model that your own code made and trained: a HookedTransformer, plain torch, no engine of ours.

    python examples/your_own_loop.py [--steps 400]

A model of one's own differs from the papers' in everything but the task: here TransformerLens's default
initialisation, and Adam without a schedule. The behaviour verdict needs what it was trained on and nothing
else; the probe verdict is less reliable for shapes outside its calibration, and a warning says so.
"""

from __future__ import annotations

import argparse

import torch
from torch.nn.functional import cross_entropy

from anchorlens import AnchorTask, HookedTransformer, HookedTransformerConfig, classify
from anchorlens.verdict.verdict import Verdict


def main(steps: int = 400, batch_size: int = 256) -> Verdict:
    """Train, and classify what came out.

    Args:
        steps: of the optimizer.
        batch_size: sequences of each.
    """
    task = AnchorTask()
    torch.manual_seed(0)
    model = HookedTransformer(
        HookedTransformerConfig(
            n_layers=2, n_heads=1, d_model=128, d_head=64, d_mlp=256, n_ctx=task.seq_len,
            d_vocab=task.d_vocab, act_fn="gelu", normalization_type="LN",
        )
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    seen = []
    for step in range(steps):
        batch = task.sample(batch_size, seed=step)
        seen.append(batch)
        loss = cross_entropy(model(batch.tokens)[:, -1], batch.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}")
    tokens = torch.cat([batch.tokens for batch in seen])  # [batch, pos]
    targets = torch.cat([batch.targets for batch in seen])  # [batch]
    verdict = classify(model, task, training_set=(tokens, targets))
    print(verdict)
    print(verdict.explanation)
    for warning in verdict.warnings:
        print("note:", warning)
    return verdict


if __name__ == "__main__":
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--steps", type=int, default=400)
    main(parser.parse_args().steps)

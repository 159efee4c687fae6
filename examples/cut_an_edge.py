"""What breaks when the answer may no longer look at a token: masking by hand, with TransformerLens hooks.

    python examples/cut_an_edge.py [CHECKPOINT]

In each layer in turn, attention to the key token, or to one of the two anchors, is set to zero after the
softmax, for every position that looks at it, and the accuracy on held-out keys is measured. Layers behind the
cut may then look elsewhere: a total effect. `probes.information_flow` freezes where they look and measures
what the edge itself carries. The shipped Phase 3 model where no checkpoint is named.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from anchorlens import load_checkpoint
from anchorlens.models.hooks import assert_live, attention_masks, last_logits, masked_attention
from anchorlens.training import checkpoints


def main(checkpoint: Path) -> dict[tuple[int, str], float]:
    """(layer, token) -> accuracy (0..1) without the attention to it.

    Args:
        checkpoint: file of ours.
    """
    loaded = load_checkpoint(checkpoint)
    model, task = loaded.build_model(), loaded.task
    batch = task.sample(2000, split="id")
    assert_live(
        model, tokens=batch.tokens[:8]
    )  # else a dead hook would look like a token that does not matter
    key_at = torch.as_tensor(batch.trials.positions)
    right = last_logits(model, batch.tokens).argmax(dim=-1) == batch.targets
    print(f"nothing cut: accuracy {right.float().mean():.3f}")
    names = ["key token", *(f"anchor {i + 1}" for i in range(task.chain_length))]
    accuracies = {}
    for layer in range(model.cfg.n_layers):
        for offset, name in enumerate(names):
            for position in key_at.unique().tolist():  # the key stands somewhere else in each sequence
                chosen = key_at == position
                masks = attention_masks(model, task.seq_len, key=position + offset, layer=layer)
                with masked_attention(model, masks):
                    answers = last_logits(model, batch.tokens[chosen]).argmax(dim=-1)
                right[chosen] = answers == batch.targets[chosen]
            accuracies[layer, name] = right.float().mean().item()
            print(f"layer {layer}, {name} cut: accuracy {accuracies[layer, name]:.3f}")
    return accuracies


if __name__ == "__main__":
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("checkpoint", type=Path, nargs="?", default=checkpoints.shipped()[-1])
    main(parser.parse_args().checkpoint)

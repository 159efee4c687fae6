"""The initialization rate in a GPT of your own: a nanoGPT in plain torch, its own loop, several gammas.

    python examples/your_own_gpt.py [--gamma 0.5 0.7] [--seed 0 1 2] [--steps 500]

The model is nn.Linear, nn.Embedding and a LayerNorm of its own, with names as in nanoGPT; nothing of it is
anchorlens'. `gamma_init_` draws its weights, and `evaluate` says whether it composes (about five minutes on a
core).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anchorlens import AnchorEvaluation, AnchorTask, evaluate, gamma_init_, gamma_table


class LayerNorm(nn.Module):
    """As torch's, with a bias or without."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> the same."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    """Heads side by side, their queries, keys and values in one matrix."""

    def __init__(self, width: int, n_head: int, bias: bool) -> None:
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, pos, width] -> the same."""
        q, k, v = (
            part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1)
        )
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [batch, head, pos, d_head]
        return self.c_proj(z.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """Four times as wide as the residual stream."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=bias)
        self.c_proj = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, pos, width] -> the same."""
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    """Attention and MLP, each behind its LayerNorm."""

    def __init__(self, width: int, n_head: int, bias: bool) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = LayerNorm(width, bias), LayerNorm(width, bias)
        self.attn, self.mlp = CausalSelfAttention(width, n_head, bias), MLP(width, bias)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, pos, width] -> the same."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Token embedding and unembedding are one matrix."""

    def __init__(
        self,
        vocab_size: int,
        block_size: int,
        *,
        n_layer: int = 2,
        n_head: int = 1,
        n_embd: int = 128,
        bias: bool = False,
    ) -> None:
        super().__init__()
        blocks = nn.ModuleList(Block(n_embd, n_head, bias) for _ in range(n_layer))
        tokens = nn.Embedding(vocab_size, n_embd)
        self.transformer = nn.ModuleDict(
            {
                "wte": tokens,
                "wpe": nn.Embedding(block_size, n_embd),
                "h": blocks,
                "ln_f": LayerNorm(n_embd, bias),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, pos] -> logits [batch, pos, vocab_size]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.transformer["wte"](tokens) + self.transformer["wpe"](positions)
        for block in self.transformer["h"]:  # pyright: ignore[reportGeneralTypeIssues]
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


def trained(gamma: float, seed: int, steps: int, batch_size: int = 256) -> AnchorEvaluation:
    """Train on the papers' task, and say what came out.

    Args:
        gamma: initialization rate.
        seed: of weights and data.
        steps: of AdamW, with new sequences each.
        batch_size: sequences of a step.
    """
    task = AnchorTask()
    model = gamma_init_(GPT(task.d_vocab, task.seq_len), gamma, seed=seed)
    print(gamma_table(model, gamma), flush=True) if steps and seed == 0 else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1e-3, steps, pct_start=0.1, cycle_momentum=False
    )
    batches = [task.sample(batch_size, seed=seed * steps + step) for step in range(steps)]
    for batch in batches:
        loss = F.cross_entropy(model(batch.tokens)[:, -1], batch.targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    seen = [torch.cat([getattr(batch, name) for batch in batches]) for name in ("tokens", "targets")]
    return evaluate(model.eval(), task, training_set=seen)


def main(
    gammas: Sequence[float], seeds: Sequence[int], steps: int, batch_size: int = 256
) -> dict[float, list[float]]:
    """OOD accuracies (0..1) of each gamma, a number for each seed.

    Args:
        gammas: initialization rates.
        seeds: of weights and data.
        steps: of the optimizer.
        batch_size: sequences of a step.
    """
    accuracies: dict[float, list[float]] = {}
    for gamma in gammas:
        for seed in seeds:
            evaluation = trained(gamma, seed, steps, batch_size)
            print(f"gamma {gamma:g}, seed {seed}: {evaluation}", flush=True)
            assert evaluation.ood is not None
            accuracies.setdefault(gamma, []).append(evaluation.ood.value)
        values = accuracies[gamma]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        print(f"gamma {gamma:g}: OOD {statistics.fmean(values):.2f}{spread} over {len(values)} seeds")
    return accuracies


if __name__ == "__main__":
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--gamma", type=float, nargs="+", default=[0.5, 0.7])
    parser.add_argument("--seed", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=500)
    given = parser.parse_args()
    main(given.gamma, given.seed, given.steps)

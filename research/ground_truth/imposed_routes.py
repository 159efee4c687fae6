"""Trains models on the two-anchor task by a route that is imposed on them: interchange-intervention training.

    python research/ground_truth/imposed_routes.py    # three routes, seeds 0 and 1; run it again to go on

A route says what the input of the last layer holds, and where (`ROUTES`). The loss asks that these can be
swapped: with the activation of a source sequence put into the run of a base sequence, the answer must be what
the route's causal model says of the two. Every other position of that layer must not matter: with the
activations of a third sequence there the answer must stay, as in the strict loss of InterpBench (arXiv
2407.14494). A tenth of the sequences run as they are. No combination that the task holds out is asked.

Weights are rounded to float16 at the end, and the rounded model is what is stored and measured: a state dict
`weights/ROUTE_SEED.safetensors`, and beside it what describes it (`circuits.imposed`).
An unfinished run goes on from its last saved state in --work, on one machine with the same bits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from anchorlens import AnchorTask, ModelConfig, TrainConfig, build_model, evaluate
from anchorlens.models.hooks import last_logits
from anchorlens.recipes.schedule import learning_rate

HERE = Path(__file__).parent
WEIGHTS = HERE / "weights"
SEEDS = (0, 1)
GAMMA = 0.5
"""Memorisers and composers alike come of it without a route imposed (research/presets.md)."""
HEADS: dict[str, Any] = {"n_heads": 2, "d_head": 32}
"""Two heads half as wide as the one of `quick`, with which the last position read the first anchor alone."""
TRAIN = TrainConfig(steps=1500, batch_size=128)
"""The recipe of `quick` with smaller batches: an update runs a source sequence for each of the base."""
OFF_ROUTE = 0.8
"""Share of the sequences in which every position off the route has a third sequence's activation. With a loss
on single swaps beside that of the task, the last position reads the second anchor in layer 0 and stays so."""
SAVE_EVERY = 100
ENOUGH = 0.9995
"""A run ends where so many of the swapped runs of the last `SAVE_EVERY` updates are answered right."""


class Place(NamedTuple):
    """What one position of the last layer's input holds on a route."""

    offset: int | None
    """Its position, counted from the key's; None is the last position."""
    of_source: str
    """What the answer takes from the source when that position is swapped: of x (key), a, b (anchors)."""


ROUTES = {
    "inferential": (Place(1, "xa"), Place(2, "b")),
    "symmetric": (Place(0, "x"), Place(None, "ab")),
    "gathered": (Place(2, "xab"),),
}
"""Route -> what the input of the last layer holds. Inferential: g(x; a) at the first anchor, b at the second.
Symmetric: the pair at the last position, the key at its own. Gathered: everything at the second anchor."""


class Questions:
    """The task's training set as tensors, and its answers as a table."""

    def __init__(self, task: AnchorTask, seed: int) -> None:
        """Draw the training set of a seed, and sort it by the position of the key."""
        data = task.training_set(TRAIN.n_samples, seed)
        self.tokens, self.targets = data.tokens, data.targets
        self.at = torch.as_tensor(data.trials.positions)
        self.rows_at = {int(at): (self.at == at).nonzero()[:, 0] for at in self.at.unique()}
        size = task.key_max + 1
        self.answers = torch.full((size, len(task.anchors) + 1, len(task.anchors) + 1), -1)
        seen = set(task.seen_pairs)
        for key in task.keys.tolist():
            for a, b in seen:
                self.answers[key, a, b] = task.target(key, (a, b))

    def batch(self, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of base sequences, and for each two others whose keys stand at the same position."""
        base = torch.as_tensor(rng.integers(0, len(self.tokens), TRAIN.batch_size))
        others = torch.empty(2, len(base), dtype=torch.long)
        for at, rows in self.rows_at.items():
            mine = (self.at[base] == at).nonzero()[:, 0]
            others[:, mine] = rows[torch.as_tensor(rng.integers(0, len(rows), (2, len(mine))))]
        return base, others[0], others[1]

    def parts(self, rows: Tensor) -> dict[str, Tensor]:
        """Key and anchors of these sequences, by their letters."""
        at = self.at[rows]
        return {letter: self.tokens[rows, at + offset] for offset, letter in enumerate("xab")}


def swaps(
    route: str, questions: Questions, base: Tensor, source: Tensor, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """From which sequence each position's activation comes, and what the answer must then be.

    [batch, pos] 0 = the base, 1 = the source, at one place of the route or none, 2 = a third sequence, at
    every position off the route or at none (were that the source too, what it holds off the route would give
    the answer away). The answer is -100 (no loss) where the task never trains the combination. Where the
    second anchor is the last token nothing is swapped.
    """
    n, n_pos = len(base), questions.tokens.shape[1]
    at, rows = questions.at[base], torch.arange(n)
    own, other = questions.parts(base), questions.parts(source)
    taken = torch.as_tensor(2 * (rng.random(n) < OFF_ROUTE))[:, None].repeat(1, n_pos)
    chosen = torch.as_tensor(rng.integers(0, 2 * len(ROUTES[route]), n))  # half of the numbers are no place
    expected = questions.targets[base].clone()
    for index, place in enumerate(ROUTES[route]):
        here, now = at * 0 + n_pos - 1 if place.offset is None else at + place.offset, chosen == index
        taken[rows, here] = now.long()
        mixed = [(other if letter in place.of_source else own)[letter][now] for letter in "xab"]
        expected[now] = questions.answers[tuple(mixed)]
    at_end = at + 2 == n_pos - 1
    taken[at_end] = 0
    expected = torch.where(at_end, questions.targets[base], expected)
    return taken, torch.where(expected < 0, -100, expected)


def loss_of(model: Any, route: str, questions: Questions, rng: np.random.Generator) -> tuple[Tensor, float]:
    """The loss of the runs with swapped activations, and the share of them that is answered right."""
    base, source, third = questions.batch(rng)
    taken, expected = swaps(route, questions, base, source, rng)
    rows, last = torch.cat([base, source, third]), model.cfg.n_layers - 1
    held = torch.stack(model(questions.tokens[rows], stop_at_layer=last).chunk(3))  # [3, batch, pos, d_model]
    logits = answered(model, held.gather(0, taken[None, ..., None].expand_as(held[:1]))[0])
    right = (logits.argmax(dim=-1) == expected)[expected >= 0].double().mean().item()
    return cross_entropy(logits, expected, ignore_index=-100), right


def answered(model: Any, residual: Tensor) -> Tensor:
    """Logits [batch, d_vocab] at the last position, of what the last layer of a `gpt2` model reads.

    The other positions reach no answer there, so only their keys and values are computed.
    """
    block = model.blocks[-1]
    attn, normed = block.attn, block.ln1(residual)
    query = torch.einsum("bm,hmd->bhd", normed[:, -1], attn.W_Q) + attn.b_Q
    keys, values = (
        torch.einsum("bpm,hmd->bphd", normed, weight) + bias
        for weight, bias in ((attn.W_K, attn.b_K), (attn.W_V, attn.b_V))
    )
    pattern = (torch.einsum("bhd,bphd->bhp", query, keys) / model.cfg.d_head**0.5).softmax(dim=-1)
    read = torch.einsum("bhp,bphd->bhd", pattern, values)
    middle = residual[:, -1] + torch.einsum("bhd,hdm->bm", read, attn.W_O) + attn.b_O
    end = middle[:, None] + block.mlp(block.ln2(middle[:, None]))
    return model.unembed(model.ln_final(end))[:, 0]


def train(route: str, seed: int, work: Path, show: Callable[[str], None] = print) -> tuple[Any, int]:
    """A model with a route imposed, and its updates; it goes on from what is in `work`."""
    task = AnchorTask()
    config = ModelConfig(gamma=GAMMA, d_vocab=task.d_vocab, **HEADS)
    model = build_model(config, seed=seed)
    questions = Questions(task, seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=float(TRAIN.lr), weight_decay=float(TRAIN.weight_decay)
    )
    rng, step, ended = np.random.default_rng([seed, *map(ord, route)]), 0, False
    state = work / f"{route}_{seed}.pt"
    if state.exists():
        saved = torch.load(state, weights_only=True)
        model.load_state_dict(saved["model"], strict=False)
        optimizer.load_state_dict(saved["optimizer"])
        rng.bit_generator.state, step = json.loads(saved["rng"]), saved["step"]
        ended = saved["ended"]
    began, shares = time.monotonic(), []
    while step < TRAIN.total_steps and not ended:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(TRAIN, step)
        loss, right = loss_of(model, route, questions, rng)
        shares.append(right)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN.clip_norm)
        optimizer.step()
        step += 1
        if step % SAVE_EVERY == 0 or step == TRAIN.total_steps:
            right, shares = float(np.mean(shares)), []
            words = f"loss {loss.item():.3f}, right {right:.3f}, {time.monotonic() - began:.0f} s"
            saved = {"model": dict(model.named_parameters()), "optimizer": optimizer.state_dict()}
            ended = right >= ENOUGH
            saved |= {"rng": json.dumps(rng.bit_generator.state), "step": step, "ended": ended}
            torch.save(saved, state.with_suffix(".tmp"))
            state.with_suffix(".tmp").replace(state)
            show(f"{route} {seed}: step {step}, {words}")
    return model.eval(), step


def store(model: Any, step: int, route: str, seed: int, weights: Path) -> dict[str, Any]:
    """Round the weights, write them and what describes them; gives what became of the answers."""
    task = AnchorTask()
    asked = torch.cat([task.sample(2000, split=split, seed=9).tokens for split in ("train", "id", "ood")])
    before = last_logits(model, asked).argmax(dim=-1)
    rounded = {name: value.detach().half() for name, value in model.named_parameters()}
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(rounded[name])
    changed = (last_logits(model, asked).argmax(dim=-1) != before).float().mean().item()
    training_set = task.training_set(TRAIN.n_samples, seed)
    behaviour = evaluate(model, task, training_set=training_set)
    kept = (
        "n_layers",
        "n_heads",
        "d_model",
        "d_head",
        "d_mlp",
        "d_vocab",
        "n_ctx",
        "act_fn",
        "normalization_type",
    )
    described = {"variant": "gpt2"} | {name: getattr(model.cfg, name) for name in kept}
    described |= {"task": task.to_dict(), "route": route, "seed": seed}
    described |= {"gamma": GAMMA, "steps": step, "batch_size": TRAIN.batch_size}
    described |= {"answers_changed_by_rounding": changed, "behaviour": behaviour.headline()}
    weights.mkdir(parents=True, exist_ok=True)
    save_file(rounded, weights / f"{route}_{seed}.safetensors")
    (weights / f"{route}_{seed}.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    return described


def main() -> None:
    """Read the command line, train what is not there yet."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--work", type=Path, default=Path("runs/imposed_routes"), help="unfinished states")
    parser.add_argument("--route", nargs="+", choices=tuple(ROUTES), default=tuple(ROUTES))
    parser.add_argument("--seed", nargs="+", type=int, default=SEEDS)
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    torch.set_flush_denormal(True)
    for seed in asked.seed:
        for route in asked.route:
            if not (asked.out / f"{route}_{seed}.safetensors").exists():
                print(store(*train(route, seed, asked.work), route, seed, asked.out), flush=True)


if __name__ == "__main__":
    main()

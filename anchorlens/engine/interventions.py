"""What a recipe changes on the way, carried out on the weights of a stack (`runs/interventions.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anchorlens.configuration import suggestion
from anchorlens.engine.architectures import architecture
from anchorlens.runs.interventions import ALL, Penalty, read_penalty, read_rescale
from anchorlens.runs.train_config import DECAYS
from anchorlens.safe import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from anchorlens.engine.flat_layout import FlatLayout, Parameters
    from anchorlens.runs.run_config import RunConfig


def check_interventions(run: RunConfig) -> None:
    """Check that a run's model has the parts and matrices that its recipe names.

    Raises:
        ValueError: it has not.
    """
    train = run.train_config
    decays = {name.removeprefix("weight_decay_") for name in DECAYS if getattr(train, name) is not None}
    if not (decays or train.rescale or train.penalty or train.optimizer == "muon"):
        return
    parts = architecture(run.model_config).parts()
    named = [name for name in dict.fromkeys(parts.values()) if name]
    if train.optimizer == "muon" and not named:
        raise ValueError("optimizer 'muon' needs a transformer, got another network; take adamw or adam")
    rescaled = read_rescale(train.rescale, train.total_steps) if train.rescale else ()
    asked = [("weight_decay of a part", part) for part in sorted(decays)]
    asked += [("rescale", one.part) for one in rescaled if one.part != ALL]
    for field, part in asked:
        if part not in named:
            if not named:
                known = f"; take {ALL!r}" if field == "rescale" else "; leave it out"
                raise ValueError(f"{field} {safe_repr(part)}: this network has no parts{known}")
            known = ", ".join([*named, ALL])
            raise ValueError(
                f"{field} must name a part of the weights, one of {known}, got {safe_repr(part)}"
            )
    for one in read_penalty(train.penalty, train.total_steps) if train.penalty else ():
        if not matrices(parts, one.matrices):
            ends = list(dict.fromkeys(_end(name) for name in parts))
            raise ValueError(
                f"penalty must name a part or a matrix that the model has, got {safe_repr(one.matrices)}; "
                f"{suggestion(one.matrices, [*named, ALL, *ends])}"
            )


def _end(name: str) -> str:
    """What tells a matrix from others of its block: W_Q, or experts.0.W_in.weight."""
    _, found, behind = name.partition(".experts.")
    return f"experts.{behind}" if found else name.rsplit(".", 1)[-1]


def matrices(parts: Mapping[str, str], asked: str) -> list[str]:
    """The weight matrices that a part, `all`, or the end of a name stands for.

    >>> parts = {"embed.W_E": "embedding", "blocks.0.attn.W_Q": "qk", "blocks.1.attn.W_Q": "qk"}
    >>> matrices(parts, "qk"), matrices(parts, "blocks.1.attn.W_Q"), matrices(parts, "Q")
    (['blocks.0.attn.W_Q', 'blocks.1.attn.W_Q'], ['blocks.1.attn.W_Q'], [])
    """
    return [name for name, part in parts.items() if asked in (ALL, part, name) or name.endswith(f".{asked}")]


def part_of_parameters(layout: FlatLayout, parts: Sequence[str]) -> Int[Tensor, " parameter"]:
    """For each parameter of a row the place of its part in `parts`, plus one; 0 for all others."""
    row = torch.zeros(1, layout.size, device="cpu")
    of = layout.parts()
    for name, view in layout.views(row).items():
        if of.get(name) in parts:
            view.fill_(1 + parts.index(of[name]))
    return row[0].long()


class Rescaling:
    """The steps of a stack at which weights of some members are multiplied by a factor."""

    def __init__(self, runs: Sequence[RunConfig], layout: FlatLayout) -> None:
        """Read the recipes; one for each member."""
        self._layout, parts = layout, layout.parts()
        self._at: dict[int, list[tuple[int, list[str], float]]] = {}
        for member, train in enumerate(run.train_config for run in runs):
            for one in read_rescale(train.rescale, train.total_steps) if train.rescale else ():
                change = (member, matrices(parts, one.part), one.factor)
                self._at.setdefault(one.step, []).append(change)

    def next_after(self, step: int, stop: int) -> int:
        """The next step behind `step` that something is due at, or `stop`."""
        return min([stop, *(due for due in self._at if due > step)])

    @torch.no_grad()
    def apply(self, step: int, rows: Float[Tensor, "member parameter"], active: Tensor) -> None:
        """Multiply what is due at a step, in place, of members that still take part."""
        for member, names, factor in self._at.get(step, ()):
            views = self._layout.views(rows[member : member + 1])
            scale = torch.where(active[member], factor, 1.0).to(rows.dtype)
            for name in names:
                views[name].mul_(scale)


class Penalties:
    """What the recipes of a stack add to the loss of each member."""

    def __init__(self, runs: Sequence[RunConfig], layout: FlatLayout) -> None:
        """Read the recipes; one for each member."""
        self._layout, self._parts = layout, layout.parts()
        self._total = runs[0].train_config.total_steps
        texts = [run.train_config.penalty for run in runs]
        self._of = [read_penalty(text, self._total) if text else () for text in texts]

    def __bool__(self) -> bool:
        """Whether any member has one."""
        return any(self._of)

    def __call__(self, merged: Parameters, step: int) -> Float[Tensor, " member"]:
        """What is added at the update from `step` on, in nats, differentiable in the weights."""
        views = self._layout.named(merged)
        one = next(iter(views.values()))
        added = torch.zeros(len(self._of), dtype=one.dtype, device=one.device)
        for member, penalties in enumerate(self._of):
            for own in penalties:
                added[member] += self._term(own, member, views, step)
        return added

    def _term(self, own: Penalty, member: int, views: Parameters, step: int) -> Tensor | float:
        weight = own.window.at(step, self._total)
        if not weight:
            return 0.0
        names = matrices(self._parts, own.matrices)
        return weight * sum(complexity(own.kind, views[name][member]) for name in names)


def complexity(kind: str, weight: Tensor) -> Tensor:
    """Nuclear norm or stable rank of a matrix; of several heads ([head, ., .]) the sum over them.

    A convolution's kernel [out, in, y, x] is taken as the matrix [out, in * y * x].
    """
    weight = weight.flatten(1) if weight.dim() > 3 else weight
    if kind == "nuclear":
        return torch.linalg.matrix_norm(weight, ord="nuc").sum()
    largest = torch.linalg.matrix_norm(weight, ord=2)
    return (weight.square().sum(dim=(-2, -1)) / largest.square()).sum()

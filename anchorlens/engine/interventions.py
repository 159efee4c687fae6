"""Apply a recipe's interventions during training (`recipes/interventions.py`) to the weights of a stack."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anchorlens.configuration import suggestion
from anchorlens.engine.forward import Parameters
from anchorlens.engine.layout import FlatLayout, architecture
from anchorlens.randomness import generator
from anchorlens.recipes.interventions import ALL, BIASES, CHANGES, ONCE, Change, read_changes
from anchorlens.recipes.train_config import DECAYS
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from anchorlens.recipes.run_config import RunConfig


def check_interventions(run: RunConfig) -> None:
    """Check that a run's model has the parts and matrices that its recipe names.

    Raises:
        ValueError: If the model lacks a part or matrix.
    """
    train = run.train_config
    decays = [name for name in DECAYS if getattr(train, name) is not None]
    asked = [(name, name.removeprefix("weight_decay_")) for name in decays]
    for field in CHANGES:
        changes = read_changes(field, getattr(train, field), train.total_steps)
        asked += [(field, change.matrices) for change in changes]
    if not (asked or train.optimizer == "muon"):
        return
    layout = architecture(run.model_config)
    parts = layout.parts()
    named = [name for name in dict.fromkeys(parts.values()) if name]
    if train.optimizer == "muon" and not named:
        raise ValueError(
            "the network must be a transformer for optimizer 'muon', got another network. Use adamw or adam"
        )
    for field, names in asked:
        if not (held(layout, names) if field == "freeze" else matrices(parts, names)):
            ends = [*([BIASES] * (field == "freeze")), *(_end(name) for name in parts if named)]
            raise ValueError(
                f"{field} must name a part or a matrix that the model has, got {safe_repr(names)}. "
                f"{suggestion(names, list(dict.fromkeys([*named, ALL, *ends])))}"
            )


def _end(name: str) -> str:
    """Return the end of a matrix's name, which is unique in its block: W_Q, or experts.0.W_in.weight."""
    _, found, behind = name.partition(".experts.")
    return f"experts.{behind}" if found else name.rsplit(".", 1)[-1]


def matrices(parts: Mapping[str, str], asked: str) -> list[str]:
    """Return the names of the weight matrices that a part, `all`, a full name or the end of a name selects.

    >>> parts = {"embed.W_E": "embedding", "blocks.0.attn.W_Q": "qk", "blocks.1.attn.W_Q": "qk"}
    >>> matrices(parts, "qk"), matrices(parts, "blocks.1.attn.W_Q"), matrices(parts, "Q")
    (['blocks.0.attn.W_Q', 'blocks.1.attn.W_Q'], ['blocks.1.attn.W_Q'], [])
    """
    return [name for name, part in parts.items() if asked in (ALL, part, name) or name.endswith(f".{asked}")]


def held(layout: FlatLayout, asked: str) -> list[str]:
    """Return the names of the weight matrices or biases that a word of `freeze` selects."""
    if asked != BIASES:
        return matrices(layout.parts(), asked)
    trained = [name for name in layout.shapes if name not in layout.frozen]
    return [name for name in trained if name.rpartition(".")[2].startswith("b")]


def part_of_parameters(layout: FlatLayout, parts: Sequence[str]) -> Int[Tensor, " parameter"]:
    """Return 1 plus the index in `parts` of each parameter's part, or 0 for a parameter without a part."""
    row = torch.zeros(1, layout.size, device="cpu")
    of = layout.parts()
    for name, view in layout.views(row).items():
        if of.get(name) in parts:
            view.fill_(1 + parts.index(of[name]))
    return row[0].long()


class Interventions:
    """The interventions of the recipes of a stack on its weights and losses."""

    def __init__(self, runs: Sequence[RunConfig], layout: FlatLayout) -> None:
        """Read the recipes; one for each member."""
        self._layout, self._n_members = layout, len(runs)
        self._total = runs[0].train_config.total_steps
        self._of: dict[str, list[tuple[int, int, Change, list[str]]]] = {field: [] for field in CHANGES}
        for member, train in enumerate(run.train_config for run in runs):
            for field, found in self._of.items():
                for change in read_changes(field, getattr(train, field), self._total):
                    found.append((member, train.seed, change, held(layout, change.matrices)))
        self.in_windows = any(found for field, found in self._of.items() if field not in ONCE)
        """Whether any member has an intervention in a window of the run."""

    def next_after(self, step: int, stop: int) -> int:
        """Return the first step after `step` at which weights change before an update, at most `stop`."""
        due = [change.when for field in ONCE for _, _, change, _ in self._of[field]]
        return min([stop, *(when for when in due if when > step)])

    @torch.no_grad()
    def before_update(self, step: int, rows: Float[Tensor, "member parameter"], active: Tensor) -> None:
        """Rescale the weights of active models, or add noise, where this is due at a step, in place."""
        due = [(field, *one) for field in ONCE for one in self._of[field] if one[2].when == step]
        for field, member, seed, change, names in due:
            for name, weight in zip(names, self._views(rows, member, names), strict=True):
                if field == "rescale":
                    changed = weight * change.value
                else:
                    rng = generator(seed, "weight noise", step, zlib.crc32(name.encode()))
                    drawn = torch.from_numpy(rng.standard_normal((1, *weight.shape)))[0]  # on every device
                    changed = weight + change.value * weight.square().mean().sqrt() * drawn.to(weight)
                weight.copy_(torch.where(active[member], changed, weight))

    @contextmanager
    def around_update(
        self, step: int, rows: Float[Tensor, "member parameter"], taken: Tensor
    ) -> Iterator[None]:
        """Restore frozen parameters and bounded ranks after the body of the context has updated `rows`.

        Args:
            step: the number of updates made before this update.
            rows: the weights of the stack.
            taken: the models that the update changes, bool [member].
        """
        frozen = [
            (view, view.clone())
            for member, _, change, names in self._of["freeze"]
            if change.when.at(step, self._total) is not None
            for view in self._views(rows, member, names)
        ]
        yield
        for view, before in frozen:
            view.copy_(before)
        for member, _, change, names in self._of["max_rank"]:
            if rank := change.when.at(step, self._total):
                for view in self._views(rows, member, names):
                    view.copy_(torch.where(taken[member], nearest_of_rank(view, int(rank)), view))

    def penalised(
        self, loss: Float[Tensor, " member"], merged: Parameters, step: int
    ) -> Float[Tensor, " member"]:
        """Return each member's loss plus its penalties at the update from `step`, in nats, with gradients."""
        if not self._of["penalty"]:
            return loss
        views = self._layout.trained_parameters(merged)
        one = next(iter(views.values()))
        added = torch.zeros(self._n_members, dtype=one.dtype, device=one.device)
        for member, _, change, names in self._of["penalty"]:
            if weight := change.when.at(step, self._total):
                added[member] += weight * sum(complexity(change.kind, views[name][member]) for name in names)
        return loss + added

    def _views(self, rows: Tensor, member: int, names: Sequence[str]) -> list[Tensor]:
        views = self._layout.views(rows[member : member + 1])
        return [views[name][0] for name in names]


def nearest_of_rank(weight: Tensor, rank: int) -> Tensor:
    """Return the best approximation of a matrix, or of each head's matrix, with rank at most `rank`.

    The approximation is a truncated SVD.

    Source: Eckart and Young, 1936.
    """
    u, s, v = torch.linalg.svd(_as_matrices(weight), full_matrices=False)
    nearest = (u[..., :rank] * s[..., None, :rank]) @ v[..., :rank, :]
    return nearest.view_as(weight)


def complexity(kind: str, weight: Tensor) -> Tensor:
    """Return the nuclear norm or stable rank of a matrix, or the sum over the matrices of all heads.

    The function reshapes a convolution's kernel [out, in, y, x] to the matrix [out, in * y * x].
    """
    weight = _as_matrices(weight)
    if kind == "nuclear":
        return torch.linalg.matrix_norm(weight, ord="nuc").sum()
    largest = torch.linalg.matrix_norm(weight, ord=2)
    return (weight.square().sum(dim=(-2, -1)) / largest.square()).sum()


def _as_matrices(weight: Tensor) -> Tensor:
    """Return the weight as [., .] or [head, ., .], and the kernel of a convolution as one matrix."""
    return weight.flatten(1) if weight.dim() > 3 else weight

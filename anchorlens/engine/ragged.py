"""The forward pass of sequences of different lengths; rows after the end of a sequence are skipped.

Linear maps, norms and MLPs see the rows that are there, one behind the other. Attention alone is given whole
sequences, those of about equal length together, padded to the longest of their group; no position looks at
what stands behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from anchorlens.engine.attention import attention
from anchorlens.engine.flat_layout import Parameters
from anchorlens.engine.forward import Forward, table_rows
from anchorlens.models.config import ModelConfig

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

GROUPS = 4
"""Groups of sequences that attention is given by themselves: more are less padding, and more calls."""
_SMALLEST_GROUP = 8
_MULTIPLE = 64
"""Of the number of rows: oneDNN prepares its products anew for every number that it has not met."""
_WORTH_LOOKING_UP = 0.5
"""Pairs of token and position over rows, up to which the first layer is computed for the pairs."""


@dataclass(frozen=True, eq=False)
class Group:
    """Sequences of about equal length: consecutive rows of a batch."""

    n_sequences: int
    """Number of sequences."""
    n_pos: int
    """Positions of the longest."""
    slots: Int[Tensor, " row"]
    """Where its rows stand in [sequence * pos]."""
    end_slots: Int[Tensor, " end"]
    """Where its scored rows stand."""


@dataclass(frozen=True, eq=False)
class RaggedBatch:
    """A batch of sequences as the rows that are there, the shortest sequence first."""

    n_pos: int
    """Positions of the longest sequence."""
    table_rows: Int[Tensor, " row"]
    """(token, position) of each row, as `forward.table_rows` numbers them, and behind them some filling."""
    ends: Int[Tensor, " end"]
    """The scored rows, and filling."""
    scored: Int[Tensor, " end"]
    """The scored positions in [batch * pos], as they were given."""
    groups: tuple[Group, ...]
    """What attention is given at a time."""

    @classmethod
    def of(
        cls,
        places: Int[Tensor, "batch pos"],
        lengths: Int[Tensor, " batch"],
        scored: Bool[Tensor, "batch pos"],
    ) -> RaggedBatch:
        """Find the rows of a batch.

        Args:
            places: for each token its index in the vocabulary.
            lengths: positions of each sequence that are computed, >= 1.
            scored: where logits are asked for, before the end of each sequence.

        Returns:
            What `logits_where_scored` takes.
        """
        order = lengths.argsort(stable=True)
        n_pos, width = int(lengths.max()), places.shape[1]
        at = torch.arange(n_pos, device=lengths.device)
        there = at < lengths[order].unsqueeze(-1)  # [sequence, pos]
        asked = scored[order, :n_pos] & there
        sizes, groups = lengths[order], []
        for some in torch.arange(len(order), device="cpu").split(
            max(_SMALLEST_GROUP, -(-len(order) // GROUPS))
        ):
            longest = int(sizes[some[-1]])
            mine, mine_asked = there[some, :longest], asked[some, :longest]
            slots, end_slots = (mask.flatten().nonzero().squeeze(1) for mask in (mine, mine_asked))
            groups.append(Group(len(some), longest, slots, end_slots))
        numbered, ends = table_rows(places[order, :n_pos])[there], asked[there].nonzero().squeeze(1)
        filled = _filled(numbered, 0)
        return cls(
            n_pos=n_pos,
            table_rows=filled,
            ends=_filled(ends, len(filled) - 1),
            scored=(order.unsqueeze(-1) * width + at)[asked],
            groups=tuple(groups),
        )


def logits_where_scored(
    parameters: Parameters,
    config: ModelConfig,
    batch: RaggedBatch,
    vocabulary: Int[Tensor, " token"],
    *,
    bf16: bool = False,
) -> Float[Tensor, "end d_vocab"]:
    """Logits of the scored rows.

    Args:
        parameters: of one model, as `Transformer.merged` gives them.
        config: shape and variant; gamma plays no part here.
        batch: the rows.
        vocabulary: the tokens that may occur.
        bf16: round operands and results of the products with weights to bfloat16.

    Returns:
        [end, d_vocab], in the order of `batch.scored`.
    """
    forward = _RaggedForward(parameters, config, batch, bf16)
    return forward.logits(batch.table_rows.unsqueeze(0), vocabulary)[0, : len(batch.scored)]


def _filled(rows: Tensor, filling: int) -> Tensor:
    """So many rows, and one or more of filling, that their number is a multiple of `_MULTIPLE`."""
    return functional.pad(rows, (0, _MULTIPLE - len(rows) % _MULTIPLE), value=filling)


class _RaggedForward(Forward):
    def __init__(self, parameters: Parameters, config: ModelConfig, batch: RaggedBatch, bf16: bool) -> None:
        super().__init__(parameters, config, batch.n_pos, 0, bf16)
        self.batch = batch

    def _looks_up(self, n_entries: int, n_rows: int) -> bool:
        return n_entries <= _WORTH_LOOKING_UP * n_rows

    def _ends(self, x: Tensor) -> Tensor:
        return _taken(x[0], self.batch.ends).unsqueeze(0)

    def _attend(self, q: Tensor, kv: Tensor, *, at_end: bool) -> Tensor:
        heads, d_head = self.config.n_heads, self.config.d_head
        groups = self.batch.groups
        slots = [group.slots for group in groups]
        at = [group.end_slots for group in groups] if at_end else slots
        *queries_of, filling = q[0].split(_sizes(at, q))
        *keys_values_of, _ = kv[0].split(_sizes(slots, kv))
        mixed = []
        for group, own_q, own_at, own_kv in zip(groups, queries_of, at, keys_values_of, strict=True):
            n = group.n_sequences * group.n_pos
            queries = _placed(own_q, own_at, n).view(-1, group.n_pos, heads, d_head)
            keys_values = _placed(own_kv, group.slots, n).view(-1, group.n_pos, 2, heads, d_head)
            mixed.append(_taken(attention(queries, keys_values).reshape(n, -1), own_at))
        return torch.cat([*mixed, torch.zeros_like(filling)]).unsqueeze(0)


def _sizes(of_groups: Sequence[Tensor], x: Tensor) -> list[int]:
    """Rows of each group, and of the filling behind them."""
    sizes = list(map(len, of_groups))
    return [*sizes, x.shape[1] - sum(sizes)]


def _taken(x: Float[Tensor, "slot width"], rows: Int[Tensor, " row"]) -> Float[Tensor, "row width"]:
    return _Taken.apply(x, rows)  # pyright: ignore[reportReturnType]


def _placed(x: Float[Tensor, "row width"], slots: Int[Tensor, " row"], n: int) -> Float[Tensor, "slot width"]:
    return _Placed.apply(x, slots, n)  # pyright: ignore[reportReturnType]


class _Taken(torch.autograd.Function):
    """Some rows, none of them twice but filling, whose gradient is 0: it only has to be placed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.n = len(x)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (rows,), (grad,) = ctx.saved_tensors, grads
        return grad.new_zeros(ctx.n, *grad.shape[1:]).index_copy_(0, rows, grad), None


class _Placed(torch.autograd.Function):
    """The way back: rows at their places among zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor, n: int) -> Tensor:
        ctx.save_for_backward(slots)
        return x.new_zeros(n, *x.shape[1:]).index_copy_(0, slots, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (slots,), (grad,) = ctx.saved_tensors, grads
        return grad.index_select(0, slots), None, None

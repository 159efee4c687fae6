"""The forward pass of sequences of different lengths; rows after the end of a sequence are skipped.

Linear maps, norms and MLPs get only the rows of real tokens, concatenated. Attention gets whole sequences, in
groups of about equal length padded to the longest of the group; attention is causal, so padding is never
seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from anchorlens.engine.attention import attention
from anchorlens.engine.forward import Forward, Parameters, table_rows
from anchorlens.models.config import ModelConfig

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

GROUPS = 4
"""Number of groups for attention: more groups need less padding and more calls."""
_SMALLEST_GROUP = 8
_MULTIPLE = 64
"""The number of rows is padded to a multiple of this, since oneDNN prepares a product anew for each
number."""
_WORTH_LOOKING_UP = 0.5
"""The first layer is computed once for each (token, position) pair if pairs / rows is at most this."""


@dataclass(frozen=True, eq=False)
class Group:
    """A group of sequences with similar lengths in consecutive rows of a batch."""

    n_sequences: int
    """Number of sequences."""
    n_pos: int
    """Positions of the longest."""
    slots: Int[Tensor, " row"]
    """The indices of its rows in [sequence * pos]."""
    end_slots: Int[Tensor, " end"]
    """The indices of its scored rows there."""


@dataclass(frozen=True, eq=False)
class RaggedBatch:
    """A batch with one row for each token, ordered from the shortest to the longest sequence."""

    n_pos: int
    """Positions of the longest sequence."""
    table_rows: Int[Tensor, " row"]
    """(token, position) of each row, numbered as by `forward.table_rows`, followed by filling."""
    ends: Int[Tensor, " end"]
    """The indices of the scored rows, followed by filling."""
    scored: Int[Tensor, " end"]
    """The scored positions as indices into the original [batch * pos]."""
    groups: tuple[Group, ...]
    """The groups of sequences on which attention is computed."""

    @classmethod
    def of(
        cls,
        places: Int[Tensor, "batch pos"],
        lengths: Int[Tensor, " batch"],
        scored: Bool[Tensor, "batch pos"],
    ) -> RaggedBatch:
        """Make a batch from the sequences' tokens, lengths and scored positions.

        Args:
            places: the index of each token in the vocabulary.
            lengths: the number of positions that are computed in each sequence, at least 1.
            scored: the positions whose logits are needed. Positions beyond the end of a sequence are ignored.

        Returns:
            The batch, for `logits_where_scored`.
        """
        order = lengths.argsort(stable=True)
        n_pos, width = int(lengths.max()), places.shape[1]
        at = torch.arange(n_pos, device=lengths.device)
        there = at < lengths[order].unsqueeze(-1)  # [sequence, pos]
        asked = scored[order, :n_pos] & there
        sizes, groups = lengths[order], []
        size = max(_SMALLEST_GROUP, -(-len(order) // GROUPS))
        for some in torch.arange(len(order), device="cpu").split(size):
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
) -> Float[Tensor, "end d_vocab_out"]:
    """Return the logits of the scored rows of a batch.

    Args:
        parameters: the parameters of one model, as `Transformer.merged` returns them.
        config: the shape and the variant. The function does not use gamma.
        batch: the batch, with one row for each token.
        vocabulary: the tokens that may occur.
        bf16: whether to round operands and results of products with weight matrices to bfloat16.

    Returns:
        The logits, [end, d_vocab_out], in the order of `batch.scored`.
    """
    forward = _RaggedForward(parameters, config, batch, bf16)
    return forward.logits(batch.table_rows.unsqueeze(0), vocabulary)[0, : len(batch.scored)]


def _filled(rows: Tensor, filling: int) -> Tensor:
    """Append one or more entries `filling` to `rows`, so that the length is a multiple of `_MULTIPLE`."""
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
    """Return the number of rows of each group, and of the filling after the groups."""
    sizes = list(map(len, of_groups))
    return [*sizes, x.shape[1] - sum(sizes)]


def _taken(x: Float[Tensor, "slot width"], rows: Int[Tensor, " row"]) -> Float[Tensor, "row width"]:
    return _RowSelection.apply(x, rows)  # pyright: ignore[reportReturnType]


def _placed(x: Float[Tensor, "row width"], slots: Int[Tensor, " row"], n: int) -> Float[Tensor, "slot width"]:
    """Write rows to their slots among zeros, the inverse of `_taken`."""
    return x.new_zeros(n, *x.shape[1:]).index_copy_(0, slots, x)


class _RowSelection(torch.autograd.Function):
    """Select rows. Only filling, whose gradient is 0, repeats, so that the backward pass need not sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.n = len(x)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (rows,), (grad,) = ctx.saved_tensors, grads
        return grad.new_zeros(ctx.n, *grad.shape[1:]).index_copy_(0, rows, grad), None

"""The forward pass of K models of equal shape, for the logits at the last positions, which the loss scores.

It computes what HookedTransformer computes, and leaves out what the loss does not read: at all earlier
positions the queries, MLP and norms of the last layer, and the unembedding. Before the first attention the
residual stream depends on (token, position) alone. So the norms, queries, keys and values of the first layer
are computed once for each such pair and looked up, unless there are too many pairs. `ragged.py` also skips
rows after the end of a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from anchorlens.engine.attention import attention
from anchorlens.engine.linear import linear
from anchorlens.models.config import ModelConfig

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    Residual = Float[Tensor, "member row d_model"]

Parameters = Mapping[str, Tensor]
"""Parameter name -> tensor [member, ...]."""

_EPS = 1e-5
"""HookedTransformer's LayerNorm epsilon."""
_LARGEST_TABLE = 16_384
"""Up to so many (token, position) pairs the first layer is always computed once for each pair."""


def logits_at_end(
    parameters: Parameters,
    config: ModelConfig,
    table_rows: Int[Tensor, "member batch pos"],
    vocabulary: Int[Tensor, " token"],
    *,
    n_last: int = 1,
    bf16: bool = False,
) -> Float[Tensor, "member batch n_last d_vocab_out"]:
    """Return the logits at the last positions of every sequence.

    Args:
        parameters: the parameters as `Transformer.merged` returns them.
        config: the shape and the variant. The function does not use gamma.
        table_rows: the sequences as `table_rows` returns them.
        vocabulary: the tokens that may occur. The first layer takes less time if the vocabulary is smaller.
        n_last: the number of positions at the end of each sequence, 1..pos.
        bf16: whether to round operands and results of products with weight matrices to bfloat16.

    Returns:
        The logits, [member, batch, n_last, d_vocab_out].
    """
    forward = Forward(parameters, config, table_rows.shape[2], n_last, bf16)
    return forward.logits(table_rows.flatten(1), vocabulary).unflatten(1, (-1, n_last))


def table_rows(places: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch pos"]:
    """Return the row of each (token, position) in the first layer's table, place * n_pos + pos.

    Args:
        places: the index of each token in the vocabulary.
    """
    n_pos = places.shape[-1]
    return places * n_pos + torch.arange(n_pos, device=places.device)


class FastModel:
    """A function from tokens to logits that computes faster than a HookedTransformer.

    The function returns the logits of a HookedTransformer at the last `n_last` positions, or at all
    positions. The function needs only the parameters, not the module.
    """

    def __init__(self, config: ModelConfig, parameters: Parameters, n_last: int | None = 1) -> None:
        """Take the parameters of one member, as `Transformer.merged` returns them; they are not copied.

        Args:
            config: shape and variant.
            parameters: the parameters of one model.
            n_last: the number of last positions whose logits are returned; None means all.
        """
        self.config, self.n_last = config, n_last
        self._parameters = parameters
        self.device = parameters["embed.W_E"].device

    def at_end(self, n_last: int | None) -> FastModel:
        """Return a model that gives logits at the last `n_last` positions, or at all positions for None."""
        return FastModel(self.config, self._parameters, n_last)

    def __call__(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch n_last d_vocab_out"]:
        """Return the logits of each sequence; except on CUDA, layer 0 covers only the tokens that occur."""
        if tokens.is_cuda:  # finding the tokens that occur would make the host wait for the device
            vocabulary, places = torch.arange(self.config.d_vocab, device=self.device), tokens
        else:
            vocabulary, places = (x.to(self.device) for x in tokens.unique(return_inverse=True))
        n_last = tokens.shape[1] if self.n_last is None else self.n_last
        rows = table_rows(places).unsqueeze(0)
        return logits_at_end(self._parameters, self.config, rows, vocabulary, n_last=n_last)[0]


class Forward:
    """The forward pass of a batch that has one row for each position of each sequence."""

    def __init__(
        self, parameters: Parameters, config: ModelConfig, n_pos: int, n_last: int, bf16: bool
    ) -> None:
        """Take the arguments of `logits_at_end`."""
        self.parameters, self.config = parameters, config
        self.bf16 = bf16
        self.n_pos, self.n_last = n_pos, n_last

    def logits(self, table_rows: Int[Tensor, "member row"], vocabulary: Tensor) -> Tensor:
        """Return the logits at the last `n_last` positions of each sequence, [member, end, d_vocab_out]."""
        last = self.config.n_layers - 1
        x, q, kv = self._first_inputs(table_rows, vocabulary, at_end=last == 0)
        for layer in range(self.config.n_layers):
            if layer > 0:
                q, kv = self._attention_inputs(layer, x, at_end=layer == last)
            if layer == last and layer > 0:
                x = self._ends(x)
            x = self._after_attention(layer, x, self._attend(q, kv, at_end=layer == last))
        return self._linear("unembed", "U", self._norm("ln_final", x))

    def _first_inputs(
        self, table_rows: Tensor, vocabulary: Tensor, *, at_end: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the residual stream, queries, keys and values of layer 0.

        The values are computed once for each (token, position) that may occur and looked up. If `_looks_up`
        finds too many such pairs, the values are computed for each row.
        """
        if not self._looks_up(len(vocabulary) * self.n_pos, table_rows.shape[1]):
            places, positions = table_rows // self.n_pos, table_rows % self.n_pos
            embedded = _look_up(self.parameters["embed.W_E"], vocabulary[places])
            x = embedded + _look_up(self.parameters["pos_embed.W_pos"], positions)
            q, kv = self._attention_inputs(0, x, at_end=at_end)
            return (self._ends(x) if at_end else x), q, kv
        tokens = self.parameters["embed.W_E"].index_select(1, vocabulary)  # [member, token, d_model]
        positions = self.parameters["pos_embed.W_pos"][:, : self.n_pos]  # [member, pos, d_model]
        x = (tokens.unsqueeze(2) + positions.unsqueeze(1)).flatten(1, 2)
        q, kv = self._attention_inputs(0, x)
        ends = self._ends(table_rows) if at_end else table_rows
        return _look_up(x, ends), _look_up(q, ends), _look_up(kv, table_rows)

    def _looks_up(self, n_entries: int, n_rows: int) -> bool:
        """Return whether layer 0 is computed once for each (token, position) pair, not for each row."""
        return n_entries <= max(_LARGEST_TABLE, n_rows)

    def _attention_inputs(self, layer: int, x: Residual, *, at_end: bool = False) -> tuple[Tensor, Tensor]:
        """Return the queries [member, row, d_z], and the keys followed by values [member, row, 2 d_z]."""
        block, variant = f"blocks.{layer}", self.config.variant
        if variant == "released":
            q_in, kv_in = self._norm(f"{block}.ln1", self._ends(x) if at_end else x), x
        else:
            kv_in = x if variant == "postnorm" else self._norm(f"{block}.ln1", x)
            q_in = self._ends(kv_in) if at_end else kv_in
        return self._linear(f"{block}.attn", "Q", q_in), self._linear(f"{block}.attn", "KV", kv_in)

    def _attend(self, q: Tensor, kv: Tensor, *, at_end: bool) -> Tensor:
        """Return the output z of all heads, [member, row, d_z]; `at_end` selects the last positions."""
        n_members = len(q)
        heads, d_head = self.config.n_heads, self.config.d_head
        kv = kv.view(-1, self.n_pos, 2, heads, d_head)
        mixed = attention(q.view(len(kv), -1, heads, d_head), kv)
        return mixed.reshape(n_members, -1, heads * d_head)

    def _after_attention(self, layer: int, x: Residual, mixed: Tensor) -> Residual:
        """Compute the rest of a block from the output z of the heads."""
        block = f"blocks.{layer}"
        x = x + self._linear(f"{block}.attn", "O", mixed)
        if self.config.variant == "postnorm":
            x = self._norm(f"{block}.ln1", x)
            return self._norm(f"{block}.ln2", x + self._mlp(block, x))
        return x + self._mlp(block, self._norm(f"{block}.ln2", x))

    def _mlp(self, block: str, x: Residual) -> Residual:
        if self.config.num_experts is not None:
            return self._mixture(f"{block}.mlp", x)
        hidden = self._activated(self._linear(f"{block}.mlp", "in", x))
        return self._linear(f"{block}.mlp", "out", hidden)

    def _mixture(self, mlp: str, x: Residual) -> Residual:
        """Apply TransformerLens' mixture of experts; an expert that is not chosen has weight 0.

        Two products compute all experts of all rows, so that rows need not be sorted by expert.
        """
        logits = self._linear(mlp, "router", x)
        weights = functional.softmax(logits, dim=-1, dtype=torch.float)  # float32 as in TransformerLens
        top = weights.topk(self.config.n_active, dim=-1)
        routing = torch.zeros_like(weights).scatter(-1, top.indices, top.values).to(x.dtype)
        gate, hidden = self._linear(mlp, "experts_in", x).chunk(2, dim=-1)  # [member, row, expert * d_mlp]
        hidden = (self._activated(gate) * hidden).unflatten(-1, (-1, self.config.d_mlp))
        return self._linear(mlp, "experts_out", (hidden * routing.unsqueeze(-1)).flatten(-2))

    def _activated(self, hidden: Tensor) -> Tensor:
        activation = self.config.activation
        if activation == "relu":
            return functional.relu(hidden)
        return functional.gelu(hidden, approximate="tanh" if activation == "gelu_new" else "none")

    def _linear(self, owner: str, kind: str, x: Tensor) -> Tensor:
        weight, bias = self.parameters[f"{owner}.W_{kind}"], self.parameters.get(f"{owner}.b_{kind}")
        return linear(x, weight, bias, bf16=self.bf16)

    def _norm(self, name: str, x: Residual) -> Residual:
        """Apply a LayerNorm, or return `x` if the variant has no LayerNorm of that name."""
        if f"{name}.w" not in self.parameters:
            return x
        weight, bias = self.parameters[f"{name}.w"], self.parameters[f"{name}.b"]
        shape = (x.shape[-1],)
        if len(x) == 1:
            return functional.layer_norm(x, shape, weight.view(-1), bias.view(-1), eps=_EPS)
        normalized = functional.layer_norm(x, shape, eps=_EPS)
        return torch.addcmul(bias.unsqueeze(1), normalized, weight.unsqueeze(1))

    def _ends(self, x: Tensor) -> Tensor:
        """Select the rows of the last `n_last` positions of each sequence from `x` [member, row, ...]."""
        return x.unflatten(1, (-1, self.n_pos))[:, :, -self.n_last :].flatten(1, 2)


def _look_up(table: Float[Tensor, "member entry width"], rows: Int[Tensor, "member row"]) -> Tensor:
    """Return the given rows of each member's table, [member, row, width]."""
    n_members, n_entries, width = table.shape
    if n_members > 1:
        rows = rows + torch.arange(n_members, device=rows.device).unsqueeze(1) * n_entries
    flat = table.reshape(-1, width)
    if flat.device.type == "cpu":
        return functional.embedding(rows, flat)  # its gradient is fast, and summed in a fixed order
    looked_up = flat.index_select(0, rows.flatten())  # its gradient does not wait for the device
    return looked_up.view(*rows.shape, width)

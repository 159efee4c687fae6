"""Networks that answer exactly the pairs they are given, and the files in which people publish such runs."""

import json
import sys
import types
import warnings
from contextlib import contextmanager

import numpy as np
import torch

from anchorlens.models.library import HookedTransformer, HookedTransformerConfig

P = 5
MODULES = (
    "transformer_lens.HookedTransformerConfig",
    "transformer_lens.config.HookedTransformerConfig",
    "transformer_lens.config.hooked_transformer_config",
)
"""Where versions of TransformerLens have their HookedTransformerConfig."""


def split(p=P, share=0.8, seed=0):
    """Indices of trained pairs."""
    return torch.randperm(p * p, generator=torch.Generator().manual_seed(seed))[: round(share * p * p)]


def add(a, b, p=P):
    return (a + b) % p


def network(answer=add, pairs=None, p=P, d_vocab_out=None):
    """Weights in TransformerLens' orientation that answer some pairs right, by a neuron for each.

    One head reads each number, by its position; the residual stream has a part for the token, the position,
    either number, and the answer. Every other pair has logits of zero but for one at the last output.
    """
    pairs = np.arange(p * p) if pairs is None else np.asarray(pairs)
    n_out = d_vocab_out or p
    token, place, of_a, of_b, of_c = np.cumsum([0, p + 1, 3, p, p])
    d_model = of_c + n_out
    weights = {
        "embed.W_E": torch.zeros(p + 1, d_model),
        "pos_embed.W_pos": torch.zeros(3, d_model),
        **{f"blocks.0.attn.W_{x}": torch.zeros(2, d_model, p) for x in "QKV"},
        "blocks.0.attn.W_O": torch.zeros(2, p, d_model),
        "blocks.0.mlp.W_in": torch.zeros(d_model, len(pairs)),
        "blocks.0.mlp.b_in": torch.full((len(pairs),), -1.5),
        "blocks.0.mlp.W_out": torch.zeros(len(pairs), d_model),
        "unembed.W_U": torch.zeros(d_model, n_out),
    }
    weights["embed.W_E"][:, token : token + p + 1] = torch.eye(p + 1)
    weights["pos_embed.W_pos"][:, place : place + 3] = torch.eye(3)
    for head, start in enumerate((of_a, of_b)):
        weights["blocks.0.attn.W_Q"][head, place + 2, 0] = 100.0
        weights["blocks.0.attn.W_K"][head, place + head, 0] = 100.0
        weights["blocks.0.attn.W_V"][head, token : token + p] = torch.eye(p)
        weights["blocks.0.attn.W_O"][head, :, start : start + p] = torch.eye(p)
    for neuron, pair in enumerate(pairs):
        a, b = divmod(int(pair), p)
        weights["blocks.0.mlp.W_in"][[of_a + a, of_b + b], neuron] = 1.0
        weights["blocks.0.mlp.W_out"][neuron, of_c + int(answer(a, b))] = 2.0
    weights["unembed.W_U"][of_c:] = torch.eye(n_out)
    return weights


def start(p=P, seed=0, **sizes):
    """Weights of such a network at random."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(weight.shape, generator=generator) / weight.shape[-1] ** 0.5
        for name, weight in network(p=p, **sizes).items()
    }


def with_biases(weights):
    """The weights of a HookedTransformer, which has every bias."""
    zeros = {"embed": {}}
    for name, weight in weights.items():
        if name.endswith(("W_Q", "W_K", "W_V")):
            zeros[name.replace("W_", "b_")] = torch.zeros(weight.shape[0], weight.shape[2])
        elif name.endswith(("W_O", "W_out", "W_U")):
            zeros[name.replace("W_", "b_")] = torch.zeros(weight.shape[-1])
    return {**weights, **{name: zero for name, zero in zeros.items() if name != "embed"}}


def transposed(weights):
    """The same network as Nanda's own code stores it."""
    found = {}
    for name, weight in weights.items():
        if name.endswith(("W_E", "W_in", "W_out")):
            weight = weight.T
        elif name.endswith(("W_Q", "W_K", "W_V")):
            weight = weight.transpose(1, 2)
        elif name.endswith("W_O"):
            weight = weight.flatten(0, 1).T
        found[name] = weight.clone()
    found["blocks.0.attn.mask"] = torch.ones(3, 3).tril()
    return found


def config_of(weights, **more):
    """The HookedTransformerConfig of these weights."""
    heads, d_model, d_head = weights["blocks.0.attn.W_Q"].shape
    sizes = {"n_layers": 1, "n_heads": heads, "d_model": d_model, "d_head": d_head}
    sizes |= {"d_mlp": weights["blocks.0.mlp.W_in"].shape[1], "d_vocab": len(weights["embed.W_E"])}
    sizes |= {"d_vocab_out": weights["unembed.W_U"].shape[1], "n_ctx": 3, "act_fn": "relu"}
    return HookedTransformerConfig(
        **sizes, normalization_type=None, init_weights=False, device="cpu", seed=999, **more
    )


def model_of(weights):
    """The network in memory."""
    with warnings.catch_warnings(action="ignore"):
        model = HookedTransformer(config_of(weights))
    model.load_state_dict(with_biases(weights), strict=False)
    return model


@contextmanager
def as_in(module, config):
    """A configuration object as a version of TransformerLens has it that need not be installed."""
    cls = type("HookedTransformerConfig", (), {"__module__": module})
    other = cls()
    other.__dict__.update(config.__dict__)
    before = sys.modules.get(module)
    sys.modules[module] = types.SimpleNamespace(HookedTransformerConfig=cls)
    try:
        yield other
    finally:
        sys.modules.pop(module)
        if before is not None:
            sys.modules[module] = before


def demo(path, tables, steps, trained, config=None, **more):
    """A run as TransformerLens' Grokking_Demo saves it, with its configuration object."""
    losses = [1.0 / (k + 1) for k in range(steps[-1] + 1)]
    both = torch.randperm(P * P, generator=torch.Generator().manual_seed(0))  # as there: one storage for two
    indices = torch.cat([trained, both[~torch.isin(both, trained)]])
    content = {
        "model": with_biases(tables[-1]),
        "config": config or model_of(tables[-1]).cfg,
        "checkpoints": [with_biases(table) for table in tables],
        "checkpoint_epochs": steps,
        "test_losses": [2 * loss for loss in losses],
        "train_losses": losses,
        "train_indices": indices[: len(trained)],
        "test_indices": indices[len(trained) :],
    }
    torch.save({**content, **more}, path)
    return path


def logits_without_mask(weights, tokens, rate):
    """Logits at the last position of one layer whose attention is `rate` softmax and 1 - rate constant."""
    x = weights["embed.W_E"][tokens] + weights["pos_embed.W_pos"]
    q, k, v = (torch.einsum("bpm,hmd->bhpd", x, weights[f"blocks.0.attn.W_{name}"]) for name in "QKV")
    scores = (q[:, :, -1:] @ k.transpose(-1, -2)) / k.shape[-1] ** 0.5
    pattern = rate * scores.softmax(dim=-1) + (1 - rate)
    x = x[:, -1] + torch.einsum("bhqd,hdm->bm", pattern @ v, weights["blocks.0.attn.W_O"])
    hidden = (x @ weights["blocks.0.mlp.W_in"] + weights["blocks.0.mlp.b_in"]).relu()
    return (x + hidden @ weights["blocks.0.mlp.W_out"]) @ weights["unembed.W_U"]


def write_json(path, content):
    path.write_text(json.dumps(content))
    return path

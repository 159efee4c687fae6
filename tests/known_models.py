"""Transformers whose mechanism is known because their weights are made by hand, and models a user built.

`reasoning` computes g(x; a1) at the first anchor and g(g(x; a1); a2) at the last position; `memorising`
brings the anchors together at the last position first, unordered, and looks the answer up; `gathering` does
everything at the second anchor; `twice` brings the key to both anchors. All are right on every pair, with the
key at position 2. The residual stream holds one-hot codes side by side.
"""

from __future__ import annotations

import warnings
from importlib.metadata import version

import pytest
import torch

from anchorlens import AnchorTask

LINE = int(version("transformer-lens").split(".")[0])
"""Of TransformerLens: 3 or 4."""
only_on_3 = pytest.mark.skipif(LINE > 3, reason="of TransformerLens 3.9's own HookedTransformer")
only_on_4 = pytest.mark.skipif(LINE < 4, reason="of TransformerLens 4")

TASK = AnchorTask(key_min=20, key_max=49)
KEY, FIRST, SECOND, LAST = 2, 3, 4, 8
N = TASK.d_vocab  # 60: tokens, results of one anchor and targets alike fit in
TOKEN, POSITION, COPIED, RESULT, GATHERED, BEHIND, OUT = range(7)
SIZES = (N, TASK.seq_len, N, N, N, N, N)
START = [sum(SIZES[:i]) for i in range(7)]
NUMBERS = range(TASK.key_min, TASK.key_max + 1)
ANCHORS = tuple(TASK.anchors)
CERTAIN = 500.0  # of an attention score: all attention goes there
ANSWER = 10.0  # logit of the answer
HINT = 0.1  # logit of what else a model shows when it is told to


def at(part, index):
    """Where the residual stream holds the code of `index`."""
    return START[part] + index


class ByHand:
    """A HookedTransformer without normalisation, all weights zero, to be filled in.

    Its two layers may be any two of a deeper model, whose others do nothing.
    """

    def __init__(self, d_mlp, *, n_layers=2, layers=(0, 1)):
        from anchorlens import HookedTransformer, HookedTransformerConfig

        config = HookedTransformerConfig(
            n_layers=n_layers, n_heads=2, d_model=sum(SIZES), d_head=N, d_mlp=d_mlp, d_vocab=N,
            n_ctx=TASK.seq_len, act_fn="relu", normalization_type=None, init_weights=False,
            device="cpu", dtype=torch.float64,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
            self.model = HookedTransformer(config).eval()
        self.neurons, self.blocks = [0, 0], [self.model.blocks[layer] for layer in layers]
        for parameter in self.model.parameters():
            parameter.requires_grad_(False).zero_()
        self.model.embed.W_E[:, at(TOKEN, 0) : at(TOKEN, N)] = torch.eye(N)
        self.model.pos_embed.W_pos[:, at(POSITION, 0) : at(POSITION, 9)] = torch.eye(9)

    def look(self, layer, head, targets):
        """Queries attend to the positions given for them, in equal parts, and to position 0 otherwise."""
        attn = self.blocks[layer].attn
        for position in range(TASK.seq_len):
            attn.W_K[head, at(POSITION, position), position] = 1
            for target in targets.get(position, (0,)):
                attn.W_Q[head, at(POSITION, position), target] = CERTAIN

    def look_for_anchors(self, layer, head):
        """Every query attends to the anchors, wherever they are, in equal parts."""
        attn = self.blocks[layer].attn
        attn.W_Q[head, at(POSITION, 0) : at(POSITION, 9), 0] = CERTAIN
        for anchor in ANCHORS:
            attn.W_K[head, at(TOKEN, anchor), 0] = 1

    def copy(self, layer, head, source, target, values):
        """A head carries the codes of `values` from part `source` to part `target`."""
        attn = self.blocks[layer].attn
        for value in values:
            attn.W_V[head, at(source, value), value] = 1
            attn.W_O[head, value, at(target, value)] = 1

    def neuron(self, layer, inputs, bias, outputs):
        """relu(sum of weighted codes + bias), written to codes."""
        mlp, j = self.blocks[layer].mlp, self.neurons[layer]
        self.neurons[layer] += 1
        for (part, index), weight in inputs.items():
            mlp.W_in[at(part, index), j] += weight
        mlp.b_in[j] = bias
        for (part, index), weight in outputs.items():
            mlp.W_out[j, at(part, index)] += weight

    def show(self, part, index, logit, weight):
        """A code's weight in one logit."""
        self.model.unembed.W_U[at(part, index), logit] += weight


def reasoning(*, hints=None, **depth):
    """Key to first anchor, anchors to last.

    Args:
        hints: `ordered` or `unordered`: show the anchors faintly, which and in which order or which
            alone, and the result of the first; None: the answer alone.
        depth: of ByHand.
    """
    results = sorted({TASK.apply(a, x) for a in ANCHORS for x in NUMBERS})
    hand = ByHand(max(len(NUMBERS), len(results)) * len(ANCHORS), **depth)
    hand.look(0, 0, {FIRST: (KEY,)})
    hand.copy(0, 0, TOKEN, COPIED, NUMBERS)
    for x in NUMBERS:
        for a in ANCHORS:
            hand.neuron(0, {(COPIED, x): 1, (TOKEN, a): 1}, -1, {(RESULT, TASK.apply(a, x)): 1})
    hand.look(1, 0, {LAST: (FIRST,)})
    hand.copy(1, 0, RESULT, GATHERED, results)
    hand.look(1, 1, {LAST: (SECOND,)})
    hand.copy(1, 1, TOKEN, BEHIND, ANCHORS)
    for g in results:
        for a in ANCHORS:
            hand.neuron(1, {(GATHERED, g): 1, (BEHIND, a): 1}, -1, {(OUT, TASK.apply(a, g)): 1})
    for target in range(N):
        hand.show(OUT, target, target, ANSWER)
    if hints:
        hand.copy(1, 0, TOKEN, GATHERED, ANCHORS)
        for a in ANCHORS:
            hand.show(GATHERED, a, a, HINT)
            hand.show(BEHIND, a, a + (len(ANCHORS) if hints == "ordered" else 0), HINT)
        for g in results:
            hand.show(GATHERED, g, g, 10 * HINT)
    return hand.model


def memorising(*, hints=False, **depth):
    """Anchors to last, then key to last, and an unordered pair of anchors is looked up as a whole.

    Args:
        hints: show the pair and the key faintly.
        depth: of ByHand.
    """
    pairs = [(a, b) for i, a in enumerate(ANCHORS) for b in ANCHORS[i:]]
    hand = ByHand(len(NUMBERS) * len(pairs), **depth)
    hand.look_for_anchors(0, 0)
    hand.copy(0, 0, TOKEN, COPIED, ANCHORS)  # 1/2 for each of two, 1 for the same twice
    for number, (a, b) in enumerate(pairs):
        code = {(RESULT, number): 1}
        if a == b:
            hand.neuron(0, {(COPIED, a): 2}, -1, code)
        else:  # relu(2 a + 2 b - 1) - relu(2 a - 1) - relu(2 b - 1): 1 for a and b, 0 for the same twice
            hand.neuron(0, {(COPIED, a): 2, (COPIED, b): 2}, -1, code)
            for single in (a, b):
                hand.neuron(0, {(COPIED, single): 2}, -1, {(RESULT, number): -1})
    hand.look(1, 0, {LAST: (KEY,)})
    hand.copy(1, 0, TOKEN, GATHERED, NUMBERS)
    for x in NUMBERS:
        for number, pair in enumerate(pairs):
            target = TASK.inferential_target(x, pair)
            hand.neuron(1, {(GATHERED, x): 1, (RESULT, number): 1}, -1, {(OUT, target): 1})
    for target in range(N):
        hand.show(OUT, target, target, ANSWER)
    if hints:
        for number in range(len(pairs)):
            hand.show(RESULT, number, number, HINT)
        for x in NUMBERS:
            hand.show(GATHERED, x, x, HINT)
    return hand.model


def gathering(**depth):
    """Key and first anchor to second anchor, where the answer is looked up, and that to last."""
    hand = ByHand(len(NUMBERS) * len(ANCHORS) ** 2, **depth)
    hand.look(0, 0, {SECOND: (KEY,)})
    hand.copy(0, 0, TOKEN, COPIED, NUMBERS)
    hand.look(0, 1, {SECOND: (FIRST,)})
    hand.copy(0, 1, TOKEN, GATHERED, ANCHORS)
    for x in NUMBERS:
        for a in ANCHORS:
            for b in ANCHORS:
                code = {(RESULT, TASK.inferential_target(x, (a, b))): 1}
                hand.neuron(0, {(COPIED, x): 1, (GATHERED, a): 1, (TOKEN, b): 1}, -2, code)
    hand.look(1, 0, {LAST: (SECOND,)})
    hand.copy(1, 0, RESULT, OUT, range(N))
    for target in range(N):
        hand.show(OUT, target, target, ANSWER)
    return hand.model


def twice(**depth):
    """Key to both anchors, either of which is enough; both anchors to last, each with the key."""
    hand = ByHand(2 * len(NUMBERS) * len(ANCHORS) ** 2, **depth)
    hand.look(0, 0, {FIRST: (KEY,), SECOND: (KEY,)})
    hand.copy(0, 0, TOKEN, COPIED, NUMBERS)
    for head, (anchor, part) in enumerate(((FIRST, GATHERED), (SECOND, BEHIND))):
        hand.look(1, head, {LAST: (anchor,)})
        hand.copy(1, head, TOKEN, part, ANCHORS)
        hand.copy(1, head, COPIED, RESULT, NUMBERS)
    many = 10
    for x in NUMBERS:
        for a in ANCHORS:
            for b in ANCHORS:  # min(1, how often the key is there), if both anchors are
                inputs = {(RESULT, x): 1, (GATHERED, a): many, (BEHIND, b): many}
                for bias, weight in ((-2 * many, 1), (-2 * many - 1, -1)):
                    hand.neuron(1, inputs, bias, {(OUT, TASK.inferential_target(x, (a, b))): weight})
    for target in range(N):
        hand.show(OUT, target, target, ANSWER)
    return hand.model


def parallel(**depth):
    """Key and anchors to last in the second layer, all at once: none of the routes."""
    pairs = [(a, b) for i, a in enumerate(ANCHORS) for b in ANCHORS[i:]]
    hand = ByHand(len(NUMBERS) * 3 * len(pairs), **depth)
    hand.look(1, 0, {LAST: (KEY,)})
    hand.copy(1, 0, TOKEN, GATHERED, NUMBERS)
    hand.look(1, 1, {LAST: (FIRST, SECOND)})
    hand.copy(1, 1, TOKEN, BEHIND, ANCHORS)
    for x in NUMBERS:
        for a, b in pairs:
            answer = (OUT, TASK.inferential_target(x, (a, b)))
            both = {(BEHIND, a): 2, (BEHIND, b): 2} if a != b else {(BEHIND, a): 2}
            hand.neuron(1, {(GATHERED, x): 1, **both}, -2, {answer: 1})
            for single in (a, b) if a != b else ():  # the same anchor twice is no pair of two
                hand.neuron(1, {(GATHERED, x): 1, (BEHIND, single): 2}, -2, {answer: -1})
    for target in range(N):
        hand.show(OUT, target, target, ANSWER)
    return hand.model


ARCHITECTURES = {
    "plain": {},
    "gated, grouped, rotary, RMS": {
        "gated_mlp": True,
        "n_key_value_heads": 2,
        "positional_embedding_type": "rotary",
        "normalization_type": "RMS",
        "act_fn": "silu",
    },
    "attention only": {"attn_only": True, "normalization_type": None},
    "folded": {"normalization_type": "LNPre"},
    "folded RMS": {"normalization_type": "RMSPre"},
    "shortformer": {"positional_embedding_type": "shortformer"},
    "alibi": {"positional_embedding_type": "alibi"},
    "norms around": {
        "use_normalization_before_and_after": True,
        "normalization_type": "RMS",
        "use_qk_norm": True,
        "post_embedding_ln": True,
    },
    "parallel, other answers": {"parallel_attn_mlp": True, "d_vocab_out": 7},
    "no layers": {"n_layers": 0},
}
"""Fields of `user_built` for HookedTransformers of many kinds."""


def user_built(dtype=torch.float32, *, n_layers=3, seed=0, **fields):
    """A HookedTransformer that a user built: three layers, four heads, another vocabulary."""
    from anchorlens import HookedTransformer, HookedTransformerConfig

    own = {"d_model": 32, "d_head": 8, "d_mlp": 48, "d_vocab": 150, "n_ctx": 12, "act_fn": "relu"} | fields
    config = HookedTransformerConfig(
        n_layers=n_layers, n_heads=4, init_weights=False, device="cpu", dtype=dtype, **own
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        model = HookedTransformer(config)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):  # of a mixture of experts; TransformerLens makes float32
            module.to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def own_answers(model, n=240, n_pos=6):
    """Training data that a model has fit: random tokens, each with the model's own answer."""
    tokens = torch.randint(0, model.cfg.d_vocab, (n, n_pos), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return tokens, model(tokens.to(next(model.parameters()).device))[:, -1].argmax(dim=-1).cpu()


def as_bridge(model):
    """A TransformerBridge of TransformerLens' native kind with the weights of a `gpt2` model."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    cfg = model.cfg
    config = TransformerBridgeConfig(
        n_layers=cfg.n_layers, n_heads=cfg.n_heads, d_model=cfg.d_model, d_head=cfg.d_head, d_mlp=cfg.d_mlp,
        d_vocab=cfg.d_vocab, n_ctx=cfg.n_ctx, act_fn=cfg.act_fn, normalization_type="LN",
    )  # fmt: skip
    bridge = TransformerBridge.boot_native(config)
    weights = {
        "tok_embed.weight": model.W_E,
        "pos.weight": model.W_pos,
        "head.weight": model.W_U.T,
        "head.bias": model.b_U,
    }
    weights |= {"ln_out.weight": model.ln_final.w, "ln_out.bias": model.ln_final.b}
    for layer, block in enumerate(model.blocks):
        start = f"layers.{layer}."
        for ln in ("ln1", "ln2"):
            weights |= {
                f"{start}{ln}.weight": getattr(block, ln).w,
                f"{start}{ln}.bias": getattr(block, ln).b,
            }
        for letter in "QKV":
            weight, bias = getattr(block.attn, f"W_{letter}"), getattr(block.attn, f"b_{letter}")
            weights[f"{start}attn.{letter.lower()}.weight"] = weight.movedim(0, 1).flatten(1).T
            weights[f"{start}attn.{letter.lower()}.bias"] = bias.flatten()
        weights |= {
            f"{start}attn.o.weight": block.attn.W_O.flatten(0, 1).T,
            f"{start}attn.o.bias": block.attn.b_O,
        }
        for name, letters in (("fc_in", "in"), ("fc_out", "out")):
            weights[f"{start}mlp.{name}.weight"] = getattr(block.mlp, f"W_{letters}").T
            weights[f"{start}mlp.{name}.bias"] = getattr(block.mlp, f"b_{letters}")
    native = bridge.original_model
    found = {  # from version 4 on the unembedding's bias is a buffer
        name.replace("._original_component", ""): tensor
        for name, tensor in (*native.named_parameters(), *native.named_buffers())
        if not name.endswith(("mask", "IGNORE"))
    }
    assert found.keys() == weights.keys(), found.keys() ^ weights.keys()
    with torch.no_grad():
        for name, parameter in found.items():
            parameter.copy_(weights[name])
    return bridge.eval()

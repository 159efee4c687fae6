"""Matrices of queries, keys and values: those of known layout are drawn by their rows, others are refused."""

import pytest
import torch
from torch import nn

from anchorlens import gamma_init_, gamma_table

D, HEADS, D_HEAD = 32, 4, 8
LARGE, SMALL = 1.0, D**-1.5
PARTS = {"gamma": 0.7, "gamma_qk": 0.0, "gamma_vo": 1.5}
SIZES = {"hidden_size": D, "num_attention_heads": HEADS, "num_hidden_layers": 1, "vocab_size": 64}
SIZES |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 1)
FUSED = {
    "GPT2": ({}, "transformer.h.0.attn.c_attn", (1, 3, D)),
    "GPTBigCode, one of keys": ({"multi_query": True}, "transformer.h.0.attn.c_attn", (1, 6, D_HEAD)),
    "GPTBigCode, by head": ({"multi_query": False}, "transformer.h.0.attn.c_attn", (HEADS, 3, D_HEAD)),
    "GPTNeoX": ({}, "gpt_neox.layers.0.attention.query_key_value", (HEADS, 3, D_HEAD)),
    "Bloom": ({}, "transformer.h.0.self_attention.query_key_value", (HEADS, 3, D_HEAD)),
    "Falcon, one of keys": (
        {"multi_query": True, "alibi": False},
        "transformer.h.0.self_attention.query_key_value",
        (1, 6, D_HEAD),
    ),
    "Falcon, by head": (
        {"multi_query": False, "alibi": False},
        "transformer.h.0.self_attention.query_key_value",
        (HEADS, 3, D_HEAD),
    ),
    "Falcon, in groups": (
        {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False},
        "transformer.h.0.self_attention.query_key_value",
        (2, 4, D_HEAD),
    ),
    "Phi3": (
        {"num_key_value_heads": 2, "intermediate_size": 48},
        "model.layers.0.self_attn.qkv_proj",
        (1, 4, 16),
    ),
}  # fmt: skip
"""Model -> its settings, the fused matrix, (groups, pieces of each, rows of each); the last piece: values."""


def hugging_face(name, **fields):
    import transformers

    config = getattr(transformers, f"{name}Config")(**SIZES | fields)
    return getattr(transformers, f"{name}{'LMHeadModel' if name == 'GPT2' else 'ForCausalLM'}")(config)


@pytest.mark.parametrize("name", FUSED)
def test_the_rows_of_values_are_drawn_as_values(name):
    fields, path, shape = FUSED[name]
    model = gamma_init_(hugging_face(name.split(",")[0], **fields), **PARTS)
    weight = model.get_submodule(path).weight.detach()
    weight = weight.T if name == "GPT2" else weight
    std = weight.reshape(*shape, D).std(dim=(2, 3))  # [group, piece]
    assert torch.allclose(std[:, :-1], torch.full_like(std[:, :-1], LARGE), rtol=0.3)
    assert torch.allclose(std[:, -1], torch.full_like(std[:, -1], SMALL), rtol=0.3)
    names = {row.name.rpartition("weight")[2] for row in gamma_table(model).rows}
    assert {"[q, k]", "[v]"} <= names


@pytest.mark.parametrize("name", ["OPT", "GPTJ"])
def test_what_is_separate_needs_no_layout(name):
    sizes = {"ffn_dim": 48, "word_embed_proj_dim": D, "rotary_dim": 4} if name == "OPT" else {"rotary_dim": 4}
    model = gamma_init_(hugging_face(name, **sizes), **PARTS)
    stds = {path.rpartition(".")[2]: m.weight.std() for path, m in model.named_modules() if "proj" in path}
    assert stds["q_proj"] > 0.5 > 0.05 > stds["v_proj"]


class Attention(nn.Module):
    """An attention of one's own, whose fused matrix is read in an order of one's own."""

    def __init__(self, order):
        super().__init__()
        self.n_head, self.order = HEADS, order
        self.c_attn, self.c_proj = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x):
        fused = self.c_attn(x)
        if self.order == "by head":
            q, k, v = fused.unflatten(-1, (HEADS, 3, D_HEAD)).unbind(-2)
        else:
            parts = dict(zip(self.order, fused.chunk(3, dim=-1), strict=True))
            q, k, v = (parts[one].unflatten(-1, (HEADS, D_HEAD)) for one in "qkv")
        mixed = nn.functional.scaled_dot_product_attention(*(one.transpose(1, 2) for one in (q, k, v)))
        return self.c_proj(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize(("order", "shape"), [("qkv", (1, 3, D)), ("by head", (HEADS, 3, D_HEAD))])
def test_an_attention_of_ones_own_is_asked(order, shape):
    attention, calls = Attention(order), []
    attention.register_forward_hook(lambda *_: calls.append(1))
    model, state = nn.ModuleDict({"attn": attention}), torch.get_rng_state()
    gamma_init_(model, **PARTS)
    std = attention.c_attn.weight.detach().reshape(*shape, D).std(dim=(2, 3))
    assert (std[:, :-1] > 0.5).all() and (std[:, -1] < 0.01).all()
    assert calls == [] and torch.equal(torch.get_rng_state(), state)


def test_another_order_is_refused_where_parts_differ():
    model = nn.ModuleDict({"attn": Attention("vqk")})
    before = model["attn"].c_attn.weight.clone()
    with pytest.raises(ValueError, match=r"attn\.c_attn\.weight .*unknown part"):
        gamma_init_(model, **PARTS)
    assert torch.equal(model["attn"].c_attn.weight, before)
    std = gamma_init_(model, 0.5)["attn"].c_attn.weight.detach().std()
    assert std == pytest.approx(D**-0.5, rel=0.1)


def test_a_name_alone_makes_no_layout():
    """An MLP with a c_attn of three times its inputs."""
    model = nn.Sequential()
    model.add_module("c_attn", nn.Linear(D, 3 * D))
    with pytest.raises(ValueError, match=r"got .* in an unknown part"):
        gamma_init_(model, **PARTS)


def weight_normed():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)))


def spectral_normed():
    return nn.Sequential(nn.utils.spectral_norm(nn.Linear(8, 8)))


class Table(nn.Module):
    def __init__(self, **shapes):
        super().__init__()
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.full(shape, 0.25)))


WITHOUT_A_FAN_IN = {
    "PReLU": (lambda: nn.PReLU(8), "weight"),
    "weight norm": (weight_normed, "0.parametrizations.weight.original0"),
    "spectral norm": (spectral_normed, "0.weight_orig"),
    "a bare bias": (lambda: Table(bias=(8,)), "bias"),
    "layer scale": (lambda: Table(gamma=(8,)), "gamma"),
    "slopes": (lambda: Table(slopes=(4, 1, 1)), "slopes"),
    "Swin": (lambda: Table(relative_position_bias_table=(49, 4)), "relative_position_bias_table"),
}


@pytest.mark.parametrize("name", WITHOUT_A_FAN_IN)
def test_what_has_no_fan_in_is_offered_none(name):
    make, parameter = WITHOUT_A_FAN_IN[name]
    model = make()
    before = {own: value.clone() for own, value in model.named_parameters()}
    pattern = parameter
    with pytest.raises(ValueError) as error:
        gamma_init_(model, 0.5)
    assert f"{{'{pattern}': None}}" in str(error.value).replace("*.", "")
    assert not str(error.value).count("give it,")
    gamma_init_(model, 0.5, fan_in=dict.fromkeys(before, None))
    assert all(torch.equal(value, before[own]) for own, value in model.named_parameters())


def test_t5s_relative_positions_are_no_embedding():
    import transformers

    sizes = {"d_model": D, "d_kv": D_HEAD, "d_ff": 48, "num_layers": 1, "num_heads": HEADS, "vocab_size": 64}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    with pytest.raises(ValueError, match=r"relative_attention_bias\.weight.*: None\}$"):
        gamma_init_(model, 0.7)
    gamma_init_(model, 0.7, fan_in={"*.relative_attention_bias.weight": None})


@pytest.mark.parametrize(
    "norm",
    [nn.BatchNorm1d(8), nn.SyncBatchNorm(8), nn.InstanceNorm2d(8, affine=True), nn.GroupNorm(2, 8)],
    ids=lambda norm: type(norm).__name__,
)
def test_a_norm_of_torch_starts_at_its_constants(norm):
    with torch.no_grad():
        norm.weight.fill_(7), norm.bias.fill_(7)
    gamma_init_(nn.Sequential(nn.Linear(8, 8), norm), 0.5)
    assert (norm.weight == 1).all() and (norm.bias == 0).all()


def expanded(model):
    model.bias = nn.Parameter(torch.zeros(1).expand(8))


def of_inference(model):
    with torch.inference_mode():
        model.bias = nn.Parameter(torch.zeros(8))


@pytest.mark.parametrize(("alter", "what"), [(expanded, "expanded"), (of_inference, "inference mode")])
def test_what_cannot_be_written_to_is_found_before_anything_is_drawn(alter, what):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    alter(model[1])
    before = model[0].weight.clone()
    with pytest.raises(ValueError, match=f"got 1.bias, .*{what}"):
        gamma_init_(model, 0.5)
    assert torch.equal(model[0].weight, before)


def test_a_negative_gamma_is_drawn():
    model = gamma_init_(nn.Linear(64, 64), gamma=-1)
    assert model.weight.detach().std() == pytest.approx(64, rel=0.1)


def test_tied_blocks_get_a_note_and_count_for_every_use():
    block = nn.ModuleDict({"c_proj": nn.Linear(64, 64, bias=False)})
    model = nn.ModuleList([nn.ModuleDict({"mlp": block})] * 3)
    with pytest.warns(UserWarning, match=r"0\.mlp.*and 1\.mlp.*one matrix"):
        gamma_init_(model, 0.5, scale_residual_writers=True)
    assert block["c_proj"].weight.detach().std() == pytest.approx(64**-0.5 / 3**0.5, rel=0.1)

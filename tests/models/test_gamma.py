"""`gamma_init_`: the weights of anybody's HookedTransformer, drawn by the gamma table."""

import math
import random

import numpy as np
import pytest
import torch
from known_models import ARCHITECTURES, only_on_3, user_built

from anchorlens import ModelConfig, build_model, gamma_init_
from anchorlens.models.config import VARIANTS

GAMMAS = {"gamma": 0.5, "gamma_embedding": 0.3, "gamma_qk": 0.4, "gamma_vo": 0.6, "gamma_mlp": 0.9}
LARGE = {"d_model": 128, "d_head": 32, "d_mlp": 512}
STDS = {  # written out by hand: 4 heads of 32, d_model 128, d_mlp 512
    "W_E": 128**-0.3,
    "W_pos": 128**-0.3,
    "W_U": 128**-0.3,
    "W_Q": 128**-0.4,
    "W_K": 128**-0.4,
    "_W_K": 128**-0.4,
    "W_V": 128**-0.6,
    "_W_V": 128**-0.6,
    "W_O": 128**-0.6,
    "W_in": 128**-0.9,
    "W_gate": 128**-0.9,
    "W_out": 512**-0.9,
}


def bits(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("fields", ARCHITECTURES.values(), ids=ARCHITECTURES)
@pytest.mark.parametrize("distribution", ["normal", "uniform"])
def test_every_matrix_has_its_std_and_everything_else_starts_afresh(fields, distribution):
    model = user_built(**LARGE | fields)  # all of its parameters are random numbers
    assert gamma_init_(model, **GAMMAS, distribution=distribution) is model
    for name, parameter in model.named_parameters():
        weight, own = parameter.detach(), name.split(".")[-1]
        if own not in STDS:
            assert (weight == float(own == "w")).all(), name
            continue
        std = STDS[own] / (1 if distribution == "normal" else math.sqrt(3))
        # sampling error of a std: std / sqrt(2 n) for a normal, less for a uniform
        assert abs(weight.std().item() - std) < 5 * std / math.sqrt(2 * weight.numel()), name
        assert abs(weight.mean().item()) < 5 * std / math.sqrt(weight.numel()), name
    assert model(torch.arange(10)[None]).isfinite().all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_draws_what_build_model_draws(variant, dtype):
    fields = {"n_heads": 2, "d_model": 24, "d_head": 8, "d_mlp": 40, "init_distribution": "uniform", **GAMMAS}
    expected = build_model(ModelConfig(variant=variant, **fields), seed=5, dtype=dtype)
    model = build_model(ModelConfig(variant=variant, **fields | {"gamma": 0.1}), seed=0, dtype=dtype)
    gamma_init_(model, **GAMMAS, distribution="uniform", seed=5)
    # `released` has another d_in, random biases and smaller writers
    assert same(bits(model), bits(expected)) == (variant != "released")
    frozen = [not parameter.requires_grad for parameter in expected.parameters()]
    assert frozen == [not parameter.requires_grad for parameter in model.parameters()]


def test_residual_writers_scale_on_request():
    config = ModelConfig(n_layers=3, scale_residual_writers=True)
    model = build_model(ModelConfig(n_layers=3))
    gamma_init_(model, 0.7, scale_residual_writers=True, seed=1)
    assert same(bits(model), bits(build_model(config, seed=1)))


def test_a_users_own_model_of_the_same_shape_is_build_models():
    config = ModelConfig(
        n_layers=3, n_heads=4, d_model=32, d_head=8, d_mlp=48, d_vocab=150, n_ctx=12, gamma=0.4
    )
    assert same(bits(gamma_init_(user_built(), 0.4, seed=3)), bits(build_model(config, seed=3)))


def test_the_seed_is_everything():
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    models = [gamma_init_(user_built(seed=start), 0.5, seed=seed) for start, seed in ((0, 4), (1, 4), (0, 5))]
    first, again, other = map(bits, models)
    assert same(first, again) and not torch.equal(first["embed.W_E"], other["embed.W_E"])
    assert same(bits(gamma_init_(models[0], 0.5, seed=4)), first)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert after == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_the_same_numbers_rounded(dtype):
    single, half = (gamma_init_(user_built(each), 0.5, seed=2) for each in (torch.float32, dtype))
    assert same(bits(half), {name: weight.to(dtype) for name, weight in bits(single).items()})


def test_the_model_stays_what_it_is():
    model = user_built().eval()
    model.blocks[0].attn.W_Q.requires_grad_(False)
    parameters, seen = dict(model.named_parameters()), []
    model.blocks[0].attn.hook_pattern.add_hook(lambda value, hook: seen.append(1))
    gamma_init_(model, 0.5)
    assert not model.training and not model.blocks[0].attn.W_Q.requires_grad and model.W_E.requires_grad
    assert all(parameter is parameters[name] for name, parameter in model.named_parameters())
    assert all(parameter.grad is None for parameter in parameters.values())
    model(torch.arange(10)[None]).sum().backward()
    assert seen and model.embed.W_E.grad is not None


@pytest.mark.filterwarnings("ignore:.*are one matrix. tied blocks are drawn once")
def test_what_is_tied_stays_tied():
    model = user_built()
    model.unembed.W_U.data = model.embed.W_E.data.T
    gamma_init_(model, **GAMMAS)
    assert torch.equal(model.unembed.W_U, model.embed.W_E.T)
    model.blocks[1] = model.blocks[0]
    shared = gamma_init_(model, 0.5).blocks[0].attn.W_Q
    assert shared is model.blocks[1].attn.W_Q and abs(shared.std().item() * 32**0.5 - 1) < 0.1


@pytest.mark.gpu
def test_a_gpu_gets_the_same_bits():
    on_cpu, on_gpu = (gamma_init_(user_built().to(device), 0.5, seed=2) for device in ("cpu", "cuda"))
    assert on_gpu.W_E.device.type == "cuda"
    assert same(bits(on_cpu), {name: weight.cpu() for name, weight in bits(on_gpu).items()})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 11}, "gamma must be a finite number"),
        ({"gamma": None}, "gamma must be a finite number"),
        ({"gamma": 0.5, "gamma_vo": float("nan")}, "gamma_vo must be a finite number"),
        (
            {"gamma": 0.5, "distribution": "cauchy"},
            "distribution must be one of normal, uniform, got",
        ),
        ({"gamma": 0.5, "scale_residual_writers": "yes"}, "scale_residual_writers must be true or false"),
        ({"gamma": 0.5, "seed": -1}, "seed must be an integer >= 0, got -1"),
    ],
)
def test_bad_arguments_say_what_is_wrong_and_change_nothing(arguments, message):
    model = user_built()
    before = bits(model)
    with pytest.raises(ValueError) as error:
        gamma_init_(model, **arguments)
    assert message in str(error.value) and same(bits(model), before)


@only_on_3
@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"use_attention_sinks": True}, "blocks.0.attn.sinks [4]"),
    ],
)
def test_a_parameter_that_the_table_has_not_is_named_and_nothing_is_drawn(fields, name):
    model = user_built(**fields)
    before = bits(model)
    with pytest.raises(ValueError) as error:
        gamma_init_(model, 0.5)
    assert name in str(error.value) and "\n" not in str(error.value) and same(bits(model), before)

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from anchorlens import HookedTransformer
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.model_input import resolve
from anchorlens.models.config import PARTS, VARIANTS, ModelConfig
from anchorlens.models.gamma import init_table, parameter_shapes
from anchorlens.models.hooked import build_model
from anchorlens.tasks.two_anchor.task import AnchorTask

SMALL = {"n_heads": 2, "d_model": 24, "d_head": 8, "d_mlp": 40, "d_vocab": 110, "gamma": 0.4}


def layer_norm(x, weight, bias):
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps=1e-5)


def attention(p, block, q_in, k_in, v_in):
    """Causal multi-head attention written from the equation, one head at a time."""
    out = p[f"{block}.attn.b_O"]
    causal = torch.ones(q_in.shape[1], q_in.shape[1], dtype=torch.bool).tril()
    for head in range(p[f"{block}.attn.W_Q"].shape[0]):
        q, k, v = (
            x @ p[f"{block}.attn.W_{n}"][head] + p[f"{block}.attn.b_{n}"][head]
            for n, x in (("Q", q_in), ("K", k_in), ("V", v_in))
        )
        scores = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).masked_fill(~causal, -math.inf)
        out = out + scores.softmax(-1) @ v @ p[f"{block}.attn.W_O"][head]
    return out


def reference_logits(config, p, tokens):
    """The variants written from the papers' equations, without TransformerLens."""
    act = {"gelu": functional.gelu, "relu": functional.relu}[config.activation]
    x = p["embed.W_E"][tokens] + p["pos_embed.W_pos"][: tokens.shape[1]]
    for layer in range(config.n_layers):
        b = f"blocks.{layer}"
        if config.variant != "plain":
            ln1, ln2 = ((p[f"{b}.{ln}.w"], p[f"{b}.{ln}.b"]) for ln in ("ln1", "ln2"))

        def mlp(y, b=b):
            hidden = act(y @ p[f"{b}.mlp.W_in"] + p[f"{b}.mlp.b_in"])
            return hidden @ p[f"{b}.mlp.W_out"] + p[f"{b}.mlp.b_out"]

        if config.variant == "postnorm":
            x = layer_norm(x + attention(p, b, x, x, x), *ln1)
            x = layer_norm(x + mlp(x), *ln2)
        elif config.variant == "plain":
            x = x + attention(p, b, x, x, x)
            x = x + mlp(x)
        else:
            y = layer_norm(x, *ln1)
            kv = x if config.variant == "released" else y
            x = x + attention(p, b, y, kv, kv)
            x = x + mlp(layer_norm(x, *ln2))
    if config.variant not in ("postnorm", "plain"):
        x = layer_norm(x, p["ln_final.w"], p["ln_final.b"])
    return x @ p["unembed.W_U"] + p["unembed.b_U"]


@pytest.mark.parametrize("variant", VARIANTS)
class TestVariants:
    def test_is_a_hooked_transformer_that_computes_the_papers_equations(self, variant):
        config = ModelConfig(variant=variant, n_layers=3, **SMALL)
        model = build_model(config, seed=1, dtype="float64")
        assert isinstance(model, HookedTransformer)
        with torch.no_grad():  # biases and LayerNorms away from 0 and 1, so that each of them counts
            generator = torch.Generator().manual_seed(0)
            for name, parameter in model.named_parameters():
                if name.split(".")[-1][0] in "bw":
                    noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                    parameter += 0.1 * noise
        tokens = AnchorTask().sample(16).tokens
        parameters = dict(model.named_parameters())
        expected = reference_logits(config, parameters, tokens)
        assert torch.allclose(model(tokens), expected, atol=1e-12)

    def test_every_hook_point_fires_and_is_alive(self, variant):
        model = build_model(ModelConfig(variant=variant, **SMALL), seed=0)
        model.cfg.use_attn_result = model.cfg.use_hook_mlp_in = True
        tokens = AnchorTask().sample(4).tokens
        for gate in ("use_attn_in", "use_split_qkv_input"):
            setattr(model.cfg, gate, True)
            with torch.no_grad():
                logits, cache = model.run_with_cache(tokens)
                gated = ("hook_attn_in",) if gate == "use_attn_in" else ("_q_input", "_k_input", "_v_input")
                missing = {
                    name
                    for name in set(model.hook_dict) - set(cache.keys())
                    if not name.endswith(("hook_attn_in", "_q_input", "_k_input", "_v_input"))
                    or name.endswith(gated)
                }
                assert not missing
                for name in cache:

                    def edit(value, hook):
                        changed = value.clone()
                        # the last position and the diagonal are always read
                        changed[..., -1, :] = 0.7 * changed[..., -1, :].roll(1, -1) - 0.1
                        return changed

                    edited = model.run_with_hooks(tokens, fwd_hooks=[(name, edit)])
                    assert not torch.equal(edited, logits), f"{name} is dead"
            setattr(model.cfg, gate, False)

    def test_hook_names_are_the_usual_ones(self, variant):
        names = set(build_model(ModelConfig(variant=variant, **SMALL)).hook_dict)
        usual = set(build_model(ModelConfig(variant="gpt2", **SMALL)).hook_dict)
        norms = {name for name in usual if name.endswith((".hook_scale", ".hook_normalized"))}
        final = {"ln_final.hook_scale", "ln_final.hook_normalized"}
        assert len(norms) == 10 and names == usual - {"postnorm": final, "plain": norms}.get(variant, set())

    @pytest.mark.parametrize("distribution", ["normal", "uniform"])
    def test_every_matrix_has_the_std_of_the_table(self, variant, distribution):
        config = ModelConfig(
            variant=variant,
            n_heads=2,
            d_mlp=512,
            init_distribution=distribution,
            gamma_embedding=0.3,
            gamma_qk=0.5,
            gamma_vo=0.6,
            gamma_mlp=0.9,
        )
        expected = {  # written out by hand: d_model 128, heads * d_head 128, d_mlp 512, two layers
            "W_E": 128**-0.3,
            "W_pos": 128**-0.3,
            "W_U": 128**-0.3,
            "W_Q": 128**-0.5,
            "W_K": 128**-0.5,
            "W_V": 128**-0.6,
            "W_O": 128**-0.6 / (2 if variant == "released" else 1),
            "W_in": 128**-0.9,
            "W_out": 128**-0.9 / 2 if variant == "released" else 512**-0.9,
        }
        parameters = dict(build_model(config, seed=0).named_parameters())
        matrices = [name for name in parameters if name.split(".")[-1].startswith("W_")]
        assert set(matrices) == set(init_table(config))
        for name in matrices:
            weight, scale = parameters[name].detach(), expected[name.split(".")[-1]]
            std = scale if distribution == "normal" else scale / math.sqrt(3)
            n = weight.numel()
            # sampling error of a std: std / sqrt(2 n) for a normal, less for a uniform
            assert abs(weight.std().item() - std) < 5 * std / math.sqrt(2 * n), name
            assert abs(weight.mean().item()) < 5 * std / math.sqrt(n), name
            if distribution == "uniform":
                assert weight.abs().max() <= scale

    def test_biases_and_layer_norms(self, variant):
        model = build_model(ModelConfig(variant=variant))
        for name, parameter in model.named_parameters():
            kind = name.split(".")[-1]
            if kind == "w":
                assert (parameter == 1).all()
            elif kind == "b":
                assert (parameter == 0).all()
            elif kind.startswith("b_") and variant == "released":
                bound = 1 / math.sqrt(256 if kind == "b_out" else 64 if kind == "b_O" else 128)
                assert 0.8 * bound < parameter.abs().max() <= bound, name
            elif kind.startswith("b_"):
                assert (parameter == 0).all()
                assert parameter.requires_grad == (variant != "postnorm" or kind == "b_U"), name

    def test_no_uninitialised_memory(self, variant):
        try:
            torch.use_deterministic_algorithms(True)  # torch.empty then fills with NaN
            assert torch.utils.deterministic.fill_uninitialized_memory
            assert torch.empty(3).isnan().all()
            model = build_model(ModelConfig(variant=variant, **SMALL))
        finally:
            torch.use_deterministic_algorithms(False)
        assert all(parameter.isfinite().all() for parameter in model.parameters())

    def test_parameter_shapes_are_those_of_the_model(self, variant):
        config = ModelConfig(variant=variant, n_layers=3, **SMALL)
        model = build_model(config)
        assert parameter_shapes(config) == {n: tuple(p.shape) for n, p in model.named_parameters()}

    def test_the_seed_is_everything(self, variant):
        config = ModelConfig(variant=variant, **SMALL)
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        a, b, c = (build_model(config, seed=seed).W_Q for seed in (5, 5, 6))
        assert torch.equal(a, b) and not torch.equal(a, c)
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        assert after == before


@pytest.mark.parametrize("act_fn", ["relu", "gelu"])
def test_answers_may_have_a_vocabulary_of_their_own(act_fn):
    config = ModelConfig("plain", **SMALL, d_vocab_out=59, act_fn=act_fn)
    model = build_model(config, seed=1, dtype="float64")
    tokens = AnchorTask().sample(16).tokens
    logits = model(tokens)
    assert (
        logits.shape == (16, 9, 59) and model.W_U.shape == (24, 59) and model.cfg.normalization_type is None
    )
    assert torch.allclose(
        logits, reference_logits(config, dict(model.named_parameters()), tokens), atol=1e-12
    )
    with pytest.raises(ValueError, match=r"d_vocab_out.*at least 110.*got 59"):
        config.check_task(AnchorTask())
    assert replace(config, d_vocab_out=110) == replace(config, d_vocab_out=None)


def test_gamma_scales_the_same_numbers():
    large, small = (build_model(ModelConfig(gamma=g), seed=3) for g in (0.3, 0.8))
    assert torch.allclose(large.W_K * 128**-0.5, small.W_K, rtol=1e-5)


def test_residual_writers_scale_on_request():
    config = ModelConfig(n_layers=8, scale_residual_writers=True)
    table, plain = init_table(config), init_table(ModelConfig(n_layers=8))
    assert table["blocks.3.attn.W_O"].scale == pytest.approx(plain["blocks.3.attn.W_O"].scale / 4)
    assert table["blocks.3.mlp.W_in"] == plain["blocks.3.mlp.W_in"]


def test_hooks_can_edit_and_the_edit_reaches_the_logits_once():
    model = build_model(ModelConfig(variant="postnorm", **SMALL))
    tokens = AnchorTask().sample(2).tokens
    plain = model(tokens)
    zeroed = model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_pattern", lambda v, hook: v * 0)])
    assert not torch.allclose(zeroed, plain)
    assert torch.equal(model(tokens), plain)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"variant": "gpt3"}, "variant must be one of"),
        ({"n_layers": 0}, "n_layers must be an integer >= 1"),
        ({"n_layers": 10**9}, "n_layers must be an integer >= 1 and <= 10000"),
        ({"d_model": 12.5}, "d_model must be an integer >= 1, got 12.5"),
        ({"gamma": float("nan")}, "gamma must be a finite number"),
        ({"gamma_qk": -1000}, "gamma_qk must be a finite number"),
        ({"init_distribution": "cauchy"}, "init_distribution must be one of normal, uniform"),
        ({"act_fn": "swish"}, "act_fn must be one of gelu, gelu_new, relu"),
        ({"scale_residual_writers": "yes"}, "scale_residual_writers must be true or false"),
    ],
)
def test_bad_configs_say_what_is_wrong(fields, message):
    with pytest.raises(ValueError) as error:
        ModelConfig(**fields)
    assert message in str(error.value)


def test_a_model_too_small_for_its_task_says_so():
    with pytest.raises(ValueError, match=r"d_vocab.*at least 311.*got 201"):
        ModelConfig().check_task(AnchorTask(key_max=300))
    with pytest.raises(ValueError, match="n_ctx must be at least 12 for the task, got 9"):
        ModelConfig().check_task(AnchorTask(seq_len=12))
    task = AnchorTask(key_max=300, seq_len=12)
    ModelConfig.for_task(task).check_task(task)


def test_bad_seeds_and_dtypes_say_what_is_wrong():
    with pytest.raises(ValueError, match="seed must be an integer >= 0, got -1"):
        build_model(ModelConfig(**SMALL), seed=-1)
    with pytest.raises(ValueError, match="dtype must be one of float32, float64"):
        build_model(ModelConfig(**SMALL), dtype="int8")  # pyright: ignore[reportArgumentType]


def test_a_variation_is_made_with_replace():
    postnorm, released = (replace(ModelConfig(), variant=v) for v in ("postnorm", "released"))
    assert (postnorm.activation, released.activation) == ("relu", "gelu")
    assert released.scales_residual_writers and not postnorm.scales_residual_writers


def test_numpy_values_are_numbers_too():
    config = ModelConfig(gamma=np.float64(0.5), n_layers=np.int64(3))
    assert config == ModelConfig(gamma=0.5, n_layers=3) and json.dumps(config.to_dict())


def test_gamma_of_a_part():
    config = ModelConfig(gamma=0.5, gamma_mlp=0.9)
    assert [config.gamma_of(part) for part in PARTS] == [0.5, 0.5, 0.5, 0.9]


@pytest.mark.parametrize("device", [torch.device("cpu", 0), "cpu:0"])
def test_the_index_of_a_device_is_kept(device, tmp_path):
    """Of "cuda:1" HookedTransformer moves tokens to where `cfg.device` says, which must not be "cuda"."""
    config, task = ModelConfig(n_layers=1, **SMALL), AnchorTask()
    model = build_model(config, device=device)
    again = Checkpoint.from_model(model, config, task).build_model(device)
    torch.save(model.state_dict(), tmp_path / "bare.pt")
    how = {"config": model.cfg, "device": device}
    foreign = resolve(tmp_path / "bare.pt", **how).model
    assert [made.cfg.device for made in (model, again, foreign)] == ["cpu:0"] * 3

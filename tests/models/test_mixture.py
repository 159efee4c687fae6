"""Mixtures of experts: their fields, how they start, and what they are in TransformerLens."""

import json
import math
from dataclasses import replace

import pytest
import torch
from known_models import user_built
from torch.nn import functional

from anchorlens import AnchorTask, Checkpoint, gamma_init_, load_checkpoint, preset, save_checkpoint
from anchorlens.extras.sweep.grids import grid
from anchorlens.files.importers import open_checkpoint
from anchorlens.models.config import VARIANTS, ModelConfig
from anchorlens.models.gamma import init_table, initial_weights, parameter_shapes, part_of_matrices
from anchorlens.models.hooked import build_model
from anchorlens.recipes.run_config import identity, recipe

SMALL = ModelConfig(n_layers=2, n_heads=2, d_model=24, d_head=8, d_mlp=40, num_experts=3, gamma=0.5)
TOKENS = AnchorTask().sample(16).tokens


class TestFields:
    def test_unset_fields_make_no_other_run(self):
        run = preset("quick")
        assert not {"num_experts", "experts_per_token", "gamma_experts"} & set(recipe(run)["model"])
        mixtures = [preset("quick", num_experts=2), preset("quick", num_experts=2, gamma_experts="0.3 0.9")]
        assert len({identity(run) for run in (run, *mixtures)}) == 3
        assert recipe(mixtures[1])["model"]["gamma_experts"] == "0.3 0.9"

    def test_gammas_are_text_a_list_or_an_axis(self):
        config = replace(SMALL, gamma_experts="0.30  0.9 1")
        assert config.gamma_experts == "0.3 0.9 1"
        assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
        assert replace(SMALL, gamma_experts=[0.3, 0.9, 1]) == config
        runs = grid("quick", {"gamma_experts": "0.3 0.9,0.5 0.8,none"}, num_experts=2)
        assert [run.model_config.gamma_experts for run in runs] == ["0.3 0.9", "0.5 0.8", None]

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"num_experts": 1}, "num_experts must be an integer >= 2"),
            ({"num_experts": 10**9}, "num_experts must be an integer >= 2"),
            (
                {"num_experts": None, "experts_per_token": 2},
                "experts_per_token must be None",
            ),
            (
                {"num_experts": None, "gamma_experts": "1"},
                "gamma_experts must be None",
            ),
            ({"experts_per_token": 3}, "experts_per_token must be an integer >= 1"),
            ({"gamma_experts": "0.3 0.9"}, "gamma_experts must be 3 numbers separated by spaces"),
            ({"gamma_experts": "0.3 0.9 0.9 1"}, "one for each expert, got '0.3 0.9 0.9 1'"),
            ({"gamma_experts": "0.3,0.9,1"}, "3 numbers separated by spaces, one"),
            ({"gamma_experts": ""}, "one for each expert, got ''"),
            ({"gamma_experts": "0.3 0.9 nan"}, "a gamma of gamma_experts must be a finite number"),
            ({"gamma_experts": "0.3 0.9 11"}, "must be a finite number >= -10 and <= 10, got 11.0"),
            ({"gamma_experts": 0.3}, "gamma_experts must be text, got 0.3"),
            (
                {"num_experts": 64, "d_model": 10**6, "d_mlp": 10**5},
                "must have at most 1,000,000,000,000 parameters",
            ),
        ],
    )
    def test_bad_values_get_one_clear_error(self, fields, message):
        with pytest.raises(ValueError) as error:
            replace(SMALL, **fields)
        assert message in str(error.value) and "\n" not in str(error.value)

    def test_it_says_what_it_is(self):
        assert SMALL.overview == "gpt2, 2 layers, 2 heads, d_model 24, top 1 of 3 experts"
        assert SMALL.short_name == "gpt2, 2 layers, 3 experts, gamma 0.5"
        assert SMALL.shape == replace(SMALL, experts_per_token=1, gamma_experts="1 2 3").shape
        assert SMALL.shape != replace(SMALL, experts_per_token=2).shape != replace(SMALL, num_experts=2).shape


class TestTheStart:
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_every_matrix_has_its_gamma(self, variant):
        config = replace(
            SMALL, variant=variant, d_model=128, d_mlp=256, gamma_mlp=0.6, gamma_experts="0.3 0.9 0.5"
        )
        weights = initial_weights(config, 0)
        gammas = {"W_gate": 0.6, "experts.0": 0.3, "experts.1": 0.9, "experts.2": 0.5}
        for name, start in init_table(config).items():
            if ".mlp." in name:
                assert start.part == "mlp"
                gamma = next(g for key, g in gammas.items() if f".mlp.{key}." in name)
                d_in = 256 if name.endswith("W_out.weight") and variant != "released" else 128
                std = d_in**-gamma
                if "W_out" in name and variant == "released":
                    std /= math.sqrt(2 * config.n_layers)
                assert start.scale == pytest.approx(std)
                assert weights[name].std().item() == pytest.approx(std, rel=0.1), name

    def test_without_gammas_of_their_own_experts_are_as_gamma_mlp(self):
        same = replace(SMALL, gamma_mlp=0.7, gamma_experts="0.7 0.7 0.7")
        ours, theirs = initial_weights(replace(SMALL, gamma_mlp=0.7), 3), initial_weights(same, 3)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    def test_parts(self):
        parts = part_of_matrices(SMALL)
        mlp = [name for name, part in parts.items() if part == "mlp"]
        assert len(mlp) == 2 * (1 + 3 * 3) and "blocks.1.mlp.W_gate.weight" in mlp
        assert parts.keys() == init_table(SMALL).keys()

    def test_gamma_init_draws_the_same_numbers(self):
        config = replace(SMALL, gamma_experts="0.3 0.9 0.5")
        model = gamma_init_(build_model(SMALL, seed=9), 0.5, gamma_experts=[0.3, 0.9, 0.5], seed=4)
        expected = initial_weights(config, 4)
        assert all(torch.equal(p, expected[name]) for name, p in model.named_parameters())
        with pytest.raises(ValueError, match="gamma_experts must be unset unless"):
            gamma_init_(user_built(), 0.5, gamma_experts=[0.3, 0.9])


def reference_mixture(config, p, block, x):
    """The sum over chosen experts of their softmax weight times their output, one row at a time."""
    act = {"gelu": functional.gelu, "relu": functional.relu}[config.activation]
    out = torch.zeros_like(x)
    for batch, pos in torch.cartesian_prod(*map(torch.arange, x.shape[:2])).tolist():
        row = x[batch, pos]
        weights = (p[f"{block}.mlp.W_gate.weight"] @ row).softmax(0)
        for expert in weights.argsort(descending=True)[: config.n_active].tolist():
            w_gate, w_in, w_out = (
                p[f"{block}.mlp.experts.{expert}.{name}.weight"] for name in ("W_gate", "W_in", "W_out")
            )
            out[batch, pos] += weights[expert] * (w_out @ (act(w_gate @ row) * (w_in @ row)))
    return out


@pytest.mark.parametrize("experts_per_token", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
class TestTheModel:
    def test_adds_what_the_chosen_experts_give(self, variant, experts_per_token):
        config = replace(SMALL, variant=variant, experts_per_token=experts_per_token, gamma=0.3)
        model = build_model(config, seed=1, dtype="float64")
        p = dict(model.named_parameters())
        assert {name: tuple(value.shape) for name, value in p.items()} == parameter_shapes(config)
        assert all(value.dtype == torch.float64 for value in p.values())
        _, cache = model.run_with_cache(TOKENS)
        for layer in range(2):
            x = cache[f"blocks.{layer}.hook_resid_mid"]
            if variant in ("gpt2", "released"):
                x = functional.layer_norm(x, x.shape[-1:], eps=1e-5)
            expected = reference_mixture(config, p, f"blocks.{layer}", x)
            found = cache[f"blocks.{layer}.hook_mlp_out"]
            assert (found - expected).abs().max() < 1e-6 * expected.abs().max()  # its softmax is in float32

    def test_goes_to_a_file_and_back(self, variant, experts_per_token, tmp_path):
        config = replace(SMALL, variant=variant, experts_per_token=experts_per_token, gamma_experts="1 .5 .3")
        model = build_model(config, seed=1)
        checkpoint = Checkpoint.from_model(model, config, AnchorTask())
        for name in ("a.safetensors", "a.pt"):
            save_checkpoint(tmp_path / name, checkpoint)
            again = load_checkpoint(tmp_path / name)
            assert again.model_config == config
            assert torch.equal(again.build_model()(TOKENS), model.eval()(TOKENS))


@pytest.mark.parametrize("ours", [True, False], ids=["a ModelConfig", "a HookedTransformerConfig"])
@pytest.mark.needs("importers")
def test_a_bare_state_dict_is_opened(ours, tmp_path):
    config = replace(SMALL, experts_per_token=2)
    model = build_model(config, seed=1).eval()
    torch.save(model.state_dict(), tmp_path / "theirs.pt")
    about = {"model": config.to_dict()} if ours else dict(model.cfg.to_dict())
    (tmp_path / "c.json").write_text(json.dumps(about, default=str))
    opened = open_checkpoint(tmp_path / "theirs.pt", config=tmp_path / "c.json").checkpoint
    assert opened.model_config.num_experts == 3 and opened.model_config.n_active == 2
    assert torch.equal(opened.build_model()(TOKENS), model(TOKENS))
    about = {"model": {**config.to_dict(), "num_experts": 4}} if ours else {**about, "num_experts": 4}
    (tmp_path / "c.json").write_text(json.dumps(about, default=str))
    with pytest.raises(ValueError, match="num_experts"):
        open_checkpoint(tmp_path / "theirs.pt", config=tmp_path / "c.json")

"""What holds for every probe of the registry."""

import dataclasses
import inspect
import json

import numpy as np
import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.configuration import field_docs
from anchorlens.probes import PROBES, ProbeResult, apply, v_similarity

TASK = AnchorTask()
NEED_TWO_LAYERS = (v_similarity,)


def own_model(dtype=torch.float32):
    """A HookedTransformer that a user built: three layers, four heads, another vocabulary."""
    config = HookedTransformerConfig(
        n_layers=3, n_heads=4, d_model=32, d_head=8, d_mlp=48, d_vocab=150, n_ctx=12, act_fn="relu",
        init_weights=False, device="cpu", dtype=dtype,
    )  # fmt: skip
    model = HookedTransformer(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def run(probe, model):
    return apply(probe, model, TASK)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.__name__)
@pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")
class TestEveryProbe:
    def test_gives_a_frozen_documented_result_of_its_name(self, probe):
        result = run(probe, own_model())
        assert isinstance(result, ProbeResult) and result.probe == probe.__name__
        assert probe.__module__ == f"anchorlens.probes.{probe.__name__}"
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, dataclasses.fields(result)[0].name, None)
        assert set(field_docs(type(result))) >= {field.name for field in dataclasses.fields(result)}
        text = repr(result)
        assert text.startswith(type(result).__name__) and "\n" not in text

    def test_is_json(self, probe):
        content = run(probe, own_model()).to_dict()
        assert json.loads(json.dumps(content, allow_nan=False)) == content
        assert content["probe"] == probe.__name__ and content["schema_version"] == 1

    def test_repeats_bit_for_bit_and_leaves_the_model_as_it_was(self, probe):
        model = own_model().train()
        before = {name: parameter.clone() for name, parameter in model.named_parameters()}
        state = torch.get_rng_state(), np.random.get_state()[1].tolist()
        first, second = run(probe, model).to_dict(), run(probe, model).to_dict()
        assert first == second
        assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
        assert model.training and all(parameter.grad is None for parameter in model.parameters())
        assert torch.equal(torch.get_rng_state(), state[0]) and np.random.get_state()[1].tolist() == state[1]
        assert not any(point.fwd_hooks for point in model.hook_dict.values())

    def test_runs_on_float64_and_in_inference_mode(self, probe):
        single, double = run(probe, own_model()).to_dict(), run(probe, own_model(torch.float64)).to_dict()
        assert single.keys() == double.keys()
        with torch.inference_mode():
            assert run(probe, own_model()).to_dict() == single

    def test_draws_a_picture_with_a_title_and_named_axes(self, probe):
        figure = run(probe, own_model()).plot()
        content = figure.to_dict()["layout"]
        assert content["title"]["text"]
        axes = [axis for name, axis in content.items() if name.startswith(("xaxis", "yaxis"))]
        assert sum("text" in axis.get("title", {}) for axis in axes) >= 1
        assert content["width"] <= 600
        assert figure.to_json()

    def test_one_layer_is_enough_or_said_to_be_too_few(self, probe):
        model = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16))
        if probe in NEED_TWO_LAYERS:
            with pytest.raises(ValueError, match="with 1 layer"):
                run(probe, model)
        else:
            run(probe, model)

    def test_says_its_source(self, probe):
        text = inspect.getdoc(probe)
        assert "Source:" in text and "Returns:" in text and ">>>" in text

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")
    def test_agrees_on_a_gpu(self, probe):
        config = ModelConfig(n_layers=2, d_model=32, d_head=16, d_mlp=32)
        on = [run(probe, build_model(config, device=device)) for device in ("cpu", "cuda")]
        for field in dataclasses.fields(on[0]):
            values = [np.asarray(getattr(result, field.name)) for result in on]
            if values[0].dtype.kind == "f":
                assert np.allclose(*values, atol=1e-4), field.name


def test_the_registry_has_each_name_once():
    names = [probe.__name__ for probe in PROBES]
    assert len(set(names)) == len(names)

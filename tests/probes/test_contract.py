"""What holds for every probe of the registry."""

import dataclasses
import functools
import inspect
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from few_questions import FEWEST
from known_models import ARCHITECTURES, LINE, as_bridge, own_answers, user_built

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.configuration import field_docs
from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.models import hooks
from anchorlens.probes import (
    OF_MIXTURES,
    SHIPPED,
    ProbeResult,
    apply,
    embedding_pca,
    information_flow,
    mask_key_token,
    mask_second_anchor,
    needs_task,
    q_condensation,
    stable_rank,
    v_similarity,
)
from anchorlens.probes.shared.contract import needs_training_set, spec_of
from anchorlens.tasks.registry import read_task

TASK = AnchorTask()
SMALL = ModelConfig(n_layers=2, d_model=32, d_head=16, d_mlp=32, gamma=0.5)
NEED_TWO_LAYERS = (v_similarity, information_flow)
EDIT_ATTENTION = (mask_key_token, mask_second_anchor, information_flow)
READ_WEIGHTS = (stable_rank, q_condensation, embedding_pca)
pytestmark = pytest.mark.usefixtures("few_updates")


def task_of(probe):
    """A task that the probe measures."""
    return TASK if spec_of(probe).task_kind is None else read_task({"kind": spec_of(probe).task_kind})


def run(probe, model, initial=None, task=None):
    options = dict(FEWEST.get(probe.__name__, {}))
    if needs_training_set(probe) and hasattr(model, "cfg"):
        options["training_set"] = own_answers(model)
    return apply(probe, model, task or task_of(probe), initial=initial or model, **options)


def built(probe, *args, **fields):
    """A model that a user built, of a kind that the probe takes."""
    experts = {"num_experts": 2, "experts_per_token": 1, "gated_mlp": True} if probe in OF_MIXTURES else {}
    return user_built(*args, **experts, **fields)


@functools.cache
def measured(probe):
    """What it measures on one model, once for all tests that only look at the result."""
    return run(probe, built(probe), built(probe, seed=1))


def small(probe, **fields):
    """A small config that the probe takes."""
    return replace(SMALL, **fields, **({"num_experts": 2} if probe in OF_MIXTURES else {}))


def floats(result):
    return {
        field.name: np.asarray(getattr(result, field.name), dtype=float)
        for field in dataclasses.fields(result)
        if np.asarray(getattr(result, field.name)).dtype.kind == "f" and field.name != "points"
    }


@pytest.mark.parametrize("probe", SHIPPED, ids=lambda probe: probe.__name__)
class TestEveryProbe:
    def test_gives_a_frozen_documented_result_of_its_name(self, probe):
        result = measured(probe)
        assert isinstance(result, ProbeResult) and result.probe == probe.__name__
        places = [f"probes.any_model.{probe.__name__}", f"probes.two_anchor.{probe.__name__}"]
        of_products = rf"extras\.(\w+\.{probe.__name__}|{probe.__name__}\.probe)"
        place = probe.__module__.removeprefix("anchorlens.")
        assert place in places or re.fullmatch(of_products, place)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, dataclasses.fields(result)[0].name, None)
        assert set(field_docs(type(result))) >= {field.name for field in dataclasses.fields(result)}
        text = repr(result)
        assert text.startswith(type(result).__name__) and "\n" not in text

    def test_has_readings_that_are_fields(self, probe):
        numbers = measured(probe).numbers()
        assert numbers and all(value is None or np.isscalar(value) for value in numbers.values())

    def test_is_json(self, probe):
        content = measured(probe).to_dict()
        assert json.loads(json.dumps(content, allow_nan=False)) == content
        assert content["probe"] == probe.__name__ and content["schema_version"] == 1

    def test_repeats_bit_for_bit_and_leaves_the_model_as_it_was(self, probe):
        model, initial = built(probe).train(), built(probe, seed=1)
        before = {name: parameter.clone() for name, parameter in model.named_parameters()}
        state = torch.get_rng_state(), np.random.get_state()[1].tolist()
        assert run(probe, model, initial).to_dict() == measured(probe).to_dict()
        assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
        assert model.training and all(parameter.grad is None for parameter in model.parameters())
        assert all(parameter.requires_grad for parameter in model.parameters())
        assert torch.equal(torch.get_rng_state(), state[0]) and np.random.get_state()[1].tolist() == state[1]
        assert not any(point.fwd_hooks for point in model.hook_dict.values())
        assert not any(module._forward_pre_hooks for module in model.modules())

    def test_leaves_a_users_own_hooks_alone(self, probe):
        model, seen = built(probe), []
        model.blocks[0].attn.hook_pattern.add_hook(lambda value, hook: seen.append(1))
        run(probe, model)
        assert len(model.blocks[0].attn.hook_pattern.fwd_hooks) == 1
        assert bool(seen) == (probe not in READ_WEIGHTS)
        assert model.context_level == 0

    def test_runs_on_float64_and_in_inference_mode(self, probe):
        single = measured(probe)
        double = run(probe, built(probe, torch.float64), built(probe, torch.float64, seed=1))
        for name, values in floats(single).items():
            scale = max(1, np.nanmax(np.abs(values), initial=1))
            assert np.allclose(values, floats(double)[name], atol=1e-3 * scale, equal_nan=True), name
        with torch.inference_mode():
            again = run(probe, built(probe), built(probe, seed=1))
        assert again.to_dict() == single.to_dict()

    def test_draws_a_picture_with_a_title_and_named_axes(self, probe):
        figure = measured(probe).plot()
        content = figure.to_dict()["layout"]
        assert content["title"]["text"]
        axes = [axis for name, axis in content.items() if name.startswith(("xaxis", "yaxis"))]
        assert sum("text" in axis.get("title", {}) for axis in axes) >= 1
        assert content["width"] <= 600
        assert figure.to_json()

    def test_one_layer_is_enough_or_said_to_be_too_few(self, probe):
        model = build_model(small(probe, n_layers=1))
        if probe in NEED_TWO_LAYERS:
            with pytest.raises(ValueError, match="with 1 layer"):
                run(probe, model)
        else:
            run(probe, model)

    def test_a_model_of_another_task_is_refused(self, probe):
        if "task" not in inspect.signature(probe).parameters:
            pytest.skip("reads weights alone, of any task")
        with pytest.raises(ValueError, match="d_vocab"):
            run(probe, build_model(small(probe, d_vocab=30)))

    def test_what_is_no_model_task_or_finite_weight_is_refused(self, probe):
        has_task = "task" in inspect.signature(probe).parameters
        with pytest.raises(ValueError, match="model must be a HookedTransformer, got Linear"):
            run(probe, torch.nn.Linear(2, 2))
        if has_task:
            with pytest.raises(ValueError, match=r"task must be a Task.*got str"):
                apply(probe, build_model(small(probe)), "two-anchor", initial=build_model(small(probe)))
        model = build_model(small(probe))
        with torch.no_grad():
            model.blocks[0].attn.W_Q[0, 0, 0] = float("nan")
        with pytest.raises(ValueError, match=r"weights.*finite.*blocks.0.attn.W_Q"):
            run(probe, model)

    def test_without_a_two_anchor_task_it_reads_weights_or_says_what_it_needs(self, probe):
        model, initial = built(probe), built(probe, seed=1)
        if needs_training_set(probe):
            with pytest.raises(ValueError, match=r"must get the training data.*got none"):
                apply(probe, model, None)
            return
        if not needs_task(probe):
            result = apply(probe, model, None, initial=initial)
            assert apply(probe, model, AdditionTask(), initial=initial).to_dict() == result.to_dict()
            return
        with pytest.raises(ValueError) as error:
            apply(probe, model, None, initial=initial)
        message = str(error.value)
        kind = spec_of(probe).task_kind or "two-anchor"
        assert message.startswith(f"{probe.__name__} must get the {kind} task of the model, got none")
        assert (
            message.endswith("or use a probe of weights alone, for example stable_rank")
            and "\n" not in message
        )
        refusal = f"{probe.__name__} must get the {kind} task of the model, got addition"
        if spec_of(probe).task_kind is None:
            refusal = "task must be an AnchorTask, got AdditionTask"
        with pytest.raises(ValueError, match=refusal):
            probe(model, AdditionTask())

    def test_other_tasks(self, probe):
        """Three anchors in a row of other tokens, functions that are no shifts, a short sequence."""
        task = AnchorTask(
            anchors={3: lambda x: (x + 7) % 60 + 20, 5: 2}, chain_length=3, seq_len=6, key_min=20, key_max=70
        )
        if spec_of(probe).task_kind is not None:
            task = read_task({"kind": spec_of(probe).task_kind, "modulus": 11})
        model = build_model(small(probe, d_vocab=task.d_vocab))
        result = run(probe, model, task=task)
        assert result.plot().to_json() and json.dumps(result.to_dict(), allow_nan=False)

    def test_on_a_bridge_it_agrees_or_is_refused(self, probe):
        """Those of TransformerLens 3.9 show the pattern and do not use it."""
        if probe in OF_MIXTURES:
            with pytest.raises(ValueError, match=r"mixture of experts .*a single MLP"):
                run(probe, as_bridge(build_model(SMALL)))
            return
        model, initial = build_model(small(probe)), build_model(small(probe), seed=1)
        with torch.no_grad():
            for parameter in model.parameters():  # no zero biases
                parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
        bridges = as_bridge(model), as_bridge(initial)
        if probe in EDIT_ATTENTION and LINE == 3:
            with pytest.raises(
                ValueError,
                match=r"hook_pattern must be used.*TransformerBridge",
            ):
                run(probe, *bridges)
            return
        expected, found = floats(run(probe, model, initial)), floats(run(probe, *bridges))
        for name, values in expected.items():
            scale = max(1, np.nanmax(np.abs(values), initial=1))
            assert np.allclose(values, found[name], rtol=0, atol=1e-5 * scale, equal_nan=True), name

    def test_says_its_source(self, probe):
        text = inspect.getdoc(probe)
        assert "Source:" in text and "Returns:" in text and ">>>" in text

    @pytest.mark.gpu
    def test_agrees_on_a_gpu(self, probe):
        on = []
        for device in ("cpu", "cuda"):
            model, initial = (build_model(small(probe), seed=seed, device=device) for seed in (0, 1))
            on.append(floats(run(probe, model, initial)))
        for name, values in on[0].items():
            assert np.allclose(values, on[1][name], atol=1e-4, equal_nan=True), name


WITHOUT_TASK = [p for p in SHIPPED if not needs_task(p) and not needs_training_set(p)]


@pytest.mark.parametrize("probe", WITHOUT_TASK, ids=lambda p: p.__name__)
@pytest.mark.parametrize("fields", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_what_reads_weights_alone_takes_any_hooked_transformer(probe, fields):
    model, initial = (user_built(torch.bfloat16, seed=seed, **fields) for seed in (0, 1))
    if fields.get("n_layers") == 0 and probe in (stable_rank, q_condensation):
        with pytest.raises(ValueError, match="the model must have more than 0 layer"):
            apply(probe, model)
        return
    result = apply(probe, model, None, initial=initial)
    again = apply(probe, model.float(), None, initial=initial.float())
    assert result.to_dict() == again.to_dict()  # in half precision only the weights are rounded
    assert result.plot().to_json() and json.dumps(result.to_dict(), allow_nan=False)
    assert any(value is not None for value in result.numbers().values()) or probe is embedding_pca


def test_the_probes_that_read_weights_alone():
    without = {probe.__name__ for probe in WITHOUT_TASK}
    assert without == {"stable_rank", "q_condensation", "embedding_pca", "training_regime"}


def test_information_flow_draws_a_bridge_without_effects():
    model = build_model(SMALL)
    result = information_flow(as_bridge(model), TASK, effects=None)
    assert np.allclose(result.attention, information_flow(model, TASK).attention, atol=1e-5)
    assert result.effects is None and result.inferential_route is None and "attention only" in repr(result)


def test_the_registry_has_each_name_once():
    names = [probe.__name__ for probe in SHIPPED]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("probe", SHIPPED, ids=lambda probe: probe.__name__)
@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_hooks_go_when_a_measurement_breaks_off(probe, failure, monkeypatch):
    """Broken off at the third pass through the second block, by an interrupt or an error."""
    model, passes = built(probe).train(), []
    forward = type(model.blocks[1]).forward

    def breaks(self, *args, **kwargs):
        passes.append(self)
        if len(passes) >= 3:
            raise failure("stop")
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(model.blocks[1]), "forward", breaks)
    try:
        run(probe, model)
    except failure:
        pass
    else:
        assert probe in READ_WEIGHTS or len(passes) < 3
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert model.training and model.context_level == 0


def test_only_hooks_names_hook_points():
    """No other module of the package writes the name of a hook point that it reads or edits."""
    from pathlib import Path

    root = Path(hooks.__file__).parent
    names = ("attn.hook_", "hook_resid", "hook_mlp_out", "hook_attn_out")
    for path in (root / "probes").glob("*.py"):
        lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith(("`", "#"))]
        code = [line for line in lines if any(f'"{name}' in line or f".{name}" in line for name in names)]
        assert not code, (path.name, code)

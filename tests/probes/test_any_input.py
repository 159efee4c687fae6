"""Every probe over every kind of input, and everything else that takes a model."""

import inspect
import warnings

import numpy as np
import pandas
import pytest
import torch
from few_questions import FEWEST
from known_models import user_built

from anchorlens import (
    AnchorTask,
    Checkpoint,
    ModelConfig,
    TrainConfig,
    build_model,
    classify,
    evaluate,
    open_checkpoint,
    probes,
    save_checkpoint,
    train,
)
from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.files.model_input import resolve
from anchorlens.probes import PROBES, compare, needs_initial, needs_task, stable_rank

TASK = AnchorTask(key_min=20, key_max=49)
SMALL = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, d_vocab=TASK.d_vocab, gamma=0.5)
SLOW = ("nearest_neighbours", *FEWEST)
"""Those that take seconds get one form for all."""
KINDS = ("Checkpoint", "TrainResult", "path", "text", "folder", "LoadedModel")


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """One trained model in every form in which it may be handed over."""
    folder = tmp_path_factory.mktemp("runs") / "a"
    recipe = TrainConfig(steps=2, n_samples=512, batch_size=64, n_checkpoints=0)
    result = train(TASK, SMALL, recipe, out=folder, progress=False)
    path = folder / "ckpt.pt"
    return {
        "HookedTransformer": result.model,
        "Checkpoint": result.checkpoint,
        "TrainResult": result,
        "path": path,
        "text": str(path),
        "folder": folder,
        "LoadedModel": open_checkpoint(path),
    }


def same(first, second):
    assert first.to_dict() == second.to_dict()


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_is_the_same_model_task_and_start(kind, given):
    found = resolve(given[kind], device="cpu")
    assert found.task == TASK and found.checkpoint is not None
    for name, weight in found.model.named_parameters():
        assert torch.equal(weight, given["HookedTransformer"].get_parameter(name))
    start = given["Checkpoint"].initial_model()
    assert torch.equal(found.initial_model().W_E, start.W_E)


@pytest.mark.usefixtures("few_updates")
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.__name__)
def test_every_probe_takes_every_form_and_has_the_task_from_the_checkpoint(probe, given):
    options = FEWEST.get(probe.__name__, {})
    start = {"initial": given["Checkpoint"].initial_model()} if needs_initial(probe) else {}
    expected = probe(given["HookedTransformer"], TASK, **start, **options)
    for kind in ("folder",) if probe.__name__ in SLOW else KINDS:
        same(probe(given[kind], **options), expected)


@pytest.mark.parametrize("task", [TASK, AdditionTask(), AnchorTask(), "no task at all"])
def test_probes_of_weights_pass_over_a_task(task, given):
    alone = [probe for probe in PROBES if "task" not in inspect.signature(probe).parameters]
    assert [probe.__name__ for probe in alone] == ["q_condensation", "stable_rank"]
    for probe in alone:
        same(probe(given["HookedTransformer"], task), probe(given["HookedTransformer"]))
        same(probe(given["path"], task), probe(given["HookedTransformer"]))


@pytest.mark.parametrize(
    ("probe", "dtype"),
    [
        (probe, dtype)
        for probe in PROBES
        if needs_task(probe)
        for dtype in (torch.float16, torch.bfloat16)
        if probe.__name__ not in SLOW or dtype == torch.bfloat16
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.usefixtures("few_updates")
def test_a_model_in_half_precision_is_measured_as_float32_with_a_warning(probe, dtype, given):
    model = build_model(SMALL).to(dtype)
    options = FEWEST.get(probe.__name__, {})
    name = str(dtype).removeprefix("torch.")
    with pytest.warns(UserWarning, match=f"weights are {name}:.*float32"):
        result = probe(model, TASK, **options)
    rounded = build_model(SMALL)
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.to(dtype))
    same(result, probe(rounded, TASK, **options))
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_verdicts_say_that_a_model_was_cast():
    model = build_model(SMALL).to(torch.bfloat16)
    verdict = classify(model, TASK, even_underfit=False, name="mine")
    assert "bfloat16: they are measured as float32" in verdict.warnings[0]
    assert verdict.subject.name == "mine" and repr(verdict).startswith("Verdict(mine: ")


@pytest.mark.parametrize(
    "fields",
    [{"normalization_type": None}, {"d_vocab_out": 7}, {"normalization_type": None, "d_vocab_out": 7}],
    ids=str,
)
def test_attention_and_weights_of_any_hooked_transformer(fields):
    model, initial = user_built(**fields), user_built(seed=1, **fields)
    assert probes.attention_patterns(model, TASK).key_position is not None
    assert probes.attention_patterns(model, tokens=[1, 2, 3]).attention.shape[-1] == 3
    assert probes.stable_rank(model).w_q and probes.q_condensation(model) and probes.embedding_pca(model)
    assert probes.training_regime(model, initial=initial).relative_change > 0
    with pytest.raises(ValueError, match=r"training_regime .*start of its run"):
        probes.training_regime(model)


class TestEvaluateAndClassify:
    @pytest.mark.parametrize("kind", KINDS)
    def test_take_every_form(self, kind, given):
        expected = given["TrainResult"].checkpoint.evaluate(n_noise=2)
        same(evaluate(given[kind], n_noise=2), expected)
        verdict = classify(given[kind], even_underfit=False)
        assert verdict.phase.label == "undecided: underfit" and verdict.subject.task == TASK
        assert bool(verdict.subject.log) == (kind not in ("Checkpoint",))

    def test_take_a_list(self, given):
        first, second = evaluate([given["path"], given["Checkpoint"]], n_noise=2)
        same(first, second)
        verdicts = classify([given["path"], given["TrainResult"]], even_underfit=False, name=["a", "b"])
        assert [verdict.subject.name for verdict in verdicts] == ["a", "b"]

    def test_a_function_of_tokens_is_a_model_too(self):
        def always_40(tokens):
            return torch.nn.functional.one_hot(torch.full_like(tokens, 40), TASK.d_vocab).float()

        assert evaluate(always_40, TASK, n_noise=2).phase.cause


@pytest.mark.needs("importers")
class TestConfigOfBareWeights:
    """`config=` as an object is as the same content in a file."""

    @pytest.fixture
    def bare(self, tmp_path):
        model = build_model(SMALL)
        torch.save(model.state_dict(), tmp_path / "theirs.pt")
        return tmp_path / "theirs.pt", model

    @pytest.mark.parametrize("form", ["HookedTransformerConfig", "dict", "ModelConfig", "tables"])
    def test_takes_objects(self, form, bare):
        path, model = bare
        config = {
            "HookedTransformerConfig": model.cfg,
            "dict": model.cfg.to_dict(),
            "ModelConfig": SMALL,
            "tables": {"model": {"variant": "gpt2", "act_fn": "gelu", "gamma": 0.5}, "task": TASK.to_dict()},
        }[form]
        opened = open_checkpoint(path, config=config, task=TASK)
        assert torch.equal(opened.checkpoint.weights["embed.W_E"], model.W_E)
        assert opened.checkpoint.model_config.d_model == 16
        assert opened.checkpoint.task == TASK and not any("papers' own" in note for note in opened.notes)
        same(stable_rank(opened.checkpoint), stable_rank(model))

    @pytest.mark.filterwarnings("ignore:config. not used:UserWarning")
    @pytest.mark.parametrize("probe", [p for p in PROBES if not needs_task(p)], ids=lambda p: p.__name__)
    def test_every_probe_of_a_path_takes_one(self, probe, bare):
        path, model = bare
        start = {"initial": path} if needs_initial(probe) else {}
        expected = probe(model, **{name: model for name in start})
        same(probe(path, config=model.cfg, **start), expected)
        same(probes.apply(probe, path, config=model.cfg, **start), expected)
        assert "config" in inspect.signature(probe).parameters

    def test_probes_of_a_task_and_comparisons_take_one(self, bare):
        path, model = bare
        options = {
            "config": {"model": {"variant": "gpt2", "act_fn": "gelu", "gamma": 0.5}, "task": TASK.to_dict()}
        }
        same(probes.v_similarity(path, **options), probes.v_similarity(model, TASK))
        (found,) = compare([path], "v_similarity", **options).results
        same(found, probes.v_similarity(model, TASK))
        with pytest.raises(ValueError, match=r"config.*bare weights, got a Hooked"):
            stable_rank(model, config=model.cfg)
        with pytest.raises(ValueError, match=r"config.*bare weights, got a LoadedModel"):
            stable_rank(resolve(model), config=model.cfg)

    def test_a_probe_of_ones_own_may_have_an_option_of_that_name(self, bare):
        _, model = bare

        def mine(model, *, config=None):
            return stable_rank(model) if config == "its own" else None

        same(probes.apply(mine, model, config="its own"), stable_rank(model))

    def test_a_task_takes_the_place_of_one_that_is_assumed_alone(self, bare):
        path, model = bare
        verdict = classify(path, TASK, config=model.cfg, even_underfit=False)
        assert verdict.subject.task == TASK and not [
            note for note in verdict.warnings if "papers' own" in note
        ]
        with pytest.raises(ValueError, match="task must be the task of the checkpoint or None"):
            evaluate(
                path,
                AnchorTask(),
                config={"model": {"variant": "gpt2", "act_fn": "gelu", "gamma": 0.5}, "task": TASK.to_dict()},
            )


class TestTables:
    def test_compare_takes_models_in_memory_and_one_alone(self, given):
        both = compare([given["HookedTransformer"], given["path"]], "stable_rank", labels=["memory", "file"])
        assert both.labels == ("memory", "file") and both.results[0].w_q == both.results[1].w_q
        assert compare(given["path"], "stable_rank").results[0].w_q == both.results[0].w_q
        flow = compare([given["HookedTransformer"]], "information_flow", TASK, effects=None)
        assert flow.labels == ("model",)

    def test_of_a_comparison_has_a_row_for_each_model(self, given):
        frame = compare([given["path"], given["HookedTransformer"]], "stable_rank").to_frame()
        assert list(frame.columns) == ["recipe", "seed", "w_q", "w_q_normalized"]
        assert frame["seed"].tolist() == [0, pandas.NA] and frame["w_q"].nunique() == 1
        assert frame.index.tolist() == ["ckpt.pt", "model"]

    def test_over_seeds_are_means_with_students_interval(self):
        def checkpoint(gamma, seed):
            config = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16, gamma=gamma)
            model = build_model(config, seed=seed)
            return Checkpoint.from_model(
                model, config, AnchorTask(), train_config=TrainConfig(seed=seed), step=0
            )

        comparison = compare([checkpoint(g, s) for g in (0.3, 0.8) for s in range(3)], "stable_rank")
        table = comparison.over_seeds()
        values = np.array([result.w_q for result in comparison.results[:3]])
        row = table.loc["gamma 0.3, step 0", "w_q"]
        # the 97.5 % quantile of Student's t with 2 degrees of freedom is 4.3027
        half = 4.3027 * values.std(ddof=1) / 3**0.5
        assert row["n"] == 3 and row["mean"] == pytest.approx(values.mean())
        assert (row["low"], row["high"]) == pytest.approx(
            (values.mean() - half, values.mean() + half), rel=1e-4
        )
        assert table.index.get_level_values("recipe").unique().tolist() == [
            "gamma 0.3, step 0",
            "gamma 0.8, step 0",
        ]
        alone = compare([checkpoint(0.3, 0)], "stable_rank").over_seeds()
        assert alone["n"].tolist() == [1, 1] and alone["low"].isna().all()

    def test_models_of_unknown_recipes_are_not_put_together(self, given):
        model = given["HookedTransformer"]
        table = compare([model, model], "stable_rank").over_seeds()
        assert table["n"].tolist() == [1] * 4 and table["low"].isna().all()

    def test_of_a_verdict_has_a_row_for_each_reading(self, given):
        verdict = classify(given["TrainResult"])
        frame = verdict.readings
        assert frame.index.tolist() == [one.reading for one in verdict.by_probes.evidence]
        empty = classify(given["TrainResult"], even_underfit=False).readings
        assert len(empty) == 0 and "value" in empty


def test_the_command_and_python_choose_the_same_device():
    from anchorlens.cli import models, verdicts

    commands = (models.evaluate_command, models.probe_command, verdicts.classify_command)
    functions = (classify, evaluate, compare, probes.compare)
    for function in (*commands, *functions):
        assert inspect.signature(function).parameters["device"].default == "auto"
    assert TrainConfig().device == "auto"


def test_mps_is_taken_where_torch_has_it_and_said_to_be_untested(monkeypatch):
    from anchorlens.models.devices import choose_device

    with pytest.raises(ValueError, match=r"device.*got 'mps'.*found .* 0 mps"):
        choose_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.warns(UserWarning, match="device 'mps': anchorlens could not be tested on it"):
        assert choose_device("mps") == torch.device("mps")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_device("auto").type != "mps"


def test_a_result_is_saved_as_its_checkpoint(given, tmp_path):
    save_checkpoint(tmp_path / "a.pt", given["TrainResult"])
    assert torch.equal(
        open_checkpoint(tmp_path / "a.pt").checkpoint.weights["embed.W_E"], given["HookedTransformer"].W_E
    )

import dataclasses

import pytest

from anchorlens import AdditionTask, configuration, preset
from anchorlens.models.config import ModelConfig
from anchorlens.recipes.presets import presets
from anchorlens.recipes.run_config import RunConfig, merged, sorted_by_part
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.tasks.two_anchor.task import AnchorTask


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_a_whole_run_and_survives_json(name):
    run = preset(name)
    assert RunConfig.from_dict(run.to_dict()) == run
    run.model_config.check_task(run.task)


def test_the_quick_preset_is_the_defaults():
    assert preset("quick") == (AnchorTask(), ModelConfig(), TrainConfig())


def test_the_quick_preset_is_the_specified_one():
    run = preset("quick")
    assert (run.model_config.n_layers, run.model_config.n_heads, run.model_config.d_model) == (2, 1, 128)
    assert (run.model_config.d_head, run.model_config.d_mlp, run.train_config.batch_size) == (64, 256, 512)
    assert (run.train_config.lr, run.train_config.total_warmup_steps, run.train_config.lr_end_factor) == (
        1e-3,
        100,
        0.05,
    )


def test_the_papers_recipe():
    train = preset("paper-2l1h").train_config
    assert (train.n_samples, train.epochs, train.batch_size) == (900_000, 210, 2048)
    assert train.lr * train.lr_start_factor == pytest.approx(1e-5)
    assert train.lr * train.lr_end_factor == pytest.approx(1e-5)
    assert train.total_warmup_steps == 10 * 439


def test_fields_are_replaced_wherever_they_belong():
    run = preset("quick", gamma=0.5, seed=3, regime="conflict", key_max=300)
    assert (run.model_config.gamma, run.train_config.seed, run.task.regime) == (0.5, 3, "conflict")
    assert run.model_config.d_vocab == 311  # 300 + 5 + 5, and zero


def test_steps_replace_epochs_and_the_reverse():
    assert preset("paper-2l1h", steps=10, warmup_steps=2).train_config.total_steps == 10
    assert merged({"train": {"steps": 4}}, {"train": {"epochs": 2}}) == {"train": {"epochs": 2}}


def test_no_two_configurations_share_a_field():
    names = [n for cls in (AnchorTask, ModelConfig, TrainConfig) for n in cls.__dataclass_fields__]
    assert len(names) == len(set(names))
    assert sorted_by_part({"lr": 1}) == {"train": {"lr": 1}}


def test_unknown_names_say_what_is_wrong():
    with pytest.raises(ValueError, match="preset must be one of quick, "):
        preset("fast")
    with pytest.raises(ValueError, match=r"field.*configuration.*mean 'gamma'"):
        preset("quick", gama=1)
    with pytest.raises(ValueError, match="a part of the configuration must be one of"):
        RunConfig.from_dict({"tarin": {}})


def test_a_configuration_without_source_has_its_settings_all_the_same(monkeypatch):
    """As one that was written in a notebook; the kind of a task is no setting of it."""
    monkeypatch.setattr(configuration, "field_docs", lambda cls: {})
    names = [setting.name for setting in configuration.settings(AdditionTask())]
    assert names == [field.name for field in dataclasses.fields(AdditionTask)] and names

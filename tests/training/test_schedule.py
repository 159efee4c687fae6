from dataclasses import replace

import numpy as np
import pytest

from anchorlens.models.config import ModelConfig
from anchorlens.recipes.schedule import epoch_order, has_converged, learning_rate, trajectory_steps
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.tasks.two_anchor.evaluation import METRICS


class TestLearningRate:
    def test_the_papers_recipe(self):
        # 1e-5, up over 10 epochs to 25x, back over 200 epochs (2405.05409)
        config = TrainConfig(
            lr=2.5e-4,
            lr_start_factor=1 / 25,
            lr_end_factor=1 / 25,
            n_samples=1000,
            batch_size=100,
            epochs=210,
            warmup_epochs=10,
        )
        assert config.total_steps == 2100 and config.total_warmup_steps == 100
        rates = [learning_rate(config, step) for step in range(2100)]
        assert rates[0] == pytest.approx(1e-5 + (2.5e-4 - 1e-5) / 100)
        assert max(rates) == rates[99] == pytest.approx(2.5e-4)
        assert rates[99 + 1000] == pytest.approx((2.5e-4 + 1e-5) / 2)  # half-way down the cosine
        assert rates[-1] == pytest.approx(1e-5)
        assert (np.diff(rates[:100]) > 0).all() and (np.diff(rates[99:]) < 0).all()

    def test_no_warm_up(self):
        config = TrainConfig(lr=1.0, steps=10, warmup_steps=0, lr_end_factor=0.0)
        assert learning_rate(config, 0) < 1.0 and learning_rate(config, 9) == pytest.approx(0.0)

    def test_a_run_that_is_all_warm_up(self):
        config = TrainConfig(lr=1.0, steps=10, warmup_steps=10)
        assert learning_rate(config, 9) == 1.0


def test_a_variation_is_made_with_replace():
    assert replace(TrainConfig(), epochs=3).total_steps == 3 * (100_000 // 512)
    assert replace(TrainConfig(epochs=3), epochs=None, steps=7).total_steps == 7


class TestOrder:
    def test_an_epoch_is_a_permutation_and_epochs_differ(self):
        config = TrainConfig(n_samples=1000, batch_size=10)
        first, second = epoch_order(config, 0), epoch_order(config, 1)
        assert sorted(first) == sorted(second) == list(range(1000))
        assert (first != second).any() and (first == epoch_order(config, 0)).all()

    def test_seeds_differ(self):
        a, b = (epoch_order(TrainConfig(seed=s), 0) for s in (0, 1))
        assert (a != b).any()


class TestTrajectory:
    def test_is_log_spaced_from_the_first_step_to_the_last(self):
        steps = trajectory_steps(TrainConfig(steps=1024, n_checkpoints=11))
        assert steps == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]

    def test_none(self):
        assert trajectory_steps(TrainConfig(n_checkpoints=0)) == []

    def test_more_than_there_are_steps(self):
        assert trajectory_steps(TrainConfig(steps=3, n_checkpoints=50)) == [0, 1, 2, 3]


class TestEarlyStop:
    @staticmethod
    def lines(train, held_out, ood):
        return [
            {"train_accuracy": t, "id_accuracy": i, "ood_accuracy": o}
            for t, i, o in zip(train, held_out, ood, strict=True)
        ]

    def test_converges_when_fit_and_still(self):
        assert has_converged(self.lines([0.5, 1, 1, 1], [0.5, 1, 1, 1], [0, 0.3, 0.3, 0.305]), 2, METRICS)

    @pytest.mark.parametrize(
        ("train", "held_out", "ood"),
        [
            ([0.98, 1, 1], [1, 1, 1], [0, 0, 0]),  # not fit at the start of the window
            ([1, 1, 1], [0.9, 0.95, 1], [0, 0, 0]),  # ID still moves
            ([1, 1, 1], [1, 1, 1], [0, 0.1, 0]),  # OOD moved and came back
            ([1, 1], [1, 1], [0, 0]),  # too few
        ],
    )
    def test_goes_on_otherwise(self, train, held_out, ood):
        assert not has_converged(self.lines(train, held_out, ood), 2, METRICS)

    def test_without_unseen_pairs(self):
        assert has_converged(self.lines([1, 1], [1, 1], [None, None]), 1, METRICS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 10, "epochs": 1}, "steps and epochs must not both be given"),
        ({"warmup_steps": 10, "warmup_epochs": 1}, "warmup_epochs must not both be given"),
        ({"steps": 0}, "steps must be an integer >= 1, got 0"),
        ({"batch_size": 600, "n_samples": 500}, "batch_size must be at most n_samples"),
        ({"lr": 0}, "lr must be a finite number > 0, got 0"),
        ({"lr": float("inf")}, "lr must be a finite number > 0, got inf"),
        ({"weight_decay": -1}, "weight_decay must be a finite number >= 0, got -1"),
        ({"clip_norm": -1}, "clip_norm must be a finite number >= 0, got -1"),
        ({"eps": 0}, "eps must be a finite number > 0, got 0"),
        ({"threads": 10**11}, "threads must be an integer >= 1 and <= 1024"),
        ({"seed": 10**30}, "seed must be an integer >= 0"),
        ({"steps": 10**10}, "steps must be an integer >= 1"),
        ({"epochs": 10**9}, "epochs must be at most 1,000,000,000 steps"),
        ({"n_checkpoints": 10**6}, "n_checkpoints must be an integer >= 0"),
        ({"weight_decay": 1e300}, "weight_decay must be a finite number >= 0 and"),
        ({"lr": 10**400}, "lr must be a finite number > 0"),
        ({"n_samples": 10**15}, "n_samples must be an integer >= 1 and <= 100000000"),
        ({"seed": 1.5}, "seed must be an integer >= 0, got 1.5"),
        ({"dtype": "int8"}, "dtype must be one of float32, float64"),
        ({"beta1": 1}, "beta1 must be"),
        ({"early_stop_evaluations": 0}, "early_stop_evaluations must be an integer >= 1"),
        ({"device": 0}, "device must be text such as 'auto', got 0"),
    ],
)
def test_bad_configs_say_what_is_wrong(fields, message):
    with pytest.raises(ValueError) as error:
        TrainConfig(**fields)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 10**30}, "d_model must be an integer >= 1"),
        ({"d_vocab": 10**9}, "d_vocab must be an integer >= 1"),
        ({"d_model": 10**6, "d_mlp": 10**6}, "must have at most 1,000,000,000,000 parameters"),
        ({"n_ctx": 10**4999}, "n_ctx must be an integer >= 1"),
        ({"variant": "x" * 5_000_000}, "variant must be one of gpt2"),
    ],
)
def test_a_model_of_absurd_size_is_refused(fields, message):
    with pytest.raises(ValueError) as error:
        ModelConfig(**fields)
    assert message in str(error.value) and len(str(error.value)) < 400

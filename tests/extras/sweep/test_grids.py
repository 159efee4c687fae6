import time

import pytest

from anchorlens import preset
from anchorlens.extras.sweep import grid
from anchorlens.extras.sweep.cells import cell_id
from anchorlens.extras.sweep.grids import axis_values


class TestAxisValues:
    @pytest.mark.parametrize(
        ("field", "text", "values"),
        [
            ("gamma", "0.3:0.8:0.05", (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)),
            ("gamma", "0.3:0.44:0.05", (0.3, 0.35, 0.4)),  # 0.44 is no step away
            ("gamma", "0.5,0.3:0.4:0.1,0.5", (0.5, 0.3, 0.4)),
            ("seed", "0:3", (0, 1, 2)),
            ("seed", "0:6:2", (0, 2, 4, 6)),  # with a step both ends are in
            ("n_layers", "2", (2,)),
            ("lr", "1e-3, 5e-4", (1e-3, 5e-4)),
            ("variant", "gpt2,postnorm", ("gpt2", "postnorm")),
            ("weight_decay", "0,0.25:0.5=1.0,0:1:0.5", (0, "0.25:0.5=1.0", 0.5, 1)),  # windows, and a range
            ("rescale", "none,all=0.5@0 qk=2@3", (None, "all=0.5@0 qk=2@3")),
            ("complexity", "none,0:2", (None, 0, 1)),
            ("noise_obeys_split", "true,false", (True, False)),
            ("unseen_pairs", "[[3, 4], [4, 3]]", ([[3, 4], [4, 3]],)),  # JSON: one value, commas and all
        ],
    )
    def test_of_text(self, field, text, values):
        assert axis_values(field, text) == values

    def test_of_python_values(self):
        numpy = pytest.importorskip("numpy")
        assert axis_values("gamma", numpy.array([0.3, 0.5])) == (0.3, 0.5)
        assert axis_values("seed", range(2)) == (0, 1) and axis_values("seed", 4) == (4,)

    @pytest.mark.parametrize(
        ("field", "text", "message"),
        [
            ("gama", "0.3", "Did you mean 'gamma'"),
            ("gamma", "0.8:0.3:0.1", "The first value must be at most `last`"),
            ("gamma", "0.3:0.8:0", "a positive step"),
            ("gamma", "0.3:0.8", "first:last:step, or first:end with integers"),
            ("gamma", "0.3:x:0.1", "must be first:last:step"),
            ("gamma", "0.3:nan:0.1", "must be first:last:step"),
            ("seed", "3:3", "or less than `end`"),
            ("gamma", "0:1:1e-9", "a larger step"),
            ("unseen_pairs", "[[3, 4]", "must be JSON"),
        ],
    )
    def test_refuses(self, field, text, message):
        with pytest.raises(ValueError, match=message.replace("(", r"\(")):
            axis_values(field, text)


class TestGrid:
    def test_is_every_combination_the_last_axis_fastest(self):
        runs = grid("quick", {"gamma": "0.3,0.5", "seed": "0:2"}, steps=10)
        assert [(run.model_config.gamma, run.train_config.seed) for run in runs] == [
            (0.3, 0),
            (0.3, 1),
            (0.5, 0),
            (0.5, 1),
        ]
        assert {run.train_config.steps for run in runs} == {10}

    def test_keeps_the_preset_and_takes_each_cell_once(self):
        (run,) = grid("phase2", {"seed": "1,1"})
        assert run == preset("phase2", seed=1)

    @pytest.mark.parametrize("name", ["quick", "phase3"])
    def test_a_run_is_a_base_like_the_preset_that_makes_it(self, name):
        axes = {"gamma": "0.3:0.8:0.25", "seq_len": [9, 12]}
        assert grid(preset(name), axes) == grid(name, axes)
        (run,) = grid(preset(name, d_model=48))
        assert run == preset(name, d_model=48)
        with pytest.raises(ValueError, match="base must be a preset's name"):
            grid(5)

    def test_epochs_replace_the_steps_of_a_preset(self):
        (run,) = grid("phase2", {"epochs": [2]})
        assert run.train_config.epochs == 2 and run.train_config.steps is None

    def test_refuses(self):
        with pytest.raises(ValueError, match=r"gamma.*a value or an axis, got both"):
            grid("quick", {"gamma": [0.3]}, gamma=0.5)
        with pytest.raises(ValueError, match="at most 100,000 runs, got 1,000,000"):
            grid("quick", {"seed": "0:1000", "n_samples": "1000:2000"})
        with pytest.raises(ValueError, match="at least one value"):
            grid("quick", {"gamma": []})
        with pytest.raises(ValueError, match="gamma"):
            grid("quick", {"gamma": "0.3,high"})


class TestIdentity:
    def test_equal_configurations_have_one(self):
        assert cell_id(preset("quick", weight_decay=1)) == cell_id(preset("quick", weight_decay=1.0))

    def test_every_part_counts(self):
        runs = [preset("quick"), preset("quick", seed=1), preset("quick", gamma=0.31)]
        runs += [preset("quick", regime="conflict"), preset("quick", matmul="bf16")]
        assert len({cell_id(run) for run in runs}) == 5

    def test_does_not_change_with_the_version(self):
        """A sweep that is run again trains nothing anew; a new field that is set changes this on purpose."""
        assert cell_id(preset("quick")) == "8f7b66c0395e2138"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("seed", "0:1e30", "at most 100,000 values"),
        ("seed", "0:1e999999999", "must be first:last:step"),
        ("gamma", "0.1:0.9:1e-999999", "must be first:last:step"),
        ("gamma", "0:1:1e-30", "at most 100,000 values"),
        ("seed", "1e400:2e400", "first:last:step|at most 100,000 values"),
        ("seed", range(10**30), "at most 100,000 values"),
        ("seed", [0] * 200_000, "at most 100,000 values"),
        ("seed", "0," * 200_000, "at most 100,000 values"),
        ("overrides", "[" * 100_000, r"must be JSON.*at most 64 levels"),
        ("anchors", '{"1": 1e999}', "must have only finite numbers, got 1e999"),
        ("overrides", "9" * 5000, "integers of at most 30 digits"),
    ],
)
def test_an_axis_of_absurd_size_is_refused_at_once(name, text, message):
    start = time.process_time()
    with pytest.raises(ValueError, match=message) as caught:
        axis_values(name, text)
    assert len(str(caught.value)) < 600 and time.process_time() - start < 5


def test_a_number_beyond_floats_is_no_number_and_no_field_takes_it():
    assert axis_values("seed", "1e30000000") == ("1e30000000",)
    with pytest.raises(ValueError, match="seed must be an integer"):
        grid("quick", {"seed": "1e30000000"})

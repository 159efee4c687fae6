"""Which runs are trained together."""

from dataclasses import replace

from anchorlens.recipes.presets import preset
from anchorlens.training.jobs import grouped


class TestGroups:
    runs = [preset("quick", n_layers=layers, seed=seed) for seed in (0, 1, 2) for layers in (1, 2)]

    def test_runs_of_equal_shape_in_groups_of_the_size_that_fits(self):
        assert grouped(self.runs, lambda run, n: n) == [[0, 2, 4], [1, 3, 5]]
        assert grouped(self.runs, lambda run, n: 2) == [[0, 2], [4], [1, 3], [5]]

    def test_on_the_cpu_each_is_alone(self):
        cpu = [run._replace(train_config=replace(run.train_config, device="cpu")) for run in self.runs]
        assert sorted(grouped(cpu)) == [[0], [1], [2], [3], [4], [5]]

    def test_one_run_asks_for_no_memory(self):
        assert grouped(self.runs[:1], lambda run, n: 1 // 0) == [[0]]

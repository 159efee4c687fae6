"""Which runs are trained together, and how jobs are given out and taken in."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from anchorlens.recipes.presets import preset
from anchorlens.training.jobs import grouped, submit_all


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


class TestGivingOut:
    def test_all_are_taken_in_and_what_comes_back_is_given_out_again(self):
        taken = []

        def collect(job, future):
            taken.append((job, future.result()))
            return [job // 2, job // 2] if job > 3 else []

        with ThreadPoolExecutor(3) as executor:
            submit_all([8, 1, 2], lambda job: executor.submit(lambda: -job), collect)
        assert sorted(taken) == [(1, -1), *[(2, -2)] * 5, *[(4, -4)] * 2, (8, -8)]

    @pytest.mark.parametrize("at_a_time", [1, 3, None])
    def test_no_more_than_asked_for_are_out(self, at_a_time):
        out, most = set(), []

        def submit(job):
            out.add(job)
            most.append(len(out))
            future = Future()
            threading.Timer(0.001, future.set_result, [None]).start()
            return future

        submit_all(range(20), submit, lambda job, future: out.discard(job) or [], at_a_time)
        assert max(most) == (at_a_time or 20) and not out

"""How jobs are given out and taken in."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from anchorlens.extras.sweep.run import submit_all


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

"""Jobs that are given out and taken in without other processes."""

import pytest

from anchorlens.extras.shared.in_this_process import InThisProcess
from anchorlens.extras.sweep.run import submit_all


def test_here_one_follows_the_other_and_an_error_is_in_its_future():
    order = []

    def collect(job, future):
        order.append(("in", job))
        if job == 2:
            with pytest.raises(ZeroDivisionError):
                future.result()
        return []

    def work(job):
        order.append(("out", job))
        return 1 // (2 - job)

    submit_all([1, 2, 3], lambda job: InThisProcess().submit(work, job), collect, 1)
    assert order == [(what, job) for job in (1, 2, 3) for what in ("out", "in")]


def test_what_take_in_raises_stops_it():
    def collect(job, future):
        raise KeyError(job)

    given = []
    with pytest.raises(KeyError):
        submit_all([1, 2], lambda job: InThisProcess().submit(given.append, job), collect, 1)
    assert given == [1]

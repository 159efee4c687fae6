import collections

import pytest
from fuzz_containers import SHAPES, fuzz, too_much

pytestmark = pytest.mark.needs("grokking", "importers")


@pytest.mark.parametrize("n", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_small_file_of_any_container_takes_little_time_and_memory(tmp_path, n):
    found = list(fuzz(tmp_path, n=n, seed=0))
    assert [one for one in found if too_much(one[2])] == []
    outcomes = collections.Counter(cost[0] for _, _, cost in found)
    assert outcomes["refused"] > n / 10 and {kind for kind, *_ in found} == {one.__name__ for one in SHAPES}

import collections

import pytest
from fuzz_data import fuzz


@pytest.mark.parametrize("share", [0.1, pytest.param(1, marks=pytest.mark.slow)])
def test_hostile_data_are_refused_or_asked_and_a_damaged_text_is_made_anew(tmp_path, share):
    outcomes = collections.Counter(fuzz(tmp_path, n=round(160 * share), seed=0))
    assert outcomes["training data", "refused"] > 40 * share
    assert outcomes["training data", "asked"] >= 10 * share
    assert outcomes["cached text", "made anew"] == 40 * share

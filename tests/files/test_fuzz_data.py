import collections

from fuzz_data import fuzz


def test_hostile_data_are_refused_or_asked_and_a_damaged_text_is_made_anew(tmp_path):
    outcomes = collections.Counter(fuzz(tmp_path, n=160, seed=0))
    assert outcomes["training data", "refused"] > 40 and outcomes["training data", "asked"] > 10
    assert outcomes["cached text", "made anew"] == 40

import collections

import pytest
from fuzz_checkpoints import MAKERS, classified, fuzz, make_cases, make_trained_cases

pytestmark = pytest.mark.needs("importers")  # most of the files are of other software


@pytest.mark.parametrize("share", [0.1, pytest.param(1, marks=pytest.mark.slow)])
def test_damaged_files_of_every_kind_are_refused_or_whole(tmp_path, share):
    outcomes = collections.Counter(fuzz(make_cases(tmp_path), n=round(50 * share) * len(MAKERS), seed=0))
    for name in MAKERS:
        assert outcomes[name, "refused"] > 10 * share  # the fuzzer does damage


@pytest.mark.parametrize("n", [4, pytest.param(32, marks=pytest.mark.slow)])
def test_a_damaged_file_gets_no_wrong_verdict(tmp_path, n):
    outcomes = collections.Counter(fuzz(make_trained_cases(tmp_path), n=n, seed=0, judge=classified))
    assert outcomes["own .pt", "opened"] == outcomes["own .safetensors", "opened"] == 0
    assert sum(outcomes.values()) == n

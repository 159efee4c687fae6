import collections

import pytest
from fuzz_folders import fuzz, make_targets

pytestmark = pytest.mark.needs("importers")  # most of the files are of other software


@pytest.mark.parametrize("times", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_hostile_files_of_runs_and_sweeps_are_refused_or_shown(tmp_path, times):
    targets = make_targets(tmp_path)
    outcomes = collections.Counter(fuzz(targets, n=times * len(targets), seed=0))
    for name in ("header of .pt", "configuration of bare", "run: config.json", "sweep: sweep.json"):
        assert outcomes[name, "refused"] > times // 4 - 1  # the fuzzer does damage
    assert outcomes["sweep: cell.json", "read"] == times  # a damaged cell stops nobody
    assert outcomes["hard links: cell.json", "read"] == times

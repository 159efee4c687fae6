import collections

from fuzz_folders import fuzz, make_targets


def test_hostile_files_of_runs_and_sweeps_are_refused_or_shown(tmp_path):
    targets = make_targets(tmp_path)
    outcomes = collections.Counter(fuzz(targets, n=8 * len(targets), seed=0))
    for name in ("header of .pt", "configuration of bare", "run: config.json", "sweep: sweep.json"):
        assert outcomes[name, "refused"] > 2  # the fuzzer does damage
    assert outcomes["sweep: cell.json", "read"] == 8  # a damaged cell stops nobody
    assert outcomes["hard links: cell.json", "read"] == 8

import collections

from fuzz_checkpoints import MAKERS, fuzz, make_cases


def test_damaged_files_of_every_kind_are_refused_or_whole(tmp_path):
    outcomes = collections.Counter(fuzz(make_cases(tmp_path), n=50 * len(MAKERS), seed=0))
    for name in MAKERS:
        assert outcomes[name, "refused"] > 10  # the fuzzer does damage

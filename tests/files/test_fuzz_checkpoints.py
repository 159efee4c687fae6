import collections

from fuzz_checkpoints import MAKERS, classified, fuzz, make_cases, make_trained_cases


def test_damaged_files_of_every_kind_are_refused_or_whole(tmp_path):
    outcomes = collections.Counter(fuzz(make_cases(tmp_path), n=50 * len(MAKERS), seed=0))
    for name in MAKERS:
        assert outcomes[name, "refused"] > 10  # the fuzzer does damage


def test_a_damaged_file_gets_no_wrong_verdict(tmp_path):
    outcomes = collections.Counter(fuzz(make_trained_cases(tmp_path), n=32, seed=0, judge=classified))
    assert outcomes["own .pt", "opened"] == outcomes["own .safetensors", "opened"] == 0
    assert sum(outcomes.values()) == 32

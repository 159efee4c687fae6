"""A restructuring changes no result unseen: weights, verdicts, a run of a sweep, a page's data, help.

The frozen results are `tests/referee/*.json`. If you mean to change a result, freeze the results again, read
the diff, and say in the commit what changed and why:

    python tests/test_referee.py --freeze [NAME ...]

Another processor or another version of torch can round differently. `machine.json` has a hash of fixed
arithmetic. If a machine computes the same hash, its hashes must be equal and its numbers agree to 1e-5. On
any other machine, norms and sums of weights must agree to 1e-4 of the norm, and other numbers to 1e-2.
"""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs(), pytest.mark.system]  # it is about the whole package

REFEREE = Path(__file__).parent / "referee"
NAMES = ("machine", "verdicts", "weights", "sweep", "help_texts")
NUMBER = re.compile(r"[-−]?\d+(?:[.,]\d+)*")


def freeze(*options):
    """Run tests/referee/freeze.py, which computes without the checks and fixtures of the tests."""
    import anchorlens

    paths = [str(Path(anchorlens.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(REFEREE / "freeze.py"), *map(str, options)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def read(folder):
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}


def differences(frozen, now, tolerance, place=""):
    """One line for each place at which two JSON values differ; above 1e-3, numbers in a text may differ."""
    if isinstance(frozen, dict) and isinstance(now, dict):
        lines = [f"{place}/{key} is missing" for key in frozen.keys() - now.keys()]
        lines += [f"{place}/{key} is new" for key in now.keys() - frozen.keys()]
        for key in frozen.keys() & now.keys():
            lines += differences(frozen[key], now[key], tolerance, f"{place}/{key}")
        return sorted(lines)
    if isinstance(frozen, list) and isinstance(now, list) and len(frozen) == len(now):
        pairs = enumerate(zip(frozen, now, strict=True))
        return [line for k, (a, b) in pairs for line in differences(a, b, tolerance, f"{place}/{k}")]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in (frozen, now)):
        same = math.isclose(frozen, now, rel_tol=tolerance, abs_tol=tolerance)
    elif tolerance > 1e-3 and isinstance(frozen, str) and isinstance(now, str):
        same = NUMBER.sub("#", frozen) == NUMBER.sub("#", now)
    else:
        same = frozen == now and type(frozen) is type(now)
    return [] if same else [f"{place}: frozen {frozen!r}, now {now!r}"]


@pytest.fixture(scope="module")
def frozen():
    return read(REFEREE)


@pytest.fixture(scope="module")
def now(tmp_path_factory):
    folder = tmp_path_factory.mktemp("referee")
    done = freeze("--into", folder, *NAMES)
    assert done.returncode == 0, done.stderr
    return read(folder)


@pytest.fixture(scope="module")
def tolerance(frozen, now):
    """The largest difference of numbers, relative and absolute."""
    if frozen["machine"] == now["machine"]:
        return 1e-5
    print("this machine rounds differently from the one that froze the results: hashes are not compared")
    return 1e-2


class TestWeights:
    def test_the_runs_are_the_frozen_ones(self, frozen, now):
        assert list(now["weights"]) == list(frozen["weights"])

    def test_hashes_are_equal_where_arithmetic_is(self, frozen, now, tolerance):
        if tolerance > 1e-5:
            return  # the norms are compared by the next test
        hashes = [
            {(name, key): run[key] for name, run in runs["weights"].items() for key in run if "sha" in key}
            for runs in (frozen, now)
        ]
        assert hashes[1] == hashes[0]

    def test_norms_sums_and_logs_agree(self, frozen, now, tolerance):
        for name, run in frozen["weights"].items():
            today = now["weights"][name]
            assert differences(run["log"], today["log"], tolerance, name) == []
            assert today["tensors"].keys() == run["tensors"].keys()
            for tensor, numbers in run["tensors"].items():
                # a bias of keys changes no attention: only rounding moves it, and differs between processors
                least = 2e-3 if tensor.endswith("b_K") else 1e-4 * numbers["norm"]
                near = pytest.approx(numbers, rel=1e-4, abs=least)
                assert today["tensors"][tensor] == near, (name, tensor)

    def test_a_resumed_run_is_the_uninterrupted_one(self, now):
        runs = now["weights"]
        assert runs["two_anchor gpt2, resumed"] == runs["two_anchor gpt2"]

    def test_a_run_of_a_stack_is_the_run_by_itself(self, now):
        runs = now["weights"]
        norms = [
            {tensor: numbers["norm"] for tensor, numbers in runs[name]["tensors"].items()}
            for name in ("two_anchor gpt2", "two_anchor gpt2, 1 of a stack of two")
        ]
        assert norms[1] == pytest.approx(norms[0], rel=1e-4)


@pytest.mark.parametrize("name", ["verdicts", "sweep"])
def test_numbers_and_texts_agree(name, frozen, now, tolerance):
    assert differences(frozen[name], now[name], tolerance) == []


def test_help_is_the_same_to_the_letter(frozen, now):
    assert now["help_texts"] == frozen["help_texts"]


class TestTheRefereeItself:
    """It sees a change of one number, text or key."""

    @pytest.mark.parametrize(
        ("changed", "line"),
        [
            ({"a": [1.0, 2.1], "b": "Phase 1"}, "/a/1: frozen 2.0, now 2.1"),
            ({"a": [1.0, 2.0], "b": "Phase 3 with 1"}, "/b: frozen 'Phase 1', now 'Phase 3 with 1'"),
            ({"a": [1.0], "b": "Phase 1"}, "/a: frozen [1.0, 2.0], now [1.0]"),
            ({"a": [1.0, 2.0]}, "/b is missing"),
            ({"a": [1.0, 2.0], "b": "Phase 1", "c": None}, "/c is new"),
            ({"a": [True, 2.0], "b": "Phase 1"}, "/a/0: frozen 1.0, now True"),
        ],
    )
    @pytest.mark.parametrize("tolerance", [1e-5, 1e-2])
    def test_it_names_the_place(self, changed, line, tolerance):
        assert differences({"a": [1.0, 2.0], "b": "Phase 1"}, changed, tolerance) == [line]

    @pytest.mark.parametrize("tolerance", [1e-5, 1e-2])
    def test_it_lets_rounding_pass(self, tolerance):
        assert differences({"a": 1.0}, {"a": 1 + tolerance / 2}, tolerance) == []
        assert differences({"a": 1.0}, {"a": 1 + tolerance * 2}, tolerance) != []

    def test_names_are_those_of_the_frozen_files(self):
        assert {path.stem for path in REFEREE.glob("*.json")} == set(NAMES)


if __name__ == "__main__":
    if sys.argv[1:2] != ["--freeze"]:
        sys.exit("usage: python tests/test_referee.py --freeze [NAME ...]")
    done = freeze(*sys.argv[2:])
    sys.stderr.write(done.stderr)
    sys.exit(done.returncode)

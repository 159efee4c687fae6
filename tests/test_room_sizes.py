"""The house does not grow unseen: code lines of core, sum, files and functions; `Any`; dependencies.

The ceilings of core and sum are a ratchet: no commit raises them, from the commit on that brought `sum`.
"""

import ast
import hashlib
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from code_lines import code_lines, sizes

import anchorlens

ROOT = Path(anchorlens.__file__).parent
HERE = Path(__file__).parent
CEILINGS = "tests/room_sizes.toml"
PLAN = tomllib.loads((HERE / "room_sizes.toml").read_text(encoding="utf-8"))
PARTS = ("core", "sum")
KINDS = ("file", "class", "function")
SHA256_OF_THE_COUNT = "c2d407e4d5f463fe7d81b9e99175ba8bab0ad41ea34fce65e2a69b7f44bd7880"


@pytest.fixture(scope="module")
def found():
    """Kind -> name -> code lines."""
    return dict(zip(KINDS, sizes(ROOT), strict=True))


@pytest.mark.parametrize("part", PARTS)
def test_the_house_is_within_its_ceilings(found, part):
    files = found["file"].items()
    counted = [lines for path, lines in files if part == "sum" or not path.startswith("extras/")]
    assert sum(counted) <= PLAN["house"][part], "delete or simplify; the ceiling is never raised"


def raised(ceilings):
    """Where core or sum is missing, or above the version before; versions begin with the oldest."""
    return [
        (part, before.get(part), after.get(part))
        for before, after in zip(ceilings, ceilings[1:], strict=False)
        for part in PARTS
        if after.get(part, float("inf")) > before[part]
    ]


def test_no_commit_raised_a_ceiling():
    def git(*arguments):
        return subprocess.run(["git", "-C", HERE, *arguments], capture_output=True, text=True)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("this copy has no git history, or only a part of it")
    commits = git("log", "--format=%H", "--reverse", "--topo-order", "--", f":/{CEILINGS}").stdout.split()
    texts = [git("show", f"{one}:{CEILINGS}").stdout for one in commits]
    since = next((i for i, text in enumerate(texts) if "\nsum = " in text), len(texts))
    versions = [tomllib.loads(text).get("house", {}) for text in texts[since:]]
    assert raised([*versions, PLAN["house"]]) == []


def test_a_ceiling_that_is_one_higher_is_raised():
    house = {"core": 10, "sum": 20}
    assert raised([house, house, {"core": 9, "sum": 20}]) == []
    assert raised([house, {"core": 11, "sum": 20}, house]) == [("core", 10, 11)]
    assert raised([house, {"core": 10, "sum": 21}]) == [("sum", 20, 21)]
    assert raised([house, {"core": 10}]) == [("sum", 20, None)]


def test_the_way_of_counting_is_frozen():
    assert hashlib.sha256((HERE / "code_lines.py").read_bytes()).hexdigest() == SHA256_OF_THE_COUNT


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_longer_than_a_reader_can_hold(kind, found):
    """Except what `room_sizes.toml` names with a reason, and no longer than it was then."""
    exceptions = PLAN["exceptions"].get(kind, {})
    exceptions = {n: each for n, each in exceptions.items() if (ROOT / n.split(":")[0]).exists()}
    assert all(each["reason"] for each in exceptions.values())
    above = {name: lines for name, lines in found[kind].items() if lines > PLAN["house"][kind]}
    assert {n: lines for n, lines in above.items() if lines > exceptions.get(n, {"lines": 0})["lines"]} == {}
    assert set(exceptions) <= set(above), "an exception that is no longer needed goes"


def packed(source):
    """The lines of a source that assign three values or more to as many names: statements in disguise."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and len(node.value.elts) > 2
        if any(isinstance(target, ast.Tuple) for target in node.targets)
        if not any(isinstance(value, ast.Starred) for value in node.value.elts)
    ]


def test_no_line_packs_three_statements_into_a_tuple():
    found = {path: packed(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert packed("a, b = 1, 2\na, b, c = 1, 2, 3\na, b, c = f()\n") == [2]


def test_any_is_rare():
    n = sum(len(re.findall(r": Any\b", path.read_text(encoding="utf-8"))) for path in ROOT.rglob("*.py"))
    assert n <= PLAN["house"]["any"]


def test_dependencies_are_few():
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(project["dependencies"]) <= PLAN["house"]["dependencies"]


def test_code_lines_are_neither_blank_nor_comment_nor_docstring():
    source = '"""A module."""\n\n# a comment\nx = (\n    1,  # one\n)\n"""What x is."""\n\n\n'
    source += 'def f():\n    """F."""\n    return """\n    text"""\n'
    assert code_lines(source) == {4, 5, 6, 10, 12, 13}

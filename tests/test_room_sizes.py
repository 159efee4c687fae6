"""No room of the house grows unseen: code lines of rooms, files, classes, functions; `Any`; dependencies."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from code_lines import code_lines, room_of, sizes

import anchorlens

ROOT = Path(anchorlens.__file__).parent
PLAN = tomllib.loads((Path(__file__).parent / "room_sizes.toml").read_text(encoding="utf-8"))
FILES, CLASSES, FUNCTIONS = sizes(ROOT)
ROOMS = Counter()
for _path, _lines in FILES.items():
    ROOMS[room_of(_path)] += _lines


def test_no_room_is_larger_than_its_ceiling():
    there = {room for room in PLAN["rooms"] if not room.startswith("extras") or (ROOT / room).is_dir()}
    assert set(ROOMS) == there, "each room has a ceiling in room_sizes.toml"
    above = {
        room: (lines, PLAN["rooms"][room]) for room, lines in ROOMS.items() if lines > PLAN["rooms"][room]
    }
    assert above == {}, "delete or simplify; a ceiling goes up in one room by what goes down in another"


@pytest.mark.parametrize("part", ["core", "extras"])
def test_the_ceilings_of_the_rooms_are_within_that_of_the_house(part):
    of_part = [
        ceiling for room, ceiling in PLAN["rooms"].items() if room.startswith("extras") == (part == "extras")
    ]
    assert sum(of_part) <= PLAN["house"][part]


@pytest.mark.parametrize(("kind", "found"), [("file", FILES), ("class", CLASSES), ("function", FUNCTIONS)])
def test_nothing_is_longer_than_a_reader_can_hold(kind, found):
    """Except what `room_sizes.toml` names with a reason, and no longer than it was then."""
    exceptions = PLAN["exceptions"].get(kind, {})
    exceptions = {n: each for n, each in exceptions.items() if (ROOT / n.split(":")[0]).exists()}
    assert all(each["reason"] for each in exceptions.values())
    above = {name: lines for name, lines in found.items() if lines > PLAN["house"][kind]}
    assert {n: lines for n, lines in above.items() if lines > exceptions.get(n, {"lines": 0})["lines"]} == {}
    assert set(exceptions) <= set(above), "an exception that is no longer needed goes"


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
    assert [room_of(path) for path in ("views.py", "show/report/page.py", "extras/scan/task.py")] == [
        ".",
        "show",
        "extras/scan",
    ]

"""The README keeps its promises: its Python runs, commands and options exist, links lead somewhere."""

import re
import shlex
import tomllib
import warnings
from pathlib import Path

import pytest
import typer.main
from test_architecture import FOLDERS

from anchorlens import AnchorTask, classify
from anchorlens.cli.commands import app
from anchorlens.cli.help import sections
from anchorlens.training import checkpoints

pytestmark = pytest.mark.needs()  # it is about the whole package

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
README = PAGES[0].read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


def commands(text):
    """Each line `$ anchorlens ...` of the console blocks, with its continuation."""
    for block in blocks(text, "console"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ anchorlens "):
                yield shlex.split(line[2:], comments=True)[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page):
    known = typer.main.get_command(app).commands
    for name, *arguments in commands(page.read_text(encoding="utf-8")):
        options = {flag for part in sections(known[name]) for entry in part.entries for flag in entry.flags}
        if "--tasks" in arguments:
            continue  # its fields are options too: tests/tasks/test_plugins.py runs such commands
        given = {argument for argument in arguments if argument.startswith("--")}
        assert given <= options | {"--help"}, (name, given - options)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_are_there(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_readme_has_its_commands():
    assert {name for name, *_ in commands(README)} >= {"train", "evaluate", "probe", "classify", "sweep"}


def test_contributing_names_every_folder_in_the_order_of_imports():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.search(r"folders, in this order: ([^.]*)\.", page)[1].split(", ")
    rooms = [folder.split(".")[0] for folder in FOLDERS if folder]
    in_order = sorted(
        set(rooms), key=lambda room: len(rooms) - rooms[::-1].index(room)
    )  # its last folder's place
    assert named == in_order


def test_contributing_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_bytes()) < 10_000


def test_the_readme_is_short():
    assert len(README.encode()) < 9_000


def test_the_badges_say_what_the_project_says():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    badges = dict(re.findall(r"img.shields.io/badge/(\w+)-(\S+)-blue", README))
    assert badges["python"].removesuffix("+") == project["requires-python"].removeprefix(">=")
    assert badges["licence"] == project["license"]
    (line,) = (one for one in project["dependencies"] if one.startswith("transformer-lens"))
    lines = badges["TransformerLens"].split("_and_")
    assert line == f"transformer-lens>={lines[0]},<{int(lines[1]) + 1}"


def test_the_picture_of_the_demo_shows_the_shipped_models_and_their_phases():
    text = (ROOT / "docs/images/demo.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    assert "font-face" not in text and "$ anchorlens demo" in text
    names = [path.name for path in checkpoints.shipped()]
    assert all(name in text for name in names) and "Phase 3 (0.69)" in text and "Phase 2 (0.76)" in text


def test_the_sequence_of_the_readme_is_one_of_the_task():
    found = re.search(r"^\[(.+)\] -> (\d+) = \((\d+) \+ (\d+)\) \+ (\d+)$", README, flags=re.M)
    tokens = [int(token.strip("()")) for token in found[1].split()]
    task, position = AnchorTask(), next(i for i, token in enumerate(found[1].split()) if token[0] == "(")
    key, *pair = tokens[position : position + 3]
    target, start, first, second = map(int, found.groups()[1:])
    assert len(tokens) == task.seq_len and key == start
    assert target == task.inferential_target(key=key, pair=tuple(pair)) == start + first + second
    assert (key - position) % task.modulus, "a question of the training set"


def test_your_own_checkpoint_is_written_and_read_as_its_page_says(tmp_path, monkeypatch):
    page = (ROOT / "docs/your_own_checkpoint.md").read_text(encoding="utf-8")
    (code,) = blocks(page, "python")
    ((name, weights, *_),) = [words for words in commands(page) if "config.json" in words]
    assert name == "classify"
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # transformer_lens' own
        exec(compile(code, "your_own_checkpoint.md", "exec"), {})
    verdict = classify(weights, config="config.json")
    assert verdict.phase.number is None and verdict.phase.label == "undecided: training data unknown"

"""The README keeps its promises: its Python runs, commands and options exist, links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from anchorlens.cli.commands import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
README = PAGES[0].read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.M | re.S)


def test_the_ten_lines_print_what_stands_below_them(tmp_path, monkeypatch, capsys):
    """Digits differ between machines; the words and the phase do not."""
    section = README.split("## Ten lines of Python")[1].split("\n## ")[0]
    (code,), (_, printed) = blocks(section, "python"), re.findall(r"^```\w*\n(.*?)^```", section, re.M | re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    done = capsys.readouterr()
    assert done.err == ""

    def words(text):
        return re.sub(r"[-+]?\d+\.\d+", "#", text).splitlines()

    assert words(done.out) == words(printed)
    assert len([line for line in code.splitlines() if line]) == 10
    assert (tmp_path / "report.html").stat().st_size > 100_000


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
        options = {flag for parameter in known[name].params for flag in parameter.opts}
        given = {argument for argument in arguments if argument.startswith("--")}
        assert given <= options | {"--help"}, (name, given - options)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_are_there(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_readme_has_its_commands():
    assert {name for name, *_ in commands(README)} >= {"train", "evaluate", "probe", "classify", "sweep"}


def test_the_tree_names_every_folder_and_the_list_every_file():
    package = ROOT / "anchorlens"
    tree = README.split("## Where things are")[1]
    folders = {path.parent.name for path in package.glob("*/__init__.py")} | {"templates"}
    assert sorted(folder for folder in folders if f"  {folder}/ " not in tree) == []
    files = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Every file")[1]
    named = re.findall(r"^\| `(\w+\.py)` \|", files, flags=re.M)
    assert sorted(named) == sorted(p.name for p in package.rglob("*.py") if not p.name.startswith("__"))

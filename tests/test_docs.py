"""The documentation: every public name is in the API pages, and the extensions of the site do as they say."""

import importlib
import json
import pkgutil
import re
import sys
from pathlib import Path

import pytest

import anchorlens
from anchorlens.cli.commands import COMMANDS
from anchorlens.probes import PROBES

DOCS = Path(__file__).parents[1] / "docs"
API = "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md")))
DIRECTIVE = re.compile(r"^\.\. auto(class|function|data|exception):: (\S+)$", re.MULTILINE)
DOCUMENTED = [name for _, name in DIRECTIVE.findall(API)]
PACKAGES = ["anchorlens"] + [
    name
    for _, name, is_package in pkgutil.walk_packages(anchorlens.__path__, "anchorlens.")
    if is_package and hasattr(importlib.import_module(name), "__all__") and name != "anchorlens.cli"
]
"""Those that name what is public; the command line has a page of its own."""


def found(name):
    """What stands behind a dotted name, which a function of the same name as its module may hide."""
    home, _, last = name.rpartition(".")
    return getattr(sys.modules.get(home) or importlib.import_module(home), last)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_api_pages(package):
    public = {f"{package}.{name}" for name in importlib.import_module(package).__all__}
    shown_elsewhere = {id(found(name)) for name in DOCUMENTED}
    assert [name for name in sorted(public) if id(found(name)) not in shown_elsewhere] == []


def test_the_api_pages_name_nothing_twice_and_nothing_that_is_not_there():
    assert len(set(DOCUMENTED)) == len(DOCUMENTED)
    for name in DOCUMENTED:
        found(name)


def test_every_api_page_is_in_its_index():
    index = (DOCS / "api/index.md").read_text(encoding="utf-8")
    pages = {page.name for page in (DOCS / "api").glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\((\w+\.md)\)", index)) == pages


def test_the_gallery_has_every_probe_with_its_picture_and_call():
    gallery = (DOCS / "gallery.md").read_text(encoding="utf-8")
    for probe in PROBES:
        name = probe.__name__
        section = gallery.split(f"\n## {name}\n")[1].split("\n## ")[0]
        (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", section)
        assert (DOCS / picture).is_file() and f"probes.{name}(" in section


def test_the_science_has_every_probe_as_a_heading():
    headings = re.findall(r"^### (.+)$", (DOCS / "science.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {probe.__name__ for probe in PROBES} <= set(re.findall(r"\w+", " ".join(headings)))


class TestExtensions:
    @pytest.fixture(autouse=True)
    def _importable(self, monkeypatch):
        pytest.importorskip("sphinx", reason="the extra [docs] is not installed")
        monkeypatch.syspath_prepend(DOCS / "_ext")

    def test_what_a_page_loads_from_elsewhere_is_found(self):
        from offline import external_loads

        assert not external_loads('<a href="https://x.example"><img src="a.png" srcset="b.png 2x"></a>')
        for page in (
            '<script src="//x.example/a.js"></script>',
            '<link rel="stylesheet" href="https://x.example/a.css">',
            '<img srcset="a.png 1x, https://x.example/b.png 2x">',
            '<p style="background: url(https://x.example/a.png)">',
            "<style>@import 'https://x.example/a.css';</style>",
            '<iframe src="HTTPS://x.example"></iframe>',
        ):
            assert external_loads(page), page
        assert external_loads("@font-face { src: url('https://x.example/f.woff') }", css=True)

    def test_a_site_that_loads_something_fails_the_build(self, tmp_path):
        from offline import check
        from sphinx.errors import ExtensionError

        (tmp_path / "a.html").write_text("<p>quiet</p>")
        check(tmp_path)
        (tmp_path / "b.html").write_text('<script src="https://x.example/a.js"></script>')
        with pytest.raises(ExtensionError, match=r"b\.html: <script"):
            check(tmp_path)

    def test_docstrings_keep_their_words(self):
        from docstrings import prepared

        text = "Mean |cosine| of `a|b`.\n\nReturns:\n    Phase 1: few.\n\nAttributes:\n    x: one."
        assert prepared(text, "class") == "Mean \\|cosine\\| of `a|b`.\n\n:returns: Phase 1: few."
        assert prepared(">>> x | y\n1", "function") == ">>> x | y\n1"

    def test_every_command_and_option_is_described(self):
        import typer
        from command_line import described

        from anchorlens.cli.commands import app

        commands = typer.main.get_command(app).commands
        assert list(commands) == list(COMMANDS)
        for name, command in commands.items():
            text = "\n".join(described(name, command))
            for parameter in command.params:
                for flag in parameter.opts:
                    assert f"`{flag}`" in text or f"`{flag.upper()}" in text, (name, flag)

    def test_tutorials_are_copied_and_those_that_are_gone_go(self, tmp_path):
        from tutorials import copy

        source, target = tmp_path / "tutorials", tmp_path / "docs/tutorials"
        source.mkdir()
        target.mkdir(parents=True)
        data = {"application/vnd.plotly.v1+json": {}, "image/png": "cGljdHVyZQ=="}
        cells = [
            {"cell_type": "markdown", "source": ["[probes](../docs/probes.md) ![a](images/a.png)"]},
            {"cell_type": "code", "source": "print('](../docs/')", "outputs": [{"data": data}]},
        ]
        (source / "1_a.ipynb").write_text(json.dumps({"cells": cells}))
        (target / "9_gone.ipynb").write_text("{}")
        copy(source, target)
        assert [page.name for page in target.iterdir()] == ["1_a.ipynb"]
        words, code = json.loads((target / "1_a.ipynb").read_text())["cells"]
        assert words["source"] == "[probes](../probes.md) ![a](../../tutorials/images/a.png)"
        assert code["source"] == "print('](../docs/')" and list(code["outputs"][0]["data"]) == ["image/png"]
        written = (target / "1_a.ipynb").stat().st_mtime_ns
        copy(source, target)
        assert (target / "1_a.ipynb").stat().st_mtime_ns == written

    def test_a_formula_is_mathml_and_an_unknown_command_is_refused(self):
        pytest.importorskip("latex2mathml", reason="the extra [docs] is not installed")
        from mathml import mathml
        from sphinx.errors import ExtensionError

        assert "<mfrac>" in mathml(r"\frac{a}{b}", "inline")
        with pytest.raises(ExtensionError, match="nosuchcommand"):
            mathml(r"\nosuchcommand{a}", "inline")

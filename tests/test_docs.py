"""The documentation: every public name is in the API pages, and the extensions of the site do as they say."""

import importlib
import inspect
import json
import pkgutil
import re
import sys
from pathlib import Path
from typing import get_args

import pytest
from promised_names import promised_names

import anchorlens
from anchorlens.cli.commands import GROUPS
from anchorlens.probes import PROBES, SHIPPED
from anchorlens.show import words
from anchorlens.tasks.shared.phases import Cause

pytestmark = pytest.mark.needs()  # it is about the whole package

DOCS = Path(__file__).parents[1] / "docs"
TUTORIALS = DOCS.parent / "tutorials"
RESEARCH = DOCS.parent / "research"
PROBE_PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted((DOCS / "probes").glob("*.md"))}
API = "\n".join(
    [
        *(page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md"))),
        *PROBE_PAGES.values(),
    ]
)
DIRECTIVE = re.compile(r"^\.\. (?:auto|py:)(class|function|data|exception):: (\S+)$", re.MULTILINE)
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
    public = {f"{package}.{name}" for name in promised_names(package)}
    shown_elsewhere = {id(found(name)) for name in DOCUMENTED}
    values = {name: found(name) for name in sorted(public)}
    things = {name: value for name, value in values.items() if not inspect.ismodule(value)}
    assert [name for name, value in things.items() if id(value) not in shown_elsewhere] == []


def test_the_api_pages_name_nothing_twice_and_nothing_that_is_not_there():
    assert len(set(DOCUMENTED)) == len(DOCUMENTED)
    for name in DOCUMENTED:
        found(name)


def test_every_api_page_is_in_its_index():
    index = (DOCS / "api/index.md").read_text(encoding="utf-8")
    pages = {page.name for page in (DOCS / "api").glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\((\w+\.md)\)", index)) == pages


def n_words(*pages):
    """What `wc -w` counts, as in CONTRIBUTING: marks of tables and of code are words too."""
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def test_the_readme_the_site_and_each_page_keep_to_their_words():
    site = [page for page in DOCS.rglob("*.md") if "_build" not in page.parts]
    long = {page.name: n_words(page) for page in site if page.parent.name != "api" and n_words(page) > 2_500}
    assert n_words(DOCS.parent / "README.md") <= 700 and n_words(*site) <= 35_000 and long == {}
    assert n_words(DOCS / "evidence.md") <= 1_500


SECTIONS = ["Question", "Plot", "Definition", "Typical values by phase", "Limitations", "API"]
"""The headings of the page of a probe, in order."""
PHASES = ["Phase 1", "Phase 2 (not comm.)", "Phase 2 (comm.)", "Phase 3"]
"""The columns of its table, of which some have more."""


def sections(page):
    """Heading -> text of its section, of every heading of the second level."""
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


VALUES = sections((RESEARCH / "probe_values.md").read_text(encoding="utf-8"))
"""Probe -> its typical values, of which its page shows the main reading."""


def test_every_probe_has_a_page_and_every_page_a_probe():
    assert PROBE_PAGES.keys() == VALUES.keys() == {probe.__name__ for probe in SHIPPED}


@pytest.mark.parametrize("probe", SHIPPED, ids=lambda probe: probe.__name__)
class TestPageOfAProbe:
    def test_it_has_the_headings_of_all(self, probe):
        page = PROBE_PAGES[probe.__name__]
        assert page.startswith(f"# {probe.__name__}\n") and list(sections(page)) == SECTIONS
        assert all(text.strip() for text in sections(page).values())

    def test_its_question_is_that_of_the_overview(self, probe):
        rows = table_rows((DOCS / "probes.md").read_text(encoding="utf-8"))
        (asked,) = [row[1] for row in rows if row[0] == f"[`{probe.__name__}`](probes/{probe.__name__}.md)"]
        question = " ".join(sections(PROBE_PAGES[probe.__name__])["Question"].split())
        assert asked == question and question.endswith("?")

    def test_it_has_the_picture_the_texts_and_the_call(self, probe):
        name, parts = probe.__name__, sections(PROBE_PAGES[probe.__name__])
        (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", parts["Plot"])
        assert picture == f"../images/gallery/{name}.svg" and (DOCS / "probes" / picture).is_file()
        assert f"```{{caption}} {name}\n```" in parts["Plot"]
        assert f"```{{limitations}} {name}\n```" in parts["Limitations"]
        assert "Source: " in parts["Definition"]
        assert (
            f"probes.{name}(" in parts["API"] and f"autofunction:: anchorlens.probes.{name}\n" in parts["API"]
        )

    def test_its_table_has_a_row_for_each_reading(self, probe):
        """In the order of the result. Probes that are not for every model have another table, or no table."""
        rows = table_rows(VALUES[probe.__name__])
        shown = table_rows(sections(PROBE_PAGES[probe.__name__])["Typical values by phase"])
        assert [row for row in shown if row not in rows] == [] and (shown or probe not in PROBES)
        if probe not in PROBES:
            assert not rows or rows[0][0] == "model"
            return
        readings = sys.modules[probe.__module__].__dict__[probe.__annotations__["return"]].readings
        header, _, *values = rows[: len(readings) + 2]
        assert header[:5] == ["reading", *PHASES] and [row[0].strip("`") for row in values] == list(readings)
        assert {len(row) for row in values} == {len(header)}


def test_every_script_that_a_page_names_is_there():
    root = DOCS.parent
    pages = [*root.glob("*.md"), *DOCS.rglob("*.md"), *TUTORIALS.glob("*.ipynb")]
    named = {
        (script, page.name)
        for page in pages
        for script in re.findall(r"\b(?:examples|research|tutorials)/[\w/]+\.py\b", words_of(page))
    }
    assert {"research/calibrate.py", "examples/gallery.py"} <= {script for script, _ in named}
    assert [(script, page) for script, page in sorted(named) if not (root / script).is_file()] == []


NUMBERS = [
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
ALL_PROBES = re.compile(
    rf"\b(?:the|all) ({'|'.join(NUMBERS)})\s+probes\b(?:\s+without((?:\s+(?:and\s+)?`\w+`,?)+))?"
)
"""How many there are, in words; those that a page leaves out stand behind it."""


def words_of(path):
    """What a page says; of a notebook the cells of words."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def table_rows(page):
    """The cells of each row of the page's tables."""
    lines = (line for line in page.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]


def test_pages_count_as_many_probes_as_there_are():
    pages = [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *DOCS.glob("*.md")]
    pages += [*(DOCS / "api").glob("*.md"), *TUTORIALS.glob("*.ipynb")]
    counts = [(page.name, *found) for page in pages for found in ALL_PROBES.findall(words_of(page))]
    assert {"index.md", "probes.md", "presets.md", "06_your_own_probe.ipynb"} <= {c[0] for c in counts}
    for page, number, left_out in counts:
        names = set(re.findall(r"`(\w+)`", left_out))
        assert names <= {probe.__name__ for probe in SHIPPED}
        assert NUMBERS.index(number) + 9 == len(SHIPPED) - len(names), page


def test_the_readme_counts_as_many_tutorials_as_there_are():
    (number,) = re.findall(r"\[(\w+) tutorials\]", (DOCS.parent / "README.md").read_text(encoding="utf-8"))
    assert NUMBERS.index(number.lower()) + 9 == len(list(TUTORIALS.glob("*.ipynb")))


@pytest.mark.parametrize(("probe", "n_rows"), [("information_flow", 3), ("interchange", 4)])
def test_the_seeds_of_a_page_have_the_mean_of_its_table(probe, n_rows):
    rows = table_rows(VALUES[probe])
    means = {
        row[0].strip("`"): dict(zip(rows[0], row, strict=True))
        for row in rows
        if len(row) == len(rows[0]) == 6
    }
    by_seed = [row for row in rows if len(row) == 5 and re.match(r"\d", row[-1])]
    assert len(by_seed) == n_rows
    for column, name, *seeds in by_seed:
        cell = means[name.strip("`") if "`" in name else f"{name}_route"][column]
        assert abs(sum(map(float, seeds)) / 3 - float(cell.split(" ")[0])) <= 0.01, (column, name)


def test_tutorial_3_quotes_the_readings_of_the_probe_pages():
    """What it says over three seeds is a row of a page, of a probe that the cell before has measured."""

    def quoted(text):
        return [
            (float(mean), float(spread)) for mean, spread in re.findall(r"(-?\d*\.\d+) ± (\d*\.\d+)", text)
        ]

    readings = [
        (probe, quoted(" ".join(row[1:])))
        for probe, page in VALUES.items()
        for row in table_rows(page)
        if "±" in row[-1]
    ]
    cells = json.loads((TUTORIALS / "03_opening_models.ipynb").read_text(encoding="utf-8"))["cells"]
    checked, compared = 0, []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            compared = re.findall(r'probes\.compare\(checkpoints, "(\w+)"', source)
        elif said := quoted(source):
            assert said in [row[: len(said)] for probe, row in readings if probe in compared], compared
            checked += 1
    assert checked == 5


def test_the_presets_page_has_the_seeds_that_it_names_and_their_means():
    page = (
        (RESEARCH / "presets.md")
        .read_text(encoding="utf-8")
        .split("\n## Phases by seed")[1]
        .split("\n## ")[0]
    )
    ends = {name: int(end) for name, end in re.findall(r"For `(\w+)`, SEEDS is `0:(\d+)`", page)}
    (others,) = re.findall(r"- SEEDS is `0:(\d+)`", page)
    rows = [row for row in table_rows(page) if row[0].startswith("`")]
    presets = list(dict.fromkeys(row[0] for row in rows))
    assert {"`phase3`", "`quick`, gamma 0.5"} < set(presets) and set(ends) == {"phase3", "quick"}
    for preset in presets:
        *seeds, mean = [row for row in rows if row[0] == preset]
        n_seeds = ends.get(preset.split("`")[1], int(others))
        assert [row[1] for row in seeds] == list(map(str, range(n_seeds))) and mean[1] == "mean"
        for column in range(2, 6):
            values = [float(row[column]) for row in seeds]
            assert abs(sum(values) / n_seeds - float(mean[column])) <= 0.001, (preset, column)  # both rounded


def test_the_page_on_verdicts_has_every_reason_that_leaves_one_undecided():
    page = (DOCS / "read_a_verdict.md").read_text(encoding="utf-8")
    rows = table_rows(page.split("\n## Undecided")[1].split("\n## ")[0])
    assert {row[0].strip("`") for row in rows[2:]} == set(get_args(Cause))


STUDIES = (
    "calibration/calibration.md",
    "figures/complexity_control.md",
    "figures/replication.md",
    "ground_truth/ground_truth.md",
    "holdout/holdout.md",
)
"""The pages of research/ that the page Evidence sums up."""


def test_the_counts_of_the_page_evidence_are_those_of_the_studies():
    def counts(page):
        return set(re.findall(r"\b\d+ of \d+\b", re.sub(r"\bof the (\d)", r"of \1", page)))

    studies = [(RESEARCH / page).read_text(encoding="utf-8") for page in STUDIES]
    found = counts((DOCS / "evidence.md").read_text(encoding="utf-8"))
    assert len(found) >= 20 and found - counts("\n".join(studies)) == set()


def test_the_messages_of_the_troubleshooting_page_are_those_of_the_program():
    root = DOCS.parent
    files = [*(root / "anchorlens").rglob("*.py"), root / "Makefile"]
    source = "\n".join(path.read_text(encoding="utf-8") for path in files)
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # literals that Python joins
    page = (DOCS / "faq.md").read_text(encoding="utf-8")
    rows = table_rows(page.split("\n## Error messages")[1].split("\n## ")[0])[2:]
    parts = [part.strip() for row in rows for part in row[0].strip("`").split("…")]
    assert len(rows) > 10 and [part for part in parts if part not in source] == []


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

    def test_every_probe_has_a_caption_and_limitations_for_its_page(self):
        from probe_pages import limitations

        from anchorlens.show.words import CAPTIONS

        for probe in SHIPPED:
            assert (
                limitations(probe.__name__).startswith("The probe ") and CAPTIONS[probe.__name__].how_to_read
            )

    def test_limitations_are_a_section_of_the_page_and_not_of_the_docstring(self):
        from probe_pages import without_limitations

        text = "Measure it.\n\nLimitations: The probe is\nshort.\n\nArgs:\n    x: one."
        assert without_limitations(text) == "Measure it.\n\nArgs:\n    x: one."
        assert without_limitations("Measure it.\n\nLimitations: none") == "Measure it.\n\n"

    def test_every_command_and_option_is_described(self):
        import typer
        from command_line import described

        from anchorlens.cli.commands import app
        from anchorlens.cli.help import fields_of
        from anchorlens.configuration import field_types
        from anchorlens.recipes.run_config import part_classes

        commands = typer.main.get_command(app).commands
        assert list(commands) == [name for group in GROUPS.values() for name in group]
        for name, command in commands.items():
            text = "\n".join(described(name, command))
            flags = [flag for parameter in command.params for flag in parameter.opts]
            if fields_of(command):
                fields = {field for _, cls in part_classes() for field in field_types(cls)}
                flags += [f"--{field.replace('_', '-')}" for field in ("task", *fields)]
            for flag in flags:
                assert f"`{flag}`" in text or f"`{flag.upper()}" in text, (name, flag)

    def test_links_to_the_studies_are_downloads(self):
        from research_pages import downloads

        text = (
            "[the\nstudy](../research/holdout/holdout.md#results), [a](control.md#gpu), [b](../examples/a.py)"
        )
        turned = "{download}`the study <../research/holdout/holdout.md>`"
        assert downloads(text) == text.replace(text.partition(", ")[0], turned)

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


def test_the_line_of_trust_has_the_numbers_of_the_page():
    """`research/calibrate.py --held-out` computes them for both."""
    page = (DOCS / "evidence.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| correct phase, all runs")]
    assert re.findall(r"(\d+) of (\d+)", row) == [
        (str(n), str(words.HELD_OUT_RUNS)) for n in words.RIGHT.values()
    ]

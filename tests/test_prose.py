"""Plain words: pages, templates, captions, help and messages do not use archaic or private words.

Tests hold a few words of a message, so that it can be mended.
"""

import ast
import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs()  # it is about every text

ROOT = Path(__file__).parents[1]
WORDS = (
    *("anew", "alike", "all the same", "in the mean", "foretells?", "for want of", "beside", "behind"),
    *("at hand", "on the way", "by itself", "as it was", "so many", "as ever", "such a", "no such"),
)
"""Archaic or vague words, as regular expressions."""
PRIVATE = (
    *("(its|the|their|whose) inside", "speaks? for", "named rightly", "the zoo"),
    *("blind to", "a sign a seed", "not asked", "left-out questions", "is none", "are none", "not there"),
)
"""Words that only the authors use, as regular expressions."""
FORBIDDEN = re.compile(rf"\b({'|'.join((*WORDS, *PRIVATE))})\b", re.IGNORECASE)

IN_THE_PROGRAM = {
    "files/importers.py": "the operating system says 'No such file or directory'",
}
"""File of the package -> why a message in it still has such a word."""


def plain(text):
    """A text without code, markup, links and the expressions of templates."""
    blocks = r"```.*?```|\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|<!--.*?-->|<script.*?</script>|<style.*?</style>"
    text = re.sub(blocks, " ", text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`|<[^>]*>|\]\([^)]*\)", " ", text)
    return re.sub(r"\\?\s+", " ", text)


def messages(source):
    """The texts of several words in a module that are not docstrings."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield plain(node.value) if " " in node.value else ""


def found(*texts):
    """The forbidden words in these texts."""
    return [match[0] for text in texts for match in FORBIDDEN.finditer(text)]


def pages():
    """Every page of the documentation, and the README."""
    found = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
    return ["README.md", *(page for page in found if not page.startswith("docs/_build"))]


@pytest.mark.parametrize("page", pages())
def test_a_page_has_plain_words(page):
    assert found(plain((ROOT / page).read_text(encoding="utf-8"))) == []


def test_templates_and_captions_have_plain_words():
    files = [*(ROOT / "anchorlens").rglob("*.html"), *(ROOT / "anchorlens").rglob("captions.toml")]
    assert len(files) > 20
    assert {str(file): has for file in files if (has := found(plain(file.read_text("utf-8"))))} == {}


def test_help_has_plain_words():
    """The frozen help of every command, which the referee compares with the program's."""
    helps = json.loads((ROOT / "tests/referee/help_texts.json").read_text(encoding="utf-8"))
    assert len(helps) > 10
    texts = {name: " ".join(" ".join(lines).split()) for name, lines in helps.items()}
    assert {name: has for name, text in texts.items() if (has := found(text))} == {}


def test_messages_have_plain_words():
    has = {}
    for file in sorted((ROOT / "anchorlens").rglob("*.py")):
        if words := found(*messages(file.read_text(encoding="utf-8"))):
            has[str(file.relative_to(ROOT / "anchorlens"))] = words
    assert has.keys() == IN_THE_PROGRAM.keys(), has


@pytest.mark.parametrize("text", ["Which is none?", "Train it anew.", "Its inside looks like that."])
def test_the_words_are_found(text):
    assert found(text)


def test_code_is_no_prose():
    assert not found(
        plain("Set `anew` to true.\n```python\nnot there\n```\n<p class='beside'>{{ beside }}</p>")
    )


def longest_pins(source):
    """(line, length) of what `match=` expects, in place or in the column of that name of a parametrize."""

    def text(node):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        return "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))

    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        pins = [
            node.value for node in ast.walk(function) if isinstance(node, ast.keyword) and node.arg == "match"
        ]
        names = {pin.id for pin in pins if isinstance(pin, ast.Name)}
        for call in function.decorator_list:
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.parametrize":
                columns = getattr(call.args[0], "elts", call.args[:1])
                for row in getattr(call.args[1], "elts", ()):
                    cells = getattr(row, "elts", [row])
                    pins += [cell for one, cell in zip(columns, cells, strict=False) if text(one) in names]
        yield from ((pin.lineno, len(text(pin))) for pin in pins)


def test_tests_expect_a_few_words_of_a_message():
    """The name and the keyword of the rule are enough: who mends the sentence then mends no test."""
    folders = (ROOT / "tests", ROOT / "research/tests")
    files = [file for folder in folders for file in folder.rglob("*.py")]
    pins = {(file, *pin) for file in files for pin in longest_pins(file.read_text(encoding="utf-8"))}
    assert len(pins) > 100 and {pin for pin in pins if pin[-1] > 50} == set()
    source = "with pytest.raises(ValueError, match=says):\n        f()"
    source = f'@pytest.mark.parametrize(("a", "says"), [(1, "{"a" * 51}")])\ndef test(a, says):\n    {source}'
    assert max(longest_pins(source)) == (3, 0) and (1, 51) in longest_pins(source)

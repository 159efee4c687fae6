"""Draw sentences at random from all that a user reads, to be judged against a style sheet.

    python research/prose_sample.py [--n 100] [--seed 0]

Sentences come from the README, the documentation, the tutorials' text, the captions, the help of every
command (as the referee froze it), the messages of errors, and the docstrings of public names. Each of these
sources gives equally many; a line of the output has the source, the file and the sentence.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import tomllib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "anchorlens"
FEWEST_WORDS = 5
ABBREVIATIONS = r"(?<!al\.)(?<!e\.g\.)(?<!i\.e\.)"


def sentences(text: str) -> Iterator[str]:
    """The sentences of a Markdown text, without code, formulas, tables, headings and the markup of links."""
    text = re.sub(r"^ *(```|~~~|\$\$).*?^ *\1\s*$", "\n\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\s*(\||#|\$|>|:::|\{)[^\n]*$|(?<!`)<[^>]*>", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for block in re.split(r"\n\s*\n|^\s*[-*] |^\s*\d+\. ", text, flags=re.MULTILINE):
        for sentence in re.split(
            rf"(?<=[.?!]){ABBREVIATIONS}\s+(?=[A-Z`*\"(]|anchorlens\b)", " ".join(block.split())
        ):
            if len(sentence.split()) >= FEWEST_WORDS:
                yield sentence


def pages() -> Iterator[tuple[Path, str]]:
    """The README and the pages of the documentation."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if "_build" not in page.parts:
            yield page, page.read_text("utf-8")


def tutorials() -> Iterator[tuple[Path, str]]:
    """The text of the tutorials."""
    for notebook in sorted((ROOT / "tutorials").glob("*.ipynb")):
        for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                yield notebook, "".join(cell["source"])


def captions() -> Iterator[tuple[Path, str]]:
    """The captions of plots."""
    for file in sorted(PACKAGE.rglob("captions.toml")):
        yield from ((file, text) for text in _texts(tomllib.loads(file.read_text("utf-8"))))


def helps() -> Iterator[tuple[Path, str]]:
    """The help of every command, as the referee froze it, without usage, examples and names of options."""
    file = ROOT / "tests/referee/help_texts.json"
    for lines in json.loads(file.read_text("utf-8")).values():
        for block in re.split(r"\n\s*\n", "\n".join(lines)):
            if not block.startswith(("Usage:", "Examples:")):
                for indent, same in groupby(block.splitlines(), lambda line: len(line) - len(line.lstrip())):
                    texts = [re.sub(r"^\s*\S+ {2,}", "", line).strip() for line in same]
                    for text in [" ".join(texts)] if indent != 2 else texts:
                        if not text.startswith("-"):
                            yield file, text


def messages() -> Iterator[tuple[Path, str]]:
    """The messages of errors."""
    for file, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                yield from ((file, _said(argument)) for argument in node.exc.args[:1])


def docstrings() -> Iterator[tuple[Path, str]]:
    """The docstrings of public functions and classes; an entry of an argument is a text of its own."""
    for file, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                text = re.sub(r"^(?= +\w+: )", "\n", ast.get_docstring(node) or "", flags=re.MULTILINE)
                yield file, re.sub(r"^ *>>>.*?(?=^\s*$|\Z)", "", text, flags=re.MULTILINE | re.DOTALL)


SOURCES = {
    "page": pages,
    "tutorial": tutorials,
    "caption": captions,
    "help": helps,
    "error": messages,
    "docstring": docstrings,
}


def sample(n: int, seed: int) -> list[tuple[str, str, str]]:
    """Source, file and sentence of `n` sentences, no sentence twice."""
    found = []
    random = np.random.default_rng(seed)
    for place, (source, texts) in enumerate(SOURCES.items()):
        known = {sentence: file for file, text in texts() for sentence in sentences(text)}
        wanted = n // len(SOURCES) + (place < n % len(SOURCES))
        for k in random.permutation(len(known))[:wanted]:
            sentence, file = list(known.items())[k]
            found.append((source, str(file.relative_to(ROOT)), sentence))
    return found


def _modules() -> Iterator[tuple[Path, ast.Module]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        yield file, ast.parse(file.read_text("utf-8"))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, str):
        yield value


def _said(node: ast.expr) -> str:
    """A message, with ... for what is put into it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_said(part) for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "..."


def main() -> None:
    """Read the command line and print the sentences."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--n", type=int, default=100, help="number of sentences")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    given = parser.parse_args()
    for line in sample(given.n, given.seed):
        print(*line, sep="\t")


if __name__ == "__main__":
    main()

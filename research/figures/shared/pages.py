"""Generated pages: a template has the words, every number is an expression, and `--check` compares.

Every writer of pages (page.py, control_page.py, grokking_page.py, ground_truth/truth_page.py,
holdout_page.py) fills its templates and ends here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import jinja2

from shared import numerals
from shared.sentences import Stale, sentences_of

DOCS = Path(__file__).parents[3] / "docs"


def environment(folder: Path) -> jinja2.Environment:
    """What the templates of a folder are rendered with."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    styles = (numerals.number, numerals.short, numerals.percent, numerals.joined)
    made.filters |= {function.__name__: function for function in styles}
    made.filters |= {
        "values": numerals.one_by_one,
        "interval": lambda ends: f"[{numerals.number(ends[0])}, {numerals.number(ends[1])}]",
    }
    return made


def rendered(template: Path, made: jinja2.Environment | None = None, **numbers: object) -> str:
    """The page of a template, in which `so(holds, sentence)` stops what the numbers do not bear out."""
    made = made or environment(template.parent)
    text = made.get_template(template.name).render(so=sentences_of(template), **numbers)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def stale(pages: Mapping[Path, str], folder: Path | None = None) -> list[Path]:
    """The files that are not what their templates give, and those of a folder that no template gives."""
    differ = [path for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text]
    return differ + [path for path in (folder.glob("*.md") if folder else ()) if path not in pages]


def write(
    doc: str | None, makers: Iterable[Callable[[], tuple[Path, str]]], folder: Path | None = None
) -> None:
    """Read the command line; write pages, or hold them against what would be written.

    Args:
        doc: the description of the script.
        makers: functions that each return a page: its file, and what stands in it.
        folder: where no other page may lie.

    Raises:
        SystemExit: sentences of a template are not what the numbers say, after the other pages are written;
            or, with --check, a file differs, or lies in the folder without a template.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page differs")
    asked = parser.parse_args()
    found, to_reword = {}, []
    for maker in makers:
        try:
            path, text = maker()
        except Stale as error:
            to_reword.append(str(error))
        else:
            found[path] = text
    if asked.check and (differ := stale(found, folder)):
        names = ", ".join(path.name for path in differ)
        to_reword.append(f"{names}: not what the templates give; run the script without --check")
    elif not asked.check:
        for path, text in found.items():
            path.write_text(text, encoding="utf-8")
    if to_reword:
        raise SystemExit("\n".join(to_reword))

"""Run the Python of the README unchanged, on the module of docs/index.md."""

import doctest
import re
from pathlib import Path

from test_readme import README, blocks

INDEX = Path(__file__).parents[1] / "docs/index.md"


def test_the_lines_print_what_stands_below_them(capsys):
    """Digits differ between machines; the words are the same."""
    example = INDEX.read_text(encoding="utf-8").split("## Ask about your own model")[1].split("```")[1]
    training = [step.source for step in doctest.DocTestParser().get_examples(example)][:-1]
    names = {}
    exec(compile("".join(training), INDEX.name, "exec"), names)
    names |= {"x": names["x"][:1500], "y": names["y"][:1500]}
    (code,) = blocks(README, "python")
    printed = re.search(r"^```python\n.*?^```\n```\n(.*?)^```", README, flags=re.M | re.S)[1]
    exec(compile(code, "README.md", "exec"), names)

    def words(text):
        return re.sub(r"\d+\.\d+", "#", text)

    assert words(capsys.readouterr().out) == words(printed)

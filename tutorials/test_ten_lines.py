"""Run the ten lines of the README unchanged. They train a model and take as long as a tutorial."""

import re

from test_readme import README, blocks


def test_the_ten_lines_print_what_stands_below_them(tmp_path, monkeypatch, capsys):
    """Digits differ between machines; the words and the phase are the same."""
    section = README.split("## Ten lines of Python")[1].split("\n## ")[0]
    (code,), (_, printed) = blocks(section, "python"), re.findall(r"^```\w*\n(.*?)^```", section, re.M | re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    done = capsys.readouterr()
    assert all(line.startswith("training: ") for line in done.err.splitlines())  # progress

    def words(text):
        return re.sub(r"[-+]?\d+\.\d+", "#", text).splitlines()

    assert words(done.out) == words(printed)
    assert len([line for line in code.splitlines() if line]) == 10
    assert (tmp_path / "report.html").stat().st_size > 100_000

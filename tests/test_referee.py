"""Weights, verdicts, a sweep and the help are what they were; tests/referee/README.md says what changed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "referee"))
import freeze  # noqa: E402


@pytest.mark.needs("arithmetic")
def test_weights():
    """The same bits where the arithmetic of this machine is that of the one that froze them, else close."""
    before, now = freeze.frozen("weights"), freeze.weights()
    same_bits = before.pop("bits") == now.pop("bits")
    assert before.keys() == now.keys()
    for name, run in before.items():
        if same_bits:
            assert run == now[name], name
        assert now[name]["norms"] == pytest.approx(run["norms"], rel=1e-3), name
        losses = [[line["loss"] for line in each["log"]] for each in (run, now[name])]
        assert losses[1] == pytest.approx(losses[0], rel=1e-3), name
    assert now["resumed"]["log"][-1]["step"] == 40


def close(now, before, where=""):
    """Whether two JSON values are equal, numbers to a part in ten thousand."""
    if isinstance(before, dict):
        assert now.keys() == before.keys(), where
        for name, value in before.items():
            close(now[name], value, f"{where}.{name}")
    elif isinstance(before, list):
        assert len(now) == len(before), where
        for k, value in enumerate(before):
            close(now[k], value, f"{where}[{k}]")
    elif isinstance(before, float):
        assert now == pytest.approx(before, rel=1e-4, abs=1e-5), where
    else:
        assert now == before, where


def test_verdicts():
    close(freeze.verdicts(), freeze.frozen("verdicts"))


@pytest.mark.needs("sweep")
def test_a_cell_and_the_page_of_a_sweep():
    close(freeze.sweep(), freeze.frozen("sweep"))


@pytest.mark.needs()
def test_the_help_of_every_command():
    before, now = freeze.frozen("help_texts"), freeze.help_texts()
    assert before.keys() == now.keys()
    for name, lines in before.items():
        assert now[name] == lines, name

"""Each product of `anchorlens.extras` can be taken out, and everything else works."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anchorlens.plugins import entry_points

pytestmark = [pytest.mark.needs(), pytest.mark.system]  # it is about the whole package

SCRIPT = Path(__file__).parent / "without_a_product.py"


@pytest.fixture(scope="module")
def found():
    """Product -> what is there without its folder, and without its entry points too."""
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {(line["product"], line["lines_too"]): line for line in lines}


def names(group, product):
    """What our products bring of a group, without one of them."""
    points = [point for point in entry_points(f"anchorlens.{group}") if point.value.startswith("anchorlens.")]
    return {point.name for point in points if not point.value.startswith(f"anchorlens.extras.{product}.")}


def test_every_product_was_taken_out(found):
    folders = {path.parent.name for path in (SCRIPT.parents[1] / "anchorlens/extras").glob("*/__init__.py")}
    assert {product for product, _ in found} == folders - {"shared"} and len(found) == 2 * (len(folders) - 1)
    assert [line for line in found.values() if "error" in line] == []


def test_the_others_are_all_there(found):
    for (product, _), line in found.items():
        assert set(line["tasks"]) == {"two_anchor"} | names("tasks", product), product
        assert names("probes", product) <= set(line["probes"]) and len(line["probes"]) >= 15, product
        core = {"demo", "train", "evaluate", "classify", "probe"}
        assert set(line["commands"]) == core | names("commands", product), product


def test_one_that_is_missing_says_in_one_line_what_to_install(found):
    n_asked = 0
    for (product, lines_too), line in found.items():
        for name, (code, said) in line["answers"].items():
            assert code == 2, (product, name, said)
            if not lines_too:
                n_asked += 1
                assert said.count("\n") == 1 and f"belongs to anchorlens.extras.{product}" in said
                assert "pip install --force-reinstall . in a clone" in said
    assert n_asked == sum(len(names(group, "none")) for group in ("commands", "tasks", "probes"))

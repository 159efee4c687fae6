"""Every library that the package imports is declared, every declared one is imported, and they stay few."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import anchorlens
from anchorlens.files.tables import write_rows

ROOT = Path(anchorlens.__file__).parent
PROJECT = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]
MOST = 20
PINNED_BY = {"pydantic_core": "pydantic", "dask": "distributed"}
"""A library whose exact version another one pins, and that other one."""
NEVER_NEEDED = {"ipython", "wandb"}
"""What the package only uses where the user has it: a notebook, a logger of the user's."""


def distributions(requirements):
    """The names in requirements, those of our own extras left out."""
    names = (re.match(r"[\w.-]+", requirement)[0] for requirement in requirements)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names} - {"anchorlens"}


def imported():
    of_module = packages_distributions()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            for top in {module.split(".")[0] for module in modules} - {
                *sys.stdlib_module_names,
                "anchorlens",
            }:
                yield PINNED_BY.get(top) or re.sub(r"[-_.]+", "-", of_module.get(top, [top])[0]).lower()


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    declared = distributions(PROJECT["dependencies"])
    optional = {name for group in PROJECT["optional-dependencies"].values() for name in distributions(group)}
    found = set(imported())
    assert found - declared - optional - NEVER_NEEDED == set()
    assert declared - found == set()
    assert len(declared) <= MOST


def test_without_pyarrow_a_table_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    with pytest.raises(
        ValueError,
        match=r"pyarrow must be installed.*export",
    ):
        write_rows([{"a": 1}], tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())

"""What every test shares, and how the core is tested where products are not installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from _pytest.doctest import DoctestModule
from few_questions import all_questions, few_questions, few_updates
from products_needed import is_there, products_needed

__all__ = ["all_questions", "few_questions", "few_updates"]
collect_ignore = [] if torch.cuda.is_available() else ["gpu"]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files of tests that import a product which is not installed."""
    if collection_path.suffix != ".py" or all(map(is_there, products_needed(collection_path))):
        return None
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[None]:
    """Look for no doctests in the tests themselves."""
    return [one for one in (yield) if not isinstance(one, DoctestModule)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs products that are not installed: `needs("scan")`, or `needs()` for all of them."""
    needed = [product for mark in item.iter_markers("needs") for product in mark.args or ("shared",)]
    if not all(map(is_there, needed)):
        pytest.skip("needs products that are not installed")


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Let what is no array of the right shape reach the package's own checks, as it does for users."""
    from jaxtyping import config

    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)

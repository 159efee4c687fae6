"""Fixtures that set how many draws of noise `evaluate` takes; each conftest.py imports them.

Ours is imported in the fixtures, once shapes are checked (`../conftest.py`).
"""

from inspect import unwrap

import pytest


@pytest.fixture(scope="session")
def defaults():
    """The defaults of `evaluate`."""
    from anchorlens.tasks.two_anchor.behaviour import evaluate

    return unwrap(evaluate).__kwdefaults__  # those of its own, behind the check of its shapes


@pytest.fixture(scope="session")
def n_noise(defaults):
    """As many draws as a user gets."""
    return defaults["n_noise"]


@pytest.fixture(scope="module", autouse=True)
def few_draws(defaults, n_noise):
    """Two draws of noise for each question instead of the default, which makes standard errors larger.

    A test that needs the default asks for `all_draws`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(defaults, "n_noise", 2)
        yield


@pytest.fixture(scope="module")
def all_draws(few_draws, defaults, n_noise):
    """As many draws of noise as a user gets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(defaults, "n_noise", n_noise)
        yield

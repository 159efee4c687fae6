"""What every test shares."""

import pytest

from anchorlens.tasks.two_anchor.behaviour import evaluate


@pytest.fixture(scope="module", autouse=True)
def few_draws():
    """Two draws of noise for each question instead of eight: standard errors are larger, no more.

    A module that asks for `all_draws` has the default.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evaluate.__kwdefaults__, "n_noise", 2)
        yield


@pytest.fixture(scope="module")
def all_draws(few_draws):
    """As many draws of noise as a user gets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evaluate.__kwdefaults__, "n_noise", 8)
        yield

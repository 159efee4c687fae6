"""What every test shares."""

import pytest
import torch

from anchorlens.tasks.two_anchor.behaviour import evaluate

collect_ignore = [] if torch.cuda.is_available() else ["gpu"]
DEFAULT = evaluate.__kwdefaults__["n_noise"]


@pytest.fixture(scope="module", autouse=True)
def few_draws():
    """Two draws of noise for each question instead of the default, which makes standard errors larger.

    A test that needs the default asks for `all_draws`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evaluate.__kwdefaults__, "n_noise", 2)
        yield


@pytest.fixture(scope="module")
def all_draws(few_draws):
    """As many draws of noise as a user gets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evaluate.__kwdefaults__, "n_noise", DEFAULT)
        yield

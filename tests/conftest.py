"""What every test shares."""

from collections.abc import Iterator

import pytest
import torch
from few_questions import all_questions, few_questions

__all__ = ["all_questions", "few_questions"]
collect_ignore = [] if torch.cuda.is_available() else ["gpu"]


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Let what is no array of the right shape reach the package's own checks, as it does for users."""
    from jaxtyping import config

    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)

"""Sequences drawn by rows are those of the whole draw, without its memory."""

import numpy as np
import pytest
import torch

from anchorlens import AnchorTask
from anchorlens.tasks.two_anchor import sequences


@pytest.mark.parametrize("split", ["train", "id", "ood"])
@pytest.mark.parametrize(
    "task", [AnchorTask(), AnchorTask(noise_obeys_split=True), AnchorTask(chain_length=3, key_min=30)]
)
def test_rows_are_those_of_the_whole_draw(monkeypatch, task, split):
    monkeypatch.setattr(sequences, "DRAWN_AT_ONCE", 70)  # so that there are many, the last of them short
    whole = task.sample(100, split=split, seed=5)
    few = task.lazy_sample(100, split=split, seed=5)
    for rows in (np.array([3, 99, 0, 50, 50]), np.arange(99, -1, -1), np.array([], dtype=int)):
        taken = few.take(rows)
        assert torch.equal(taken.tokens, whole.tokens[rows]) and torch.equal(
            taken.targets, whole.targets[rows]
        )
        assert (taken.trials.keys == whole.trials.keys[rows]).all()
        assert (taken.trials.positions == whole.trials.positions[rows]).all()
        assert (taken.trials.pairs == whole.trials.pairs[rows]).all()
    assert torch.equal(few.all().tokens, whole.tokens)

"""Rows that are alike, beside numpy's own way to find them."""

import numpy as np
import pytest

from anchorlens.tasks.shared.batch import distinct_rows


@pytest.mark.parametrize("n_values", [2, 10_000])
@pytest.mark.parametrize("shape", [(1, 1), (300, 2), (200, 7)])
def test_they_are_those_of_numpy(shape, n_values):
    rows = np.random.default_rng(0).integers(-n_values, n_values, shape)
    first, place = distinct_rows(rows)
    distinct, expected_first, expected_place = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    assert (rows[first] == distinct).all() and (first == expected_first).all()
    assert (place == expected_place.reshape(-1)).all()


def test_of_no_rows_there_are_none():
    assert [part.tolist() for part in distinct_rows(np.zeros((0, 3), dtype=np.int64))] == [[], []]

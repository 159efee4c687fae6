import numpy as np
import pytest
import torch

from anchorlens.probes.shared.linalg import (
    cosine_matrix,
    gaussian_stable_rank,
    greedy_groups,
    lag_cosines,
    principal_components,
    stable_rank_of,
)


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TestCosines:
    def test_do_not_depend_on_the_lengths_of_rows(self):
        rows = gaussian(5, 7)
        scaled = rows * torch.tensor([0.1, 1, 10, 100, 1000.0])[:, None]
        assert torch.allclose(cosine_matrix(rows), cosine_matrix(scaled))

    def test_do_not_depend_on_the_axes(self):
        rows, rotation = gaussian(5, 7), torch.linalg.qr(gaussian(7, 7, seed=1))[0]
        assert torch.allclose(cosine_matrix(rows), cosine_matrix(rows @ rotation))

    def test_stay_in_their_range_for_equal_rows(self):
        assert cosine_matrix(torch.full((3, 9), 0.1)).max() <= 1


class TestStableRank:
    @pytest.mark.parametrize("rank", [1, 2, 5])
    def test_of_equal_directions_is_their_number(self, rank):
        u, v = (torch.linalg.qr(gaussian(8, 8, seed=s))[0][:, :rank] for s in (0, 1))
        assert stable_rank_of(3 * u @ v.mT) == pytest.approx(rank)

    def test_does_not_depend_on_scale_or_side(self):
        matrix = gaussian(6, 9)
        assert stable_rank_of(1e-3 * matrix.mT) == pytest.approx(stable_rank_of(matrix))

    def test_of_a_gaussian_is_about_its_formula(self):
        assert stable_rank_of(gaussian(400, 200)) == pytest.approx(gaussian_stable_rank(400, 200), rel=0.05)

    def test_of_nothing_is_not_a_number(self):
        assert np.isnan(stable_rank_of(torch.zeros(3, 3)))


class TestGroups:
    def test_hold_every_row_once(self):
        similarity = cosine_matrix(gaussian(40, 3)).numpy()
        groups = greedy_groups(similarity, 0.4)
        assert sorted(sum(groups, [])) == list(range(40))
        for group in groups:
            assert all(similarity[group[0], row] > 0.4 for row in group)

    def test_opposite_rows_are_not_alike(self):
        assert greedy_groups(np.array([[1.0, -1.0], [-1.0, 1.0]]), 0.4) == [[0], [1]]


class TestComponents:
    def test_of_points_on_a_line(self):
        """(0, 0), (3, 4), (6, 8): 5 apart along one axis, variance 2/3 * 25."""
        points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
        coordinates, spectrum = principal_components(points, 1)
        assert coordinates[:, 0].abs().tolist() == pytest.approx([5, 0, 5], abs=1e-12)
        assert spectrum.tolist() == pytest.approx([50 / 3, 0], abs=1e-12)

    def test_are_those_of_scikit_learn(self):
        from sklearn.decomposition import PCA

        rows = gaussian(30, 6)
        coordinates, spectrum = principal_components(rows, 2)
        theirs = PCA(2).fit(rows)
        assert np.allclose(np.abs(theirs.transform(rows)), coordinates.abs())
        assert np.allclose(theirs.explained_variance_ratio_, spectrum[:2] / spectrum.sum())

    def test_there_are_no_more_values_than_rows_allow(self):
        assert principal_components(gaussian(5, 20), 2)[1].shape == (4,)

    def test_the_largest_coordinate_is_positive(self):
        for seed in range(5):
            coordinates = principal_components(gaussian(9, 4, seed=seed), 2)[0]
            assert (coordinates.max(dim=0).values == coordinates.abs().max(dim=0).values).all()


def test_lag_cosines_of_points_on_a_circle():
    """Twelve points evenly on a circle: the cosine over a lag k is that of the angle between them."""
    angles = 2 * torch.pi * torch.arange(12) / 12
    rows = torch.stack([angles.cos(), angles.sin()], dim=1)
    expected = [np.cos(2 * np.pi * k / 12) for k in (1, 2, 3)]
    assert lag_cosines(rows, range(1, 4)).tolist() == pytest.approx(expected, abs=1e-6)

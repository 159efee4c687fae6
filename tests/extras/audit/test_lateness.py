"""Fit times, ranks, fence, flags and AUC, by hand."""

import math

import numpy as np
import pytest

from anchorlens.extras.audit.lateness import FENCE, NEVER, fence, fit_steps, lateness, ranks, score, stand_out

MOMENTS = [10, 20, 30, 40]


class TestFitSteps:
    def test_is_the_first_moment_from_which_it_stays_right(self):
        right = np.array([
            # fit at once, at 30, at 40 (lost at 30), never, lost at the end, exactly at the threshold
            [0.9, 0.1, 0.9, 0.1, 0.9, 0.0],
            [0.9, 0.2, 0.9, 0.2, 0.9, 0.5],
            [0.9, 0.7, 0.4, 0.3, 0.9, 0.5],
            [0.9, 0.8, 0.6, 0.4, 0.1, 0.5],
        ])  # fmt: skip
        assert fit_steps(right, MOMENTS).tolist() == [10, 30, 40, NEVER, NEVER, 20]

    def test_another_threshold(self):
        right = np.array([[0.1, 0.3], [0.2, 0.1], [0.4, 0.2]])
        assert fit_steps(right, MOMENTS[:3], threshold=0.2).tolist() == [20, 30]

    def test_of_several_runs_at_once(self):
        right = np.array([[[0.0], [1.0]], [[1.0], [1.0]], [[1.0], [0.0]]])  # [run, evaluation, mapping]
        assert fit_steps(right, [10, 20]).tolist() == [[20], [10], [NEVER]]

    def test_what_is_no_number_is_not_right(self):
        assert fit_steps(np.array([[1.0], [math.nan]]), [10, 20]).tolist() == [NEVER]


class TestRanks:
    def test_ties_share_the_mean_of_their_places(self):
        # places 0..4 over 4: 10 -> 0; the two 20 share (1 + 2) / 2 = 1.5; 30 -> 3; 40 -> 4
        assert ranks(np.array([30.0, 20, 10, 20, 40])).tolist() == [0.75, 0.375, 0.0, 0.375, 1.0]
        assert ranks(np.array([7.0, 7, 7])).tolist() == [0.5, 0.5, 0.5]
        assert ranks(np.array([7.0])).tolist() == [0.0]

    def test_lateness_is_the_mean_over_runs(self):
        steps = np.array([[10.0, 20, 30], [20, 10, 30]])
        assert lateness(steps).tolist() == [0.25, 0.25, 1.0]

    def test_what_is_never_fit_is_later_than_all_that_is(self):
        rng = np.random.default_rng(0)
        steps = rng.choice([*range(10, 1000, 10), NEVER], (3, 200))
        for each in steps:
            places, never = ranks(each), np.isinf(each)
            assert never.any() and places[never].min() > places[~never].max()
        always = np.isinf(np.column_stack([steps, [NEVER] * 3])).all(axis=0)
        late = lateness(np.column_stack([steps, [NEVER] * 3]))
        assert late[always].min() == late.max()


class TestFence:
    MOMENTS = range(10, 1010, 10)

    def test_is_tukeys_outer_one(self):
        # Q1 = 100, Q3 = 200: the fence is 200 + 3 * (200 - 100) = 500
        assert FENCE == 3
        steps = np.array([100.0, 100, 200, 200, 200])
        assert fence(steps, self.MOMENTS) == 500
        assert fence(np.append(steps, NEVER), self.MOMENTS) == 500

    def test_fits_of_one_moment_are_as_wide_as_the_moments_apart(self):
        # all at 200: somewhere between 190 and 200, so that the fence is 200 + 3 * 10
        assert fence(np.full(20, 200.0), self.MOMENTS) == 230
        assert fence(np.full(20, 10.0), self.MOMENTS) == 40  # between 0 and 10

    def test_a_model_that_has_not_fit_its_data_has_none(self):
        half = np.array([100.0] * 10 + [NEVER] * 10)
        assert fence(half, self.MOMENTS) is None
        few = np.array([100.0] * 15 + [200.0] * 3 + [NEVER] * 2)
        assert fence(few, self.MOMENTS) is not None

    def test_what_stands_out_is_beyond_it_in_most_runs(self):
        steps = np.array([[100.0, 900, 900, NEVER], [100, 100, 900, NEVER], [100, 100, 900, 100]])
        assert stand_out(steps, [500, 500, 500], 1000).tolist() == [False, False, True, True]
        assert stand_out(steps, [500, None, None], 1000).tolist() == [False, True, True, True]
        assert stand_out(steps, [None, None, None], 1000).tolist() == [False] * 4
        assert stand_out(steps[:2], [500, 500], 1000).tolist() == [
            False,
            False,
            True,
            True,
        ]  # 1 of 2: not most

    def test_nothing_stands_out_where_the_run_ends_before_the_fence(self):
        never = np.full((3, 1), NEVER)  # it may be fit at step 1,001, before the fence
        assert stand_out(never, [1000, 1000, 1001], 1000).tolist() == [True]
        assert stand_out(never, [1000, 1001, 1001], 1000).tolist() == [False]


class TestScore:
    def test_by_hand(self):
        late = np.array([0.1, 0.4, 0.4, 0.8, 0.9])
        violates = np.array([False, False, True, False, True])
        flagged = np.array([False, False, False, True, True])
        # pairs (violating, obeying): .4 > .1, .4 = .4 (half), .4 < .8; .9 > all three: 4.5 of 6
        found = score(late, flagged, violates)
        assert found.auc == pytest.approx(4.5 / 6)
        # Q1 = .75 / 1.25 = .6, Q2 = 2 * .5625 / 1.75 = .642857; with 2 and 3 of a kind:
        # (.1875 + (.6 - .5625) + 2 (.642857 - .5625)) / 6 = .064286
        assert found.auc_error == pytest.approx(math.sqrt(0.0642857), abs=1e-5)
        assert (found.n, found.n_violating, found.n_flagged) == (5, 2, 2)
        assert found.precision == 0.5 and found.recall == 0.5

    def test_the_error_is_that_of_drawing_again(self):
        """Hanley and McNeil's formula against many drawn samples of exponential times, where it is exact."""
        rng = np.random.default_rng(0)
        violates = np.arange(90) < 30
        drawn = [score(rng.exponential(np.where(violates, 3.0, 1.0)), violates, violates) for _ in range(400)]
        spread = np.std([one.auc for one in drawn])
        assert np.mean([one.auc_error for one in drawn]) == pytest.approx(spread, rel=0.15)

    def test_a_shuffled_truth_is_chance(self):
        rng = np.random.default_rng(0)
        late, violates = rng.random(1000), np.arange(1000) < 100
        for _ in range(5):
            found = score(late, violates, rng.permutation(violates))
            assert abs(found.auc - 0.5) < 3 * found.auc_error
        assert score(violates.astype(float), violates, violates).auc == 1.0  # and the right one is not

    @pytest.mark.parametrize("truth", [True, False])
    def test_there_is_none_where_all_are_of_one_kind(self, truth):
        found = score(np.arange(4.0), np.zeros(4, dtype=bool), np.full(4, truth))
        assert found.auc is None and found.auc_error is None and found.precision is None
        assert found.recall == (0.0 if truth else None)

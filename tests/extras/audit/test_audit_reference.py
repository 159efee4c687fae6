"""examples/audit_reference.py: its reference, its comparison by hand, and a table of what is kept."""

import argparse
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from anchorlens import AnchorTask
from anchorlens.extras.audit import mappings_of

PATH = Path(__file__).parents[3] / "examples" / "audit_reference.py"
BROKEN = AnchorTask(complexity=1)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("audit_reference", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rules(task):
    """Chain -> its targets, key by key."""
    mappings = mappings_of(task)
    return {
        chain: tuple(mappings.targets[rows])
        for chain, rows in zip(mappings.groups, mappings.rows_of, strict=True)
    }


class TestReference:
    @pytest.mark.parametrize("seed", range(5))
    def test_the_rules_are_exchanged_and_none_stays(self, example, seed):
        before, after = rules(BROKEN), rules(example.permuted(BROKEN, seed))
        assert set(after) == set(before)  # the same questions
        assert all(after[chain] != before[chain] for chain in before)
        assert all(after[a, b] == after[b, a] for a, b in after)  # as they are in the data
        groups = [chain for chain in before if chain[0] <= chain[1]]
        assert sorted(after[chain] for chain in groups) == sorted(before[chain] for chain in groups)

    def test_another_seed_another_reference(self, example):
        assert example.permuted(BROKEN, 0) != example.permuted(BROKEN, 1)
        assert example.permuted(BROKEN, 0) == example.permuted(BROKEN, 0)

    def test_one_group_cannot_be_exchanged(self, example):
        unseen = [pair for pair in BROKEN.pairs if pair not in ((1, 2), (2, 1))]
        with pytest.raises(ValueError, match="two groups of mirrored chains or more"):
            example.permuted(AnchorTask(unseen_pairs=unseen), 0)


class TestComparison:
    """A chain's own time cancels, and only what the data add is left."""

    def test_by_hand(self, example):
        mappings = mappings_of(BROKEN)
        own = 10.0 * (1 + mappings.group_of)  # 10 for (1, 1), 20 for (1, 2), .. 160 for (4, 4)
        late = np.where(mappings.violates, 1.5, 1.0) * own
        plain, groups, by_seed = example.scores(mappings, [late])
        # (1, 2) takes 30 and (2, 1) 75: later than 10 and, with a tie, 30; than 10, 30, 40, 60, 70
        assert plain.auc == groups.auc == by_seed[0] == pytest.approx((1.5 + 5) / 28)
        against = example.over(mappings, late, own)
        assert set(against) == {1.0, 1.5}
        assert example.scores(mappings, [against])[0].auc == 1.0
        assert example.scores(mappings, [example.over(mappings, own, own)])[0].auc == 0.5  # nothing is late

    def test_what_is_never_fit_is_last_and_no_number(self, example):
        mappings = mappings_of(BROKEN)
        steps, other = np.full(len(mappings), 20.0), np.full(len(mappings), 10.0)
        steps[7] = other[9] = np.inf
        found = example.over(mappings, steps, other)
        assert found[7] == np.inf and set(np.delete(found, 7)) == {2.0}
        other[mappings.rows_of[3]] = np.inf
        assert example.over(mappings, steps, other) is None


def test_a_row_for_each_threshold_and_comparison_from_what_is_kept(example, tmp_path):
    mappings = mappings_of(BROKEN)
    given = argparse.Namespace(seed=[3], reference_seed=None, out=tmp_path, watched=100, control=True)
    at = np.array(example.evaluation_steps(given))[:, None]
    own = 10.0 + 10 * (mappings.group_of % 8)
    late = np.where(mappings.violates, 2, 1) * own
    for name, steps in (("data", late), ("reference", own), ("control", late)):
        np.save(tmp_path / f"{name}-seed3.npy", (at >= steps).astype(np.float32))
    rows = example.compared(given)
    assert [row["compared with"] for row in rows] == ["none", "reference", "control"] * 4
    aucs = [row["scores"][0].auc for row in rows]
    assert aucs[1:3] == [1.0, 0.5] and aucs[0] < 1
    assert {row["never_fit"] for row in rows} == {0}
    given.reference_seed = 4
    np.save(tmp_path / "reference-seed4.npy", (at >= late).astype(np.float32))
    assert example.compared(given)[1]["scores"][0].auc == 0.5  # the reference of that seed
    given.reference_seed, given.watched = None, 30  # the reference of some chains is not fit by then
    for name in ("data", "reference", "control"):
        np.save(tmp_path / f"{name}-seed3.npy", np.load(tmp_path / f"{name}-seed3.npy")[:3])
    found = {row["compared with"]: row for row in example.compared(given)}
    assert found["reference"]["scores"] is None and found["none"]["scores"] is not None
    assert found["reference"]["never_fit"] == 10 * 80  # chains 3 to 7 and 11 to 15


def test_what_is_measured_is_kept(example, tmp_path):
    small = json.dumps({"d_model": 16, "d_head": 8, "d_mlp": 16})
    given = argparse.Namespace(out=tmp_path / "new", watched=20, n_samples=512, model=small)
    found = example.watched("data", BROKEN, 0, given)
    assert found.shape == (2, 1280) and found.min() > 0 and found.max() < 1
    path = tmp_path / "new/data-seed0.npy"
    written = path.stat().st_mtime_ns
    assert (example.watched("data", BROKEN, 0, given) == found).all()
    assert path.stat().st_mtime_ns == written

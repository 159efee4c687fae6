"""An audit: by hand from chosen probabilities, and for real from tiny models."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorlens import AnchorTask, ModelConfig, TrainConfig
from anchorlens.extras.audit import Audit, ControlModel, audit, corrupted, mappings_of, read_csv, watching
from anchorlens.extras.audit.lateness import NEVER
from anchorlens.extras.audit.mappings import planted
from anchorlens.extras.audit.views import fit_in_words, summary, suspects
from anchorlens.recipes.run_config import RunConfig
from anchorlens.training.loop import TrainingDiverged

TASK = AnchorTask(anchors={1: 5, 2: -3, 3: 1}, unseen_pairs=[], key_min=20, key_max=49, seq_len=4)
TINY = ModelConfig.for_task(TASK, n_layers=2, d_model=32, d_head=16, d_mlp=64, gamma=0.8)
RECIPE = TrainConfig(steps=600, n_samples=20_000, batch_size=128, lr=3e-3, warmup_steps=50, threads=1)
TRAINED = {"model_config": TINY, "train_config": RECIPE}
MOMENTS = tuple(range(10, 110, 10))


def by_hand(mappings, *runs):
    """An audit in which run k fits mapping m at the step runs[k][m]."""
    steps = np.array(runs, dtype=float)
    right = (np.array(MOMENTS)[None, :, None] >= steps[:, None]).astype(np.float32)
    return Audit(mappings, right, MOMENTS, tuple(range(len(runs))), 1, TINY, RECIPE)


def with_bad(*rows):
    """The 270 mappings of the task, of which these violate."""
    mappings = mappings_of(TASK)
    violates = np.zeros(len(mappings), dtype=bool)
    violates[list(rows)] = True
    return replace(mappings, violates=violates)


BULK = np.where(np.arange(270) % 2, 20.0, 30.0)
"""Half of the mappings are fit at 20, half at 30: the fence is 30 + 3 * 10 = 60."""


class TestByHand:
    def test_late_ones_are_flagged_and_ranked_first(self):
        steps = BULK.copy()
        steps[[7, 100, 200]] = 70, NEVER, 60
        found = by_hand(with_bad(7, 100), steps)
        assert found.fit_steps[0].tolist() == steps.tolist()
        assert found.fences == (60.0,)
        assert np.flatnonzero(found.flagged).tolist() == [7, 100]  # 60 is not beyond 60
        assert found.order[:3].tolist() == [100, 7, 200]
        assert found.lateness[100] == 1.0 and found.never_fit[100] == 1
        assert found.score.auc == 1.0 and found.score.precision == found.score.recall == 1.0
        assert found.score.n == 270 and found.auc_by_seed == (1.0,)

    def test_what_is_never_fit_is_no_early_mapping_anywhere(self):
        steps = BULK.copy()
        steps[5] = NEVER
        found = by_hand(with_bad(5), steps)
        row = next(iter(found.rows()))
        assert (
            row["fit_step 0"] is None and row["never_fit"] == 1 and row["lateness"] == 1.0 and row["flagged"]
        )
        assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["n_never_fit"] == 1

    def test_nothing_stands_out_where_nothing_is_late(self):
        found = by_hand(with_bad(), BULK, BULK[::-1])
        assert not found.flagged.any() and not found.group_flagged.any()
        assert found.score.auc is None and found.score.n_flagged == 0
        assert repr(found) == "Audit(task: no outliers)"

    def test_a_mapping_must_be_late_in_most_of_the_models(self):
        late = BULK.copy()
        late[3] = 100
        assert not by_hand(with_bad(3), late, BULK).flagged.any()
        assert np.flatnonzero(by_hand(with_bad(3), late, BULK, late).flagged).tolist() == [3]

    def test_fit_is_a_matter_of_the_threshold_alone(self):
        found = by_hand(with_bad(7), BULK)
        right = np.full((1, len(MOMENTS), 270), 0.3, dtype=np.float32)
        right[0, :4] = 0.1  # .3 from step 50 on
        right[0, :8, 7] = 0.1  # from 90 on
        early = replace(found, right=right, fit=0.25)
        assert set(early.fit_steps[0]) == {50, 90} and early.fit_steps[0, 7] == 90
        assert early.score.auc == 1.0 and early.to_dict()["fit"] == 0.25
        assert not np.isfinite(replace(early, fit=0.5).fit_steps).any()

    def test_equally_late_ones_stand_in_order_of_their_loss_at_the_end(self):
        steps = BULK.copy()
        steps[[3, 50, 70, 90]] = NEVER
        found = by_hand(with_bad(), steps, steps)
        right = found.right.copy()
        right[:, -1, [3, 50, 70, 90]] = [[0.25, 0, 0.125, np.nan], [0.25, 0.125, 0.125, np.nan]]
        found = replace(found, right=right)
        # -log(1/4) = 1.386; (-log(2**-126) - log(1/8)) / 2 = 44.7; -log(1/8) = 2.079; no number: 126 log 2
        assert found.end_loss[[3, 50, 70, 90]] == pytest.approx([1.386, 44.708, 2.079, 87.337], abs=1e-3)
        assert found.order[:4].tolist() == [90, 50, 70, 3]
        assert found.tied[[3, 50, 70, 90]].tolist() == [4] * 4
        assert sorted({*found.tied.tolist()}) == [
            4,
            132,
            134,
        ]  # of 135 at 30 and at 20 three and one are gone
        row = next(iter(found.rows()))
        assert row["tied"] == 4 and row["end_loss"] == found.end_loss[90] and row["lateness"] > 0.99
        assert not found.too_few_steps and by_hand(with_bad(), BULK).tied.max() == 135

    def test_a_fence_beyond_the_last_step_flags_nothing(self):
        steps = np.where(np.arange(270) % 2, 20.0, 50.0)  # 50 + 3 * 30 = 140, and 100 is the last
        steps[7] = NEVER
        found = by_hand(with_bad(7), steps)
        assert found.fences == found.late_fences == (140.0,) and found.too_few_steps
        assert not found.flagged.any() and found.score.auc == 1.0 and found.order[0] == 7
        assert repr(found) == "Audit(task: too few steps; no outliers; AUC 1.000 ± 0.000)"
        all_fit = by_hand(with_bad(7), np.where(np.isinf(steps), 100, steps))
        assert all_fit.fences == (140.0,) and not all_fit.late_fences and not all_fit.too_few_steps
        assert found.to_dict()["too_few_steps"] and found.to_dict()["fences"] == [140.0]

    @pytest.mark.parametrize(("n_never", "too_few"), [(53, False), (54, True)])
    def test_a_fifth_that_is_never_fit_wants_more_steps(self, n_never, too_few):
        """A fifth of 270 is 54; the fence, 60, is where it was."""
        found = by_hand(with_bad(), np.where(np.arange(270) < n_never, NEVER, BULK), BULK)
        assert found.fences == (60.0, 60.0) and found.too_few_steps is too_few

    @pytest.mark.parametrize(
        ("n_late", "auc", "too_few"), [(20, 1.0, False), (9, 0.725, True), (0, 0.5, True)]
    )
    def test_what_was_planted_tells_whether_silence_means_anything(self, n_late, auc, too_few):
        """All fit at 30, n of 20 planted ones at 90; the others tie with the 250: (n + (20 - n) / 2) / 20."""
        steps = np.full(270, 30.0)
        steps[:n_late] = 90
        right = (np.array(MOMENTS)[:, None] >= steps).astype(np.float32)
        found = replace(by_hand(with_bad(), BULK), planted=ControlModel(np.arange(270) < 20, right))
        assert found.power.auc == pytest.approx(auc) and found.power.n_violating == 20
        assert found.power.n_flagged == n_late and found.too_few_to_tell is too_few
        content = found.to_dict()
        assert content["power"]["auc"] == found.power.auc and content["too_few_to_tell"] is too_few
        told = f"20 wrong mappings planted in one more model are ranked at an AUC of {auc:.2f} ± "
        assert told in (summary(found) if too_few else fit_in_words(found))
        assert ("Too few mappings" in summary(found)) == ("too few mappings" in repr(found)) == too_few
        assert ("There are no outliers." in summary(found)) is not too_few
        assert (found.flagged == by_hand(with_bad(), BULK).flagged).all()

    def test_groups_go_by_their_mappings(self):
        mappings = mappings_of(TASK)
        of = mappings.group_of
        steps, group = BULK.copy(), mappings.groups.index((2, 1))
        steps[of == group] = 90
        violates = of == group
        violates[np.flatnonzero(of == 0)[:10]] = True  # 10 of the 30 of (1, 1): not most of them
        found = by_hand(replace(mappings, violates=violates), steps)
        assert found.group_flagged.tolist() == [pair == (2, 1) for pair in mappings.groups]
        assert found.group_order[0] == group and found.group_score.auc == 1.0
        assert found.group_score.n_violating == 1 and found.score.n_violating == 40
        first = next(iter(found.group_rows()))
        assert first["group"] == [2, 1] and first["n_flagged"] == first["n_violating"] == 30
        assert first["median_fit_step"] == 90

    def test_models_that_have_not_fit_their_data_tell_nothing(self):
        found = by_hand(with_bad(3), np.where(np.arange(270) < 200, 30, NEVER))
        assert found.fences == (None,) and not found.flagged.any()
        assert "no result, the models have not fit" in repr(found)
        assert found.to_dict()["fences"] == [None]

    def test_mirrors_of_flagged_mappings_are_named(self):
        mappings = mappings_of(TASK)
        questions = list(zip(map(tuple, mappings.chains.tolist()), mappings.keys.tolist(), strict=True))
        here, mirror, alone, same = (
            questions.index(q) for q in [((1, 2), 30), ((2, 1), 30), ((1, 3), 31), ((2, 2), 30)]
        )
        assert mappings.mirror[here] == mirror and mappings.mirror[same] == -1
        steps = BULK.copy()
        steps[[here, mirror, alone, same]] = NEVER
        found = by_hand(mappings, steps)
        assert np.flatnonzero(found.mirror_flagged & found.flagged).tolist() == sorted([here, mirror])
        assert found.to_dict()["n_flagged_with_mirror"] == 2

    def test_suspects_are_told_in_words_the_latest_first(self):
        mappings = mappings_of(TASK)
        questions = list(zip(map(tuple, mappings.chains.tolist()), mappings.keys.tolist(), strict=True))
        steps = BULK.copy()
        steps[questions.index(((1, 3), 31))] = 70
        steps[[questions.index(q) for q in (((1, 2), 30), ((2, 1), 30))]] = NEVER
        mirrored = "; the reverse order is also late, and one of the two may be correct"
        assert suspects(by_hand(mappings, steps)) == [
            f"(1, 2) with key 30 -> 32: never fit{mirrored}",
            f"(2, 1) with key 30 -> 32: never fit{mirrored}",
            "(1, 3) with key 31 -> 37: fit at step 70",
        ]
        assert suspects(by_hand(mappings, BULK)) == []

    def test_a_truth_that_is_unknown_is_not_scored(self):
        found = by_hand(replace(mappings_of(TASK), violates=None), BULK)
        assert found.score is None and found.group_score is None and found.auc_by_seed == (None,)
        content = found.to_dict()
        assert content["score"] is None and content["mappings"][0]["violates"] is None
        assert found.plot().data

    def test_the_truth_changes_neither_ranks_nor_flags(self):
        rng = np.random.default_rng(0)
        steps = rng.choice([*MOMENTS[:4], 100.0, NEVER], 270, p=[0.5, 0.3, 0.05, 0.05, 0.05, 0.05])
        one, other = by_hand(with_bad(1, 2), steps), by_hand(with_bad(*range(50, 90)), steps)
        assert one.flagged.sum() > 0 and (one.flagged == other.flagged).all()
        assert (one.lateness == other.lateness).all() and one.score.auc != other.score.auc

    def test_table_and_json_hold_every_mapping_latest_first(self, tmp_path):
        steps = BULK.copy()
        steps[[8, 100]] = 70, NEVER
        found = by_hand(with_bad(8), steps, BULK)
        found.table(tmp_path / "mappings.csv")
        with (tmp_path / "mappings.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 270 == len(found.to_dict()["mappings"])
        assert rows[0]["fit_step 0"] == "" and rows[0]["never_fit"] == "1" and rows[0]["violates"] == "0"
        assert rows[1]["fit_step 0"] == "70" and rows[1]["violates"] == "1"
        assert [float(row["lateness"]) for row in rows] == sorted(found.lateness, reverse=True)

    def test_the_picture_draws_each_kind_and_says_nothing_of_its_own(self):
        steps = BULK.copy()
        steps[7] = NEVER
        figure = by_hand(with_bad(7), steps).plot()
        obeys, violates = figure.data[0], figure.data[1]
        assert obeys.name == "obey the rule (269)" and violates.name == "violate it (1)"
        assert max(violates.y) == 0.0 and obeys.y[-1] == 1.0  # never fit: it never counts as fit
        assert list(obeys.x) == [0, *MOMENTS]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("audit") / "new"
    task = corrupted(TASK, 0.05)
    short = {"n_evaluations": 30, "n_draws": 2, "workers": 1}
    return audit(task, model_config=TINY, train_config=RECIPE, seeds=[0], out=out, **short), out


class TestPlanted:
    def test_some_mappings_are_trained_and_asked_with_a_wrong_target(self):
        mappings = mappings_of(TASK)
        other = planted(mappings, seed=3)
        wrong = other.planted >= 0
        assert wrong.sum() == 20 and (other.targets == mappings.targets).all()  # 5 % of 270 are fewer
        rng = (np.random.default_rng(0) for _ in range(4))
        asked, true = other.questions(2, next(rng)), mappings.questions(2, next(rng))
        assert torch.equal(asked.tokens, true.tokens)
        assert ((asked.targets != true.targets).numpy() == np.tile(wrong, 2)).all()
        drawn, clean = other.training_set(3000, next(rng)), mappings.training_set(3000, next(rng))
        differ = (drawn.targets != clean.targets).numpy()
        assert torch.equal(drawn.tokens, clean.tokens) and abs(differ.mean() - 20 / 270) < 0.03

    def test_what_is_too_small_gets_none(self):
        few = AnchorTask(anchors={1: 0, 2: 0}, unseen_pairs=[(1, 2), (2, 1), (2, 2)], key_min=20, key_max=21)
        assert planted(mappings_of(few), 0) is None


class TestTrained:
    def test_one_more_model_checks_the_audit(self, trained):
        """Its seed is none of the others', and they are what they would be without it."""
        found, out = trained
        assert found.right.shape[0] == 1 and found.planted.wrong.sum() == 20
        assert found.power.n_violating == 20 and found.power.auc is not None
        assert json.loads((out / "audit.json").read_text())["power"] == found.power.to_dict()
        assert f"AUC of {found.power.auc:.2f} ± " in (out / "audit.html").read_text()

    def test_exceptions_are_fit_late(self, trained):
        """One tiny model; .84 was seen here, and a truth that is shuffled gives chance."""
        found, _ = trained
        assert found.score.n_violating == 14 and found.score.auc > 0.65
        assert np.isfinite(found.fit_steps).mean() > 0.9  # it has learnt what it was given
        rng = np.random.default_rng(0)
        shuffled = replace(found.mappings, violates=rng.permutation(found.mappings.violates))
        chance = replace(found, mappings=shuffled).score
        assert abs(chance.auc - 0.5) < 3 * chance.auc_error

    def test_the_folder_holds_what_was_found(self, trained):
        found, out = trained
        content = json.loads((out / "audit.json").read_text())
        assert content == json.loads(json.dumps(found.to_dict()))
        assert content["score"]["auc"] == found.score.auc and len(content["mappings"]) == 270
        assert len((out / "mappings.csv").read_text().splitlines()) == 271
        page = (out / "audit.html").read_text()
        assert "plotly" in page and summary(found).split(".")[0] in page
        assert all(line.replace(">", "&gt;") in page for line in suspects(found))

    def test_the_same_call_gives_the_same_bits(self):
        short = replace(RECIPE, steps=20, n_samples=2000)
        asked = {"seeds": [3], "workers": 1, "n_evaluations": 2, "n_draws": 1}
        first, second = (audit(TASK, model_config=TINY, train_config=short, **asked) for _ in range(2))
        assert (first.right == second.right).all() and first.evaluation_steps == (10, 20)
        early = audit(TASK, model_config=TINY, train_config=short, fit=0.01, **asked)
        assert (early.right == first.right).all()  # another reading of the same measurement
        assert np.isfinite(early.fit_steps).sum() > np.isfinite(first.fit_steps).sum()

    @pytest.mark.slow
    def test_each_seed_is_a_model_of_its_own_in_or_out_of_this_process(self):
        short = replace(RECIPE, steps=10)
        both = audit(TASK, model_config=TINY, train_config=short, seeds=[0, 1], n_evaluations=1, workers=2)
        assert both.right.shape == (2, 1, 270) and (both.right[0] != both.right[1]).any()
        (alone,) = audit(TASK, model_config=TINY, train_config=short, seeds=[1], n_evaluations=1).right
        assert np.abs(both.right[1] - alone).max() < 1e-6
        here = audit(TASK, model_config=TINY, train_config=short, seeds=[0, 1], n_evaluations=1, workers=1)
        assert (here.right[1] == alone).all()

    def test_models_in_one_stack_are_those_alone(self):
        """As on CUDA; a stack adds in another order, so the last digits differ."""
        mappings, short = mappings_of(TASK), replace(RECIPE, steps=20)
        runs = [RunConfig(TASK, TINY, replace(short, seed=seed)) for seed in (0, 1)]
        asked = {"evaluation_steps": [10, 20], "n_draws": 2}
        together = watching._watch_stack(runs, [mappings] * 2, **asked)
        alone = np.concatenate([watching._watch_stack([run], [mappings], **asked) for run in runs])
        assert together.shape == (2, 2, 270) and np.abs(together - alone).max() < 1e-5

    def test_a_file_of_ones_own(self, tmp_path):
        lines = [f"{key},{a},{b},{key + a - b}" for key in range(-10, 10) for a in (1, 2) for b in (1, 2)]
        path = tmp_path / "mine.csv"
        path.write_text("key,a1,a2,target\n" + "\n".join(lines))
        tiny = ModelConfig.for_task(
            read_csv(path).task, n_layers=2, d_model=32, d_head=16, d_mlp=64, gamma=0.5
        )
        found = audit(
            path,
            model_config=tiny,
            train_config=replace(RECIPE, steps=240),
            seeds=[0],
            workers=1,
            n_evaluations=4,
            n_draws=1,
        )
        assert found.mappings.name == "mine.csv" and found.score is None
        assert np.isfinite(found.fit_steps).any()
        assert {row["target"] for row in found.rows()} == set(range(-11, 11))


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"seeds": []}, "seeds must be a list"),
            ({"seeds": 3}, "seeds must be a list"),
            ({"seeds": [1, 1]}, "different seeds"),
            ({"seeds": [-1]}, "a seed must be"),
            ({"n_evaluations": 0}, "n_evaluations must be"),
            ({"n_draws": 0}, "n_draws must be"),
            ({"fit": 0}, "fit must be"),
            ({"fit": 1.1}, "fit must be"),
            ({"fit": float("nan")}, "fit must be"),
            ({"train_config": replace(RECIPE, stop_at_loss=0.1)}, "must be unset for an audit"),
            ({"train_config": replace(RECIPE, early_stop_evaluations=2)}, "must be unset for an audit"),
            ({"model_config": ModelConfig(d_vocab=5)}, "d_vocab must be at least"),
            ({"workers": 0}, "workers must be"),
            ({"seeds": range(100_000)}, "a list of 1 to 1,000 different seeds"),
        ],
    )
    def test_unusable_options(self, options, expected):
        with pytest.raises(ValueError, match=expected):
            audit(TASK, **{**TRAINED, **options})

    def test_what_is_no_dataset(self):
        with pytest.raises(ValueError, match=r"dataset must be .*got int"):
            audit(3)

    @pytest.mark.filterwarnings("ignore:gamma is below 0")
    def test_a_run_that_diverges_says_so(self):
        with pytest.raises(TrainingDiverged, match="the loss .* with seed [01] must be finite"):
            audit(
                TASK,
                model_config=replace(TINY, gamma=-9.0),
                train_config=replace(RECIPE, lr=1e30, steps=5, warmup_steps=0),
                seeds=[0],
                workers=1,
            )

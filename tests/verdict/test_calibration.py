"""The fitted model of the three questions, by hand; and the one that is shipped."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from anchorlens import AnchorTask
from anchorlens.tasks.shared.phases import LABELS, Phase
from anchorlens.verdict import READINGS
from anchorlens.verdict.calibration import (
    SOLUTIONS,
    Calibration,
    CalibrationRange,
    FeatureTerm,
    LogisticModel,
    OfRegime,
    QuestionFit,
    calibration,
)
from anchorlens.verdict.probe_verdict import evidence, in_words, likeliest_phase

VOTE = FeatureTerm(slope=2.0, neutral=0.5, low=0.0, high=1.0, weight=0.5)
FALLING = FeatureTerm(slope=-4.0, neutral=0.0, low=-1.0, high=1.0, weight=1.0)
READING = "stable_rank.w_q_normalized"
OTHER = READINGS[0].name


@pytest.fixture
def model():
    """One reading speaks for composing, and against generalising; another for commutativity."""
    answers = {
        "generalises": QuestionFit(1.0, {READING: FALLING}),
        "composes": QuestionFit(0.0, {READING: VOTE}),
        "commutative": QuestionFit(-0.5, {OTHER: VOTE}),
    }
    return LogisticModel(answers, {READING: {LABELS[0]: (0.0, 1.0)}})


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


class TestVote:
    def test_says_nothing_at_its_neutral_value_and_no_more_beyond_its_ends(self):
        assert VOTE.log_odds(0.5) == VOTE.log_odds(None) == VOTE.log_odds(math.nan) == 0
        assert VOTE.log_odds(1.0) == VOTE.log_odds(9.0) == 1.0 and VOTE.log_odds(-5.0) == -1.0
        assert FALLING.log_odds(0.25) == -1.0


class TestProbabilities:
    def test_by_hand(self, model):
        values = {READING: 0.75, OTHER: 0.5}
        generalises, composes, commutes = sigmoid(1 - 3), sigmoid(0.25), sigmoid(-0.5)
        expected = (
            1 - generalises,
            generalises * (1 - composes) * (1 - commutes),
            generalises * (1 - composes) * commutes,
            generalises * composes,
        )
        found = model.probabilities(values)
        assert list(found) == list(LABELS) and sum(found.values()) == pytest.approx(1)
        assert list(found.values()) == pytest.approx(expected)

    def test_without_values_the_intercepts_speak(self, model):
        assert model.probabilities({})[LABELS[0]] == pytest.approx(sigmoid(-1))

    def test_widened_is_less_sure_and_keeps_the_order(self, model):
        values = {READING: 0.75, OTHER: 0.9}
        wide = {which: replace(answer, widening=1.5) for which, answer in model.questions.items()}
        model = LogisticModel(wide, {})
        sure, less = model.probabilities(values), model.probabilities(values, distance=3.0)
        odds = wide["generalises"].log_odds(values)
        assert wide["generalises"].log_odds(values, 3.0) == pytest.approx(odds / 1.5**3)
        assert max(less.values()) < max(sure.values()) and sum(less.values()) == pytest.approx(1)
        assert max(sure, key=sure.get) == max(less, key=less.get)

    def test_log_odds_far_out_do_not_overflow(self):
        model = LogisticModel({"generalises": QuestionFit(2000.0, {}), "composes": QuestionFit(-2000.0, {}),
                               "commutative": QuestionFit(0.0, {})}, {})  # fmt: skip
        assert model.probabilities({})[LABELS[1]] == pytest.approx(0.5)
        assert model.change_of_log_odds({}, READING) == dict.fromkeys(LABELS, 0.0)


class TestRaised:
    def test_is_the_log_odds_with_a_reading_minus_those_without(self, model):
        values = {READING: 0.75, OTHER: 0.9}
        with_it, without = model.probabilities(values), model.probabilities({OTHER: 0.9})
        found = model.change_of_log_odds(values, READING)
        for label in LABELS:
            odds = [math.log(p[label] / (1 - p[label])) for p in (with_it, without)]
            assert found[label] == pytest.approx(odds[0] - odds[1])
        assert found[LABELS[0]] > 0 > found[LABELS[1]]

    def test_a_reading_that_is_not_there_raises_nothing(self, model):
        assert set(model.change_of_log_odds({OTHER: 0.9}, READING).values()) == {0.0}
        assert set(model.change_of_log_odds({OTHER: 0.9}, "p.unknown").values()) == {0.0}

    def test_evidence_names_the_label_that_is_raised_most(self, model):
        values = dict.fromkeys((reading.name for reading in READINGS), None) | {READING: 0.75, OTHER: 0.9}
        found = {one.reading: one for one in evidence(model, values)}
        one = found[READING]
        assert one.vote == LABELS[0] and one.weight == pytest.approx(one.odds[LABELS[0]])
        assert one.alone == {"generalises": FALLING.log_odds(0.75), "composes": VOTE.log_odds(0.75)}
        assert one.sees == "weights" and one.ranges == {LABELS[0]: (0.0, 1.0)}
        silent = found[READINGS[1].name]
        assert silent.vote is None and silent.weight == 0 and silent.odds == {} == silent.alone


class TestNamed:
    @pytest.mark.parametrize(
        ("probabilities", "least", "expected"),
        [
            ((0.1, 0.0, 0.1, 0.8), 0.7, (3, None)),
            ((0.1, 0.3, 0.4, 0.2), 0.6, (2, None)),  # both forms of Phase 2 count together
            ((0.1, 0.1, 0.7, 0.1), 0.6, (2, True)),
            ((0.1, 0.7, 0.1, 0.1), 0.6, (2, False)),
            ((0.4, 0.1, 0.2, 0.3), 0.5, (None, None)),
        ],
    )
    def test_the_most_probable_phase_if_it_is_probable_enough(self, probabilities, least, expected):
        phase = likeliest_phase(dict(zip(LABELS, probabilities, strict=True)), least)
        assert (phase.number, phase.commutative) == expected
        if phase.number is None:
            assert phase.label == "undecided: ambiguous" and "needs 50%" in phase.reason

    def test_in_words(self):
        probabilities = dict(zip(LABELS, (0.0, 0.05, 0.4, 0.55), strict=True))
        parts = "with commutativity 40%, without commutativity 5%"
        assert in_words(probabilities) == f"Phase 3, 55%; Phase 2, 45% ({parts})"
        assert likeliest_phase(probabilities, 0.5) == Phase(3, None, in_words(probabilities))


class TestWhereOrderMatters:
    def test_commutativity_is_not_asked(self, model):
        found = model.without_commutativity().probabilities({READING: 0.75})
        assert list(found) == ["Phase 1", "Phase 2", "Phase 3"] and sum(found.values()) == pytest.approx(1)
        assert found["Phase 3"] == pytest.approx(sigmoid(1 - 3) * sigmoid(0.25))
        assert likeliest_phase(dict(zip(found, (0.1, 0.7, 0.2), strict=True)), 0.6) == Phase(
            2, None, "Phase 2, 70%; Phase 3, 20%"
        )

    def test_tasks_know_whether_their_functions_commute(self):
        assert AnchorTask().commutes and not AnchorTask().in_conflict
        assert AnchorTask(anchors={1: lambda x: x, 2: 3}).commutes
        assert not AnchorTask(anchors={1: lambda x: 2 * x, 2: 3}).commutes


class TestConflict:
    def test_the_solution_is_named(self):
        answers = {which: QuestionFit(odds, {}) for which, odds in
                   (("inferential", -2.0), ("symmetric", 1.0), ("mixed by position", -3.0))}  # fmt: skip
        found = LogisticModel(answers, {}).probabilities({})
        assert list(found) == list(SOLUTIONS) and sum(found.values()) == pytest.approx(1)
        phase = likeliest_phase(found, 0.5)
        assert (phase.number, phase.solution, phase.label) == (None, "symmetric", "symmetric solution")
        assert likeliest_phase(found, 0.9).label == "undecided: ambiguous"

    def test_tasks_whose_data_conflict(self):
        assert AnchorTask(regime="conflict").in_conflict
        own = AnchorTask(unseen_pairs=[(1, 2)], overrides={(2, 1): 9})
        assert own.in_conflict and not AnchorTask(overrides={(2, 1): 9}).in_conflict


class TestOutside:
    @pytest.fixture
    def calibrated(self, model):
        known = {"variant": ["gpt2", "postnorm"], "d_model": [64, 400], "n_layers": [2, 6]}
        some, others = CalibrationRange(known), CalibrationRange({})
        regimes = {"reasoning": OfRegime(model, some), "conflict": OfRegime(model, others)}
        return Calibration(regimes, {})

    def test_inside_nothing_is_wider(self, calibrated):
        shape = {"variant": "gpt2", "d_model": 400, "n_layers": 2, "n_heads": 99}
        known = calibrated.of(AnchorTask()).range
        assert known.outside(shape) == [] and known.distance(shape) == known.distance({}) == 0

    def test_it_is_said_and_widens_with_the_distance(self, calibrated):
        shape = {"variant": "released", "d_model": 32, "n_layers": 12}
        known = calibrated.of(AnchorTask()).range
        assert known.outside(shape) == [
            "variant 'released' is not one of 'gpt2', 'postnorm'",
            "d_model 32 is outside 64..400",
            "n_layers 12 is outside 2..6",
        ]
        assert known.distance(shape) == pytest.approx(3)  # one step each
        assert known.distance({"d_model": 1600}) == pytest.approx(2)
        assert calibrated.of(AnchorTask(regime="conflict")).range.distance(shape) == 0


class TestShipped:
    def test_it_is_whole(self):
        shipped = calibration()
        known = {reading.name for reading in READINGS}
        for regime, labels in (("reasoning", LABELS), ("conflict", tuple(SOLUTIONS))):
            model = shipped.regimes[regime].by_probes
            assert model.labels == labels and set(model.ranges) <= known
            assert 0.5 <= model.least_probability < 1
        assert "python research/calibrate.py" in shipped.provenance["made_by"]

    def test_weights_are_never_negative(self):
        for model in (one.by_probes for one in calibration().regimes.values()):
            votes = [vote for answer in model.questions.values() for vote in answer.votes.values()]
            assert all(vote.weight >= 0 and vote.low <= vote.high for vote in votes)

    def test_by_the_probes_goes_by_no_unseen_pair(self):
        unseen = {reading.name for reading in READINGS if reading.sees == "unseen pairs"}
        for of_regime in calibration().regimes.values():
            model = of_regime.by_probes
            assert unseen and unseen <= set(model.ranges)  # which the evidence shows, without a vote
            assert not any(unseen & set(answer.votes) for answer in model.questions.values())


def test_the_least_probabilities_stand_on_the_page():
    page = (Path(__file__).parents[2] / "docs/read_a_verdict.md").read_text(encoding="utf-8")
    for regime, fitted in calibration().regimes.items():
        assert f"| `{regime}` | {fitted.by_probes.least_probability:.2f} |" in page

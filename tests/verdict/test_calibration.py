"""The fitted model, by hand; and the one that is shipped."""

import math

import numpy as np
import pytest

from anchorlens.verdict import LABELS, READINGS
from anchorlens.verdict.calibration import Calibration, LogisticModel, calibration

CONTENT = {
    "intercept": {"a": 0.5, "b": -0.5},
    "temperature": 2.0,
    "limit": 3.0,
    "readings": {
        "p.x": {
            "mean": 1.0,
            "scale": 0.5,
            "missing": 0.0,
            "coefficients": {"a": 1.0, "b": -1.0},
            "ranges": {"a": [1.0, 2.0], "b": [0.0, 1.0]},
        }
    },
}


@pytest.fixture
def model():
    return LogisticModel.from_dict(CONTENT)


def test_probabilities_by_hand(model):
    # z = (2 - 1) / .5 = 2; log-odds (0.5 + 2) / 2 and (-0.5 - 2) / 2, so p = 1 / (1 + exp(-2.5))
    found = model.probabilities({"p.x": 2.0})
    assert found["a"] == pytest.approx(1 / (1 + math.exp(-2.5)))
    assert sum(found.values()) == pytest.approx(1)


def test_contributions_are_what_moves_the_log_odds(model):
    assert model.contributions({"p.x": 2.0}).tolist() == [[1.0], [-1.0]]  # z 2, over the temperature 2
    assert np.allclose(model.contributions({"p.x": 1.0}), 0)  # the mean says nothing
    odds = [math.log(p["a"] / p["b"]) for p in map(model.probabilities, ({"p.x": 2.0}, {"p.x": 1.0}))]
    assert odds[0] - odds[1] == pytest.approx(2.0)


def test_a_reading_counts_no_more_beyond_the_limit_and_is_unfamiliar_there(model):
    assert model.probabilities({"p.x": 2.5}) == model.probabilities({"p.x": 1e9})
    assert model.unfamiliar({"p.x": 2.4}) == []
    assert model.unfamiliar({"p.x": -1.0}) == ["p.x -1 is 4.0 standard deviations off"]


def test_a_missing_reading_takes_its_own_value_and_is_never_unfamiliar(model):
    assert model.probabilities({"p.x": None}) == model.probabilities({"p.x": 0.0})
    assert model.unfamiliar({"p.x": None}) == []


def test_what_lies_outside_the_zoo():
    zoo = Calibration(
        LogisticModel.from_dict(CONTENT), {}, {"n_layers": [2, 4], "variant": ["gpt2", "postnorm"]}, {}
    )
    assert zoo.outside({"n_layers": 3, "variant": "gpt2", "n_heads": 99}) == []
    assert zoo.outside({"n_layers": 10}) == ["n_layers 10 is outside 2..4"]
    assert zoo.outside({"variant": "released"}) == ["variant 'released' is none of 'gpt2', 'postnorm'"]


def test_the_early_model_of_the_nearest_moment_within_a_factor_of_two():
    models = {moment: LogisticModel.from_dict(CONTENT) for moment in (0.1, 0.5)}
    zoo = Calibration(models[0.1], models, {}, {})
    assert zoo.early_model(0.09) is models[0.1]
    assert zoo.early_model(0.3) is models[0.5]
    assert zoo.early_model(0.04) is None and zoo.early_model(0) is None


def test_the_shipped_calibration_is_whole():
    shipped = calibration()
    known = {reading.name for reading in READINGS}
    assert shipped.final.labels == LABELS
    for model in (shipped.final, *shipped.early.values()):
        assert set(model.readings) <= known
        assert np.allclose(model.coefficients.sum(axis=0), 0, atol=1e-3)
        assert (model.scale > 0).all() and model.temperature > 0
        for ranges in model.ranges.values():
            assert set(ranges) == set(model.labels)
            assert all(low <= high for low, high in ranges.values())
    assert {"made_by", "fit_on", "held_out", "versions"} <= set(shipped.provenance)

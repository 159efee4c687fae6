"""What an explanation says: only what was measured on the model, by readings that are printed."""

import pytest

from anchorlens.tasks.shared.phases import LABELS, Phase
from anchorlens.verdict.explanation import explain, outside_calibration
from anchorlens.verdict.verdict import Evidence, ProbeVerdict, in_words

PHASE_2 = Phase(2, False, "")
SURE = dict(zip(LABELS, (0.02, 0.06, 0.02, 0.9), strict=True))
NEAR = dict(zip(LABELS, (0.05, 0.24, 0.2, 0.51), strict=True))


def reading(name, value, odds):
    """A reading that changes the odds of Phase 3 by so much, and those of Phase 2 by the contrary."""
    changes = {LABELS[1]: -odds, LABELS[2]: -odds, LABELS[3]: odds}
    vote = LABELS[3] if odds > 0 else LABELS[1]
    return Evidence(f"p.{name}", "p", "what it is", value, {}, vote, abs(odds), changes)


def by_probes(probabilities, *evidence, outside=()):
    return ProbeVerdict(Phase(3, None, in_words(probabilities)), probabilities, evidence, outside)


def test_a_disagreement_says_which_readings_are_for_it_and_which_against():
    found = by_probes(SURE, reading("fusion", 0.953, 1.2), reading("interchange", 0.06, -0.9))
    agreement, text = explain(PHASE_2, found)
    assert agreement is False
    assert text == (
        "The model answers held-out keys but fails on unseen pairs. However, its activations and weights "
        "resemble those of models that compose the rules. Phase 3 is supported most by p.fusion 0.95, "
        "and opposed most by p.interchange 0.06."
    )


def test_readings_that_deny_it_are_never_said_to_support_it():
    denying = [reading(name, 0.06, -0.5) for name in ("interchange", "g1")]
    _, text = explain(PHASE_2, by_probes(SURE, *denying))
    assert "supported" not in text and "computes" not in text
    assert text.endswith("Phase 3 is opposed most by p.interchange 0.06 and p.g1 0.06.")
    assert explain(PHASE_2, by_probes(SURE))[1].count(".") == 2  # without readings nothing is said of any


def test_what_it_names_is_what_is_printed():
    """A weak reading, and the fifth of the strong ones, are not printed, and not named."""
    strong = [reading(f"r{k}", 0.1 * k, -1.0) for k in range(4)]
    found = by_probes(SURE, *strong, reading("fifth", 0.5, 0.9), reading("weak", 0.5, 0.07))
    assert [one.reading for one in found.strongest] == ["p.r0", "p.r1", "p.r2", "p.r3"]
    _, text = explain(PHASE_2, found)
    assert "fifth" not in text and "p.r0 0.00 and p.r1 0.10" in text
    weak = by_probes(SURE, reading("weak", 0.5, 0.07))
    assert weak.strongest == () and "weak" not in explain(PHASE_2, weak)[1]


@pytest.mark.parametrize("behaviour", [PHASE_2, Phase(3, None, "")], ids=["another", "the same"])
def test_near_a_tie_the_probes_cannot_tell(behaviour):
    agreement, text = explain(behaviour, by_probes(NEAR, reading("fusion", 0.95, 1.2)))
    assert agreement is None  # what cannot be told is not compared
    assert "the probe verdict cannot distinguish Phase 3 (51%) from Phase 2 (44%)" in text
    assert "resemble" not in text


def test_a_tie_of_solutions():
    shares = {"inferential": 0.55, "symmetric": 0.4, "mixed by position": 0.03, "other": 0.02}
    one = ProbeVerdict(Phase(None, None, "", solution="inferential"), shares)
    _, text = explain(Phase(None, None, "", solution="symmetric"), one)
    assert "cannot distinguish inferential solution (55%) from symmetric solution (40%)" in text


def test_outside_the_calibration_is_said_everywhere():
    why = ("normalization 'RMS' is not one of 'LN'", "n_layers 12 is outside 2..6")
    far, near = by_probes(SURE, outside=why), by_probes(SURE)
    assert explain(PHASE_2, far)[1].endswith("calibration range, so the probe verdict is less reliable.")
    (warning,) = outside_calibration(far)
    assert all(one in warning for one in why) and not [*outside_calibration(near)]
    assert "outside the calibration" in repr(far)
    assert "outside" not in repr(near) + explain(PHASE_2, near)[1]

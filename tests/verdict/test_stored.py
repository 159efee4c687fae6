"""A verdict read back from its dict says what it said."""

import json
import math

from known_verdicts import bare_verdict, whole_verdict

from anchorlens.verdict.stored import stored_verdict


def through_json(verdict):
    return json.loads(json.dumps(verdict.to_dict()))


def test_a_verdict_comes_back_with_its_phases_numbers_and_words():
    verdict = whole_verdict()
    stored = stored_verdict(through_json(verdict))
    assert stored.by_behaviour == verdict.by_behaviour
    assert stored.by_behaviour.label == "undecided: underfit"
    assert stored.mechanism.phase == verdict.mechanism.phase
    assert stored.mechanism.probabilities == verdict.mechanism.probabilities
    assert stored.mechanism.evidence[:3] == verdict.mechanism.evidence[:3]
    assert math.isnan(stored.mechanism.evidence[3].value)
    assert (stored.agreement, stored.explanation) == (None, verdict.explanation)
    assert stored.warnings == ("The model is small.",)


def test_so_does_what_was_measured_on_answers():
    verdict = whole_verdict()
    stored = stored_verdict(through_json(verdict)).behaviour
    assert stored.to_dict() == verdict.behaviour.to_dict()
    assert stored.id == verdict.behaviour.id and stored.symmetric is None
    assert stored.pairs == verdict.behaviour.pairs and stored.deviations == verdict.behaviour.deviations


def test_what_was_not_there_is_not_there():
    stored = stored_verdict(through_json(bare_verdict()))
    assert stored.mechanism.probabilities is None and stored.mechanism.evidence == ()
    assert stored.mechanism.phase.label == "undecided: not finite"

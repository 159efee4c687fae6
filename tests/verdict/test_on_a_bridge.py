"""A TransformerBridge in memory is judged as its HookedTransformer is, where its hooks are alive."""

import numpy as np
import pytest
from known_models import LINE, as_bridge

from anchorlens import classify, evaluate, load_checkpoint
from anchorlens.probes import apply, gradient_sharing, holdout
from anchorlens.training import checkpoints


@pytest.fixture(scope="module")
def checkpoint():
    return load_checkpoint(checkpoints.shipped()[3])


def test_evaluate(checkpoint):
    model = checkpoint.build_model()
    ours, bridges = (evaluate(m, checkpoint.task).to_dict() for m in (model, as_bridge(model)))
    assert ours == bridges


def test_classify(checkpoint):
    """On 3.9 the pattern's hook is dead, and nothing is said by the probes."""
    model = checkpoint.build_model()
    verdict = classify(as_bridge(model), checkpoint.task, quick=True)
    assert verdict.phase.label == "Phase 3"
    if LINE == 3:
        assert verdict.by_probes.phase.label == "undecided: no readings"
        return
    own = classify(model, checkpoint.task, quick=True).by_probes.evidence
    of_bridge = verdict.by_probes.evidence
    assert verdict.by_probes.phase.label == "Phase 3"
    assert [one.reading for one in own] == [one.reading for one in of_bridge]
    values = (np.array([one.value for one in evidence], float) for evidence in (own, of_bridge))
    assert np.allclose(*values, atol=1e-4, equal_nan=True)  # of a model alone the relative margin is missing


@pytest.mark.usefixtures("few_updates")
@pytest.mark.parametrize("probe", [holdout, gradient_sharing])
def test_the_weights_stay(checkpoint, probe):
    """The blocks of a bridge are known to torch under two names, and yet their weights are put back."""
    bridge = as_bridge(checkpoint.build_model())
    weights = {name: (id(one), one.detach().clone()) for name, one in bridge.named_parameters()}
    options = {"n_copies": 1, "batch_size": 8} if probe is holdout else {}
    apply(probe, bridge, checkpoint.task, **options)
    after = dict(bridge.named_parameters())
    assert after.keys() == weights.keys()
    for name, (identity, weight) in weights.items():
        assert id(after[name]) == identity and after[name].equal(weight)

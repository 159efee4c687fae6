"""The phase presets end in their phase, for each of three seeds. Slow: `make test-slow`."""

import pytest

from anchorlens import preset, train

EXPECTED = {
    "phase1": "Phase 1",
    "phase2": "Phase 2 without commutativity",
    "phase2-commutative": "Phase 2 with commutativity",
    "phase3": "Phase 3",
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_phase_preset_ends_in_its_phase(name, seed):
    result = train(*preset(name, seed=seed, n_checkpoints=0))
    assert result.behaviour.phase.label == EXPECTED[name], result
    assert result.behaviour.train.value >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_gamma_decides_between_composing_and_not(seed):
    """gamma .7 composes and gamma .5 does not, with everything else the same, within 1,000 steps."""
    large, small = (
        train(*preset("quick", gamma=gamma, seed=seed, steps=1000, n_checkpoints=0)).behaviour
        for gamma in (0.5, 0.7)
    )
    assert large.id.value >= 0.99 and small.id.value >= 0.99
    assert large.ood is not None and small.ood is not None
    assert large.ood.value < 0.5 < small.ood.value

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
def test_gamma_decides_how_much_is_composed(seed):
    """With everything else the same, gamma .7 composes, and more than gamma .5 does, for each seed.

    Gamma .5 by itself has no stable phase: its OOD accuracy lies around the threshold (README).
    """
    large, small = (
        train(*preset("quick", gamma=gamma, seed=seed, steps=1000, n_checkpoints=0)).behaviour
        for gamma in (0.5, 0.7)
    )
    assert large.id.value >= 0.98 and small.id.value >= 0.99
    assert large.ood is not None and small.ood is not None
    assert small.ood.value > 0.5 and small.ood.value > large.ood.value + 0.2

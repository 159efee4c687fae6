"""The quick presets end as their names say, for each of three seeds. Slow: `make test-slow`."""

from functools import cache

import pytest

from anchorlens import preset, train
from anchorlens.extras.grokking.presets import PRESETS

SEEDS = (0, 1, 2)


@cache
def trained(name, seed):
    return train(*preset(name, seed=seed, n_checkpoints=0, eval_every=100), progress=False)


@pytest.mark.parametrize("name", PRESETS)
def test_every_trained_pair_is_one_sample(name):
    task, model, recipe = preset(name)
    assert (recipe.n_samples, model.d_vocab, model.d_vocab_out) == (
        task.n_trained,
        task.d_vocab,
        task.modulus,
    )
    batch = task.training_set(recipe.n_samples, 0)
    assert len(set(map(tuple, batch.tokens.tolist()))) == recipe.n_samples


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_grokking_quick_generalises_after_it_fits(seed):
    result = trained("grokking-quick", seed)
    fit, generalised = (
        next(line["step"] for line in result.log if (line.get(name) or 0) >= 0.9)
        for name in ("train_accuracy", "id_accuracy")
    )
    assert fit <= 500 and generalised >= fit + 1000
    assert result.behaviour.phase.label == "generalises"


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_memorising_quick_memorises(seed):
    result = trained("memorising-quick", seed)
    assert result.behaviour.phase.label == "memorises" and result.behaviour.measure("id").value < 0.3

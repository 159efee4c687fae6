"""Retrieval beside a model: what is looked up, what is left alone, and on what the threshold is chosen."""

import numpy as np
import pytest
import torch

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.extras.retrieval import HOOKS, Place, RetrievingModel, with_retrieval
from anchorlens.extras.retrieval.places import best_threshold, folds, measured_place
from anchorlens.models import hooks

TASK = AnchorTask(n_exceptions=40)
DATA = TASK.training_set(400, 0)


@pytest.fixture(scope="module")
def model():
    return build_model(ModelConfig(d_model=32, d_head=16, d_mlp=64, gamma=0.5), seed=0)


def at_threshold(model, threshold, layer=1, hook=hooks.ATTN_OUT):
    """Everything of DATA stored, looked up within a threshold that is given."""
    stored = hooks.read(model, DATA.tokens, [(layer, hook)], position=-1)[layer, hook].double().numpy()
    place = Place(layer, hook, threshold, 1.0, 1.0, 1.0)
    return RetrievingModel(model, TASK, place, (place,), stored, DATA.targets.numpy())


class TestAnswers:
    def test_what_is_stored_gets_its_answer(self, model):
        beside = at_threshold(model, 1e-6)
        assert beside.is_looked_up(DATA.tokens).all()
        assert (beside(DATA.tokens)[:, -1].argmax(dim=-1) == DATA.targets).all()
        assert TASK.evaluate(beside, training_set=DATA, n_noise=2).train.value == 1
        assert TASK.evaluate(model, training_set=DATA, n_noise=2).train.value < 0.1

    def test_what_is_far_is_the_model_s_own(self, model):
        asked = TASK.sample(100, split="ood", seed=5).tokens
        beside = at_threshold(model, 1e-6)
        assert not beside.is_looked_up(asked).any()
        assert torch.equal(beside(asked)[:, -1], hooks.last_logits(model, asked))

    def test_everything_is_looked_up_within_a_large_distance(self, model):
        found = at_threshold(model, 1e6).looked_up()
        assert (found.rules, found.exceptions, found.unseen) == (1, 1, 1)
        none = at_threshold(model, -1.0)
        assert not none.is_looked_up(DATA.tokens).any()
        assert torch.equal(none(DATA.tokens)[:, -1], hooks.last_logits(model, DATA.tokens))

    def test_only_the_stored_answer_s_logit_changes(self, model):
        own, logits = hooks.last_logits(model, DATA.tokens), at_threshold(model, 1e-6)(DATA.tokens)[:, 0]
        changed = own != logits
        assert (changed.sum(dim=1) == 1).all() and changed[range(400), DATA.targets].all()

    def test_kinds_that_a_task_lacks_are_none(self, model):
        beside = with_retrieval(model, AnchorTask(unseen_pairs=[]), AnchorTask(unseen_pairs=[]).sample(100))
        assert beside.looked_up().exceptions is None and beside.looked_up().unseen is None


class TestThreshold:
    def test_seen_and_unseen_that_lie_apart_are_told_apart(self):
        seen, unseen = np.array([0.1, 0.3, 0.2]), np.array([1.0, 2.0])
        assert best_threshold(seen, np.ones(3, dtype=bool), unseen) == (0.3, 1.0, 1.0)

    def test_wrong_answers_do_not_count(self):
        """Up to .2 two thirds are right; the one at .3 is wrong, and taking it gives nothing."""
        seen, unseen = np.array([0.1, 0.3, 0.2]), np.array([1.0, 2.0])
        found = best_threshold(seen, np.array([True, False, True]), unseen)
        assert found == (0.2, 2 / 3, 1.0)

    def test_nothing_is_looked_up_where_the_unseen_are_nearer(self):
        seen, unseen = np.array([3.0, 4.0]), np.array([1.0, 2.0])
        assert best_threshold(seen, np.ones(2, dtype=bool), unseen) == (-1.0, 0.0, 1.0)

    def test_equal_distances_are_on_one_side(self):
        """All four are at 1: within it are both seen and both unseen, (1 + 0) / 2, no better than nothing."""
        assert best_threshold(np.ones(2), np.ones(2, dtype=bool), np.ones(2)) == (-1.0, 0.0, 1.0)

    def test_scale_of_the_activations_scales_it(self):
        rng = np.random.default_rng(0)
        pairs = np.repeat(np.arange(8), 40)
        points = rng.normal(size=(8, 5))[pairs] * 3 + rng.normal(size=(320, 5)) * 0.3
        parts = folds(pairs, rng)
        once, twice = (measured_place(0, "hook", k * points, pairs, parts) for k in (1, 2))
        assert once.score > 0.95 and twice.threshold == pytest.approx(2 * once.threshold)
        assert (twice.recognised, twice.left_alone) == (once.recognised, once.left_alone)

    def test_activations_that_say_nothing_are_not_used(self):
        rng = np.random.default_rng(1)
        pairs = np.repeat(np.arange(8), 40)
        assert measured_place(0, "hook", rng.normal(size=(320, 5)), pairs, folds(pairs, rng)).score < 0.6

    def test_every_pair_is_left_out_once_and_none_is_asked_both_ways(self):
        pairs = np.repeat(np.arange(14), 30)
        parts = folds(pairs, np.random.default_rng(0))
        assert sum(unseen.astype(int) for _, unseen in parts).tolist() == [1] * len(pairs)
        for seen, unseen in parts:
            assert not (seen & unseen).any() and not set(pairs[seen]) & set(pairs[unseen])
            assert 0.1 < seen.mean() < 0.3 and (~seen & ~unseen).any()


class TestChoice:
    def test_repeats_by_seed_and_asks_training_data_alone(self, model):
        one, two, other = (with_retrieval(model, TASK, DATA, seed=seed) for seed in (3, 3, 4))
        assert one.places == two.places and one.looked_up() == two.looked_up()
        assert one.places != other.places
        assert len(one.places) == 2 * len(HOOKS) and one.place.score == max(p.score for p in one.places)

    def test_a_place_can_be_said(self, model):
        beside = with_retrieval(model, TASK, DATA, layer=-1, hook=hooks.RESID_POST)
        assert [(place.layer, place.hook) for place in beside.places] == [(1, hooks.RESID_POST)]

    def test_of_a_large_training_set_some_is_stored(self, model):
        assert with_retrieval(model, TASK, DATA, max_stored=100).n_stored == 100
        assert with_retrieval(model, TASK, DATA).n_stored == 400

    def test_training_data_may_be_tokens_and_targets(self, model):
        plain, batch = (with_retrieval(model, TASK, data) for data in ((DATA.tokens, DATA.targets), DATA))
        lazy = with_retrieval(model, TASK, TASK.lazy_training_set(400, 0))
        assert plain.places == batch.places == lazy.places

    def test_the_model_is_left_as_it_was(self, model):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        model.train()
        beside = with_retrieval(model, TASK, DATA)
        beside(DATA.tokens)
        assert model.training and not any(point.fwd_hooks for point in model.hook_dict.values())
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())

    def test_says_what_it_is_in_a_line(self, model):
        text = repr(with_retrieval(model, TASK, DATA, layer=1, hook=hooks.ATTN_OUT))
        assert text.startswith("RetrievingModel(400 stored at blocks.1.hook_attn_out") and "\n" not in text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"layer": 2}, "layer must be in 0..1 for this model"),
        ({"hook": "hook_q"}, "hook must be one of hook_attn_out"),
        ({"max_stored": 7}, "max_stored must be an integer >= 8"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"training_set": TASK.sample(7)}, "at least 2 different pairs"),
        ({"training_set": AnchorTask(seq_len=8).sample(20)}, "must have shape [batch, 9] and a target"),
        ({"model": lambda tokens: tokens}, "model must be a HookedTransformer, got function"),
        ({"task": "addition"}, "task must be an AnchorTask, got str"),
    ],
)  # fmt: skip
def test_bad_input_says_what_is_wrong(model, changed, message):
    given = {"model": model, "task": TASK, "training_set": DATA, **changed}
    with pytest.raises(ValueError) as error:
        with_retrieval(**given)
    assert message in str(error.value) and "\n" not in str(error.value)

"""Interchange interventions, on models made by hand: where g(x; a) is held."""

import json
import sys

import numpy as np
import pytest
import torch
from known_models import FIRST, TASK, memorising, parallel, reasoning, user_built

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.models import hooks
from anchorlens.models.running import attached
from anchorlens.probes import interchange
from anchorlens.probes.two_anchor.interchange import (
    KINDS,
    interchanges,
    patched_answers,
)

PAPER = AnchorTask()
module = sys.modules["anchorlens.probes.two_anchor.interchange"]  # the function of that name hides it
SMALL = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, gamma=0.5)


def spelled(task, tokens, position=2):
    """(key, pair) of each sequence."""
    return [(row[position], tuple(row[position + 1 : position + 3])) for row in tokens.tolist()]


class TestInputs:
    @pytest.mark.parametrize("kind", KINDS)
    def test_they_are_what_the_kind_says(self, kind):
        given = interchanges(PAPER, kind, 200, key_position=2, seed=0)
        rows = zip(
            spelled(PAPER, given.base), spelled(PAPER, given.source), given.expected.tolist(), strict=True
        )
        for (key, pair), (other, source), expected in rows:
            assert pair in PAPER.seen_pairs and source in PAPER.seen_pairs
            assert all((k - 2) % 9 for k in (key, other))  # trained at that position
            assert pair[0] != source[0] and pair[1] != source[1]
            assert ((source[0], pair[1]) in PAPER.ood_pairs) == (kind == "unseen")
            g = PAPER.apply(source[0], other)
            assert (g == PAPER.apply(pair[0], key)) == (kind == "equal")
            assert expected == PAPER.apply(pair[1], g)
            assert expected != PAPER.target(other, source)
            assert expected != PAPER.inferential_target(other, pair)
            assert expected != PAPER.inferential_target(key, (source[0], pair[1]))
            assert (expected == PAPER.target(key, pair)) == (kind == "equal")

    def test_targets_are_those_of_the_run_of_the_source(self):
        given = interchanges(PAPER, "unequal", 20, key_position=3, seed=1)
        targets = [PAPER.target(*row) for row in spelled(PAPER, given.source, 3)]
        assert targets == given.source_targets.tolist()
        assert not torch.equal(given.base[:, 0], given.source[:, 0])  # noise of their own

    def test_pairs_that_break_the_rule_are_left_out(self):
        task = AnchorTask(regime="conflict")
        given = interchanges(task, "unequal", 300, key_position=2, seed=0)
        asked = {pair for tokens in (given.base, given.source) for _, pair in spelled(task, tokens)}
        assert (3, 4) in task.seen_pairs and (3, 4) not in asked

    def test_a_task_without_unseen_pairs_has_none_of_that_kind(self):
        task = AnchorTask(unseen_pairs=(), overrides={})
        assert interchanges(task, "unseen", 5, key_position=2, seed=0) is None
        result = interchange(build_model(SMALL), task, n_sequences=4)
        assert result.unseen_accuracy is None and np.isnan(result.accuracies[2]).all()
        assert result.accuracy is not None


class TestPlaces:
    def test_a_reasoning_model_holds_g_at_the_first_anchor(self):
        result = interchange(reasoning(), TASK, n_sequences=12)
        assert (result.accuracy, result.unseen_accuracy, result.equal_accuracy) == (1, 1, 1)
        assert result.elsewhere == 0
        layers = result.accuracies[0, 0]  # of hook_resid_pre: [layer, pos]
        assert np.argwhere(layers == 1).tolist() == [[1, FIRST]] and layers.sum() == 1
        # equal g: nothing changes wherever g or noise is swapped
        assert (result.accuracies[1, 0, 1, [0, 1, FIRST]] == 1).all()
        assert "1.00, 1.00 to an unseen pair, at" in repr(result)

    @pytest.mark.parametrize("model", [memorising, parallel])
    def test_models_that_never_compute_g_hold_it_nowhere(self, model):
        result = interchange(model(), TASK, n_sequences=12)
        assert result.accuracies[0].max() <= 2 / 12 and result.accuracy <= 1 / 6  # an answer may fall on it
        assert result.accuracies[2].max() <= 2 / 12

    def test_a_random_start_holds_nothing(self):
        for seed in range(3):
            result = interchange(build_model(ModelConfig(gamma=0.5), seed=seed), PAPER, n_sequences=40)
            assert result.accuracy < 0.15
            assert result.elsewhere < 0.15

    def test_the_place_is_chosen_on_one_half_and_reported_on_the_other(self, monkeypatch):
        """One place is right on the first half of the inputs alone, another on the second half alone."""
        right = np.zeros((3, 2, 9, 8), dtype=bool)
        right[1, 0, 4, :4] = right[0, 1, 3, 4:] = True
        monkeypatch.setattr(
            module, "patched_answers", lambda model, inputs, sites: np.where(right, inputs.expected, -1)
        )
        result = interchange(build_model(SMALL), PAPER, n_sequences=8)
        assert (result.site, result.layer, result.position) == ("hook_attn_out", 0, 4)
        assert result.accuracy == 0

    def test_a_place_that_is_not_run_would_have_changed_no_answer(self):
        """In the last layer attention's output counts at the last position alone."""
        model = build_model(SMALL)
        given = interchanges(PAPER, "unequal", 6, key_position=2, seed=0)
        base = hooks.last_logits(model, given.base).argmax(-1)
        held = hooks.read(model, given.source, [(1, hooks.ATTN_OUT)])[1, hooks.ATTN_OUT]

        def put(value, hook):
            return torch.cat([held[:, :-1], value[:, -1:]], dim=1)

        with attached(model, [(hooks.hook_name(1, hooks.ATTN_OUT), put)]):
            assert torch.equal(hooks.last_logits(model, given.base).argmax(-1), base)

    def test_the_whole_residual_stream_of_the_last_position_brings_the_sources_answer(self):
        """In a model whose last layer does nothing everything is decided in the first."""
        model = build_model(SMALL)
        given = interchanges(PAPER, "unequal", 6, key_position=2, seed=0)
        with torch.no_grad():
            model.blocks[1].attn.W_O.zero_()
        answers = model(given.source)[:, -1].argmax(-1)
        patched = patched_answers(model, given, ["hook_resid_pre"])
        assert (patched == answers.numpy())[0, 1, -1].all()


class TestOptions:
    def test_any_hooked_transformer(self):
        result = interchange(user_built(n_layers=3), PAPER, n_sequences=4)
        assert result.accuracies.shape == (3, 3, 3, 9)
        assert interchange(user_built(attn_only=True), PAPER, n_sequences=4).sites == (
            "hook_resid_pre",
            "hook_attn_out",
        )

    def test_json_and_picture(self):
        result = interchange(build_model(SMALL), PAPER, n_sequences=4, key_position=1)
        content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert content["probe"] == "interchange" and content["key_position"] == 1
        assert len(result.plot().data) == 4

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n_sequences": 1}, "n_sequences must be an integer >= 2"),
            ({"key_position": 7}, "key_position must be an integer >= 0 and <= 6"),
        ],
    )
    def test_bad_options(self, options, message):
        with pytest.raises(ValueError, match=message):
            interchange(build_model(SMALL), PAPER, **options)

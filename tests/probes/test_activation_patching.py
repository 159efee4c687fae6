"""Activation patching, on models made by hand: which (layer, position) carries what."""

import dataclasses

import numpy as np
import pytest
import torch
from known_models import FIRST, KEY, LAST, SECOND, TASK, as_bridge, memorising, reasoning, user_built

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.models import hooks
from anchorlens.probes import activation_patching
from anchorlens.probes.shared.interventions import (
    PatchPairs,
    patch_effects,
    patched_logits,
    sequences_that_differ,
)

PAPER = AnchorTask()
SMALL = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, gamma=0.5)


def effects(model, pairs, sites):
    """What each patch brings back of the difference between the two runs."""
    runs = (hooks.last_logits(model, tokens) for tokens in (pairs.clean, pairs.corrupted))
    return patch_effects(model, pairs, sites, tuple(pairs.differences(logits).mean() for logits in runs))


def carriers(recovered):
    """Positions that bring all back, layer by layer; nothing is brought back elsewhere."""
    assert np.allclose(recovered * (1 - recovered), 0, atol=1e-9)
    return [np.flatnonzero(layer > 0.5).tolist() for layer in recovered]


class TestCarriers:
    def test_a_reasoning_model_carries_g_at_the_first_anchor(self):
        result = activation_patching(reasoning(), TASK)
        assert result.changes == ("key", "anchor 1", "anchor 2")
        residual = result.recovered[:, 0]  # of hook_resid_pre: [change, layer, pos]
        assert carriers(residual[0]) == [[KEY], [FIRST]]
        assert carriers(residual[1]) == [[FIRST], [FIRST]]
        assert carriers(residual[2]) == [[SECOND], [SECOND]]
        attention = result.recovered[:, 1]
        assert carriers(attention[0]) == [[FIRST], [LAST]]
        # an anchor is where it stands from the start: the first attention layer brings nothing of it
        assert carriers(attention[1]) == carriers(attention[2]) == [[], [LAST]]
        assert carriers(result.recovered[1, 2]) == [[FIRST], [LAST]]  # hook_mlp_out: g, then the answer
        assert result.carried_by_first_anchor == pytest.approx(1)
        assert (result.carried_by_second_anchor, result.carried_by_last) == pytest.approx((0, 0), abs=1e-9)
        assert result.clean.tolist() == pytest.approx([10] * 3)
        assert result.corrupted.tolist() == pytest.approx([-10] * 3)

    def test_a_memorising_model_carries_the_anchors_at_the_last_position(self):
        result = activation_patching(memorising(), TASK)
        assert carriers(result.recovered[0, 0]) == [[KEY], [KEY]]
        assert carriers(result.recovered[1, 0]) == [[FIRST], [LAST]]
        assert carriers(result.recovered[2, 0]) == [[SECOND], [LAST]]
        assert result.carried_by_last == pytest.approx(1)
        assert result.carried_by_first_anchor == pytest.approx(0, abs=1e-9)

    def test_a_random_start_has_nothing_to_bring_back(self):
        for seed in range(4):
            result = activation_patching(build_model(ModelConfig(gamma=0.5), seed=seed), PAPER)
            assert np.isnan(result.recovered).all() and result.carried_by_first_anchor is None
            assert "no recovery" in repr(result)
            texts = [note.text for note in result.plot().layout.annotations]
            assert texts.count("nothing to<br>bring back") == 3

    def test_every_site_and_position_is_patched_as_by_hand(self):
        model = build_model(dataclasses.replace(SMALL, n_layers=3)).eval()
        base, _, source, _ = sequences_that_differ(PAPER, 1, 2, 5, seed=0)
        sites = (hooks.RESID_PRE, hooks.ATTN_OUT, hooks.MLP_OUT)
        _, cache = model.run_with_cache(source)
        patched = set()
        for row, layer, places, logits in patched_logits(model, base, source, sites):
            name = f"blocks.{layer}.{sites[row]}"
            for place, of_place in zip(places, logits, strict=True):

                def put(value, hook, name=name, place=place):
                    value[:, place] = cache[name][:, place]
                    return value

                by_hand = model.run_with_hooks(base, fwd_hooks=[(name, put)])[:, -1]
                assert torch.allclose(of_place, by_hand, atol=1e-5)
                assert (row, layer, place) not in patched
                patched.add((row, layer, place))
        n_pos, to_the_end = base.shape[1], 2  # of the last layer, two sites reach the end from there alone
        assert len(patched) == 3 * 2 * n_pos + n_pos + to_the_end

    def test_dead_hooks_are_refused(self):
        """A block that shows its MLP's output to the hook and computes on with its own copy."""
        model = user_built()
        block = model.blocks[1]

        def apply_mlp(x):
            out = block.mlp(x)
            block.hook_mlp_out(out.clone())
            return out

        block.apply_mlp = apply_mlp
        with pytest.raises(ValueError, match="hook_mlp_out in layer 1 must change"):
            activation_patching(model, PAPER)


class TestPatches:
    def setup_method(self):
        self.model = build_model(SMALL).eval()
        clean, _, corrupted, _ = sequences_that_differ(PAPER, 1, 2, 40, seed=0)
        answers = [hooks.last_logits(self.model, tokens).argmax(dim=-1) for tokens in (clean, corrupted)]
        # the model's own answers are targets that it tells apart, wherever they differ
        differ = answers[0] != answers[1]
        assert differ.sum() >= 8
        self.given = PatchPairs(clean[differ], answers[0][differ], corrupted[differ], answers[1][differ])

    def test_are_those_of_transformer_lens(self):
        from transformer_lens import patching

        clean, right, corrupted, wrong = self.given
        cache = self.model.run_with_cache(clean)[1]

        def recovered(logits):
            last = logits[:, -1]
            difference = (last.gather(1, right[:, None]) - last.gather(1, wrong[:, None])).mean()
            return (difference - before) / (after - before)

        before, after = 0.0, 1.0
        with torch.no_grad():
            before, after = recovered(self.model(corrupted)), recovered(self.model(clean))
            expected = patching.get_act_patch_block_every(self.model, corrupted, cache, recovered)
        found = effects(self.model, self.given, (hooks.RESID_PRE, hooks.ATTN_OUT, hooks.MLP_OUT))
        assert np.allclose(found, expected.numpy(), atol=1e-5)

    def test_do_not_depend_on_how_they_are_batched(self, monkeypatch):
        sites = (hooks.RESID_PRE, hooks.MLP_OUT)
        whole = effects(self.model, self.given, sites)
        monkeypatch.setattr(hooks, "sequences_per_batch", lambda model, n_pos: 2)
        assert np.allclose(whole, effects(self.model, self.given, sites), atol=1e-5)

    def test_a_bridge_is_patched_like_the_model(self):
        sites = (hooks.RESID_PRE, hooks.ATTN_OUT, hooks.MLP_OUT)
        model, bridge = (effects(m, self.given, sites) for m in (self.model, as_bridge(self.model)))
        assert np.allclose(model, bridge, atol=1e-5)

    def test_no_cached_tensor_is_written_to(self):
        kept = []
        self.model.blocks[0].hook_resid_post.add_hook(lambda value, hook: kept.append((value, value.clone())))
        effects(self.model, self.given, (hooks.RESID_PRE,))
        assert kept and all(torch.equal(value, copy) for value, copy in kept)


class TestSequences:
    @pytest.mark.parametrize("change", [0, 1, 2])
    def test_differ_in_one_token_and_in_the_target(self, change):
        clean, right, corrupted, wrong = sequences_that_differ(PAPER, change, 4, 50, seed=0)
        assert (clean != corrupted).nonzero()[:, 1].tolist() == [4 + change] * 50
        assert (right != wrong).all()
        for tokens, targets in ((clean, right), (corrupted, wrong)):
            pairs = [tuple(row) for row in tokens[:, 5:7].tolist()]
            assert set(pairs) <= set(PAPER.seen_pairs)
            expected = [PAPER.target(int(x), p) for x, p in zip(tokens[:, 4], pairs, strict=True)]
            assert targets.tolist() == expected

    def test_many_chains_take_no_time_that_grows_with_their_square(self):
        task = AnchorTask(anchors={i: i - 5 for i in range(1, 11)}, key_min=50, chain_length=4)
        clean, *_ = sequences_that_differ(task, 2, 2, 4, seed=0)  # of 10,000 chains
        assert len(clean) == 4

    def test_a_task_without_another_target(self):
        task = AnchorTask(anchors={1: 3, 2: 3})
        with pytest.raises(ValueError, match="target changes if the anchor 1 changes"):
            sequences_that_differ(task, 1, 2, 4, seed=0)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n_sequences": 0}, "n_sequences must be"),
            ({"key_position": 8}, "key_position must be an integer >= 0 and <= 6"),
        ],
    )
    def test_bad_input_says_what_is_wrong(self, options, message):
        with pytest.raises(ValueError, match=message):
            activation_patching(user_built(), PAPER, **options)

"""Masking after the softmax, reading, and the proof that a hook is alive."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forked
import numpy as np
import pytest
import torch
from known_models import LINE, as_bridge, memorising, reasoning, user_built

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.models import hooks
from anchorlens.models.running import lock_of
from anchorlens.probes import mask_second_anchor, stable_rank

TASK = AnchorTask()
TOKENS = TASK.sample(6).tokens
CONFIG = ModelConfig(n_layers=2, n_heads=2, d_model=32, d_head=16, d_mlp=32, gamma=0.5)


def patterns(model, masks):
    with hooks.masked_attention(model, masks):
        found = hooks.read(model, TOKENS, [(layer, hooks.PATTERN) for layer in range(model.cfg.n_layers)])
    return list(found.values())


class TestMasking:
    def test_all_queries_of_all_layers_stop_attending_and_nothing_is_renormalised(self):
        model = build_model(CONFIG).eval()
        masked = patterns(model, hooks.attention_masks(model, 9, key=3))
        plain = patterns(model, {})
        assert all((layer[..., 3] == 0).all() for layer in masked)
        others = [0, 1, 2, 4, 5, 6, 7, 8]
        assert torch.equal(masked[0][..., others], plain[0][..., others])
        assert not torch.equal(masked[1][..., others], plain[1][..., others])  # what layer 0 gave has changed

    def test_the_last_query_only(self):
        model = build_model(CONFIG).eval()
        masked = patterns(model, hooks.attention_masks(model, 9, key=3, query=8))
        assert (masked[0][..., 8, 3] == 0).all() and (masked[0][..., 3:8, 3] > 0).all()

    def test_a_single_edge(self):
        model = build_model(CONFIG).eval()
        masks = hooks.attention_masks(model, 9, layer=1, head=1, query=8, key=2)
        assert list(masks) == [1] and masks[1].nonzero().tolist() == [[0, 1, 8, 2]]
        changed = [
            (a != b).nonzero() for a, b in zip(patterns(model, masks), patterns(model, {}), strict=True)
        ]
        assert not len(changed[0]) and {tuple(i[1:].tolist()) for i in changed[1]} == {(1, 8, 2)}

    def test_zeroing_an_edge_is_taking_away_its_value(self):
        """z = A v: without the edge the last query's z lacks A[8, 2] v[2], by hand."""
        model = build_model(CONFIG).eval()
        names = [(1, hooks.PATTERN), (1, hooks.VALUE), (1, hooks.Z)]
        plain = hooks.read(model, TOKENS, names)
        with hooks.masked_attention(model, hooks.attention_masks(model, 9, layer=1, query=8, key=2)):
            masked = hooks.read(model, TOKENS, [(1, hooks.Z)])[1, hooks.Z]
        weight = plain[1, hooks.PATTERN][:, :, 8, 2, None]
        expected = plain[1, hooks.Z][:, 8] - weight * plain[1, hooks.VALUE][:, 2]
        assert torch.allclose(masked[:, 8], expected, atol=1e-6)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"key": 9}, "key must be .* <= 8, got 9"),
            ({"key": 3, "query": 2}, "query must be .* >= 3 and <= 8, got 2"),
            ({"key": 3, "layer": 2}, "layer must be .* <= 1, got 2"),
            ({"key": 3, "head": -1}, "head must be .* >= 0"),
        ],
    )
    def test_what_is_not_there_is_refused(self, options, message):
        with pytest.raises(ValueError, match=message):
            hooks.attention_masks(build_model(CONFIG), 9, **options)

    def test_hooks_go_and_a_users_hooks_stay_also_those_of_an_outer_context(self):
        model = build_model(CONFIG)
        seen = []
        model.blocks[0].attn.hook_pattern.add_perma_hook(lambda value, hook: seen.append("permanent"))
        model.blocks[0].attn.hook_pattern.add_hook(lambda value, hook: seen.append("own"))
        outer = [("blocks.0.attn.hook_pattern", lambda value, hook: seen.append("outer"))]
        with model.hooks(fwd_hooks=outer):
            with (
                pytest.raises(KeyboardInterrupt),
                hooks.masked_attention(model, hooks.attention_masks(model, 9, key=3)),
            ):
                raise KeyboardInterrupt
            model(TOKENS)
        assert seen == ["permanent", "own", "outer"]
        assert len(model.blocks[0].attn.hook_pattern.fwd_hooks) == 2


class TestReading:
    def test_is_what_the_cache_holds_in_batches_and_at_one_position(self, monkeypatch):
        model = build_model(CONFIG).eval()
        cache = model.run_with_cache(TOKENS)[1]
        monkeypatch.setattr(hooks, "sequences_per_batch", lambda model, n_pos: 4)  # 6 = 4 + 2
        found = hooks.read(model, TOKENS, [(0, hooks.RESID_MID), (1, hooks.VALUE)])
        assert torch.equal(found[0, hooks.RESID_MID], cache["blocks.0.hook_resid_mid"])
        assert torch.equal(found[1, hooks.VALUE], cache["blocks.1.attn.hook_v"])
        last = hooks.read(model, TOKENS, [(0, hooks.RESID_MID)], position=-1)[0, hooks.RESID_MID]
        assert torch.equal(last, cache["blocks.0.hook_resid_mid"][:, -1])
        assert torch.equal(hooks.last_logits(model, TOKENS), model(TOKENS)[:, -1])

    def test_an_unknown_hook_is_an_error_on_a_bridge_too(self):
        """TransformerBridge ignores names it does not know."""
        with pytest.raises(ValueError, match=r"must have the hook blocks\.0\.hook_nothing"):
            hooks.read(as_bridge(build_model(CONFIG)), TOKENS, [(0, "hook_nothing")])

    def test_a_batch_is_bounded_however_many_layers_there_are(self):
        sizes = [hooks.sequences_per_batch(user_built(n_layers=n, n_ctx=100), n_pos=100) for n in (2, 20)]
        assert sizes[0] == sizes[1] >= 1
        huge = user_built(n_layers=2, d_vocab=200_000, d_model=8)
        assert hooks.sequences_per_batch(huge, n_pos=100) == 1


class TestSafety:
    def test_ctrl_c_at_any_moment_leaves_nothing_behind(self):
        """A real SIGINT after a random time, also into the clean-up, in a process of its own."""
        code = """
import random, signal, sys, warnings
warnings.simplefilter("ignore")
import torch
from known_models import user_built
from anchorlens import AnchorTask
from anchorlens.probes import mask_key_token

model, task, draw = user_built().train(), AnchorTask(), random.Random(0)
model.blocks[0].attn.hook_pattern.add_hook(own := lambda value, hook: None)
signal.signal(signal.SIGALRM, signal.default_int_handler)
interrupted = 0
for _ in range(80):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0002, 0.015))
            mask_key_token(model, task, n_sequences=1, perplexity=None)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    points = [point for point in model.modules() if hasattr(point, "fwd_hooks")]
    assert sum(len(point.fwd_hooks) for point in points) == 1, interrupted
    assert sum(len(point._forward_hooks) for point in points) == 1, interrupted
    assert all(module.training for module in model.modules()), interrupted
    assert model.context_level == 0 and torch.is_grad_enabled(), (interrupted, torch.is_grad_enabled())
assert interrupted > 10, interrupted
"""
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
        forked.run([sys.executable, "-c", code], check=True, env=environment)

    def test_threads_on_one_model_take_turns(self):
        model = user_built().train()
        expected = [run_masked(model, queries) for queries in ("all", "last")]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda i: run_masked(model, ("all", "last")[i % 2]), range(16)))
        assert all(np.array_equal(logits, expected[i % 2]) for i, logits in enumerate(found))
        assert all(module.training for module in model.modules())

    def test_a_probe_waits_until_another_thread_has_measured_the_model(self):
        """From its first line on, also one that reads weights alone: torch may hang otherwise."""
        model = user_built()
        with ThreadPoolExecutor(1) as pool:
            with lock_of(model):
                waiting = pool.submit(stable_rank, model)
                with pytest.raises(TimeoutError):
                    waiting.result(timeout=0.5)
            assert waiting.result(timeout=60).w_q > 0

    def test_a_users_hook_behind_attention_is_measured_and_no_sign_of_death(self):
        model = user_built()
        model.blocks[0].attn.hook_z.add_perma_hook(lambda value, hook: value + 0.01)
        hooks.assert_live(model)


def run_masked(model, queries):
    return mask_second_anchor(model, TASK, queries=queries).cosines


class TestTokens:
    @pytest.mark.parametrize(
        ("tokens", "message"),
        [
            ([[1, 2]], "must be a tensor of whole numbers .* got list"),
            (torch.ones(2, 3), r"got torch.float32 \[2, 3\]"),
            (torch.full((1, 3), 900), r"in 0..149 for d_vocab 150, got 900..900"),
            (torch.ones(1, 20, dtype=torch.int64), r"1 to 12 tokens \(n_ctx\), got 20"),
        ],
    )
    @pytest.mark.usefixtures("unchecked_shapes")
    def test_what_the_model_cannot_read_is_refused(self, tokens, message):
        for call in (hooks.last_logits, lambda m, t: hooks.assert_live(m, tokens=t)):
            with pytest.raises(ValueError, match=message):
                call(user_built(), tokens)

    def test_names_and_layers_that_are_not_there(self):
        with pytest.raises(ValueError, match="hook must be one of attn.hook_pattern"):
            hooks.assert_live(user_built(), "attn.hook_pattren")
        with pytest.raises(ValueError, match="must have the hook blocks.7.attn.hook_v"):
            hooks.read(user_built(), TOKENS, [(7, hooks.VALUE)])


def computes_on(point):
    """Make a hook point show what passes through it and no more."""
    shows = type(point)
    point.__class__ = type("Shows", (shows,), {"__call__": lambda self, x: (shows.__call__(self, x), x)[1]})


class TestLiveness:
    def test_models_of_every_variant_are_alive(self):
        for variant in ("gpt2", "postnorm", "released"):
            model = build_model(ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, variant=variant))
            for hook in (hooks.PATTERN, hooks.RESID_PRE, hooks.ATTN_OUT, hooks.RESID_MID, hooks.MLP_OUT):
                hooks.assert_live(model, hook)

    def test_a_bridge_that_computes_on_without_its_pattern_is_dead(self):
        """As those of TransformerLens 3.9 do; one of version 4 is made to."""
        bridge = as_bridge(build_model(CONFIG))
        if LINE > 3:
            hooks.assert_live(bridge)
            computes_on(bridge.get_hook_point("blocks.0.attn.hook_pattern"))
        with pytest.raises(
            ValueError,
            match=r"blocks.0.attn.hook_pattern.*got a Transf",
        ):
            hooks.assert_live(bridge)
        hooks.assert_live(bridge, hooks.RESID_PRE)

    def test_a_model_that_ignores_its_attention_is_refused_and_one_layer_without_effect_is_not(self):
        model = build_model(CONFIG)
        with torch.no_grad():
            model.blocks[0].attn.W_O.zero_()
            hooks.assert_live(model)
            model.blocks[1].attn.W_O.zero_()
        with pytest.raises(ValueError, match="hook_pattern in every layer must change"):
            hooks.assert_live(model)

    def test_one_dead_layer_among_live_ones_is_found(self):
        """A block that computes from a copy of the pattern taken before its hook."""
        model = build_model(CONFIG)
        point = model.blocks[1].attn.hook_pattern
        point.forward = lambda value: (setattr(point, "kept", value), value)[1]
        z = model.blocks[1].attn.hook_z
        values = model.blocks[1].attn.hook_v
        values.register_forward_hook(lambda module, args, output: setattr(values, "kept", output))
        z.forward = lambda value: torch.einsum("bhqk,bkhd->bqhd", point.kept, values.kept)
        with pytest.raises(ValueError, match=r"blocks\.1\.attn\.hook_pattern must be used"):
            hooks.assert_live(model)

    def test_hand_made_models_are_alive_on_their_own_sequences(self):
        from known_models import TASK as HAND_TASK

        tokens = HAND_TASK.sequences(
            HAND_TASK.product([(1, 2)], HAND_TASK.keys, HAND_TASK.keys * 0 + 2)
        ).tokens
        for model in (reasoning(), memorising()):
            hooks.assert_live(model, tokens=tokens[:4])

    def test_nan_is_refused(self):
        model = build_model(CONFIG)
        with torch.no_grad():
            model.W_E[0, 0] = float("nan")
        with pytest.raises(ValueError, match="logits must be finite"):
            hooks.assert_live(model)

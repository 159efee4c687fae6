"""Information flow, on models made by hand and shipped ones: which edges matter, and the routes."""

import numpy as np
import pytest
import torch
from known_models import (
    COPIED,
    FIRST,
    KEY,
    LAST,
    SECOND,
    TASK,
    at,
    gathering,
    memorising,
    parallel,
    reasoning,
    twice,
    user_built,
)

from anchorlens import AnchorTask, ModelConfig, build_model, load_checkpoint
from anchorlens.models import hooks
from anchorlens.probes import information_flow
from anchorlens.probes.shared.anchor_sequences import trained_sequences
from anchorlens.probes.shared.edge_effects import (
    drops,
    group_masks,
    margin,
    mean_margins,
    routes,
    stages,
)
from anchorlens.probes.two_anchor.information_flow import MOST_LINES, drawn_edges
from anchorlens.training import checkpoints

PAPER = AnchorTask()
SEQUENCE = [35, 43, 23, 1, 2, 38, 42, 36, 44]
KEYS_AND_ANCHORS = ((23, 1, 2), (30, 4, 1), (41, 2, 2))
SEQUENCES = torch.tensor([[35, 43, x, a, b, 38, 42, 36, 44] for x, a, b in KEYS_AND_ANCHORS])
SMALL = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, gamma=0.5)


def edges(effects):
    return {tuple(i) for i in np.argwhere(np.abs(effects) > 1e-9).tolist()}


def sharp(model):
    """The same with attention that depends on what is seen."""
    for block in model.blocks:
        block.attn.W_Q.data *= 5
        block.attn.W_K.data *= 5
    return model


def scores(result):
    return result.inferential_route, result.symmetric_route, result.gathered_route


class TestRoutes:
    @pytest.mark.parametrize(
        ("depth", "late_from", "patterns"),
        [
            ({}, 1, "frozen"),
            ({}, 1, "recomputed"),
            ({"n_layers": 3, "layers": (1, 2)}, 2, "frozen"),
            ({"n_layers": 4, "layers": (0, 3)}, None, "frozen"),
        ],
        ids=["2 layers", "2 layers, recomputed", "1 and 2 of 3", "0 and 3 of 4"],
    )
    @pytest.mark.parametrize(
        ("model", "expected"),
        [
            (reasoning, (1, 0, 0)),
            (twice, (1, 0, 0)),
            (memorising, (0, 1, 0)),
            (gathering, (0, 0, 1)),
            (parallel, (0, 0, 0)),
        ],
    )
    def test_tell_models_made_by_hand_apart(self, model, expected, depth, late_from, patterns):
        result = information_flow(model(**depth), TASK, SEQUENCES, effects="routes", patterns=patterns)
        assert result.margin == pytest.approx(10) and result.answer == result.target
        assert scores(result) == pytest.approx(expected, abs=1e-9)
        if 1 in expected and late_from:
            assert list(result.late_from.values())[expected.index(1)] == late_from

    def test_the_edges_of_a_reasoning_model(self):
        result = information_flow(reasoning(), TASK, SEQUENCES)
        # [layer, head, query, key]: key to first anchor, then each anchor to last; each alone takes all of it
        assert edges(result.effects) == {(0, 0, FIRST, KEY), (1, 0, LAST, FIRST), (1, 1, LAST, SECOND)}
        assert result.effects[0, 0, FIRST, KEY] == pytest.approx(10) == result.margin
        assert result.answer == result.target == 23 + 5 + 1

    def test_the_edges_of_a_memorising_model(self):
        result = information_flow(memorising(), TASK, SEQUENCES)
        assert edges(result.effects) == {(0, 0, LAST, FIRST), (0, 0, LAST, SECOND), (1, 0, LAST, KEY)}

    def test_the_edges_of_a_gathering_model(self):
        result = information_flow(gathering(), TASK, SEQUENCES)
        assert edges(result.effects) == {(0, 0, SECOND, KEY), (0, 1, SECOND, FIRST), (1, 0, LAST, SECOND)}

    def test_where_either_anchor_may_bring_the_key_no_edge_alone_matters_but_the_stage_does(self):
        result = information_flow(twice(), TASK, SEQUENCES)
        assert edges(result.merged_effects) == {(1, LAST, FIRST), (1, LAST, SECOND)}
        assert result.stages["inferential"]["key to anchors"] == pytest.approx(1)

    @pytest.mark.parametrize("model", [reasoning, memorising, gathering, twice, parallel])
    def test_models_made_by_hand_are_right_on_every_pair(self, model):
        batch = trained_sequences(AnchorTask(key_min=20, key_max=49, unseen_pairs=()), 64)
        assert torch.equal(hooks.last_logits(model(), batch.tokens).argmax(dim=-1), batch.targets)

    def test_what_is_brought_to_the_last_position_at_once_has_a_stage_of_each_route(self):
        found = information_flow(parallel(), TASK, SEQUENCES).stages
        assert list(found["inferential"].values()) == pytest.approx([0, 1, 1], abs=1e-9)
        assert list(found["symmetric"].values()) == pytest.approx([0, 0, 1], abs=1e-9)
        assert list(found["gathered"].values()) == pytest.approx([0, 0, 1], abs=1e-9)

    @pytest.mark.slow
    def test_a_random_start_has_no_route(self):
        for seed in range(4):
            result = information_flow(build_model(ModelConfig(gamma=0.5), seed=seed), PAPER)
            assert scores(result) == (None, None, None)
            assert "no route" in repr(result)
            result.plot()

    def test_a_stage_is_the_share_of_the_margin_that_goes_with_it(self):
        """The code of key 23 also stands at the first anchor's position from the start, with weight 1/2.
        With the key it is 3/2: the answer's logit is 15, those of the other anchors' results 5 (3/2 passes
        their threshold of 1 without the anchor), margin 10. Without attention to the key they are 5 and 0,
        margin 5."""
        model = reasoning()
        with torch.no_grad():
            model.pos_embed.W_pos[FIRST, at(COPIED, 23)] = 0.5
        result = information_flow(model, TASK, torch.tensor([SEQUENCE, SEQUENCE]))
        assert (result.margin, result.baseline) == pytest.approx((10, 0))
        found = result.stages["inferential"]["key to anchors"]
        assert found == pytest.approx(1 / 2) == result.inferential_route

    def test_shares_are_of_what_is_above_the_baseline(self):
        """A bias towards one answer that is no target here stays when all is hidden: the baseline is below
        0."""
        model = reasoning()
        with torch.no_grad():
            model.unembed.b_U[0] = 4
        result = information_flow(model, TASK, SEQUENCES)
        assert (result.margin, result.baseline) == pytest.approx((6, -4))
        assert list(result.stages["inferential"].values()) == pytest.approx([1, 1, 1], abs=1e-9)
        strong = [trace.hovertext for trace in result.plot().data if trace.mode == "lines"]
        assert sum("effect +1.00" in text for text in strong) == 3  # of what can be lost, 10

    def test_stages_are_these_edges(self):
        early, late, key, end = range(2), range(2, 5), range(2, 3), range(8, 9)
        first, second, third = range(3, 4), range(4, 5), range(5, 6)
        assert stages(range(3, 5), 8, 5, 2) == {
            "inferential": {
                "key to anchors": (early, range(3, 5), key),
                "anchor 1 to last": (late, end, first),
                "anchor 2 to last": (late, end, second),
            },
            "symmetric": {
                "anchor 1 to last": (early, end, first),
                "anchor 2 to last": (early, end, second),
                "key to last": (late, end, key),
            },
            "gathered": {
                "key to anchors": (early, range(3, 5), key),
                "anchor 1 to later anchors": (early, second, first),
                "anchor 2 to last": (late, end, second),
            },
        }
        assert stages(range(3, 6), 8, 5, 2)["gathered"] == {
            "key to anchors": (early, range(3, 6), key),
            "anchor 1 to later anchors": (early, range(4, 6), first),
            "anchor 2 to later anchors": (early, third, second),
            "anchor 3 to last": (late, end, third),
        }

    def test_masks_are_of_each_cut_and_layer(self):
        both = (range(1), range(4, 5), range(2, 3)), (range(1, 2), range(8, 9), range(3, 5))
        masks = group_masks([both, both[:1]], 3, 9)
        assert masks[0].nonzero().tolist() == [[0, 0, 4, 2], [1, 0, 4, 2]]
        assert masks[1].nonzero().tolist() == [[0, 0, 8, 3], [0, 0, 8, 4]]
        assert not masks[2].any() and masks[2].shape == (2, 1, 9, 9)

    def test_a_stage_is_what_masking_by_hand_loses(self):
        """In a random model of four layers, total effects: the same as one full pass for each stage."""
        model = sharp(user_built(d_model=16, d_mlp=16, d_head=4, n_layers=4))
        tokens = PAPER.sample(28, seed=1).tokens
        targets = hooks.last_logits(model, tokens).argmax(dim=-1)  # its own answers, which have a margin
        clean = margin(hooks.last_logits(model, tokens), targets).mean().item()
        found = routes(model, tokens, targets, KEY, 2, "recomputed")
        for name, late_from in found.late_from.items():
            for stage, (layers, queries, keys) in stages(range(3, 5), 8, 4, late_from)[name].items():
                mask = torch.zeros(1, 1, 9, 9, dtype=torch.bool)
                mask[:, :, list(queries), keys.start : keys.stop] = True
                with hooks.masked_attention(model, dict.fromkeys(layers, mask)):
                    without = margin(hooks.last_logits(model, tokens), targets).mean().item()
                share = np.clip((clean - without) / (clean - found.baseline), 0, 1)
                assert found.stages[name][stage] == pytest.approx(share, abs=1e-3)

    def test_do_not_depend_on_how_they_are_batched(self, monkeypatch):
        model, batch = twice(n_layers=3, layers=(0, 1)), trained_sequences(TASK, 15)
        whole = routes(model, batch.tokens, batch.targets, KEY, 2)
        monkeypatch.setattr(hooks, "sequences_per_batch", lambda model, n_pos: 13)
        assert routes(model, batch.tokens, batch.targets, KEY, 2) == whole

    def test_a_trained_override_is_what_is_asked_for(self):
        """A lookup that answers (1, 2) with x - 6: the trained target of an override, not x + 6."""
        task = AnchorTask(key_min=20, key_max=49, overrides={(1, 2): -6, (2, 1): -6})
        result = information_flow(build_model(SMALL), task, [35, 43, 23, 1, 2, 38, 42, 36, 44])
        assert result.target == 17
        _, batch = None, trained_sequences(task, 28)
        assert all(
            int(t) == task.target(int(row[2]), row[3:5].tolist())
            for t, row in zip(batch.targets, batch.tokens, strict=True)
        )


class TestEffects:
    def test_are_what_masking_each_edge_by_hand_gives(self):
        """Edges of a random 3-layer 4-head model, one at a time and with a full pass each: total effects,
        and direct ones, with the patterns of all layers kept from a pass without the cut."""
        model = sharp(user_built(d_model=16, d_mlp=16, d_head=4))
        batch = PAPER.sample(5, seed=1)
        tokens, targets = batch.tokens, batch.targets
        found, merged = (
            {
                patterns: drops(model, tokens, targets, merged=merged, patterns=patterns).numpy()
                for patterns in ("frozen", "recomputed")
            }
            for merged in (False, True)
        )
        clean = margin(hooks.last_logits(model, tokens), targets).mean().item()
        kept = hooks.read(model, tokens, [(layer, hooks.PATTERN) for layer in range(3)])

        def freezing(layer):
            name = hooks.hook_name(layer, hooks.PATTERN)
            return name, lambda pattern, hook: kept[layer, hooks.PATTERN]

        some = np.random.default_rng(0).integers([0, 0, 0], [3, 4, 9], (25, 3)).tolist()
        differ = 0
        for layer, head, query in [*some, [2, 3, 8], [1, 0, 8]]:
            key = int(np.random.default_rng(query).integers(0, query + 1))
            for h, effects in ((head, found), (None, merged)):
                masks = hooks.attention_masks(model, 9, layer=layer, head=h, query=query, key=key)
                for patterns, given in effects.items():
                    frozen = [freezing(layer) for layer in range(3)] if patterns == "frozen" else []
                    with model.hooks(frozen), hooks.masked_attention(model, masks):
                        without = margin(hooks.last_logits(model, tokens), targets).mean().item()
                    assert given[layer, h or 0, query, key] == pytest.approx(clean - without, abs=1e-5)
                differ += abs(effects["frozen"] - effects["recomputed"])[layer, h or 0, query, key] > 1e-4
        assert differ > 5

    def test_frozen_patterns_are_those_that_attention_reads_out(self):
        """Behind a cut: the pattern of the copies is the clean one, and what is read out is it times values
        that have changed."""
        model = user_built(d_model=16, d_mlp=16, d_head=4)
        tokens = PAPER.sample(3, seed=1).tokens
        masks = {0: torch.ones(2, 1, 9, 9, dtype=torch.bool), 1: torch.zeros(2, 1, 9, 9, dtype=torch.bool)}
        with hooks.cut_copies(model, masks, patterns="frozen"):
            places = [(1, hook) for hook in (hooks.PATTERN, hooks.VALUE, hooks.Z)]
            found = hooks.read(model, tokens.repeat(3, 1), places)
        pattern, value, z = (found[place].unflatten(0, (3, 3)) for place in places)
        clean = hooks.read(model, tokens, places)[places[0]]
        assert torch.equal(pattern[1], pattern[0]) and torch.allclose(pattern[0], clean, atol=1e-6)
        assert not torch.allclose(value[1], value[0], atol=1e-3)
        assert torch.allclose(z[1], torch.einsum("bhqk,bkhd->bqhd", pattern[0], value[1]), atol=1e-5)
        with hooks.cut_copies(model, masks, patterns="recomputed"):
            again = hooks.read(model, tokens.repeat(3, 1), places[:1])[places[0]].unflatten(0, (3, 3))
        assert torch.equal(again[0], pattern[0]) and not torch.allclose(again[1], again[0], atol=1e-4)

    def test_margins_are_of_each_cut(self):
        """`gathering` without the edge that the second cut takes, and with one that does not matter."""
        model, batch = gathering(), trained_sequences(TASK, 5)
        nothing, key = (range(1), range(8, 9), range(1)), (range(1), range(4, 5), range(2, 3))
        masks = group_masks([[nothing], [key]], 2, 9)
        found = mean_margins(model, batch.tokens, batch.targets, masks, patterns="frozen")
        assert found.tolist() == pytest.approx([10, 10, 0], abs=1e-9)

    def test_do_not_depend_on_how_they_are_batched(self, monkeypatch):
        model = user_built(d_model=16, d_mlp=16, d_head=4)
        batch = PAPER.sample(5, seed=1)
        whole = drops(model, batch.tokens, batch.targets, merged=False)
        monkeypatch.setattr(hooks, "sequences_per_batch", lambda model, n_pos: 37)
        assert torch.allclose(whole, drops(model, batch.tokens, batch.targets, merged=False), atol=1e-5)

    def test_a_users_hook_that_adds_to_the_residual_stream_is_applied_once(self):
        """Effects start a pass at a block's input: what was added before its hooks is not added twice."""
        model = user_built(d_model=16, d_mlp=16, d_head=4)
        direction = torch.randn(16, generator=torch.Generator().manual_seed(0))
        model.blocks[1].hook_resid_pre.add_hook(lambda value, hook: value + direction)
        batch = PAPER.sample(4, seed=1)
        found = drops(model, batch.tokens, batch.targets, merged=True, patterns="recomputed")
        clean = margin(hooks.last_logits(model, batch.tokens), batch.targets).mean()
        with hooks.masked_attention(model, hooks.attention_masks(model, 9, layer=1, query=8, key=3)):
            without = margin(hooks.last_logits(model, batch.tokens), batch.targets).mean()
        assert found[1, 0, 8, 3].item() == pytest.approx((clean - without).item(), abs=1e-5)

    def test_the_margin_is_the_target_over_the_best_other(self):
        logits = torch.tensor([[1.0, 5.0, 3.0], [1.0, 5.0, 3.0]])
        assert margin(logits, torch.tensor([1, 2])).tolist() == [2.0, -2.0]

    def test_merged_effects_alone(self):
        both = information_flow(user_built(d_model=16, d_mlp=16, d_head=4), PAPER, n_sequences=2)
        alone = information_flow(
            user_built(d_model=16, d_mlp=16, d_head=4), PAPER, n_sequences=2, effects="merged"
        )
        assert alone.effects is None and np.array_equal(alone.merged_effects, both.merged_effects)
        assert alone.margin == both.margin and alone.plot().data

    def test_routes_alone(self):
        both = information_flow(reasoning(), TASK, SEQUENCES)
        alone = information_flow(reasoning(), TASK, SEQUENCES, effects="routes")
        assert alone.effects is None and alone.merged_effects is None
        assert (alone.margin, alone.baseline, alone.stages) == (both.margin, both.baseline, both.stages)
        assert "attention only" in str(alone.plot().layout.annotations)

    def test_sequences_are_of_all_seen_pairs(self):
        model, seen = build_model(SMALL), []
        model.embed.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
        result = information_flow(model, PAPER)
        assert (result.n_sequences, result.n_route_sequences) == (8, 280)
        many = next(t for t in seen if len(t) == 280)
        pairs = [tuple(row) for row in many[:, 3:5].tolist()]
        assert sorted(pairs) == sorted(PAPER.seen_pairs * 20)
        few = next(t for t in seen if len(t) == 8)
        assert len({tuple(row) for row in few[:, 3:5].tolist()}) == 8
        assert set(few[:, 3].tolist()) == set(PAPER.anchors)
        # every sequence has a key and noise of its own
        assert len(set(few[:, 2].tolist())) > 5 and len(set(many[:, 2].tolist())) > 60
        assert len({tuple(row) for row in few[:, 5:].tolist()}) == 8

    def test_merged_edges_of_one_head_are_that_heads(self):
        result = information_flow(build_model(SMALL), PAPER)
        assert np.array_equal(result.effects[:, 0], result.merged_effects)


class TestInput:
    def test_several_sequences_are_averaged_and_the_first_is_drawn(self):
        result = information_flow(reasoning(), TASK, SEQUENCES)
        assert result.tokens.tolist() == SEQUENCES[0].tolist() and result.n_sequences == 3

    def test_the_key_stands_elsewhere(self):
        result = information_flow(build_model(SMALL), PAPER, [23, 1, 2, 43, 46, 74, 44, 72, 60])
        assert result.key_position == 0

    @pytest.mark.parametrize(
        ("tokens", "message"),
        [
            ([35, 63, 23, 1, 2, 38, 42, 36], r"with 9 positions, got torch.int64 \[8\]"),
            ([35, 63, 23, 1, 2, 38, 42, 36, 300], "and no other anchors, got .*300"),
            ([35, 63, 23, 1, 7, 38, 42, 36, 62], "and no other anchors, got .*1, 7, 38"),
            ([35, 63, 23, 1, 40, 38, 42, 36, 62], "a key directly before 2 of the anchors"),
            ([35, 63, 23, 40, 40, 38, 42, 36, 62], "a key directly before 2 of the anchors"),
            ([1, 2, 23, 40, 40, 38, 42, 36, 62], "a key directly before 2 of the anchors"),
            ([35, 63, 23, 1, 2, 38, 3, 36, 62], "a key directly before 2 of the anchors"),
            (
                [[35, 63, 23, 1, 2, 38, 42, 36, 62], [35, 23, 1, 2, 38, 42, 36, 62, 50]],
                "the same position in",
            ),
            (
                [35, 63, 38, 42, 36, 62, 23, 1, 2],
                r"last anchor must be before.*position 8",
            ),
            ([35.5] * 9, "whole numbers"),
            ([], "whole numbers"),
            ("35 63 23", "whole numbers"),
        ],
    )
    def test_what_is_no_sequence_is_refused(self, tokens, message):
        with pytest.raises(ValueError, match=message):
            information_flow(build_model(SMALL), PAPER, tokens)

    def test_one_layer_has_no_routes(self):
        model = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16))
        with pytest.raises(ValueError, match="more than 1 layer.* got a model with 1 layer"):
            information_flow(model, PAPER)

    def test_unseen_pairs_are_asked_for_the_composition(self):
        result = information_flow(build_model(SMALL), PAPER, [35, 63, 40, 3, 4, 38, 42, 36, 62])
        assert result.target == 30

    def test_effects_are_named(self):
        with pytest.raises(ValueError, match="effects must be one of"):
            information_flow(build_model(SMALL), PAPER, effects="heads")

    def test_patterns_are_named(self):
        with pytest.raises(ValueError, match=r"patterns.*recomputed, got 'clean'"):
            information_flow(build_model(SMALL), PAPER, patterns="clean")

    @pytest.mark.parametrize("n_sequences", [0, 1.5])
    def test_the_number_of_sequences_is_checked(self, n_sequences):
        with pytest.raises(ValueError, match="n_sequences must be"):
            information_flow(build_model(SMALL), PAPER, n_sequences=n_sequences)


@pytest.fixture(scope="module")
def shipped():
    """Merged effects in the four shipped models, by name and patterns: total ones, and many, of two."""
    found = {}
    for path in checkpoints.shipped():
        loaded = load_checkpoint(path)
        n_sequences = {"phase2": 280, "phase3": 140}.get(path.stem, 70)
        model, tokens = loaded.build_model(), trained_sequences(loaded.task, n_sequences).tokens
        for patterns in ("frozen", "recomputed") if n_sequences > 70 else ("frozen",):
            result = information_flow(model, loaded.task, tokens, effects="merged", patterns=patterns)
            found[path.stem, patterns] = result
    return found


class TestShippedModels:
    """Between noise tokens nothing flows, and an early edge is not blamed for where later layers look."""

    NOISE = tuple(at for at in range(9) if at not in (KEY, FIRST, SECOND, LAST))

    def noise(self, result):
        """Largest effect of an edge from noise to noise, in parts of the margin."""
        return abs(result.merged_effects[:, self.NOISE][:, :, self.NOISE]).max() / abs(result.margin)

    @pytest.mark.parametrize("name", ["phase1", "phase2", "phase2-commutative", "phase3"])
    def test_edges_between_noise_tokens_have_no_direct_effect(self, shipped, name):
        assert self.noise(shipped[name, "frozen"]) < 0.05

    def test_edges_between_noise_tokens_can_have_a_total_effect(self, shipped):
        assert self.noise(shipped["phase2", "recomputed"]) > 0.1

    @pytest.mark.parametrize(("name", "total"), [("phase3", 1.02), ("phase2", 0.89)])
    def test_what_no_later_layer_reads_has_no_direct_effect(self, shipped, name, total):
        """Key to first anchor in layer 0, which the last position hardly looks at in layer 1."""

        def lost(patterns):
            result = shipped[name, patterns]
            return result.merged_effects[0, FIRST, KEY] / (result.margin - result.baseline)

        assert shipped[name, "frozen"].attention[1, 0, LAST, FIRST] < 0.02
        assert abs(lost("frozen")) < 0.02
        assert lost("recomputed") == pytest.approx(total, abs=0.05)

    def test_routes(self, shipped):
        """Phase 3 at gamma .7 gathers at the second anchor, Phase 2 with commutativity is symmetric."""
        assert scores(shipped["phase1", "frozen"]) == (None, None, None)
        inferential, symmetric, gathered = scores(shipped["phase3", "frozen"])
        assert gathered > 0.6 and max(inferential, symmetric) < 0.05
        inferential, symmetric, gathered = scores(shipped["phase2-commutative", "frozen"])
        assert symmetric > 0.5 and max(inferential, gathered) < 0.05


class TestDiagram:
    def test_says_what_was_measured(self):
        for patterns in ("frozen", "recomputed"):
            result = information_flow(reasoning(), TASK, SEQUENCES, effects="merged", patterns=patterns)
            titles = [str(trace.marker.colorbar.title.text) for trace in result.plot().data]
            assert any(patterns in title for title in titles) and f"patterns {patterns}" in repr(result)

    def test_edges_that_matter_are_coloured_and_the_answer_is_written(self):
        result = information_flow(reasoning(), TASK, SEQUENCES)
        figure = result.plot()
        lines = [trace for trace in figure.data if trace.mode == "lines"]
        colours = {trace.hovertext: trace.line.color for trace in lines}
        strong = [text for text, colour in colours.items() if colour == "rgb(213, 94, 0)"]
        assert len(strong) == 3 and all("effect +1.00" in text for text in strong)
        texts = [annotation.text for annotation in figure.layout.annotations]
        assert texts == ["<b>answer 29</b>"]
        assert {trace.name for trace in figure.data if trace.mode == "markers+text"} == {
            "noise",
            "key",
            "anchors",
        }

    def test_colours_are_shares_of_what_can_be_lost(self):
        """Key 23 stands at the first anchor's position with weight 1/2 too, and answer 0 has a bias of 4:
        margin 15 - 5 = 10, without the key's edge 5 - 4 = 1, with all hidden -4: (10 - 1) / (10 + 4)."""
        model = reasoning()
        with torch.no_grad():
            model.pos_embed.W_pos[FIRST, at(COPIED, 23)] = 0.5
            model.unembed.b_U[0] = 4
        figure = information_flow(model, TASK, torch.tensor([SEQUENCE, SEQUENCE])).plot()
        texts = [trace.hovertext for trace in figure.data if trace.mode == "lines"]
        assert sum("effect +0.64" in text for text in texts) == 1

    def test_one_head(self):
        result = information_flow(reasoning(), TASK, SEQUENCES)
        assert "head 1" in result.plot(head=1).layout.title.text
        with pytest.raises(ValueError, match="head must be"):
            result.plot(head=2)
        merged = information_flow(reasoning(), TASK, SEQUENCES, effects="merged")
        assert len({trace.line.color for trace in merged.plot(head=1).data if trace.mode == "lines"}) == 1
        texts = [note.text for note in merged.plot(head=1).layout.annotations]
        assert "attention only: effects were not requested" in texts

    def test_lines_are_bounded(self):
        rng = np.random.default_rng(0)
        attention = rng.uniform(size=(20, 50, 50))
        assert len(drawn_edges(attention, np.zeros_like(attention))) == MOST_LINES
        ties = np.stack([np.eye(100)] * 100)
        assert len(drawn_edges(ties, np.zeros_like(ties))) == MOST_LINES
        assert drawn_edges(np.zeros((1, 3, 3)), np.zeros((1, 3, 3))) == []

"""Information flow, on models made by hand: which edges matter, and the two routes."""

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
    memorising,
    parallel,
    reasoning,
    user_built,
)

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.models import hooks
from anchorlens.probes import information_flow
from anchorlens.probes.shared.anchor_sequences import trained_sequences
from anchorlens.probes.shared.edge_effects import drops, margin
from anchorlens.probes.shared.flow_diagram import MOST_LINES, drawn_edges
from anchorlens.probes.shared.routes import mean_margin, routes

PAPER = AnchorTask()
SEQUENCE = [35, 43, 23, 1, 2, 38, 42, 36, 44]
SMALL = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, gamma=0.5)


def edges(effects):
    return {tuple(i) for i in np.argwhere(np.abs(effects) > 1e-9).tolist()}


class TestRoutes:
    def test_a_reasoning_model_takes_the_inferential_route(self):
        result = information_flow(reasoning(), TASK, SEQUENCE)
        assert result.inferential_route == pytest.approx(1, abs=1e-9)
        assert result.symmetric_route == pytest.approx(0, abs=1e-9)
        # [layer, head, query, key]: key to first anchor, then each anchor to last; each alone takes all of it
        assert edges(result.effects) == {(0, 0, FIRST, KEY), (1, 0, LAST, FIRST), (1, 1, LAST, SECOND)}
        assert result.effects[0, 0, FIRST, KEY] == pytest.approx(10) == result.margin
        assert result.answer == result.target == 23 + 5 + 1

    def test_a_memorising_model_takes_the_symmetric_route(self):
        result = information_flow(memorising(), TASK, SEQUENCE)
        assert result.symmetric_route == pytest.approx(1, abs=1e-9)
        assert result.inferential_route == pytest.approx(0, abs=1e-9)
        assert edges(result.effects) == {(0, 0, LAST, FIRST), (0, 0, LAST, SECOND), (1, 0, LAST, KEY)}

    def test_a_model_that_brings_all_to_the_last_position_at_once_takes_neither(self):
        """One stage of each route matters, `anchors to last` and `key to last`; the other stage does not."""
        result = information_flow(parallel(), TASK, SEQUENCE)
        assert result.margin == pytest.approx(10) and result.answer == result.target
        assert (result.inferential_route, result.symmetric_route) == pytest.approx((0, 0), abs=1e-9)
        assert list(result.stages.values()) == pytest.approx([0, 1, 0, 1], abs=1e-9)

    def test_a_random_start_has_no_route(self):
        for seed in range(4):
            result = information_flow(build_model(ModelConfig(gamma=0.5), seed=seed), PAPER)
            assert result.inferential_route is None and result.symmetric_route is None
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
        assert result.stages["key to anchors"] == pytest.approx(1 / 2) == result.inferential_route

    def test_each_stage_cuts_both_anchors_and_the_rest_is_above_the_baseline(self):
        """A bias towards one answer that is no target here stays when all is hidden: the baseline is below
        0. And each anchor alone is enough to lose the answer, so both are cut and nothing else."""
        model = reasoning()
        with torch.no_grad():
            model.unembed.b_U[0] = 4
        result = information_flow(model, TASK, SEQUENCE)
        assert (result.margin, result.baseline) == pytest.approx((6, -4))
        assert list(result.stages.values()) == pytest.approx([1, 1, 0, 0], abs=1e-9)
        strong = [trace.hovertext for trace in result.plot().data if trace.mode == "lines"]
        assert sum("effect +1.00" in text for text in strong) == 3  # of what can be lost, 10

    def test_a_stage_needs_both_of_its_anchors(self):
        """`memorising` reads both anchors early; hidden one at a time, each alone loses the answer."""
        model = memorising()
        result = information_flow(model, TASK, SEQUENCE)
        batch = torch.tensor([SEQUENCE])
        target = torch.tensor([result.target])
        for anchor in (FIRST, SECOND):
            cut = [(range(1), [LAST], [anchor])]
            assert mean_margin(model, batch, target, cut) == pytest.approx(0, abs=1e-9)
        seen = []
        original = hooks.masked_attention

        def watched(model, masks):
            seen.append(
                {layer: {tuple(i) for i in mask[0, 0].nonzero().tolist()} for layer, mask in masks.items()}
            )
            return original(model, masks)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hooks, "masked_attention", watched)
            routes(model, batch, target, KEY, 2)
        early_anchors = {(LAST, FIRST), (LAST, SECOND)}
        to_anchors = {(FIRST, KEY), (SECOND, KEY)}
        assert seen[2:] == [{0: to_anchors}, {1: early_anchors}, {0: early_anchors}, {1: {(LAST, KEY)}}]
        hidden = {(query, p) for p in (KEY, FIRST, SECOND) for query in range(p + 1, LAST + 1)}
        assert seen[0] == {} and seen[1] == {0: hidden, 1: hidden}

    def test_in_deeper_models_a_stage_is_all_layers_but_the_last_or_the_first(self, monkeypatch):
        seen = []

        def margin_of(model, tokens, targets, cuts=()):
            seen.append([list(layers) for layers, _, _ in cuts])
            return 0.0 if cuts else 10.0

        monkeypatch.setattr("anchorlens.probes.shared.routes.mean_margin", margin_of)
        batch = PAPER.sample(2)
        routes(user_built(n_layers=4), batch.tokens, batch.targets, KEY, 2)
        every, early, late = [0, 1, 2, 3], [0, 1, 2], [1, 2, 3]
        assert seen == [[], [every] * 3, [early], [late], [early], [late]]

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
        """Every edge of a random 3-layer 4-head model, one at a time and with a full pass each."""
        model = user_built(d_model=16, d_mlp=16, d_head=4)
        batch = PAPER.sample(5, seed=1)
        tokens, targets = batch.tokens, batch.targets
        found = drops(model, tokens, targets, merged=False).numpy()
        merged = drops(model, tokens, targets, merged=True).numpy()
        clean = margin(hooks.last_logits(model, tokens), targets).mean().item()
        rng = np.random.default_rng(0)
        for layer, head, query in rng.integers([0, 0, 0], [3, 4, 9], (25, 3)).tolist() + [
            [2, 3, 8],
            [1, 0, 8],
        ]:
            key = int(rng.integers(0, query + 1))
            for h, effects in ((head, found[layer, head]), (None, merged[layer, 0])):
                masks = hooks.attention_masks(model, 9, layer=layer, head=h, query=query, key=key)
                with hooks.masked_attention(model, masks):
                    without = margin(hooks.last_logits(model, tokens), targets).mean().item()
                assert effects[query, key] == pytest.approx(clean - without, abs=1e-5)

    def test_do_not_depend_on_how_they_are_batched(self, monkeypatch):
        model = user_built(d_model=16, d_mlp=16, d_head=4)
        batch = PAPER.sample(5, seed=1)
        whole = drops(model, batch.tokens, batch.targets, merged=False)
        monkeypatch.setattr(hooks, "sequences_per_batch", lambda model, n_pos: 7)
        assert torch.allclose(whole, drops(model, batch.tokens, batch.targets, merged=False), atol=1e-5)

    def test_a_users_hook_that_adds_to_the_residual_stream_is_applied_once(self):
        """Effects start a pass at a block's input: what was added before its hooks is not added twice."""
        model = user_built(d_model=16, d_mlp=16, d_head=4)
        direction = torch.randn(16, generator=torch.Generator().manual_seed(0))
        model.blocks[1].hook_resid_pre.add_hook(lambda value, hook: value + direction)
        batch = PAPER.sample(4, seed=1)
        found = drops(model, batch.tokens, batch.targets, merged=True)
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
        both = information_flow(reasoning(), TASK, SEQUENCE)
        alone = information_flow(reasoning(), TASK, SEQUENCE, effects="routes")
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
        rows = [[35, 43, x, a, b, 38, 42, 36, 44] for x, a, b in ((23, 1, 2), (30, 4, 1), (41, 2, 2))]
        result = information_flow(reasoning(), TASK, torch.tensor(rows))
        assert result.tokens.tolist() == rows[0] and result.n_sequences == 3

    def test_the_key_stands_elsewhere(self):
        result = information_flow(build_model(SMALL), PAPER, [23, 1, 2, 43, 46, 74, 44, 72, 60])
        assert result.key_position == 0

    @pytest.mark.parametrize(
        ("tokens", "message"),
        [
            ([35, 63, 23, 1, 2, 38, 42, 36], r"with 9 positions, got torch.int64 \[8\]"),
            ([35, 63, 23, 1, 2, 38, 42, 36, 300], "or one of the anchors .* got 300 at position 8"),
            ([35, 63, 23, 1, 7, 38, 42, 36, 62], "or one of the anchors .* got 7 at position 4"),
            ([35, 63, 23, 1, 40, 38, 42, 36, 62], "a key with 2 anchors"),
            ([35, 63, 23, 40, 40, 38, 42, 36, 62], "a key with 2 anchors"),
            ([1, 2, 23, 40, 40, 38, 42, 36, 62], "a key with 2 anchors"),
            ([35, 63, 23, 1, 2, 38, 3, 36, 62], "a key with 2 anchors"),
            (
                [[35, 63, 23, 1, 2, 38, 42, 36, 62], [35, 23, 1, 2, 38, 42, 36, 62, 50]],
                "the same position in",
            ),
            ([35, 63, 38, 42, 36, 62, 23, 1, 2], "last anchor must not stand at the last position, 8"),
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
        with pytest.raises(ValueError, match="more than 1 layer.* for this, got one with 1 layer"):
            information_flow(model, PAPER)

    def test_unseen_pairs_are_asked_for_the_composition(self):
        result = information_flow(build_model(SMALL), PAPER, [35, 63, 40, 3, 4, 38, 42, 36, 62])
        assert result.target == 30

    def test_effects_are_named(self):
        with pytest.raises(ValueError, match="effects must be one of"):
            information_flow(build_model(SMALL), PAPER, effects="heads")

    @pytest.mark.parametrize("n_sequences", [0, 1.5])
    def test_the_number_of_sequences_is_checked(self, n_sequences):
        with pytest.raises(ValueError, match="n_sequences must be"):
            information_flow(build_model(SMALL), PAPER, n_sequences=n_sequences)


class TestDiagram:
    def test_edges_that_matter_are_coloured_and_the_answer_is_written(self):
        result = information_flow(reasoning(), TASK, SEQUENCE)
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
        result = information_flow(reasoning(), TASK, SEQUENCE)
        assert "head 1" in result.plot(head=1).layout.title.text
        with pytest.raises(ValueError, match="head must be"):
            result.plot(head=2)
        merged = information_flow(reasoning(), TASK, SEQUENCE, effects="merged")
        assert len({trace.line.color for trace in merged.plot(head=1).data if trace.mode == "lines"}) == 1
        texts = [note.text for note in merged.plot(head=1).layout.annotations]
        assert "attention only: these effects were not asked for" in texts

    def test_lines_are_bounded(self):
        rng = np.random.default_rng(0)
        attention = rng.uniform(size=(20, 50, 50))
        assert len(drawn_edges(attention, np.zeros_like(attention))) == MOST_LINES
        ties = np.stack([np.eye(100)] * 100)
        assert len(drawn_edges(ties, np.zeros_like(ties))) == MOST_LINES
        assert drawn_edges(np.zeros((1, 3, 3)), np.zeros((1, 3, 3))) == []

"""Fusion similarity, first-layer t-SNE, attention patterns and training regime, where the answer is known."""

import json
import re

import numpy as np
import pytest
import torch
from browser import needs_chromium, shown_by_chromium
from known_models import FIRST, KEY, LAST, TASK, memorising, reasoning, user_built

from anchorlens import AnchorTask, Checkpoint, ModelConfig, TrainConfig, build_model
from anchorlens.probes import attention_patterns, first_layer_tsne, fusion_similarity, training_regime
from anchorlens.probes.shared.parameters import tangent_kernel

PAPER = AnchorTask()
CONFIG = ModelConfig(n_layers=2, d_model=32, d_head=16, d_mlp=32, gamma=0.5)


class TestFusion:
    def last_says(self, function):
        """A model whose residual stream after attention is a random vector for each function(x, pair)."""
        model = build_model(CONFIG)
        table = torch.randn(100_000, 32, generator=torch.Generator().manual_seed(0))
        rows = []
        model.embed.register_forward_pre_hook(lambda module, args: rows.append(args[0]))

        def overwrite(value, hook):
            for i, (x, a, b) in enumerate(rows[-1][:, 2:5].tolist()):
                value[i, -1] = table[function(x, (a, b))]
            return value

        model.blocks[1].hook_resid_mid.add_perma_hook(overwrite)
        return model

    def test_a_model_that_holds_the_target_has_gap_one_and_one_that_holds_key_and_pair_has_none(self):
        fused = fusion_similarity(self.last_says(PAPER.inferential_target), PAPER)
        assert fused.centred_gap > 0.9 and fused.gap > 0.9
        equal = fused.targets[:, 0, :, None] == fused.targets[:, 1, None]
        assert fused.cosines[equal] == pytest.approx(1)
        for apart in (
            lambda x, p: x,
            lambda x, p: 1000 * p[0] + 100 * p[1] + x,
            lambda x, p: 10 * p[0] + p[1],
        ):
            assert abs(fusion_similarity(self.last_says(apart), PAPER).centred_gap) < 0.15

    def test_the_papers_comparisons_by_hand(self):
        """(x; 3, 3) = x - 4 and (y; 2, 2) = y + 2 meet where x - y = 6; (x; 1, 2) = x + 6 and
        (y; 1, 3) = y + 3 where y - x = 3."""
        result = fusion_similarity(build_model(CONFIG), PAPER)
        assert result.comparisons.tolist() == [[[3, 3], [2, 2]], [[1, 2], [1, 3]]]
        x, y = result.keys[:, None], result.keys[None]
        equal = result.targets[:, 0, :, None] == result.targets[:, 1, None]
        assert np.array_equal(equal, [x - y == 6, y - x == 3])
        assert result.gap == pytest.approx(result.gaps.mean())

    def test_a_reasoning_model_has_not_fused_before_the_last_mlp(self):
        assert fusion_similarity(reasoning(), TASK).centred_gap < 0.05

    def test_centred_is_without_the_mean_vector(self):
        """A vector that all share lifts every raw cosine and no centred one."""
        model, lifted = self.last_says(PAPER.inferential_target), self.last_says(PAPER.inferential_target)
        lifted.blocks[1].hook_resid_mid.add_perma_hook(lambda value, hook: value + 50)
        plain, high = fusion_similarity(model, PAPER), fusion_similarity(lifted, PAPER)
        assert high.gap < 0.1 < plain.gap and high.centred_gap == pytest.approx(plain.centred_gap, abs=1e-3)

    def test_an_attention_only_model_and_one_with_parallel_mlps(self):
        bare = user_built(attn_only=True, d_mlp=None)
        assert np.isfinite(fusion_similarity(bare, PAPER).cosines).all()
        assert np.isfinite(first_layer_tsne(bare, PAPER, n_sequences=40).vectors).all()
        with pytest.raises(ValueError, match="got a model with parallel_attn_mlp"):
            fusion_similarity(user_built(parallel_attn_mlp=True), PAPER)

    def test_no_equal_target_is_none(self):
        result = fusion_similarity(build_model(CONFIG), PAPER, comparisons=[((1, 1), (4, 4))])
        assert result.centred_gap is None and "no equal target" in repr(result) and result.plot()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"comparisons": [((1, 2), (1, 7))]}, "a pair must contain 2 of the anchors"),
            ({"comparisons": []}, "comparisons must be pairs"),
            ({"comparisons": [((1, 2),)]}, "comparisons must be pairs"),
            ({"keys": [10]}, "a key must be an integer >= 20 and <= 99, got 10"),
            ({"key_position": -1}, "key_position must be an integer >= 0 and <= 6"),
        ],
    )
    def test_bad_input_says_what_is_wrong(self, options, message):
        with pytest.raises(ValueError, match=message):
            fusion_similarity(build_model(CONFIG), PAPER, **options)


class TestFirstLayer:
    def test_a_memorising_model_has_brought_the_anchors_together_and_a_reasoning_one_has_not(self):
        fused = first_layer_tsne(memorising(), TASK, n_sequences=300)
        assert fused.silhouette_unordered > 0.05 > abs(fused.silhouette_ordered)
        apart = first_layer_tsne(reasoning(), TASK, n_sequences=300)
        assert apart.silhouette_unordered < 0.01

    def test_a_random_start_has_not(self):
        assert first_layer_tsne(build_model(ModelConfig(gamma=0.5)), PAPER).silhouette_unordered < 0.02

    def test_vectors_are_those_of_the_last_position_after_the_first_attention(self):
        model, rows = build_model(CONFIG).eval(), []
        model.embed.register_forward_pre_hook(lambda module, args: rows.append(args[0]))
        result = first_layer_tsne(model, PAPER, n_sequences=50)
        expected = model.run_with_cache(rows[0])[1]["blocks.0.hook_resid_mid"][:, -1]
        assert np.allclose(result.vectors, expected.detach().numpy(), atol=1e-6)
        chosen = [tuple(pair) for pair in result.pairs[result.labels].tolist()]
        found = [tuple(t for t in row if t in PAPER.anchors) for row in rows[0].tolist()]
        assert chosen == found

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n_sequences": 0}, "n_sequences must"),
            ({"n_sequences": 20}, "perplexity must be below .* 20, got 30"),
        ],
    )
    def test_bad_input_says_what_is_wrong(self, options, message):
        with pytest.raises(ValueError, match=message):
            first_layer_tsne(build_model(CONFIG), PAPER, **options)


class TestAttentionPatterns:
    SEQUENCE = (35, 43, 23, 1, 2, 38, 42, 36, 44)

    def test_are_what_the_model_was_made_to_do(self):
        result = attention_patterns(reasoning(), TASK, self.SEQUENCE)
        assert result.attention.shape == (2, 2, 9, 9)
        assert result.attention[0, 0, FIRST, KEY] == pytest.approx(1)
        assert result.attention[1, 0, LAST, FIRST] == pytest.approx(1)
        assert result.to_key_and_anchors == pytest.approx(1)
        # `memorising` looks at the key with one head of two, at all nine positions alike with the other
        seen = attention_patterns(memorising(), TASK, self.SEQUENCE).to_key_and_anchors
        assert seen == pytest.approx((1 + 3 / 9) / 2)
        assert result.attention.sum(axis=-1) == pytest.approx(1)

    def test_the_page_is_self_contained_and_escaped(self):
        """Tokens go into the page as HTML: what could be markup is written as text."""
        result = attention_patterns(reasoning(), TASK, self.SEQUENCE)
        object.__setattr__(result, "tokens", np.array(["<img src=x onerror=alert(1)>"] * 9))
        page = result.html()
        assert "&lt;img src=x" in page and "<img src=x" not in page
        assert "unpkg.com" not in page and 'src="http' not in page
        assert (
            page.count("</script>") == page.count("<script>") == 2 and "CircuitsVis" in result._repr_html_()
        )

    @needs_chromium
    def test_a_browser_without_a_network_shows_it(self, tmp_path):
        shown = shown_by_chromium(attention_patterns(reasoning(), TASK, self.SEQUENCE).html(), tmp_path)
        body = re.sub(r"<script.*?</script>", "", shown, flags=re.S)
        assert "layer 0, head 1" in body and "canvas" in body


class TestTrainingRegime:
    def test_a_model_that_has_not_moved_has_not(self):
        model = build_model(CONFIG)
        result = training_regime(model, PAPER, initial=model)
        assert result.relative_change == 0 and not result.relative_changes.any()
        assert result.kernel_distance == pytest.approx(0, abs=1e-12) and result.kernel_change == 0

    def test_from_zero_weights_nothing_is_relative(self):
        """And a model of zero weights has a kernel of zeros, to which there is no distance."""
        zero, model = build_model(CONFIG), build_model(CONFIG)
        with torch.no_grad():
            for parameter in zero.parameters():
                parameter.zero_()
        result = training_regime(model, PAPER, initial=zero)
        assert result.relative_change is result.kernel_distance is result.kernel_change is None
        assert result.headline().startswith("all weight matrices were zero at the start; no distance")
        assert json.dumps(result.to_dict(), allow_nan=False) and "NaN" not in result.plot().to_json()
        assert training_regime(zero, PAPER, initial=model).relative_change == pytest.approx(1)

    def test_changes_by_hand(self):
        """W_E doubled: a change of 1; W_U turned round: of 2; the others 0."""
        initial, model = build_model(CONFIG), build_model(CONFIG)
        with torch.no_grad():
            model.embed.W_E *= 2
            model.unembed.W_U *= -1
        result = training_regime(model, PAPER, initial=initial)
        changes = dict(zip(result.names, result.relative_changes.tolist(), strict=True))
        assert changes.pop("embed.W_E") == pytest.approx(1) and changes.pop("unembed.W_U") == pytest.approx(2)
        assert set(changes.values()) == {0}
        squares = {
            name: weight.detach().double().square().sum().item()
            for name, weight in initial.named_parameters()
            if ".W_" in name
        }
        moved = squares["embed.W_E"] + 4 * squares["unembed.W_U"]
        assert result.relative_change == pytest.approx((moved / sum(squares.values())) ** 0.5)

    def test_a_kernel_that_only_grows_is_the_same_kernel(self):
        """All logits doubled by W_U: gradients of every matrix but W_U double, that of W_U stays."""
        initial, model = build_model(CONFIG), build_model(CONFIG)
        with torch.no_grad():
            for m in (initial, model):
                m.unembed.W_U *= 30  # so that the share of W_U is small
            model.unembed.W_U *= 2
        result = training_regime(model, PAPER, initial=initial)
        assert result.kernel_distance < 1e-3
        assert result.kernel_change == pytest.approx(3, abs=0.1)  # |4 K - K| / |K|

    def test_the_kernel_is_the_product_of_gradients(self):
        """Against autograd, one sequence at a time, all weight matrices together."""
        model = user_built(torch.float64)
        batch = PAPER.sample(4)
        rows = []
        for sequence, target in zip(batch.tokens, batch.targets, strict=True):
            model.zero_grad()
            model(sequence[None])[0, -1, target].backward()
            rows.append(torch.cat([p.grad.flatten() for n, p in model.named_parameters() if ".W_" in n]))
        gradients = torch.stack(rows)
        assert np.allclose(tangent_kernel(model, batch.tokens, batch.targets), gradients @ gradients.T)

    def test_the_kernel_does_not_depend_on_how_gradients_are_grouped(self, monkeypatch):
        model, batch = user_built(torch.float64), PAPER.sample(4)
        whole = tangent_kernel(model, batch.tokens, batch.targets)
        monkeypatch.setattr("anchorlens.probes.shared.parameters._MOST_GRADIENTS", 4 * 5000)
        assert np.allclose(whole, tangent_kernel(model, batch.tokens, batch.targets))

    def test_the_start_of_a_run_is_drawn_from_its_seed(self):
        from anchorlens import train

        result = train(AnchorTask(), CONFIG, TrainConfig(steps=3, n_samples=64, batch_size=32, seed=5))
        start = result.checkpoint.initial_model()
        expected = build_model(CONFIG, seed=5)
        pairs = zip(start.parameters(), expected.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
        assert training_regime(result.model, PAPER, initial=start).relative_change > 0

    def test_without_a_seed_it_says_so(self):
        checkpoint = Checkpoint.from_model(build_model(CONFIG), CONFIG, PAPER)
        with pytest.raises(ValueError, match="must contain its training config"):
            checkpoint.initial_model()

    def test_another_model_is_refused(self):
        with pytest.raises(ValueError, match=r"start of the same run.*pos_embed"):
            training_regime(build_model(CONFIG), PAPER, initial=user_built(d_vocab=201))
        with pytest.raises(ValueError, match="n_sequences must be"):
            training_regime(build_model(CONFIG), PAPER, initial=build_model(CONFIG), n_sequences=1)

    def test_every_matrix_of_gated_mlps_and_shared_heads_counts_once(self):
        for fields in ({"gated_mlp": True}, {"n_key_value_heads": 2}):
            initial, model = user_built(**fields), user_built(**fields)
            matrices = {
                n: p for n, p in model.named_parameters() if n.rsplit(".", 1)[-1].lstrip("_")[:2] == "W_"
            }
            with torch.no_grad():
                for i, parameter in enumerate(matrices.values(), start=1):
                    parameter *= 1 + i  # each changes by a share of its own
            result = training_regime(model, PAPER, initial=initial)
            changed = dict(zip(result.names, result.relative_changes, strict=True))
            shares = {name.replace("._W_", ".W_"): i for i, name in enumerate(matrices, start=1)}
            assert changed == pytest.approx(shares)

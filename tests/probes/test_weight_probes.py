"""The probes that read weights alone, on matrices whose answer is known."""

import json
import math

import numpy as np
import pytest
import torch
from known_models import user_built

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.probes import embedding_pca, q_condensation, stable_rank, training_regime
from anchorlens.probes.any_model.embedding_pca import rule_lags, step_cosine
from anchorlens.probes.shared.linalg import gaussian_stable_rank, stable_rank_of

CONFIG = ModelConfig(n_layers=2, n_heads=2, d_model=32, d_head=16, d_mlp=32, gamma=0.5)


@pytest.fixture
def model():
    return build_model(CONFIG)


def set_neurons(model, columns, layer=0):
    """Make [d_model, 32] the merged W_Q of a layer."""
    with torch.no_grad():
        model.blocks[layer].attn.W_Q.copy_(columns.unflatten(1, (2, 16)).movedim(1, 0))


class TestStableRank:
    def test_reads_every_matrix_with_heads_merged(self, model):
        result = stable_rank(model)
        assert len(result.names) == 3 + 2 * 6
        assert result.gaussian[result.names.index("blocks.1.mlp.W_in")] == pytest.approx(32 * 32 / (4 * 32))
        assert result.gaussian[result.names.index("embed.W_E")] == gaussian_stable_rank(201, 32)

    def test_a_rank_one_w_q_is_one_and_a_random_one_is_about_its_gaussian(self, model):
        assert 0.8 < stable_rank(model).w_q_normalized < 1.2
        set_neurons(model, torch.outer(torch.randn(32), torch.randn(32)))
        assert stable_rank(model).w_q == pytest.approx(1, abs=1e-4)

    def test_does_not_depend_on_gamma_at_a_random_start(self):
        """The same random numbers at another scale: gamma itself must not leak into the number."""
        values = [stable_rank(build_model(ModelConfig(gamma=gamma), seed=3)).values for gamma in (0.3, 0.9)]
        assert np.allclose(*values, rtol=1e-4)

    def test_a_zero_matrix_has_none_and_says_so(self, model):
        set_neurons(model, torch.zeros(32, 32))
        result = stable_rank(model)
        assert result.w_q is result.w_q_normalized is None and set(result.numbers().values()) == {None}
        assert repr(result) == "StableRank(W_Q of layer 0 is zero, and a zero matrix has no stable rank)"
        assert json.dumps(result.to_dict(), allow_nan=False) and result.plot()

    def test_no_square_overflows(self):
        assert stable_rank_of(1e200 * torch.eye(3, dtype=torch.float64)) == pytest.approx(3)

    def test_a_model_without_mlps(self):
        assert [name for name in stable_rank(user_built(attn_only=True)).names if "mlp" in name] == []


class TestCondensation:
    def test_four_directions_are_four_groups(self, model):
        """Neuron j has direction j mod 4 of an orthonormal frame, at random lengths."""
        frame = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(0)))[0]
        lengths = 0.1 + torch.rand(32, generator=torch.Generator().manual_seed(1))
        set_neurons(model, frame[:, torch.arange(32) % 4] * lengths)
        result = q_condensation(model)
        assert result.n_groups == 4 and result.group_sizes.tolist() == [8] * 4
        # of the other 31 neurons 7 are parallel and 24 orthogonal
        assert result.mean_abs_cosine == pytest.approx(7 / 31, abs=1e-5)
        assert result.parallel_share == pytest.approx(7 / 31)
        grouped = result.cosines[np.ix_(result.order, result.order)]
        assert np.allclose(grouped, np.kron(np.eye(4), np.ones((8, 8))), atol=1e-5)

    def test_the_papers_thresholds(self, model):
        """Pairs at cosine .45 are one group (above .4) and not parallel (below .9)."""
        columns = torch.zeros(32, 32)
        columns[0] = 0.45**0.5
        columns[torch.arange(1, 32), torch.arange(1, 32)] = 0.55**0.5
        columns[0, 0] = 1
        set_neurons(model, columns)
        result = q_condensation(model)
        assert result.parallel_share == 0 and result.n_groups == 1 and result.threshold == 0.4

    def test_opposite_neurons_are_parallel_and_two_groups(self, model):
        direction = torch.randn(32, generator=torch.Generator().manual_seed(0))
        set_neurons(model, torch.outer(direction, torch.tensor([1.0, -2.0]).repeat(16)))
        result = q_condensation(model)
        assert (result.n_groups, result.parallel_share) == (2, 1.0)
        assert result.mean_abs_cosine == pytest.approx(1)

    def test_a_random_start_has_not_condensed(self):
        result = q_condensation(build_model(ModelConfig(gamma=0.8)))
        assert result.n_groups == 64 and result.parallel_share == 0
        # |cosine| of two random directions in 128 dimensions: sqrt(2 / (pi 128)) = .07
        assert result.mean_abs_cosine == pytest.approx(math.sqrt(2 / (math.pi * 128)), abs=0.01)

    def test_layers_are_counted_from_both_ends(self, model):
        assert q_condensation(model, layer=-1).layer == 1
        for layer in (2, -3):
            with pytest.raises(ValueError, match=rf"layer must be in 0..1 .* got {layer}"):
                q_condensation(model, layer=layer)
        with pytest.raises(ValueError, match="threshold must be"):
            q_condensation(model, threshold=2)


class TestEmbedding:
    def test_an_embedding_with_the_rules_order_has_it(self, model):
        """Tokens that differ by 4 share a direction (x mod 4): lags 4, 8 and 12 are raised, of which 4 is
        a difference of two shifts of this task."""
        task = AnchorTask(anchors={1: 4, 2: 0})
        frame = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(0)))[0]
        with torch.no_grad():
            for token in range(20, 100):
                model.embed.W_E[token] = frame[token % 4]
        result = embedding_pca(model, task)
        assert result.rule_lags == (4,)
        # centred, the four directions have cosine -1/3 with each other
        expected = [1.0 if lag % 4 == 0 else -1 / 3 for lag in range(1, 14)]
        assert result.lag_cosines.tolist() == pytest.approx(expected, abs=1e-5)
        others = [value for lag, value in enumerate(expected, start=1) if lag != 4]
        assert result.lag_order == pytest.approx(1 - np.mean(others), abs=1e-5)
        assert result.explained.tolist() == pytest.approx([1 / 3, 1 / 3], abs=1e-5)

    def test_a_random_embedding_has_no_order(self):
        orders = [embedding_pca(build_model(CONFIG, seed=s), AnchorTask()).lag_order for s in range(8)]
        assert abs(np.mean(orders)) < 0.02

    def test_the_rank_of_a_random_start_is_a_gaussians_and_that_of_a_line_is_one(self):
        model = build_model(CONFIG)
        n, d_model = 80, CONFIG.d_model
        assert embedding_pca(model, AnchorTask()).rank_normalized == pytest.approx(1, abs=0.15)
        with torch.no_grad():
            model.embed.W_E.copy_(torch.arange(len(model.embed.W_E)).unsqueeze(1) * torch.ones(d_model))
        gaussian = n * d_model / (n**0.5 + d_model**0.5) ** 2
        assert embedding_pca(model, AnchorTask()).rank_normalized == pytest.approx(1 / gaussian, rel=1e-4)

    def test_rule_lags_of_other_tasks(self):
        assert rule_lags(AnchorTask(anchors={1: 5, 2: 5})) == ()
        assert rule_lags(AnchorTask(anchors={1: lambda x: 2 * x % 50, 2: 1}, key_max=60)) == ()
        far = AnchorTask(anchors={1: 20, 2: 0}, key_max=60)
        assert rule_lags(far) == (20,)
        result = embedding_pca(build_model(CONFIG), far)
        assert result.lags.tolist() == list(range(1, 21)) and result.lag_order is not None

    def test_a_task_without_shifts_has_no_order_score(self, model):
        task = AnchorTask(anchors={1: lambda x: 2 * x % 50, 2: 1}, key_max=60)
        assert embedding_pca(model, task).lag_order is None

    def test_a_small_vocabulary_is_refused(self):
        small = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16, d_vocab=60))
        with pytest.raises(ValueError, match="number tokens must be .* below d_vocab 60"):
            embedding_pca(small, AnchorTask())

    def test_without_a_task_all_tokens_are_taken_and_it_says_so(self, model):
        result = embedding_pca(model)
        assert result.tokens.tolist() == list(range(201)) and result.token_set == "all tokens"
        assert result.rule_lags == () and result.lag_order is None
        assert "of all 201 tokens" in repr(result)
        assert result.plot().layout.title.text.endswith("Embedding of all 201 tokens")
        expected = np.cov(model.W_E.detach().double().numpy().T, bias=True)
        assert result.spectrum == pytest.approx(np.linalg.eigvalsh(expected)[::-1])

    def test_given_tokens(self, model):
        numbers = embedding_pca(model, AnchorTask())
        same = embedding_pca(model, AnchorTask(), tokens=range(20, 100))
        assert same.lag_order == numbers.lag_order and same.token_set == "given tokens"
        some = embedding_pca(model, AnchorTask(), tokens=[7, 150, 3, 8])
        assert (
            some.tokens.tolist() == [7, 150, 3, 8]
            and some.lag_order is None
            and some.lags.tolist() == [1, 2, 3]
        )
        rows = model.W_E.detach().double()[[7, 150, 3, 8]]
        rows = torch.nn.functional.normalize(rows - rows.mean(0), dim=-1)
        assert some.lag_cosines[2] == pytest.approx(float(rows[0] @ rows[3]))
        assert "4 given tokens" in repr(some)

    @pytest.mark.parametrize("tokens", [[1, 2], [1, 2, 2], [-1, 2, 3], [1, 2, 201]])
    def test_tokens_that_cannot_be_taken(self, tokens, model):
        with pytest.raises(ValueError, match=r"tokens.*3 different tokens below d_vocab 201"):
            embedding_pca(model, tokens=tokens)
        with pytest.raises(ValueError, match=r"tokens.*whole numbers, got 'all'"):
            embedding_pca(model, tokens="all")

    def test_a_vocabulary_of_language(self):
        """Many tokens: cosines without the matrix of all pairs, points without their numbers."""
        large = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16, d_vocab=5000))
        result = embedding_pca(large)
        rows = large.W_E.detach().double()
        rows = torch.nn.functional.normalize(rows - rows.mean(0), dim=-1)
        expected = [(rows[:-k] * rows[k:]).sum(-1).mean().item() for k in range(1, 14)]
        assert result.lag_cosines.tolist() == pytest.approx(expected)
        assert [result.plot().data[0].mode, embedding_pca(large, AnchorTask()).plot().data[2].mode] == [
            "markers",
            "text",
        ]


class TestMovement:
    def test_without_a_task_it_is_that_of_the_weights(self):
        initial, model = build_model(CONFIG), build_model(CONFIG, seed=1)
        alone, whole = (training_regime(model, task, initial=initial) for task in (None, AnchorTask()))
        assert alone.relative_changes.tolist() == whole.relative_changes.tolist()
        assert alone.relative_change == whole.relative_change
        assert alone.kernel is alone.initial_kernel is alone.kernel_distance is alone.kernel_change is None
        assert alone.n_sequences == 0 and "no tangent kernel without an AnchorTask" in repr(alone)
        assert {trace.type for trace in alone.plot().data} == {"bar"}
        assert {trace.type for trace in whole.plot().data} == {"bar", "heatmap"}

    def test_other_shapes_and_what_is_no_model_are_refused(self):
        model = build_model(CONFIG)
        with pytest.raises(ValueError, match=r"start of the same run.*of shape"):
            training_regime(model, initial=build_model(ModelConfig()))
        with pytest.raises(ValueError, match=r"initial model.*HookedTransformer"):
            training_regime(model, initial=torch.nn.Linear(2, 2))


class TestSteps:
    def test_on_a_line_every_step_is_the_same(self):
        """Embeddings x times one direction, far from the origin: all differences are parallel."""
        model, task = build_model(CONFIG), AnchorTask()
        with torch.no_grad():
            model.W_E[20:100] = 5 + torch.arange(80.0)[:, None] * torch.ones(model.cfg.d_model)
        result = embedding_pca(model, task)
        assert result.steps == (3, 4) and result.step_cosines == pytest.approx((1, 1))
        assert max(map(abs, result.step_baselines)) < 0.1 and result.step_constancy > 0.9

    def test_a_random_start_is_at_its_baseline(self):
        result = embedding_pca(build_model(CONFIG), AnchorTask())
        assert result.step_cosines == pytest.approx(result.step_baselines, abs=0.02)

    def test_by_hand(self):
        corner = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]])  # right, then up
        assert step_cosine(corner, 1) == pytest.approx(0) and np.isnan(step_cosine(corner, 2))

    def test_there_are_none_without_rules_and_the_picture_draws_those_there_are(self):
        without = embedding_pca(build_model(CONFIG))
        assert without.steps == () and without.step_constancy is None and len(without.plot().data) == 3
        arrows = embedding_pca(build_model(CONFIG), AnchorTask()).plot().data[0]
        assert len(arrows.x) == 3 * 77 and arrows.marker.symbol == "arrow"

"""The masking probes, on models made by hand whose answers without a token are known."""

import numpy as np
import pytest
import torch
from known_models import TASK, memorising, reasoning, user_built
from sklearn.manifold import TSNE

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.models import hooks
from anchorlens.probes import mask_key_token, mask_second_anchor
from anchorlens.probes.shared.anchor_sequences import mirrored_pairs
from anchorlens.probes.shared.linalg import mirror_merge, silhouette, tsne
from anchorlens.probes.two_anchor.mask_second_anchor import inputs_of_equal_result

PAPER = AnchorTask()
SMALL = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, gamma=0.5)


class TestKeyToken:
    def test_a_model_that_shows_the_order_has_twelve_clusters(self):
        result = mask_key_token(reasoning(hints="ordered"), TASK, n_sequences=10)
        assert result.silhouette_ordered == pytest.approx(1)
        assert result.silhouette_unordered < 0.6
        assert result.mirror_merge > 0.9

    @pytest.mark.parametrize("model", [reasoning(hints="unordered"), memorising(hints=True)])
    def test_a_model_that_shows_the_anchors_alone_has_six(self, model):
        result = mask_key_token(model, TASK, n_sequences=10)
        assert result.silhouette_unordered == pytest.approx(1)
        assert result.silhouette_ordered < 0.1
        assert result.mirror_merge == pytest.approx(0, abs=1e-9)

    @pytest.mark.slow
    def test_a_random_start_has_none(self):
        for seed in range(3):
            result = mask_key_token(build_model(ModelConfig(gamma=0.5), seed=seed), PAPER)
            assert result.silhouette_ordered < 0.1 and result.silhouette_unordered < 0.1

    def test_the_key_does_not_matter_once_it_is_masked_and_does_before(self):
        """Without the key `reasoning` gives no answer: all that is left are the hints."""
        masked = mask_key_token(reasoning(), TASK, n_sequences=5)
        assert not masked.logits.any() and masked.mirror_merge is None
        assert "all answers are the same" in repr(masked)
        # the last query never looked at the key itself: masking that alone takes nothing away
        assert mask_key_token(reasoning(), TASK, n_sequences=5, queries="last").logits.max() > 9

    @pytest.mark.parametrize("noise", ["independent", "shared"])
    def test_every_pair_gets_the_same_held_out_keys_and_noise_as_asked(self, noise):
        model, seen = build_model(SMALL), []
        model.embed.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
        result = mask_key_token(model, PAPER, n_sequences=7, noise=noise)
        assert result.noise == noise
        tokens = torch.cat([t for t in seen if len(t) == 12 * 7]).reshape(12, 7, 9)
        assert (tokens[:, :, 2] == tokens[0, :, 2]).all()
        around = tokens[:, :, [0, 1, 5, 6, 7, 8]].reshape(12 * 7, 6)
        assert len(around.unique(dim=0)) == (12 * 7 if noise == "independent" else 7)
        assert ((tokens[:, :, 2] - 2) % 9 == 0).all()  # held out: x mod 9 = position
        assert [tuple(t) for t in tokens[:, 0, 3:5].tolist()] == mirrored_pairs(PAPER)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"queries": "first"}, "queries must be"),
            ({"noise": "own"}, "noise must be"),
            ({"key_position": 9}, "key_position must be an integer >= 0 and <= 6"),
            ({"n_sequences": 0}, "n_sequences must be"),
            ({"n_sequences": 1}, r"perplexity must be below.*12, got 12"),
            ({"seed": -1}, "seed must be"),
        ],
    )
    def test_bad_input_says_what_is_wrong(self, options, message):
        with pytest.raises(ValueError, match=message):
            mask_key_token(build_model(SMALL), PAPER, **options)

    def test_no_held_out_key(self):
        task = AnchorTask(key_min=20, key_max=25)  # 20 mod 9 = 2: the first position with one is 2
        assert mask_key_token(build_model(SMALL), task, n_sequences=4).key_position == 2
        far = AnchorTask(seq_len=30, key_min=40, key_max=50)  # 40 mod 30 = 10
        model = build_model(ModelConfig.for_task(far, d_model=16, d_head=8, d_mlp=16))
        assert mask_key_token(model, far, n_sequences=4).key_position == 10
        with pytest.raises(ValueError, match="a position with held-out keys, got 0. Use another"):
            mask_key_token(build_model(SMALL), task, key_position=0)


class TestSecondAnchor:
    def test_a_reasoning_model_is_left_with_g(self):
        """What is left is g(x; a) (weight 1), the first anchor (.1) and nothing else: rows of equal g have
        cosine 1 / 1.01, the others .01 / 1.01 where the anchor is the same, else 0."""
        result = mask_second_anchor(reasoning(hints="ordered"), TASK)
        same = result.results[:, None] == result.results[None]
        anchors = result.first_anchors[:, None] == result.first_anchors[None]
        others = ~np.eye(len(same), dtype=bool)
        assert result.cosines[same & others] == pytest.approx(1 / 1.01)
        assert result.cosines[~same & anchors] == pytest.approx(0.01 / 1.01)
        assert result.cosines[~same & ~anchors] == pytest.approx(0)
        assert result.nearest_same == 1 and result.centred_gap > 0.9
        between = result.cosines[~same].mean()
        assert result.gap == pytest.approx(1 / 1.01 - between)

    def test_a_memorising_model_is_left_with_the_key(self):
        result = mask_second_anchor(memorising(hints=True), TASK)
        same_key = result.keys[:, None] == result.keys[None]
        assert result.cosines[same_key] == pytest.approx(1) and result.cosines[~same_key] == pytest.approx(0)
        assert result.gap <= 0 and result.centred_gap <= 0 and result.nearest_same < 0.1

    def test_the_picture_is_averaged_by_g(self):
        result = mask_second_anchor(build_model(SMALL), PAPER)
        averaged = result.averaged_cosines
        assert averaged.shape == (40, 40)
        assert averaged[3, 7] == pytest.approx(result.centred_cosines[12:16, 28:32].mean())
        assert averaged[5, 5] == pytest.approx(result.centred_cosines[20:24, 20:24].mean())
        assert np.shape(result.plot().data[0].z) == (40, 40)
        assert np.shape(result.plot(averaged=False).data[0].z) == (160, 160)

    def test_a_random_start_has_no_gap(self):
        results = [mask_second_anchor(build_model(ModelConfig(gamma=0.5), seed=s), PAPER) for s in range(3)]
        assert all(result.centred_gap < 0.05 and result.nearest_same < 0.1 for result in results)

    def test_inputs_are_the_papers(self):
        rows = inputs_of_equal_result(PAPER)
        assert rows[:4] == [(40, 35, 1), (40, 39, 2), (40, 42, 3), (40, 48, 4)]
        assert len(rows) == 160 and rows[-1] == (79, 87, 4)
        assert all(PAPER.apply(anchor, key) == g for g, key, anchor in rows)

    def test_the_second_anchor_last_is_refused(self):
        with pytest.raises(ValueError, match="after the second anchor, got 6 of 9 tokens"):
            mask_second_anchor(build_model(SMALL), PAPER, key_position=6)
        short = AnchorTask(seq_len=3)
        with pytest.raises(ValueError, match="after the second anchor, got 0 of 3 tokens"):
            mask_second_anchor(build_model(ModelConfig.for_task(short, d_model=16, d_mlp=16)), short)

    def test_anchors_without_common_results(self):
        task = AnchorTask(anchors={1: 0, 2: 100}, key_max=60)
        with pytest.raises(ValueError, match="common values for the keys 20..60, got 0"):
            mask_second_anchor(build_model(ModelConfig.for_task(task, d_model=16, d_mlp=16)), task)

    def test_all_anchors_behind_the_first_are_masked(self, monkeypatch):
        """In a chain of three both later ones, in every layer."""
        masked, original = [], hooks.masked_attention
        monkeypatch.setattr(
            hooks, "masked_attention", lambda model, masks: (masked.append(masks), original(model, masks))[1]
        )
        model = user_built(d_vocab=200)
        mask_second_anchor(model, AnchorTask(chain_length=3, key_min=40))
        assert sorted(masked[0]) == [0, 1, 2]
        assert all(set(mask[0, :, 8].nonzero()[:, 1].tolist()) == {4, 5} for mask in masked[0].values())

    @pytest.mark.usefixtures("all_questions")
    def test_the_second_anchor_is_the_tasks_second_and_fifty_sequences_are_the_papers(self):
        assert mask_second_anchor(build_model(SMALL), PAPER).second_anchor == 2
        assert len(mask_key_token(build_model(SMALL), PAPER).labels) == 12 * 50

    def test_centred_is_without_the_mean_vector(self):
        """A constant that all answers share lifts every raw cosine and no centred one."""
        plain, lifted = reasoning(hints="ordered"), reasoning(hints="ordered")
        with torch.no_grad():
            lifted.unembed.b_U += 3
        without, with_constant = (mask_second_anchor(model, TASK) for model in (plain, lifted))
        assert with_constant.gap < 0.1 < without.gap
        assert with_constant.centred_gap == pytest.approx(without.centred_gap)

    def test_a_task_of_two_anchors_can_be_printed(self):
        task = AnchorTask(anchors={1: 3, 2: -4})
        text = repr(mask_key_token(build_model(SMALL), task))
        assert "for 2 ordered pairs" in text


class TestClusters:
    def test_silhouette_by_hand(self):
        """Two clusters {0, 2} and {10, 12} on a line: a = 2, b = 11, 9, 9, 11."""
        vectors = np.array([[0.0], [2.0], [10.0], [12.0]])
        assert silhouette(vectors, np.array([0, 0, 1, 1])) == pytest.approx((9 / 11 + 7 / 9) / 2)
        assert silhouette(vectors, np.array([0, 0, 0, 0])) is None
        assert silhouette(vectors, np.array([0, 1, 2, 3])) is None

    def test_mirror_merge_by_hand(self):
        """Centroids 0, 2 | 10, 12: mirrored ones are 2 apart, the six distances 2 10 12 8 10 2."""
        vectors = np.array([[0.0], [2.0], [10.0], [12.0]])
        labels, mirror = np.arange(4), np.array([1, 0, 3, 2])
        assert mirror_merge(vectors, labels, mirror) == pytest.approx(2 / (44 / 6))
        assert mirror_merge(0 * vectors, labels, mirror) is None

    def test_a_pair_and_its_mirror_stand_together_and_many_are_thinned(self):
        assert len(mirrored_pairs(PAPER)) == 12
        many = mirrored_pairs(AnchorTask(chain_length=4, key_min=60, seq_len=9))
        assert 16 <= len(many) <= 32 and all(a == b[::-1] for a, b in zip(many[::2], many[1::2], strict=True))

    def test_the_trained_pairs_are_gathered_once(self, monkeypatch):
        """And not for each pair, which 300 anchors would pay with twenty minutes."""
        seen, asked = AnchorTask.seen_pairs, []
        counted = property(lambda task: (asked.append(1), seen.__get__(task))[1])
        monkeypatch.setattr(AnchorTask, "seen_pairs", counted)
        task = AnchorTask(anchors={k: k % 50 for k in range(1, 31)}, key_min=31, key_max=40)
        asked.clear()
        assert len(mirrored_pairs(task, seen=True)) == 32 and len(asked) == 1

    def test_tsne_keeps_clusters_together(self, monkeypatch):
        monkeypatch.setitem(TSNE.__init__.__kwdefaults__, "max_iter", 1000)  # elsewhere tests take fewer
        rng = np.random.default_rng(0)
        labels = np.repeat(np.arange(3), 30)
        vectors = 10 * np.eye(3)[labels] + 0.1 * rng.normal(size=(90, 3))
        points = tsne(vectors, perplexity=12, seed=0)
        assert silhouette(points, labels) > 0.8
        assert np.array_equal(points, tsne(vectors, perplexity=12, seed=0))
        assert tsne(0 * vectors, perplexity=12, seed=0).shape == (90, 2)
        with pytest.raises(ValueError, match="perplexity must be"):
            tsne(vectors, perplexity=0, seed=0)

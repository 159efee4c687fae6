"""Nearest neighbours: hand-wired models, brute force, and what is compared with what."""

import numpy as np
import pytest
import torch
from known_models import TASK, gathering, memorising, parallel, reasoning

from anchorlens import AnchorTask, ModelConfig, build_model, load_checkpoint
from anchorlens.probes import nearest_neighbours
from anchorlens.probes.shared.anchor_sequences import anchor_sequences
from anchorlens.probes.two_anchor.nearest_neighbours import RESULTS, _Comparisons
from anchorlens.training import checkpoints

PAPER = AnchorTask()
SMALL = ModelConfig(n_layers=2, d_model=32, d_head=16, d_mlp=32, gamma=0.5)


def shipped(name):
    return load_checkpoint(next(path for path in checkpoints.shipped() if path.stem == name)).build_model()


def asked(inputs, n):
    """The first `n` of the inputs, each a key and a pair, are those of trained pairs."""
    return _Comparisons(PAPER, inputs, n)


class TestInputs:
    def test_of_g_those_with_another_anchor_are_compared_and_of_the_target_those_of_another_pair(self):
        inputs = [(40, pair) for pair in [(1, 2), (2, 1), (1, 1), (3, 2)]]
        masks = {name: mask.astype(int).tolist() for name, (_, mask) in asked(inputs, 4).results.items()}
        assert masks["g1"] == [[0, 1, 0, 1], [1, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 0]]
        assert masks["g2"][0] == [0, 1, 1, 0]
        assert masks["target"][0] == [0, 0, 1, 1]

    def test_results_are_those_of_the_task(self):
        found = asked([(40, (1, 3)), (41, (1, 3))], 2).results
        assert found["g1"][0].tolist() == [45, 46]  # 1 adds 5
        assert found["g2"][0].tolist() == [38, 39]  # 3 takes 2 away
        assert found["target"][0].tolist() == [43, 44]


class TestShares:
    def test_by_brute_force(self):
        torch.manual_seed(0)
        inputs = [(key, pair) for pair in (*PAPER.composed_pairs, (3, 4)) for key in (40, 43, 45)]
        n = len(inputs) - 3
        vectors = torch.randn(len(inputs), 5)
        comparisons = asked(inputs, n)
        found, margin = comparisons.of(vectors)
        centred = (vectors - vectors[:n].mean(0)).numpy()
        centred /= np.linalg.norm(centred, axis=1, keepdims=True)
        for which, rows in enumerate((range(n), range(n, len(inputs)))):
            for k, result in enumerate(RESULTS):
                values, comparable = comparisons.results[result]
                hits, margins = [], []
                for i in rows:
                    others = [
                        (float(centred[i] @ centred[j]), values[j] == values[i])
                        for j in range(n)
                        if comparable[i, j]
                    ]
                    if len({same for _, same in others}) == 2:
                        hits.append(max(others)[1])
                        alike, other = (max(c for c, same in others if same == x) for x in (True, False))
                        margins.append(alike - other)
                expected = np.mean(hits) if hits else np.nan
                assert found[which, k] == pytest.approx(expected, nan_ok=True)
        assert margin == pytest.approx(np.mean(margins), abs=1e-6)

    def test_what_composes_and_what_memorises(self):
        composing, by_heart = (nearest_neighbours(model(), TASK) for model in (reasoning, memorising))
        assert composing.target_at_last > 0.9 and composing.unseen_target_at_last == pytest.approx(0.9)
        assert composing.g1_at_last > 0.9 and composing.pair_share < 1e-9
        assert by_heart.target_at_last == by_heart.unseen_target_at_last == 0 and by_heart.pair_share > 0.99

    def test_what_gathers_has_the_target_at_the_second_anchor_and_not_g1_at_the_end(self):
        found = nearest_neighbours(gathering(), TASK)
        assert found.target_at_last == found.unseen_target_at_last == 1 and found.g1_at_last < 0.1
        assert found.target_at_second_anchor > 0.2 and found.unseen_margin > 0.9

    def test_a_place_where_nothing_differs_is_no_neighbour(self):
        assert nearest_neighbours(parallel(), TASK).pair_share is None

    def test_shipped_checkpoints(self):
        found = {name: nearest_neighbours(shipped(name), PAPER) for name in ("phase1", "phase2", "phase3")}
        shares = [one.unseen_target_at_last for one in found.values()]
        assert shares == sorted(shares) and shares[0] < 0.2 and shares[-1] > 0.5
        assert found["phase1"].target_at_last < 0.2 < 0.9 < found["phase3"].target_at_last

    def test_numbers_stand_in_the_maps(self):
        found = nearest_neighbours(build_model(SMALL), PAPER)
        assert found.trained.shape == (3, 2, 2, 9) == found.unseen.shape
        assert found.target_at_last == found.trained[2, 0, 1, 8]
        assert found.unseen_target_at_last == found.unseen[2, 0, 1, 8]
        assert found.g1_at_first_anchor == found.trained[0, 1, 0, 3]
        known = ~np.isnan(found.trained[2, 0, 0])
        assert known.tolist() == [False, False, True, True, True, False, False, False, True]


class TestWhatIsSeen:
    def test_trained_numbers_see_no_unseen_pair(self):
        """Whatever activations unseen pairs have."""
        model = shipped("phase2")
        before = nearest_neighbours(model, PAPER)
        unseen = torch.tensor(PAPER.ood_pairs)
        tokens = []

        def scramble(value, hook):
            there = (tokens[-1].unfold(1, 2, 1)[:, :, None] == unseen).all(dim=-1).flatten(1).any(dim=1)
            return torch.where(there[:, None, None], torch.randn_like(value) * 9, value)

        model.embed.register_forward_pre_hook(lambda module, args: tokens.append(args[0]))
        for name in ("blocks.0.hook_resid_mid", "blocks.1.hook_resid_pre"):
            model.add_hook(name, scramble, is_permanent=True)
        after = nearest_neighbours(model, PAPER)
        assert np.array_equal(after.trained, before.trained, equal_nan=True)
        assert after.pair_share == before.pair_share
        assert not np.array_equal(after.unseen, before.unseen, equal_nan=True)

    def test_without_unseen_pairs_there_are_no_such_numbers(self):
        task = AnchorTask(complexity=6)
        found = nearest_neighbours(build_model(SMALL), task)
        assert found.unseen_target_at_last is found.unseen_margin is None and np.isnan(found.unseen).all()
        assert found.target_at_last is not None and found.plot().data

    def test_longer_chains(self):
        task = AnchorTask(chain_length=3, key_min=30)
        config = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, n_ctx=task.seq_len)
        assert nearest_neighbours(build_model(config), task).target_at_last is not None


class TestBadInput:
    def test_one_clear_error(self):
        model = build_model(SMALL)
        with pytest.raises(ValueError, match="key"):
            nearest_neighbours(model, PAPER, keys=[1000])
        with pytest.raises(ValueError, match="key_position"):
            nearest_neighbours(model, PAPER, key_position=8)

    def test_activations_that_are_not_finite(self):
        model = build_model(SMALL)
        with torch.no_grad():
            model.W_E[40] = torch.inf
        with pytest.raises(ValueError, match="finite"):
            nearest_neighbours(model, PAPER)


def test_other_keys_and_another_position():
    found = nearest_neighbours(build_model(SMALL), PAPER, keys=range(30, 41), key_position=1)
    assert found.keys.tolist() == list(range(30, 41)) and found.key_position == 1
    assert anchor_sequences(PAPER, [40], [(1, 2)], key_position=1).shape == (1, 9)
    assert not np.isnan(found.trained[2, 0, 0, 1])

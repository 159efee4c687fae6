"""Expert use: a router that is made by hand sends each kind where it should, and is read so."""

import numpy as np
import pytest
import torch

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.extras.expert_use.probe import sequences_by_kind
from anchorlens.models.hooks import last_logits
from anchorlens.probes import expert_use

TASK = AnchorTask(complexity=2, unseen_pairs=[(3, 4), (4, 3)], n_exceptions=40)
CONFIG = ModelConfig(n_layers=2, n_heads=2, d_model=32, d_head=16, d_mlp=32, gamma=0.3, num_experts=2)


def with_routers(first, second, config=CONFIG):
    """A model whose routers in each layer add a constant to the logit of expert 1, by a bias of ln2."""
    model = build_model(config, seed=0).eval()
    with torch.no_grad():
        for layer, constant in enumerate((first, second)):
            block = model.blocks[layer]
            block.mlp.W_gate.weight.zero_()
            block.mlp.W_gate.weight[1, 0] = constant
            block.ln2.w[0], block.ln2.b[0] = 0, 1  # the router reads a constant 1 there
    return model


class TestKinds:
    def test_each_kind_has_its_pairs_and_targets(self):
        kinds = sequences_by_kind(TASK, 200, seed=0)
        assert list(kinds) == ["rules", "broken", "exceptions", "unseen"]
        pairs = {kind: {tuple(pair) for pair in b.trials.pairs.tolist()} for kind, b in kinds.items()}
        assert pairs["broken"] == {(1, 2), (2, 1), (1, 3), (3, 1)} and pairs["unseen"] == {(3, 4), (4, 3)}
        assert not pairs["rules"] & (pairs["broken"] | pairs["unseen"])
        assert pairs["rules"] | pairs["broken"] == set(TASK.seen_pairs)
        for kind, batch in kinds.items():
            follows = TASK.targets(batch.trials, kind="inferential") == batch.targets.numpy()
            assert follows.all() if kind in ("rules", "unseen") else not follows.any() or kind == "exceptions"
            assert TASK.is_exception(batch.trials).all() == (kind == "exceptions")
            allowed = TASK.splits.obeys_rule(batch.trials.positions)
            rows = batch.trials.keys - TASK.key_min
            assert allowed[rows, np.arange(len(rows))].all()  # where keys are trained

    def test_what_a_task_has_not_is_left_out(self):
        assert list(sequences_by_kind(AnchorTask(), 8, seed=0)) == ["rules", "unseen"]
        assert list(sequences_by_kind(AnchorTask(complexity=0), 8, seed=0)) == ["rules"]


def test_a_router_that_looks_at_nothing_sends_all_to_one_expert():
    result = expert_use(with_routers(1.0, -1.0), TASK, n_sequences=64)
    assert result.kinds == ("rules", "broken", "exceptions", "unseen")
    assert (result.shares[0] == [0, 1]).all() and (result.shares[1] == [1, 0]).all()
    assert result.broken_apart == result.exceptions_apart == result.unseen_apart == 0
    assert result.largest_share == 1


def test_a_router_that_reads_the_last_anchor_sends_pairs_apart():
    """The token before the noise is not at the last position; with a sequence that ends on it, it is."""
    task = AnchorTask(seq_len=3, complexity=3)  # key and two anchors; broken: (1, 2), (1, 3), (1, 4)
    model = build_model(CONFIG, seed=0).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".attn." in name or name.startswith("pos_embed"):
                parameter.zero_()
        model.embed.W_E.zero_()
        for anchor in task.anchors:
            model.embed.W_E[anchor, anchor] = 1
        router = model.blocks[0].mlp.W_gate.weight.zero_()
        router[1, 1], router[0, 2], router[0, 3], router[0, 4] = 1, 1, 1, 1
    result = expert_use(model, task, n_sequences=60)
    second = {kind: batch.trials.pairs[:, 1] for kind, batch in sequences_by_kind(task, 60, 0).items()}
    expected = [np.mean(second[kind] == 1) for kind in ("rules", "broken")]
    assert np.allclose(result.shares[0, :, 1], expected)  # anchor 1 at the end goes to expert 1
    assert result.broken_apart >= abs(expected[0] - expected[1]) > 0.2


def test_accuracies_without_are_those_of_the_other_expert_alone():
    model = with_routers(3.0, 3.0)
    kinds = sequences_by_kind(TASK, 64, 0)
    result = expert_use(model, TASK, n_sequences=64)
    with torch.no_grad():  # all of the weight to the other expert: its part of the softmax becomes 1
        model.blocks[1].mlp.W_gate.weight[1, 0] = -100.0
    for k, batch in enumerate(kinds.values()):
        right = (last_logits(model, batch.tokens).argmax(-1) == batch.targets).double().mean()
        assert result.accuracies_without[1, 1, k] == pytest.approx(right.item())
    assert result.accuracies.shape == (4,) and result.accuracies_without.shape == (2, 2, 4)


def test_top_2_of_2_sends_by_weight():
    config = ModelConfig(**{**CONFIG.to_dict(), "experts_per_token": 2})
    result = expert_use(with_routers(1.0, 0.0, config), TASK, n_sequences=8)
    share = np.exp(1) / (1 + np.exp(1))
    assert np.allclose(result.shares[0], [1 - share, share], atol=1e-6)
    assert np.allclose(result.shares[1], 0.5, atol=1e-6)


def test_a_dense_model_gets_one_clear_error():
    model = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16))
    with pytest.raises(ValueError, match=r"^model.*mixture of experts.*num_experts"):
        expert_use(model, AnchorTask())

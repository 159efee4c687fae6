"""Survival, on models whose answers share weights between pairs by construction, or do not."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from known_models import as_bridge

from anchorlens import (
    AnchorTask,
    HookedTransformer,
    HookedTransformerConfig,
    ModelConfig,
    build_model,
    load_checkpoint,
)
from anchorlens.extras.survival.left_out import LEARNING_RATE, WEIGHT_DECAY, Accuracies, groups_to_leave_out
from anchorlens.extras.survival.probe import survival_ratios
from anchorlens.probes import COSTLY, REPORT_PROBES, SHIPPED, survival
from anchorlens.training import checkpoints

TASK = AnchorTask()
CONFIG = ModelConfig(n_layers=2, d_model=32, d_head=16, d_mlp=64, gamma=0.5)
FEW = {"n_steps": 2, "batch_size": 8, "n_sequences": 16}
SMALL_TASK = AnchorTask(key_min=20, key_max=39)
FAINT, LOUD = 0.1, 10.0
"""Weight of an answer at the start, and how strongly a code speaks: logit 1 of the answer."""


def readout(code_of, n_codes):
    """A model that is its unembedding: of a code that depends on pair and key, and of the key.

    The last position's stream is written by a hook, one-hot codes of size LOUD: `code_of(key, pair)`, whose
    weights give the answer at the start, and behind them the key, which has no weights yet and is the same
    for all pairs. Only the unembedding has gradients.
    """
    keys = SMALL_TASK.keys.tolist()
    config = HookedTransformerConfig(
        n_layers=1, n_heads=1, d_model=n_codes + len(keys), d_head=1, d_vocab=SMALL_TASK.d_vocab,
        n_ctx=SMALL_TASK.seq_len, attn_only=True, normalization_type=None, init_weights=False, device="cpu",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        model, seen = HookedTransformer(config).eval(), {}
    for parameter in model.parameters():
        parameter.requires_grad_(False).zero_()
    for pair in SMALL_TASK.pairs:
        for key in keys:
            model.unembed.W_U[code_of(key, pair), SMALL_TASK.target(key, pair)] = FAINT

    def write(value, hook):
        written = torch.zeros_like(value)
        for row, sequence in enumerate(seen["tokens"].tolist()):
            at = next(k for k, token in enumerate(sequence) if token in SMALL_TASK.anchors)
            key, pair = sequence[at - 1], tuple(sequence[at : at + 2])
            written[row, -1, code_of(key, pair)] = LOUD
            written[row, -1, n_codes + keys.index(key)] = LOUD
        return written

    model.embed.register_forward_pre_hook(lambda module, args: seen.update(tokens=args[0]))
    model.blocks[0].hook_resid_post.add_perma_hook(write)
    return model


def with_codes_of_results():
    """The code is the composed result, which pairs share: one decoder."""
    return readout(lambda key, pair: SMALL_TASK.inferential_target(key, pair), SMALL_TASK.d_vocab)


def with_codes_of_pairs():
    """The code is (pair, key): a table whose entries share nothing but the key's weights."""
    n = len(SMALL_TASK.keys)
    return readout(
        lambda key, pair: SMALL_TASK.pairs.index(pair) * n + key - SMALL_TASK.key_min,
        n * len(SMALL_TASK.pairs),
    )


class TestKnownAnswers:
    """Decay leaves .99^80 = .447 of a weight without a gradient: logit .447 of an answer that is left out.
    The weights of the key learn the answers of the other pairs, up to .2 (lr / (lr x decay)): logit 2."""

    def test_one_decoder_keeps_what_is_left_out(self):
        found = survival(with_codes_of_results(), SMALL_TASK)
        assert found.survival > 0.95 and (found.accuracies_before == 1).all()

    def test_a_table_of_pairs_forgets_it(self):
        found = survival(with_codes_of_pairs(), SMALL_TASK)
        assert found.survival < 0.2 and found.others > 0.95 and (found.accuracies_before == 1).all()

    def test_a_random_start_has_nothing_to_forget(self):
        found = survival(build_model(CONFIG), TASK, **FEW)
        assert found.survival is None and np.isnan(found.ratios).all() and found.others < 0.5
        assert "knows nothing to forget" in found.headline()
        found.plot()


@pytest.mark.slow
def test_it_does_not_tell_the_shipped_models_apart():
    """Before they were measured .7 or more was expected of phase3, and .5 or less of the others."""
    found = {}
    for path in checkpoints.shipped():
        checkpoint = load_checkpoint(path)
        found[path.stem] = survival(checkpoint.build_model(), checkpoint.task)
    assert found.pop("phase1").survival is None  # which answers its own training set alone
    assert all((each.accuracies_before > 0.95).all() for each in found.values())
    assert all(0.5 < each.survival < 0.7 for each in found.values())


def test_ratios_by_hand():
    found = survival_ratios(
        Accuracies(
            before=np.array([1.0, 1.0, 0.4, 1.0, 1.0]),
            left_out=np.array([0.4, 0.9, 0.4, 0.1, 0.0]),
            others=np.array([0.8, 0.8, 0.8, 0.4, 0.0]),
        )
    )
    # .4 / .8; more than the others is 1; not known before; the others not known after, twice
    assert found[:2].tolist() == [0.5, 1.0] and np.isnan(found[2:]).all()


class TestGroups:
    def test_both_orders_of_two_anchors_as_far_as_they_are_trained(self):
        groups = groups_to_leave_out(TASK, 99, 0)
        assert groups == {(a, b): [(a, b), (b, a)] for a, b in ((1, 2), (1, 3), (1, 4), (2, 3), (2, 4))}
        assert groups_to_leave_out(AnchorTask(regime="conflict"), 99, 0)[3, 4] == [(3, 4)]

    def test_two_anchors_are_one_group(self):
        assert groups_to_leave_out(AnchorTask(anchors={1: 5, 2: 1}, unseen_pairs=[(2, 1)]), 6, 0) == {
            (1, 2): [(1, 2)]
        }

    def test_of_many_some_are_drawn_by_the_seed(self):
        task = AnchorTask(anchors={k: k for k in range(1, 9)}, key_max=60)
        all_groups = groups_to_leave_out(task, 99, 0)
        drawn = [groups_to_leave_out(task, 6, seed) for seed in (0, 0, 1)]
        assert len(all_groups) == 27 and all(len(groups) == 6 for groups in drawn)  # 8 x 7 / 2, one unseen
        assert drawn[0] == drawn[1] != drawn[2] and all(all_groups[key] == drawn[0][key] for key in drawn[0])

    def test_chains_are_grouped_by_their_anchors(self):
        task = AnchorTask(anchors={1: 5, 2: 1}, chain_length=3, unseen_pairs=[(1, 1, 2)])
        assert groups_to_leave_out(task, 6, 0) == {
            (1, 1, 2): [(1, 2, 1), (2, 1, 1)],
            (1, 2, 2): [(1, 2, 2), (2, 1, 2), (2, 2, 1)],
        }

    def test_what_is_all_that_is_trained_cannot_be_left_out(self):
        task = AnchorTask(anchors={1: 5, 2: 1}, unseen_pairs=[(1, 1), (2, 2)])
        found = survival(build_model(CONFIG), task, **FEW)
        assert found.survival is None and found.groups.shape == (0, 2) and "can be left out" in repr(found)
        found.plot()


def test_what_is_left_out_is_never_trained_and_unseen_pairs_are_never_asked():
    model, seen = build_model(CONFIG), []
    model.embed.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    found = survival(model, TASK, n_steps=3, batch_size=64, n_sequences=32)
    asked, at = [], 0
    for tokens in seen:
        windows = {tuple(window) for row in tokens.tolist() for window in zip(row, row[1:], strict=False)}
        asked.append({pair for pair in windows if set(pair) <= set(TASK.anchors)})
    for a, b in found.groups.tolist():  # 3 updates, then the group before and after, then the others
        group = {(a, b), (b, a)}
        assert all(not pairs & group for pairs in (*asked[at : at + 3], asked[at + 5]))
        assert asked[at + 3] == asked[at + 4] == group
        assert asked[at + 5] == set(TASK.seen_pairs) - group
        at += 6
    assert at == len(asked) and not set.union(*asked) & set(TASK.ood_pairs)


def test_the_update_is_that_of_torchs_optimizer():
    """Two updates on one batch of each, by torch.optim.AdamW on a model of its own."""
    model, other = build_model(CONFIG), build_model(CONFIG)
    seen = []
    model.embed.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    logits = []
    model.unembed.register_forward_hook(lambda module, args, out: logits.append(out.detach()))
    survival(model, TASK, n_groups=1, n_steps=3, batch_size=16, n_sequences=4)
    optimizer = torch.optim.AdamW(other.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for tokens in seen[:2]:
        place = [next(k for k, t in enumerate(row) if t in TASK.anchors) for row in tokens.tolist()]
        targets = [
            TASK.target(row[k - 1], row[k : k + 2]) for k, row in zip(place, tokens.tolist(), strict=True)
        ]
        loss = torch.nn.functional.cross_entropy(other(tokens)[:, -1], torch.tensor(targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.allclose(logits[2], other(seen[2]), atol=1e-5)


def test_the_model_is_left_as_it_was_bit_for_bit():
    model = build_model(CONFIG).train()
    model(TASK.sample(4).tokens).sum().backward()
    model.embed.W_E.requires_grad_(False)
    state = torch.get_rng_state(), np.random.get_state()[1].tolist()
    before = {name: (w.clone(), w.grad.clone(), w.requires_grad) for name, w in model.named_parameters()}
    pointers = {name: weight.data_ptr() for name, weight in model.named_parameters()}
    first, again = (survival(model, TASK, **FEW).to_dict() for _ in range(2))
    assert first == again != survival(model, TASK, seed=1, **FEW).to_dict()
    for name, weight in model.named_parameters():
        value, gradient, required = before[name]
        assert torch.equal(weight, value) and torch.equal(weight.grad, gradient)
        assert weight.requires_grad == required and weight.data_ptr() == pointers[name]
    assert model.training and all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state[0]) and np.random.get_state()[1].tolist() == state[1]
    assert torch.is_grad_enabled() and not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("fields", [{"n_layers": 1}, {"variant": "postnorm"}, {"variant": "released"}])
def test_every_variant_and_one_layer(fields):
    found = survival(build_model(dataclasses.replace(CONFIG, **fields)), TASK, **FEW)
    assert len(found.groups) == 5 and ((found.other_accuracies >= 0) & (found.other_accuracies <= 1)).all()


@pytest.mark.parametrize("name", ["n_steps", "batch_size", "n_groups", "n_sequences"])
def test_bad_options(name):
    with pytest.raises(ValueError, match=name):
        survival(build_model(CONFIG), TASK, **{name: 0})
    with pytest.raises(ValueError, match="seed"):
        survival(build_model(CONFIG), TASK, seed=-1)


def test_a_bridge_whose_parameters_are_others_is_refused():
    bridge = as_bridge(build_model(CONFIG))
    survival(bridge, TASK, **FEW)
    module = torch.nn.Module()
    module.wte = torch.nn.Linear(2, 2)
    bridge.original_model = module
    with pytest.raises(ValueError, match="must have the parameters of a HookedTransformer"):
        survival(bridge, TASK, **FEW)


def test_it_is_costly_and_in_no_report_by_itself():
    assert survival in COSTLY and survival in SHIPPED
    assert tuple(probe for probe in SHIPPED if probe not in COSTLY) == REPORT_PROBES

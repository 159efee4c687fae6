"""Survival, on models whose answers share weights between pairs by construction, or do not."""

import dataclasses
import warnings
from types import SimpleNamespace

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
from anchorlens.engine.layout import Transformer
from anchorlens.probes import COSTLY, REPORT_PROBES, SHIPPED, survival
from anchorlens.probes.shared.parameters import Copies
from anchorlens.probes.two_anchor import survival as probe_module
from anchorlens.probes.two_anchor.survival import groups_to_leave_out, standard_error
from anchorlens.training import checkpoints

TASK = AnchorTask()
CONFIG = ModelConfig(n_layers=2, d_model=32, d_head=16, d_mlp=64, gamma=0.5)
FEW = {"n_copies": 2, "batch_size": 8, "n_sequences": 16, "noise": 1}
SMALL_TASK = AnchorTask(key_min=20, key_max=39)
hardly_trained = pytest.mark.usefixtures("few_updates")
FAINT, LOUD = 0.1, 10.0
"""Weight of an answer at the start, and how strongly a code speaks: logit 1 of the answer."""


def readout(code_of, n_codes):
    """A model that is its unembedding, of a code that depends on pair and key.

    The last position's stream is written by a hook: a one-hot code of size LOUD, `code_of(key, pair)`, whose
    weights give the answer. Only the unembedding has gradients.
    """
    keys = SMALL_TASK.keys.tolist()
    config = HookedTransformerConfig(
        n_layers=1, n_heads=1, d_model=n_codes, d_head=1, d_vocab=SMALL_TASK.d_vocab,
        n_ctx=SMALL_TASK.seq_len, attn_only=True, normalization_type=None, init_weights=False, device="cpu",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        model, seen = HookedTransformer(config).eval(), {}
    for parameter in model.parameters():
        parameter.requires_grad_(False).zero_()
    codes, anchors = (
        torch.zeros([SMALL_TASK.d_vocab] * 3, dtype=torch.long),
        torch.tensor([*SMALL_TASK.anchors]),
    )
    for pair in SMALL_TASK.pairs:
        for key in keys:
            codes[key, *pair] = code_of(key, pair)
            model.unembed.W_U[codes[key, *pair], SMALL_TASK.target(key, pair)] = FAINT

    def write(value, hook):
        written, tokens = torch.zeros_like(value), seen["tokens"]
        row = torch.arange(len(tokens))
        first = torch.isin(tokens, anchors).int().argmax(dim=1)
        written[row, -1, codes[tokens[row, first - 1], tokens[row, first], tokens[row, first + 1]]] = LOUD
        return written

    model.embed.register_forward_pre_hook(lambda module, args: seen.update(tokens=args[0]))
    model.blocks[0].hook_resid_post.add_perma_hook(write)
    return model


def with_codes_of_results():
    """The code is the composed result, which pairs share: one decoder."""
    return readout(lambda key, pair: SMALL_TASK.inferential_target(key, pair), SMALL_TASK.d_vocab)


def with_codes_of_pairs():
    """The code is (pair, key): a table whose entries share nothing."""
    n = len(SMALL_TASK.keys)
    return readout(
        lambda key, pair: SMALL_TASK.pairs.index(pair) * n + key - SMALL_TASK.key_min,
        n * len(SMALL_TASK.pairs),
    )


class TestKnownAnswers:
    """Noise 12 times the rms of W_U leaves few answers. The other pairs restore what they use."""

    def test_one_decoder_brings_back_what_is_left_out(self):
        found = survival(with_codes_of_results(), SMALL_TASK, noise=12, n_copies=2)
        assert found.survival > 0.8 and (found.other_accuracies >= 0.9).all()

    def test_a_table_of_pairs_does_not(self):
        found = survival(with_codes_of_pairs(), SMALL_TASK, noise=12, n_copies=2)
        assert found.survival < 0.4 and (found.other_accuracies >= 0.9).all()

    def test_a_random_start_has_nothing_to_restore(self, monkeypatch):
        monkeypatch.setattr(probe_module, "MOST_UPDATES", 40)
        found = survival(build_model(CONFIG), TASK, **FEW)
        assert found.survival is None and found.others < 0.5 and found.updates.tolist() == [40, 40]
        assert "do not come back" in found.headline()
        found.plot()


@pytest.mark.slow
def test_the_shipped_models():
    """Expected of the study that the dose is from: Phase 3 above both of Phase 2. One seed says little."""
    shipped = {path.stem: load_checkpoint(path) for path in checkpoints.shipped()}
    memorised, table = survival(shipped["phase1"]), survival(shipped["phase2"])
    assert memorised.survival is None and memorised.mean_updates == 400
    composes, commutes = (
        np.mean([survival(shipped[name], seed=seed).survival for seed in range(3)])
        for name in ("phase3", "phase2-commutative")
    )
    assert composes > commutes + 0.05 and (table.survival is None or table.survival < composes)


def test_more_noise_is_tried_while_the_others_are_back_soon(monkeypatch):
    given = []

    def restored(model, task, groups, *, noise, **options):
        given.append(noise)
        return probe_module.Restoration(*np.array([[0.4] * 2, [0.8] * 2, [{1: 40}.get(noise, 80)] * 2]))

    monkeypatch.setattr(probe_module, "restored_without", restored)
    found = survival(build_model(CONFIG), TASK, n_copies=2)
    assert given == [1.0, 1.5] and found.noise == 1.5 and found.survival == pytest.approx(0.5)
    survival(build_model(CONFIG), TASK, n_copies=2, noise=1)
    assert given[2:] == [1]


class TestGroups:
    def test_both_orders_of_two_anchors_as_far_as_they_are_trained(self):
        groups = groups_to_leave_out(TASK, 99)
        assert groups == {(a, b): [(a, b), (b, a)] for a, b in ((1, 2), (1, 3), (1, 4), (2, 3), (2, 4))}

    def test_pairs_on_another_target_form_no_group(self):
        assert (3, 4) not in groups_to_leave_out(AnchorTask(regime="conflict"), 99)

    def test_two_anchors_are_one_group(self):
        assert groups_to_leave_out(AnchorTask(anchors={1: 5, 2: 1}, unseen_pairs=[(2, 1)]), 6) == {
            (1, 2): [(1, 2)]
        }

    def test_of_many_those_with_most_support_are_taken(self):
        """Anchor 1 is trained in one other pair at each place, the others in two or three."""
        unseen = [(1, 4), (4, 1), (1, 3), (3, 1)]
        task = AnchorTask(anchors={k: k for k in range(1, 5)}, unseen_pairs=unseen)
        assert [*groups_to_leave_out(task, 99)] == [(2, 3), (2, 4), (3, 4), (1, 2)]
        assert [*groups_to_leave_out(task, 2)] == [(2, 3), (2, 4)]

    def test_chains_are_grouped_by_their_anchors(self):
        task = AnchorTask(anchors={1: 5, 2: 1}, chain_length=3, unseen_pairs=[(1, 1, 2)])
        assert groups_to_leave_out(task, 6) == {
            (1, 1, 2): [(1, 2, 1), (2, 1, 1)],
            (1, 2, 2): [(1, 2, 2), (2, 1, 2), (2, 2, 1)],
        }

    def test_what_is_all_that_is_trained_cannot_be_left_out(self):
        task = AnchorTask(anchors={1: 5, 2: 1}, unseen_pairs=[(1, 1), (2, 2)])
        found = survival(build_model(CONFIG), task, **FEW)
        assert found.survival is None and found.groups.shape == (0, 2) and "can be left out" in repr(found)
        found.plot()


def test_what_is_left_out_is_never_trained_and_unseen_pairs_are_never_asked(monkeypatch):
    asked, trained = [], []

    def pairs_in(tokens):
        windows = {tuple(window) for row in tokens.tolist() for window in zip(row, row[1:], strict=False)}
        return {pair for pair in windows if set(pair) <= set(TASK.anchors)}

    class Spy(probe_module.Copies):
        def answers(self, tokens, targets):
            (trained if torch.is_grad_enabled() else asked).append([pairs_in(own) for own in tokens])
            return super().answers(tokens, targets)

    monkeypatch.setattr(probe_module, "Copies", Spy)
    monkeypatch.setattr(probe_module, "MOST_UPDATES", 40)
    found = survival(build_model(CONFIG), TASK, n_copies=5, n_sequences=32, noise=1)
    groups = [{(a, b), (b, a)} for a, b in found.groups.tolist()]
    assert len(groups) == 5 and len(trained) == 40 and asked
    for k, group in enumerate(groups):
        assert set.union(*(own[k] for own in trained)) == set(TASK.seen_pairs) - group
        assert set.union(*(own[k] for own in asked)) == set(TASK.seen_pairs)
    assert not set.union(*(own for batch in (*trained, *asked) for own in batch)) & set(TASK.ood_pairs)


def test_noise_is_that_of_each_matrix_and_only_of_matrices(monkeypatch):
    model, started = build_model(CONFIG), []
    monkeypatch.setattr(probe_module.Copies, "answers", lambda self, *given: started.append(self) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        survival(model, TASK, noise=2, n_copies=2)
    layout = Transformer(started[0].config)
    weights = layout.trained_parameters(started[0].weights)
    for name, weight in model.named_parameters():
        added = (weights[name] - weight).detach()
        if name.rsplit(".", 1)[1].startswith("W_"):
            size = (added.square().mean() / weight.square().mean()).sqrt().item()
            assert size == pytest.approx(2, rel=0.1) and not torch.equal(added[0], added[1])
        else:
            assert not added.any()


@hardly_trained
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


def test_copies_that_are_kept_go_on_as_if_none_had_been_dropped():
    model, batches = build_model(CONFIG), [TASK.sample(8, seed=seed) for seed in range(3)]
    tokens, targets = (torch.stack([getattr(b, name) for b in batches]) for name in ("tokens", "targets"))
    together, fewer = (
        Copies(model, 3, tokens.flatten(0, 1), noise=1.0, rng=np.random.default_rng(0)) for _ in range(2)
    )
    for copies in (together, fewer):
        for _ in range(2):
            copies.update(copies.answers(tokens, targets).losses, 1e-2, torch.full((3,), 0.1))
    fewer.keep([0, 2])
    for _ in range(2):
        together.update(together.answers(tokens, targets).losses, 1e-2, torch.full((3,), 0.1))
        losses = fewer.answers(tokens[[0, 2]], targets[[0, 2]]).losses
        fewer.update(losses, 1e-2, torch.full((2,), 0.1))
    for name, weight in together.weights.items():
        assert len(fewer.weights[name]) == 2
        assert torch.allclose(fewer.weights[name], weight[[0, 2]], atol=1e-6)


def test_the_standard_error_by_hand():
    first, second = (SimpleNamespace(ratios=np.array(ratios)) for ratios in ([0.2, 0.8], [0.4, 0.8]))
    assert standard_error([first]) == pytest.approx(0.3)  # deviation 0.42 of two copies
    assert standard_error([first, second]) == pytest.approx(np.sqrt((0.02 + 0) / 2 / 4))


@hardly_trained
@pytest.mark.parametrize("fields", [{"n_layers": 1}, {"variant": "postnorm"}, {"variant": "released"}])
def test_every_variant_and_one_layer(fields):
    found = survival(build_model(dataclasses.replace(CONFIG, **fields)), TASK, **FEW)
    assert len(found.groups) == 2 and ((found.other_accuracies >= 0) & (found.other_accuracies <= 1)).all()


@pytest.mark.parametrize("name", ["batch_size", "n_copies", "n_sequences"])
def test_bad_options(name):
    with pytest.raises(ValueError, match=name):
        survival(build_model(CONFIG), TASK, **{name: 0})
    for name in ("seed", "noise"):
        with pytest.raises(ValueError, match=name):
            survival(build_model(CONFIG), TASK, **{name: -1})


@hardly_trained
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

"""Gradient sharing, on models whose answer is made by weights of all pairs, or of each pair by itself."""

import dataclasses

import numpy as np
import pytest
import torch

from anchorlens import AnchorTask, ModelConfig, build_model, load_checkpoint
from anchorlens.probes import gradient_sharing
from anchorlens.probes.two_anchor import gradient_sharing as pair_gradients
from anchorlens.probes.two_anchor.gradient_sharing import RELATIONS
from anchorlens.training import checkpoints

TASK = AnchorTask()
CONFIG = ModelConfig(n_layers=2, d_model=32, d_head=16, d_mlp=64, gamma=0.5)
NONE, SOME, MIRROR = range(3)


def shipped(name):
    path = next(path for path in checkpoints.shipped() if path.stem == name)
    return load_checkpoint(path).build_model()


def with_neurons_of_their_own():
    """A model whose last MLP has four neurons for each pair: all others are off.

    The gate looks at the anchors themselves, so it is the same for every key, position and noise.
    """
    model, seen = build_model(CONFIG), {}
    place = {pair: k for k, pair in enumerate(TASK.seen_pairs)}

    def gate(value, hook):
        mask = torch.zeros(len(value), 1, value.shape[-1])
        for row, sequence in enumerate(seen["tokens"].tolist()):
            start = 4 * place[tuple(token for token in sequence if token in TASK.anchors)]
            mask[row, 0, start : start + 4] = 1
        return value * mask

    model.embed.register_forward_pre_hook(lambda module, args: seen.update(tokens=args[0]))
    model.blocks[-1].mlp.hook_post.add_perma_hook(gate)
    return model


def test_neurons_of_their_own_are_not_shared():
    found = gradient_sharing(with_neurons_of_their_own(), TASK)
    off_diagonal = found.cosines[2][~np.eye(len(found.pairs), dtype=bool)]
    assert found.parts[2] == "last MLP" and np.abs(off_diagonal).max() < 1e-6
    assert found.mlp_sharing == pytest.approx(0, abs=1e-6) and found.sharing == pytest.approx(0, abs=1e-3)


def test_a_model_that_treats_all_pairs_alike_shares_everything_but_their_embeddings():
    task = AnchorTask(anchors={1: 0, 2: 0, 3: 0, 4: 0})  # every pair has the same answers
    model = build_model(CONFIG)
    with torch.no_grad():
        model.W_E[1:5] = model.W_E[1]
    found = gradient_sharing(model, task)
    assert found.sharing == pytest.approx(1, abs=1e-4)
    assert found.means[0, NONE] < 0.9 < found.order_blindness


def test_gradients_are_those_of_autograd():
    model = build_model(CONFIG)
    found = gradient_sharing(model, TASK, n_sequences=3, seed=5)
    seen = []
    model.embed.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    gradient_sharing(model, TASK, n_sequences=3, seed=5)
    rows, asked = [], seen[-len(found.pairs) :]  # before them the model is tried once
    for pair, tokens in zip(found.pairs, asked, strict=True):
        assert all(tuple(pair) in zip(row, row[1:], strict=False) for row in tokens.tolist())
        keys = [row[next(i for i, t in enumerate(row) if t in TASK.anchors) - 1] for row in tokens.tolist()]
        targets = torch.tensor([TASK.target(key, tuple(pair)) for key in keys])
        says = model(tokens)[:, -1].log_softmax(-1)
        lost = (says[range(3), targets - 1] - says[range(3), targets]).mean()
        mlp = model.blocks[-1].mlp
        gradient = torch.autograd.grad(lost, [mlp.W_in, mlp.W_out])
        rows.append(torch.cat([part.flatten() for part in gradient]))
    expected = torch.nn.functional.cosine_similarity(rows[0], rows[7], dim=0)
    assert found.cosines[2][0, 7] == pytest.approx(expected.item(), abs=1e-4)
    frames = torch.stack(asked)  # [pair, sequence, pos]
    keys_and_noise = torch.where(frames > 4, frames, 0)
    assert (keys_and_noise == keys_and_noise[0]).all()


def test_what_pairs_have_in_common():
    found = gradient_sharing(build_model(CONFIG), TASK)
    pairs = [tuple(pair) for pair in found.pairs.tolist()]
    at = {pair: k for k, pair in enumerate(pairs)}
    assert found.relations[at[1, 2], at[3, 3]] == NONE
    assert found.relations[at[1, 2], at[1, 3]] == found.relations[at[1, 2], at[3, 1]] == SOME
    assert found.relations[at[1, 2], at[2, 1]] == MIRROR and found.relations[0, 0] == -1
    assert len(RELATIONS) == 3 and (found.relations == found.relations.T).all()
    assert not {(3, 4), (4, 3)} & set(pairs)


def test_the_shipped_model_that_composes_shares_and_those_that_memorise_do_not():
    composes = gradient_sharing(shipped("phase3"), TASK)
    for name in ("phase1", "phase2", "phase2-commutative"):
        memorises = gradient_sharing(shipped(name), TASK)
        assert memorises.sharing < 0.15 < 0.25 < composes.sharing
    assert memorises.order_blindness > 0.9 > composes.order_blindness


def test_unseen_pairs_are_never_asked():
    model, seen = build_model(CONFIG), []
    model.embed.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    gradient_sharing(model, TASK)
    windows = torch.cat(seen).unfold(1, 2, 1)
    for pair in TASK.ood_pairs:
        assert not (windows == torch.tensor(pair)).all(-1).any()


def test_gradients_of_the_model_are_left_alone():
    model = build_model(CONFIG)
    model(TASK.sample(4).tokens).sum().backward()
    before = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    gradient_sharing(model, TASK)
    assert all(torch.equal(weight.grad, before[name]) for name, weight in model.named_parameters())
    assert all(weight.requires_grad for weight in model.parameters())


def test_of_many_pairs_some_are_drawn(monkeypatch):
    task = AnchorTask(anchors={k: k for k in range(1, 11)}, key_max=60)
    model = build_model(dataclasses.replace(CONFIG, d_vocab=task.d_vocab))
    found = gradient_sharing(model, task, n_sequences=2)
    assert len(found.pairs) == pair_gradients.MOST_PAIRS == len({tuple(pair) for pair in found.pairs})
    monkeypatch.setattr(pair_gradients, "_MOST_GRADIENTS", 10)
    assert len(gradient_sharing(model, task, n_sequences=2).pairs) == 2


def test_a_task_whose_pairs_all_share_an_anchor_has_no_number():
    task = AnchorTask(anchors={1: 5, 2: 1}, unseen_pairs=[(1, 1), (2, 2)])
    found = gradient_sharing(build_model(CONFIG), task)
    assert found.sharing is None and "share no anchor" in found.headline()
    found.plot()


@pytest.mark.parametrize("fields", [{"n_layers": 1}, {"variant": "postnorm"}, {"variant": "released"}])
def test_every_variant_and_one_layer(fields):
    found = gradient_sharing(build_model(dataclasses.replace(CONFIG, **fields)), TASK)
    assert np.isfinite(found.cosines).all() and np.abs(found.cosines).max() <= 1


@pytest.mark.parametrize(
    ("options", "message"), [({"n_sequences": 0}, "n_sequences"), ({"seed": -1}, "seed")]
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        gradient_sharing(build_model(CONFIG), TASK, **options)

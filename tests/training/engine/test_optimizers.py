"""The optimizers against torch's own, update by update."""

from dataclasses import replace

import pytest
import torch
from small_stacks import RECIPE, SMALL, check_goes_on_from_its_state, stack

from anchorlens import preset
from anchorlens.engine.interventions import check_interventions
from anchorlens.engine.layout import Transformer
from anchorlens.engine.optimizers import StackedOptimizer, as_matrix, as_weight, orthogonal
from anchorlens.models.gamma import part_of_matrices

TAKEN = torch.ones(1, dtype=torch.bool)


def updates(recipe, n=8):
    """A StackedOptimizer's row, and before each of its updates the gradient and learning rate."""
    layout, generator = Transformer(SMALL), torch.Generator().manual_seed(0)
    rows = 0.1 * torch.randn(1, layout.size, generator=generator)
    ours, rates = StackedOptimizer(rows, [recipe], layout), stack(RECIPE)
    for step in range(n):
        if step % 4 == 0:
            ours.begin_epoch(step)
        gradient = torch.randn(layout.size, generator=generator)
        rates.advance(step + 1)
        yield layout, rows, gradient, rates._report()[0].lr
        ours.step(gradient[None].clone(), gradient.norm()[None], TAKEN, torch.tensor([step % 4]))


def test_adam_adds_the_decay_to_the_gradient_as_torchs_does():
    theirs = None
    for _, rows, gradient, lr in updates(replace(RECIPE, optimizer="adam", weight_decay=0.3, clip_norm=0)):
        if theirs is None:
            plain = rows[0].clone().requires_grad_()
            theirs = torch.optim.Adam([plain], weight_decay=0.3, fused=True)
        assert torch.equal(rows[0], plain.detach())
        theirs.param_groups[0]["lr"], plain.grad = lr, gradient
        theirs.step()


def test_of_a_part_the_decay_is_added_to_its_gradient():
    base = {"optimizer": "adam", "clip_norm": 0}
    parts = {f"weight_decay_{part}": 0.3 for part in ("embedding", "qk", "vo", "mlp")}
    (*_, one), (*_, other) = (
        [rows.clone() for _, rows, *_ in updates(replace(RECIPE, **base, **own))]
        for own in ({"weight_decay": 0.3}, {"weight_decay": 0.3, **parts})
    )
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_muon_moves_matrices_as_torchs_does_and_all_else_as_adamw():
    """torch iterates in bfloat16, so that its directions agree to two digits; everything else is exact."""
    recipe = replace(RECIPE, optimizer="muon", weight_decay=0.3, clip_norm=0)
    parts, plain = part_of_matrices(SMALL), None
    for layout, rows, gradient, lr in updates(recipe):
        now = layout.weights(rows[0])
        gradients = layout.weights(gradient)
        if plain is None:
            plain = {name: as_matrix(name, weight).clone().requires_grad_() for name, weight in now.items()}
            moved = [name for name, part in parts.items() if part != "embedding"]
            others = [plain[name] for name in plain if name not in moved]
            muon = torch.optim.Muon(
                [plain[name] for name in moved],
                weight_decay=0.3,
                momentum=0.9,
                adjust_lr_fn="match_rms_adamw",
            )
            adamw = torch.optim.AdamW(others, weight_decay=0.3)
        for name, weight in now.items():
            tolerance = {"rtol": 0.02, "atol": 3e-4} if name in moved else {"rtol": 1e-4, "atol": 1e-6}
            torch.testing.assert_close(as_matrix(name, weight), plain[name].detach(), **tolerance)
            plain[name].grad = as_matrix(name, gradients[name]).clone()
        for optimizer in (muon, adamw):
            optimizer.param_groups[0]["lr"] = lr
            optimizer.step()


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_orthogonal_brings_singular_values_near_one_and_keeps_the_directions(shape):
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    inside = u.T @ orthogonal(matrix) @ v.T
    assert inside.diagonal().min() > 0.6 and inside.diagonal().max() < 1.3
    torch.testing.assert_close(inside - torch.diag(inside.diagonal()), torch.zeros_like(inside))


@pytest.mark.parametrize("name", ["W_Q", "W_O", "W_in"])
def test_heads_stand_side_by_side_and_come_back(name):
    shape = {"W_Q": (2, 16, 8), "W_O": (2, 8, 16), "W_in": (16, 24)}[name]
    weight = torch.arange(float(torch.Size(shape).numel())).view(shape)
    matrix = as_matrix(name, weight)
    assert matrix.shape == (16, 24 if name == "W_in" else 16)
    assert torch.equal(as_weight(name, matrix, weight), weight)
    if name == "W_Q":
        assert torch.equal(matrix[:, :8], weight[0])


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_run_goes_on_from_its_state_to_the_same_bits(optimizer):
    recipe = replace(RECIPE, optimizer=optimizer, weight_decay_qk="0 0.3:0.7=1.0")
    check_goes_on_from_its_state(lambda: stack(recipe))


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_it_learns_and_members_that_take_no_part_stay(optimizer):
    recipe = replace(RECIPE, optimizer=optimizer, steps=40, lr=3e-3)
    model = stack(recipe, recipe)
    before = model.advance(1)[0].loss
    model.stop(1)
    kept = model.snapshot()[1]
    assert model.advance(40)[0].loss < before - 0.3
    assert torch.equal(model.snapshot()[1], kept)


@pytest.mark.needs()
def test_muon_of_a_network_without_parts_is_refused():
    with pytest.raises(ValueError, match="must be a transformer for optimizer 'muon'"):
        check_interventions(preset("concept_graphs", optimizer="muon"))

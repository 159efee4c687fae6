"""Mixtures of experts in training: HookedTransformer's numbers, and what a recipe does to experts."""

from dataclasses import replace

import pytest
import torch
from small_stacks import CPU, RECIPE, SMALL, TASK, check_goes_on_from_its_state
from torch.nn import functional

from anchorlens import preset
from anchorlens.engine import ragged
from anchorlens.engine.engines import Stack
from anchorlens.engine.forward import logits_at_end, table_rows
from anchorlens.engine.interventions import check_interventions, matrices, part_of_parameters
from anchorlens.engine.layout import Transformer
from anchorlens.engine.optimizers import as_matrix
from anchorlens.engine.ragged import RaggedBatch, logits_where_scored
from anchorlens.files.checkpoint import training_set
from anchorlens.models.config import VARIANTS
from anchorlens.models.gamma import initial_weights
from anchorlens.models.hooked import build_model
from anchorlens.models.hooks import read
from anchorlens.recipes.run_config import RunConfig

MIXTURE = replace(SMALL, num_experts=3, gamma=0.3)
FOUR = [replace(MIXTURE, experts_per_token=n, gamma_experts=g) for n in (1, 2) for g in (None, "0.9 0.3 0.5")]
"""Both routings, of experts alike and not; the first two are of one shape, and so are the last two."""


def stack(*recipes, config=MIXTURE):
    runs = [RunConfig(TASK, config, recipe) for recipe in recipes]
    return Stack(runs, [training_set(TASK, RECIPE)] * len(runs), CPU)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float64", 1e-6)])
@pytest.mark.parametrize("n_members", [1, 2])
@pytest.mark.parametrize("experts_per_token", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_gradients_are_hooked_transformers(variant, experts_per_token, n_members, dtype, tolerance):
    """The router's softmax is in float32 in either dtype, as TransformerLens has it."""
    gamma = 0.5 if variant == "plain" else 0.3  # without norms small gammas give huge logits
    config = replace(MIXTURE, variant=variant, experts_per_token=experts_per_token, gamma=gamma)
    models = [build_model(config, seed=seed, dtype=dtype) for seed in range(n_members)]
    layout = Transformer(config)
    rows = torch.stack([layout.row(dict(model.named_parameters())) for model in models]).detach()
    leaves = {name: leaf.requires_grad_() for name, leaf in layout.merged(rows).items()}
    batches = [TASK.sample(48, seed=seed) for seed in range(n_members)]
    vocabulary, places = torch.stack([batch.tokens for batch in batches]).unique(return_inverse=True)
    ours = logits_at_end(leaves, config, table_rows(places), vocabulary)[:, :, 0]
    theirs = torch.stack([m(b.tokens)[:, -1] for m, b in zip(models, batches, strict=True)])
    targets = torch.cat([batch.targets for batch in batches])
    losses = [functional.cross_entropy(logits.flatten(0, 1), targets) for logits in (ours, theirs)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=tolerance)
    for loss in losses:
        loss.backward()
    place = (1, "mlp.hook_expert_weights")
    routed = (
        read(m, b.tokens, [place])[place].unflatten(0, b.tokens.shape)[:, -1]
        for m, b in zip(models, batches, strict=True)
    )
    used = {int(expert) for weights in routed for expert in weights.argmax(1)}
    assert len(used) > 1  # more than one expert is in the comparison
    grads = layout.views(torch.cat([leaf.grad.flatten(1) for leaf in leaves.values()], dim=1))
    for k, model in enumerate(models):
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                assert (grads[name][k] - parameter.grad).abs().max() < tolerance, name
    assert any(
        grads[f"blocks.0.mlp.{name}.weight"].abs().max() > 1e-4 for name in ("W_gate", "experts.1.W_in")
    )


@pytest.mark.parametrize("experts_per_token", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_sequences_of_different_lengths(variant, experts_per_token, monkeypatch):
    """On rows alone, logits and gradients are those of HookedTransformer on whole sequences."""
    monkeypatch.setattr(ragged, "_WORTH_LOOKING_UP", 0)
    config = replace(MIXTURE, variant=variant, experts_per_token=experts_per_token)
    model = build_model(config, seed=1, dtype="float64")
    layout = Transformer(config)
    row = layout.row(dict(model.named_parameters())).unsqueeze(0).detach()
    leaves = {name: leaf.requires_grad_() for name, leaf in layout.merged(row).items()}
    tokens = TASK.sample(20).tokens
    lengths = torch.randint(3, 10, (20,), generator=torch.Generator().manual_seed(0))
    at = torch.arange(tokens.shape[1])
    batch = RaggedBatch.of(tokens, lengths, (at >= 2) & (at < lengths.unsqueeze(-1)))
    ours = logits_where_scored(leaves, config, batch, torch.arange(config.d_vocab))
    theirs = model(tokens).flatten(0, 1)[batch.scored]
    assert (ours - theirs).abs().max() < 1e-6
    weights = torch.randn(ours.shape, dtype=ours.dtype, generator=torch.Generator().manual_seed(1))
    for logits in (ours, theirs):
        (logits * weights).mean().backward()
    grads = layout.views(torch.cat([leaf.grad.flatten(1) for leaf in leaves.values()], dim=1))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert (grads[name][0] - parameter.grad).abs().max() < 1e-6, name


@pytest.mark.parametrize("config", FOUR, ids=lambda c: f"top {c.n_active}, {c.gamma_experts}")
def test_a_row_holds_every_parameter_and_gives_it_back(config):
    weights = initial_weights(config, 0)
    layout = Transformer(config)
    again = layout.weights(layout.row(weights))
    assert list(again) == list(weights) and all(torch.equal(again[name], weights[name]) for name in weights)
    assert layout.size == sum(weight.numel() for weight in weights.values())


def test_members_train_as_each_alone():
    recipe = replace(RECIPE, dtype="float64", lr=1e-2)
    runs = [
        RunConfig(TASK, config, replace(recipe, seed=seed)) for seed, config in enumerate(FOUR[:2])
    ]  # other gammas
    sets = [training_set(TASK, run.train_config) for run in runs]
    together = Stack(runs, sets, CPU)
    together.advance(8)
    for k, run in enumerate(runs):
        alone = Stack([run], [sets[k]], CPU)
        alone.advance(8)
        torch.testing.assert_close(together.snapshot()[k], alone.snapshot()[0])


class TestWhatARecipeDoes:
    def test_the_part_mlp_is_experts_and_router(self):
        layout = Transformer(MIXTURE)
        found = layout.weights(part_of_parameters(layout, ("mlp",)).float())
        assert all((weight == float(".mlp." in name)).all() for name, weight in found.items())

    def test_rescaling_the_mlps(self):
        model = stack(replace(RECIPE, rescale="mlp=0.5@0", lr=1e-30, weight_decay=0))
        before = model.weights(0)
        model.advance(1)
        for name, weight in model.weights(0).items():
            torch.testing.assert_close(weight, (0.5 if ".mlp." in name else 1.0) * before[name], msg=name)

    def test_a_penalty_on_one_expert(self):
        name = "experts.1.W_in.weight"
        parts = Transformer(MIXTURE).parts()
        assert matrices(parts, name) == [f"blocks.{layer}.mlp.{name}" for layer in (0, 1)]
        fast = replace(RECIPE, lr=1e-2)
        plain, penalised = stack(fast), stack(replace(fast, penalty=f"nuclear:{name}=10"))
        for model in (plain, penalised):
            model.advance(8)
        norms = [
            {
                key: torch.linalg.matrix_norm(model.weights(0)[key], ord="nuc")
                for key in parts
                if "W_in" in key
            }
            for model in (plain, penalised)
        ]
        for layer in (0, 1):
            ratios = {
                expert: norms[1][key] / norms[0][key]
                for expert in range(3)
                for key in [f"blocks.{layer}.mlp.experts.{expert}.W_in.weight"]
            }
            assert ratios[1] < 0.99 and min(ratios[0], ratios[2]) > ratios[1] + 0.005

    def test_an_expert_that_is_not_there_is_said_before_anything_trains(self):
        run = RunConfig(TASK, MIXTURE, replace(RECIPE, penalty="nuclear:experts.7.W_in.weight=1"))
        with pytest.raises(ValueError, match=r"experts.7.W_in.*mean 'experts.\d.W_in"):
            check_interventions(run)

    def test_muon_moves_each_matrix_along_an_orthogonal_step(self):
        model = stack(replace(RECIPE, optimizer="muon", weight_decay=0, warmup_steps=0, lr=1e-2))
        before = model.weights(0)
        model.advance(1)
        for name, weight in model.weights(0).items():
            step = as_matrix(name, weight - before[name])
            if ".experts." in name and step.abs().max() > 0:
                values = torch.linalg.svdvals(step) / (1e-2 * 0.2 * max(step.shape) ** 0.5)
                assert 0.3 < values.median() < 1.4, name

    @pytest.mark.parametrize("optimizer", ["adamw", "muon"])
    def test_a_run_goes_on_from_its_state_to_the_same_bits(self, optimizer):
        recipe = replace(RECIPE, optimizer=optimizer)
        check_goes_on_from_its_state(lambda: stack(recipe))


@pytest.mark.needs()
@pytest.mark.parametrize("task", ["scan", "phase3"])
def test_it_learns(task):
    small = {"n_layers": 1, "n_heads": 2, "d_model": 24, "d_head": 8, "d_mlp": 24, "num_experts": 2}
    run = preset(task, **small, n_samples=256, batch_size=64, steps=60, epochs=None, lr=5e-3, warmup_steps=5)
    model = Stack([run], [training_set(run.task, run.train_config)], CPU)
    before = model.advance(1)[0].loss
    assert model.advance(60)[0].loss < before - 0.5

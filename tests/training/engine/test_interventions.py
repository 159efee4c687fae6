"""What a recipe changes on the way: each in just the updates that were asked for, and just so much."""

from dataclasses import replace

import pytest
import torch
from small_stacks import RECIPE, SMALL, TASK, stack

from anchorlens import preset, train_many
from anchorlens.engine.interventions import check_interventions, complexity, nearest_of_rank
from anchorlens.engine.layout import Transformer
from anchorlens.engine.optimizers import StackedOptimizer
from anchorlens.models.config import PARTS
from anchorlens.models.gamma import init_table
from anchorlens.recipes.run_config import RunConfig


def weights_after(step, **recipe):
    """Every weight of one model after some updates."""
    model = stack(replace(RECIPE, **recipe))
    model.advance(step)
    return model.snapshot()[0]


class TestSchedules:
    def test_decay_in_a_window_is_torchs_adamw_with_that_decay_in_just_those_updates(self):
        recipe = replace(RECIPE, weight_decay="0.01 0.25:0.5=1.0 0.75:1=0.5..0.1", clip_norm=0)
        decays = [0.01, 0.01, 1.0, 1.0, 0.01, 0.01, 0.5, 0.1]
        layout, generator = Transformer(SMALL), torch.Generator().manual_seed(0)
        rows = torch.randn(1, layout.size, generator=generator)
        plain = rows[0].clone().requires_grad_()
        ours = StackedOptimizer(rows, [recipe], layout)
        theirs = torch.optim.AdamW([plain], lr=1.0, fused=True)
        taken, reference = torch.ones(1, dtype=torch.bool), stack(RECIPE)
        for step, decay in enumerate(decays):
            if step % 4 == 0:
                ours.begin_epoch(step)
            gradient = torch.randn(layout.size, generator=generator)
            ours.step(gradient[None].clone(), gradient.norm()[None], taken, torch.tensor([step % 4]))
            (group,) = theirs.param_groups
            reference.advance(step + 1)
            group["lr"], group["weight_decay"] = reference._report()[0].lr, decay
            plain.grad = gradient
            theirs.step()
            assert torch.equal(rows[0], plain.detach()), step

    @pytest.mark.parametrize("field", ["weight_decay", "lr"])
    def test_a_window_changes_no_bit_before_it(self, field):
        base = getattr(RECIPE, field)
        window = {field: f"{base} 0.5:0.75={7 * base}"}
        assert torch.equal(weights_after(4, **window), weights_after(4))
        assert not torch.equal(weights_after(5, **window), weights_after(5))

    def test_one_window_over_the_whole_run_is_that_value(self):
        assert torch.equal(weights_after(8, weight_decay="0 0:1=0.3"), weights_after(8, weight_decay=0.3))
        assert torch.equal(weights_after(8, lr="0.1 0:1=0.002"), weights_after(8, lr=0.002))

    def test_members_of_a_stack_have_their_own(self):
        recipes = [
            RECIPE,
            replace(RECIPE, weight_decay="0 0.5:1=1.0"),
            replace(RECIPE, weight_decay_mlp="0 0:0.5=3.0", rescale="vo=0.5@3"),
            replace(RECIPE, penalty="nuclear:W_Q=0.01@0:0.5"),
        ]
        recipes = [replace(recipe, dtype="float64") for recipe in recipes]
        together = stack(*recipes)
        together.advance(8)
        for row, recipe in zip(together.snapshot(), recipes, strict=True):
            alone = stack(recipe)
            alone.advance(8)
            torch.testing.assert_close(row, alone.snapshot()[0])


class TestParts:
    @pytest.mark.parametrize("part", PARTS)
    def test_a_part_decays_by_its_own_and_the_rest_by_the_rest(self, part):
        recipe = replace(RECIPE, weight_decay=0.5, **{f"weight_decay_{part}": 2.0}, lr=0.1, warmup_steps=0)
        layout = Transformer(SMALL)
        rows = torch.ones(1, layout.size)
        adamw = StackedOptimizer(rows, [recipe], layout)
        adamw.begin_epoch(0)
        nothing = torch.zeros_like(rows)
        lr = stack(replace(RECIPE, lr=0.1, warmup_steps=0)).advance(1)[0].lr
        adamw.step(
            nothing, torch.zeros(1), torch.ones(1, dtype=torch.bool), torch.zeros(1, dtype=torch.int64)
        )
        parts = {name: init.part for name, init in init_table(SMALL).items()}
        for name, weight in layout.weights(rows[0]).items():
            kept = 1 - lr * (2.0 if parts.get(name) == part else 0.5)
            torch.testing.assert_close(weight, torch.full_like(weight, kept))

    def test_a_member_that_takes_no_part_does_not_decay(self):
        recipe = replace(RECIPE, weight_decay_qk=2.0)
        rows = torch.ones(1, Transformer(SMALL).size)
        adamw = StackedOptimizer(rows, [recipe], Transformer(SMALL))
        adamw.begin_epoch(0)
        adamw.step(
            torch.zeros_like(rows), torch.zeros(1), torch.zeros(1, dtype=torch.bool), torch.zeros(1).long()
        )
        assert torch.equal(rows, torch.ones_like(rows))

    def test_parts_that_all_have_the_decay_of_the_rest_change_rounding_alone(self):
        own = {f"weight_decay_{part}": 0.3 for part in PARTS}
        torch.testing.assert_close(
            weights_after(8, weight_decay=0.3, **own),
            weights_after(8, weight_decay=0.3),
            rtol=1e-4,
            atol=1e-6,
        )


class TestRescaling:
    def test_by_one_changes_no_bit(self):
        assert torch.equal(weights_after(8, rescale="all=1@0 qk=1@5"), weights_after(8))

    @pytest.mark.parametrize(("text", "parts"), [("all=0.5@3", PARTS), ("qk=0.5@3", ("qk",))])
    def test_it_is_what_one_would_do_by_hand(self, text, parts):
        """Three updates, the matrices halved with moments and all else kept, five more."""
        by_hand = stack(RECIPE)
        by_hand.advance(3)
        state = by_hand.state(0)
        for name, init in init_table(SMALL).items():
            if init.part in parts:
                state[f"weight.{name}"] *= 0.5
        by_hand.restore(3, [state])
        by_hand.advance(8)
        assert torch.equal(weights_after(8, rescale=text), by_hand.snapshot()[0])
        assert torch.equal(weights_after(3, rescale=text), weights_after(3))  # it is due before the next

    def test_it_happens_once_where_training_goes_on_from_a_state(self):
        whole, first, second = (stack(replace(RECIPE, rescale="mlp=3@2 mlp=0.5@6")) for _ in range(3))
        whole.advance(8)
        for stop in (2, 6):  # the state of a step is the one before what is due there
            first.advance(stop)
            second.restore(stop, [first.state(0)])
            first, second = second, stack(replace(RECIPE, rescale="mlp=3@2 mlp=0.5@6"))
        first.advance(8)
        assert torch.equal(first.snapshot(), whole.snapshot())


class TestPenalty:
    def test_nuclear_norm_and_its_gradient_by_hand(self):
        weight = torch.tensor([[3.0, 0.0], [0.0, -4.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
        value = complexity("nuclear", weight)
        (gradient,) = torch.autograd.grad(value, weight)
        assert value.item() == pytest.approx(7)
        torch.testing.assert_close(gradient, weight.detach().sign())  # U V^T

    def test_stable_rank_and_its_gradient_by_hand(self):
        weight = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64)).requires_grad_()
        value = complexity("stable_rank", weight)
        (gradient,) = torch.autograd.grad(value, weight)
        assert value.item() == pytest.approx(1 + 1 / 4)
        # of 1 + b^2 / a^2: -2 b^2 / a^3, and 2 b / a^2
        torch.testing.assert_close(gradient, torch.diag(torch.tensor([-0.25, 0.5], dtype=torch.float64)))

    @pytest.mark.parametrize("kind", ["nuclear", "stable_rank"])
    @pytest.mark.parametrize("shape", [(4, 3), (2, 4, 3), (3, 2, 2, 2)])
    def test_gradients_by_finite_differences(self, kind, shape):
        weight = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        weight.requires_grad_()
        assert torch.autograd.gradcheck(lambda one: complexity(kind, one), weight)

    def test_heads_are_matrices_of_their_own(self):
        heads = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(2))
        assert complexity("nuclear", heads) == pytest.approx(
            sum(torch.linalg.svdvals(head).sum().item() for head in heads)
        )

    def test_the_engine_adds_its_gradient_in_the_window_alone(self):
        recipe = replace(RECIPE, penalty="stable_rank:W_in=0.5@0.25:0.5", dtype="float64")
        before, penalised = stack(replace(RECIPE, dtype="float64")), stack(recipe)
        updates = before.advance(2), penalised.advance(2)
        assert torch.equal(before.snapshot(), penalised.snapshot()) and updates[0] == updates[1]
        plain, other = before.advance(3)[0], penalised.advance(3)[0]
        assert plain.loss == other.loss  # the penalty is no part of the loss that is logged
        assert plain.grad_norm != other.grad_norm

    def test_a_penalty_lowers_what_it_is_on(self):
        def rank(**recipe):
            model = stack(replace(RECIPE, steps=40, **recipe))
            model.advance(40)
            return complexity("stable_rank", model.weights(0)["blocks.0.mlp.W_in"]).item()

        assert rank(penalty="stable_rank:blocks.0.mlp.W_in=1.0") < 0.8 * rank()


class TestHeld:
    def test_what_is_frozen_keeps_its_bits_and_the_rest_learns(self):
        start, model = stack(RECIPE), stack(replace(RECIPE, freeze="W_Q blocks.1.mlp.W_in@0.5:1"))
        begun, half, end = start.weights(0), None, None
        model.advance(4)
        half = model.weights(0)
        model.advance(8)
        end = model.weights(0)
        for name, weight in begun.items():
            assert torch.equal(half[name], weight) == name.endswith("W_Q"), name
            is_still = name.endswith("W_Q") or name == "blocks.1.mlp.W_in"
            assert torch.equal(end[name], half[name]) == is_still, name

    @pytest.mark.parametrize("optimizer", ["adamw", "adam", "muon"])
    def test_with_everything_frozen_nothing_but_vectors_moves(self, optimizer):
        frozen = replace(RECIPE, freeze="all", optimizer=optimizer, weight_decay_qk=0.5)
        begun, model = stack(RECIPE).weights(0), stack(frozen)
        model.advance(8)
        for name, weight in model.weights(0).items():
            assert torch.equal(weight, begun[name]) == (name in init_table(SMALL)), name

    @pytest.mark.parametrize("variant", ["gpt2", "plain"])
    def test_frozen_biases_keep_their_start_and_the_rest_learns(self, variant):
        model = replace(SMALL, variant=variant)
        [begun, free, frozen] = [
            stack(replace(RECIPE, freeze=word), model=model) for word in (None, None, "biases W_Q")
        ]
        free.advance(8)
        frozen.advance(8)
        for name, weight in begun.weights(0).items():
            is_bias = name.rpartition(".")[2] in ("b_Q", "b_K", "b_V", "b_O", "b_in", "b_out", "b_U", "b")
            assert torch.equal(frozen.weights(0)[name], weight) == (is_bias or name.endswith("W_Q")), name
            assert not torch.equal(free.weights(0)[name], weight), name

    def test_the_rank_of_every_head_is_clipped_in_the_window(self):
        model = stack(replace(RECIPE, max_rank="W_Q=2@0.25:0.5 mlp=5@0:0.5", dtype="float64"))
        free = stack(replace(RECIPE, dtype="float64"))
        model.advance(4)
        free.advance(4)
        assert ranks(model, "blocks.1.attn.W_Q") == [2, 2] and ranks(free, "blocks.1.attn.W_Q") == [8, 8]
        assert ranks(model, "blocks.0.mlp.W_in") == [5] and ranks(model, "blocks.0.attn.W_K") == [8, 8]
        model.advance(8)
        assert ranks(model, "blocks.1.attn.W_Q") == [8, 8]

    def test_a_rank_that_a_matrix_has_anyhow_changes_rounding_alone(self):
        torch.testing.assert_close(
            weights_after(8, max_rank="W_Q=8", dtype="float64"), weights_after(8, dtype="float64")
        )

    def test_nearest_of_rank_by_hand(self):
        heads = torch.stack(
            [torch.diag(torch.tensor([3.0, 2.0, 1.0])), torch.diag(torch.tensor([0.0, 1, 4]))]
        )
        kept = torch.stack([torch.diag(torch.tensor([3.0, 2.0, 0.0])), torch.diag(torch.tensor([0.0, 1, 4]))])
        torch.testing.assert_close(nearest_of_rank(heads, 2), kept)

    def test_a_member_that_was_stopped_keeps_its_bits(self):
        model = stack(replace(RECIPE, max_rank="W_Q=2@0.5:1"), RECIPE)
        model.advance(2)
        model.stop(0)
        before = model.snapshot()
        model.advance(8)
        assert torch.equal(model.snapshot()[0], before[0]) and not torch.equal(model.snapshot()[1], before[1])

    def test_training_goes_on_to_the_same_bits_across_the_borders(self):
        recipe = replace(
            RECIPE, max_rank="W_Q=2@0.25:0.75", freeze="vo@0.5:1", weight_noise="mlp=0.3@4 qk=1@6"
        )
        whole, first, second = (stack(recipe) for _ in range(3))
        whole.advance(8)
        for stop in (2, 4, 5, 6):
            first.advance(stop)
            second.restore(stop, [first.state(0)])
            first, second = second, stack(recipe)
        first.advance(8)
        assert torch.equal(first.snapshot(), whole.snapshot())


def ranks(model, name):
    weight = model.weights(0)[name]
    return [
        int(torch.linalg.matrix_rank(one, rtol=1e-9)) for one in (weight if weight.dim() > 2 else [weight])
    ]


class TestNoise:
    def test_it_has_the_size_that_was_asked_and_is_on_those_matrices_alone(self):
        model = stack(replace(RECIPE, weight_noise="W_in=0.5@0", lr=1e-30, weight_decay=0))
        begun = model.weights(0)
        model.advance(1)
        for name, weight in model.weights(0).items():
            change = (weight - begun[name]).square().mean().sqrt() / begun[name].square().mean().sqrt()
            if name.endswith("W_in"):
                assert change == pytest.approx(0.5, rel=0.1)
            else:
                assert not change > 1e-6

    def test_layers_steps_and_seeds_have_noise_of_their_own(self):
        def noise(step, **recipe):
            model = stack(replace(RECIPE, weight_noise=f"W_in=1@{step}", lr=1e-30, weight_decay=0, **recipe))
            before = model.weights(0)
            model.advance(8)
            after = model.weights(0)
            return [after[f"blocks.{k}.mlp.W_in"] - before[f"blocks.{k}.mlp.W_in"] for k in (0, 1)]

        (a, b), (c, _), (d, _), (again, _) = noise(3), noise(5), noise(3, seed=1), noise(3)
        assert torch.equal(a, again)
        for one in (b, c, d):
            assert abs(torch.corrcoef(torch.stack([a.flatten(), one.flatten()]))[0, 1]) < 0.2

    def test_of_size_zero_changes_no_bit(self):
        assert torch.equal(weights_after(8, weight_noise="all=0@3"), weights_after(8))


class TestErrors:
    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"weight_decay": "0 0.25:0.6=1 0.5:1=2"}, "must not overlap, got 0.25:0.6=1 and 0.5:1=2"),
            ({"weight_decay": "0 0.5:1.5=1"}, "in fractions of the run with 0 <= from < to <= 1"),
            ({"weight_decay": "0 0.5:0.5=1"}, "0 <= from < to <= 1"),
            ({"weight_decay": "0 0.5:0.51=1"}, "the run's 8 updates, got 0.5:0.51=1"),
            (
                {"weight_decay": "0 0.5:1=-1"},
                "weight_decay in the window 0.5:1=-1",
            ),
            ({"lr": "0.001 0.5:1=0"}, "lr in the window 0.5:1=0 must be"),
            ({"weight_decay": "0 0.5:1=1..1e999"}, "must be a finite number >= 0, got inf"),
            (
                {"weight_decay": "0 0:1=1", "batch_size": 999, "steps": None, "epochs": 1},
                "batch_size must be",
            ),
            ({"lr": "fast"}, "lr must be a number, or a base value"),
            ({"lr": ""}, "lr must be windows"),
            ({"weight_decay": "0.5:1=1 0.1"}, "A window is from:to=value"),
            ({"rescale": "all=0@3"}, "rescale all=0@3 must be a finite number > 0"),
            ({"rescale": "all=2@8"}, "the step of rescale all=2@8 must be"),
            ({"rescale": "all"}, "rescale must be matrices=value@step"),
            ({"rescale": "qk=2@1 qk=3@1"}, "list each matrix at most once per step"),
            ({"penalty": "spectral:qk=1"}, "penalty must be nuclear or stable_rank"),
            (
                {"penalty": "nuclear:qk=-1"},
                "penalty nuclear:qk=-1 must be",
            ),
            ({"penalty": "nuclear:qk=1@0.9:0.1"}, "0 <= from < to <= 1"),
            ({"penalty": "qk=1"}, "penalty must be nuclear or stable_rank"),
            ({"weight_noise": "W_Q=-1@3"}, "weight_noise W_Q=-1@3 must be"),
            ({"weight_noise": "W_Q=1"}, "weight_noise must be matrices=value@step"),
            ({"max_rank": "W_Q=0"}, "max_rank W_Q=0 must be an integer"),
            ({"max_rank": "W_Q=1.5"}, "max_rank W_Q=1.5 must be an integer"),
            ({"max_rank": "W_Q"}, "max_rank must be matrices=value"),
            ({"freeze": "W_Q=2"}, "freeze must be matrices, W_Q@0:0.5 for example"),
            ({"freeze": "W_Q@0.5:0.51"}, "at least one of the run's 8 updates"),
            (
                {"weight_decay": "0 0.5:1=1", "weight_decay_qk": "0:0.5=1"},
                "weight_decay_qk must begin with a base",
            ),
        ],
    )
    def test_bad_values_are_one_clear_error(self, fields, says):
        with pytest.raises(ValueError) as error:
            replace(RECIPE, **fields)
        assert says in str(error.value)

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            (
                {"rescale": "experts=0.5@0"},
                "got 'experts'. Use one of embedding, qk",
            ),
            ({"freeze": "W_q"}, "the model has, got 'W_q'. Did you"),
            ({"freeze": "bias"}, "the model has, got 'bias'. Did you mean 'biases'?"),
            (
                {"max_rank": "biases=2"},
                "max_rank must name a part or a matrix",
            ),
            (
                {"penalty": "nuclear:W_ou=1"},
                "got 'W_ou'. Did you mean 'W_out'?",
            ),
        ],
    )
    def test_what_the_model_lacks_is_said_before_anything_trains(self, fields, says, tmp_path):
        run = RunConfig(TASK, SMALL, replace(RECIPE, **fields))
        with pytest.raises(ValueError) as error:
            train_many([run], outs=[tmp_path / "run"])
        assert says in str(error.value) and not (tmp_path / "run").exists()

    @pytest.mark.needs()
    def test_a_network_without_parts(self):
        run = preset("concept_graphs", rescale="qk=0.5@0")
        with pytest.raises(ValueError, match=r"rescale must name a part.*got 'qk'"):
            check_interventions(run)
        with pytest.raises(ValueError, match=r"weight_decay_qk must name a part.*got 'qk'"):
            check_interventions(preset("concept_graphs", weight_decay_qk=0.1))
        check_interventions(preset("concept_graphs", rescale="all=0.5@0"))


@pytest.mark.needs()
def test_schedules_are_written_in_one_way_and_keep_the_value_of_the_preset():
    run = preset("scan", weight_decay="0.50:.75=1.0")
    assert run.train_config.weight_decay == "0.1 0.5:0.75=1"  # the preset's .1
    assert preset("quick", weight_decay="0.25:0.5=1").train_config.weight_decay == "0.01 0.25:0.5=1"
    assert preset("quick", weight_decay="0.3").train_config.weight_decay == 0.3
    assert RunConfig.from_dict(run.to_dict()) == run


def test_what_is_done_to_matrices_in_words():
    recipe = replace(RECIPE, max_rank="W_Q=2.0@0:.5", freeze="mlp", weight_noise="W_Q=0.5@3")
    assert recipe.max_rank == "W_Q=2@0:0.5" and recipe.freeze == "mlp"
    assert recipe.on_the_way == {
        "weight_noise": "W_Q get noise of 0.5 times the size of their entries before update 3",
        "max_rank": "W_Q of rank 2 at most in updates 0 to 3",
        "freeze": "mlp stay as they are in updates 0 to 7",
    }
    assert recipe.without_interventions() == RECIPE

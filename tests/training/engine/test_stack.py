"""The stack: the same numbers as HookedTransformer, and as each member alone."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from anchorlens.engine import attention as attention_module
from anchorlens.engine.attention import attention
from anchorlens.engine.engines import Stack
from anchorlens.engine.forward import logits_at_end, table_rows
from anchorlens.engine.layout import Transformer
from anchorlens.engine.linear import linear
from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.files.checkpoint import training_set
from anchorlens.models.config import VARIANTS, ModelConfig
from anchorlens.models.hooked import build_model
from anchorlens.recipes.run_config import RunConfig
from anchorlens.recipes.schedule import epoch_order, learning_rate
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.tasks.shared.batch import IGNORE, TokenBatch
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.training.loop import Loop, Member
from anchorlens.training.plan import count_cost

CPU = torch.device("cpu")
TASK = AnchorTask()
RECIPE = TrainConfig(n_samples=512, batch_size=64, steps=24, warmup_steps=6, log_every=8, eval_every=8)


def shape(variant="gpt2", **fields):
    small = {"n_layers": 2, "n_heads": 2, "d_model": 24, "d_head": 8, "d_mlp": 40}
    return ModelConfig(variant=variant, **(small | fields))


def members(variant="gpt2", dtype="float64", **recipe):
    """Three runs that differ in all a stack allows: gamma, seed, learning rate, decay, clipping."""
    train = replace(RECIPE, dtype=dtype, **recipe)
    return [
        RunConfig(TASK, shape(variant, gamma=0.3), replace(train, seed=1, lr=3e-3, weight_decay=0.0)),
        RunConfig(TASK, shape(variant, gamma=0.6), replace(train, seed=2, lr=1e-3, clip_norm=0.05)),
        RunConfig(TASK, shape(variant, gamma=0.9), replace(train, seed=1, lr=5e-3, weight_decay=1.0)),
    ]


def stack_of(runs, device=CPU):
    sets = {run.train_config.seed: training_set(run.task, run.train_config) for run in runs}
    return Stack(runs, [sets[run.train_config.seed] for run in runs], device)


def randomised(config, seed, dtype):
    """A HookedTransformer whose biases and LayerNorms are away from 0 and 1, so that each counts."""
    model = build_model(config, seed=seed, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.split(".")[-1][0] in "bw" and parameter.requires_grad:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return model


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_gradients_are_hooked_transformers(variant, n_heads, n_layers, dtype, tolerance):
    gammas = (0.6, 0.8) if variant == "plain" else (0.3, 0.6)  # without norms small gammas give huge logits
    configs = [shape(variant, n_heads=n_heads, n_layers=n_layers, gamma=gamma) for gamma in gammas]
    models = [randomised(config, seed, dtype) for seed, config in enumerate(configs)]
    layout = Transformer(configs[0])
    rows = torch.stack([layout.row(dict(model.named_parameters())) for model in models]).detach()
    leaves = {name: leaf.requires_grad_() for name, leaf in layout.merged(rows).items()}
    batches = [TASK.sample(48, seed=seed) for seed in range(2)]
    vocabulary, places = torch.stack([batch.tokens for batch in batches]).unique(return_inverse=True)
    ours = logits_at_end(leaves, configs[0], table_rows(places), vocabulary)[:, :, 0]
    theirs = torch.stack([m(b.tokens)[:, -1] for m, b in zip(models, batches, strict=True)])
    assert ours.dtype == getattr(torch, dtype)
    assert (ours - theirs).abs().max() < tolerance * max(1, theirs.abs().max())

    targets = torch.cat([batch.targets for batch in batches])
    for logits in (ours, theirs):
        functional.cross_entropy(logits.flatten(0, 1), targets).backward()
    grads = torch.cat([leaf.grad.flatten(1) for leaf in leaves.values()], dim=1)
    for name, grad in layout.views(grads).items():
        for k, model in enumerate(models):
            assert (grad[k] - dict(model.named_parameters())[name].grad).abs().max() < tolerance, name
    trained = {name for name, parameter in models[0].named_parameters() if parameter.requires_grad}
    assert set(layout.views(grads)) == trained


class TestTargetsAtEveryPosition:
    """A task of sequences: what is scored is computed, as HookedTransformer does; padding is never seen."""

    N_POS, SCORED = 7, 4

    def batch(self, seed, *, gaps):
        """Sequences of 5 to 7 tokens, the rest padding, scored from position 3 on."""
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, 30, (40, self.N_POS), generator=generator)
        targets = torch.randint(0, 30, (40, self.N_POS), generator=generator)
        targets[:, : self.N_POS - self.SCORED] = IGNORE
        if gaps:
            lengths = torch.randint(5, self.N_POS + 1, (40, 1), generator=generator)
            targets[torch.arange(self.N_POS) >= lengths] = IGNORE
        return TokenBatch(tokens, targets)

    @pytest.mark.parametrize("gaps", [False, True])
    @pytest.mark.parametrize("n_layers", [1, 2])
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_logits_loss_and_gradients_are_hooked_transformers(self, variant, n_layers, gaps):
        configs = [shape(variant, n_layers=n_layers, gamma=gamma) for gamma in (0.3, 0.6)]
        models = [randomised(config, seed, "float64") for seed, config in enumerate(configs)]
        batches = [self.batch(seed, gaps=gaps) for seed in range(2)]
        train = replace(RECIPE, dtype="float64", n_samples=40, batch_size=40)
        stack = Stack([RunConfig(TASK, config, train) for config in configs], batches, CPU)
        with torch.no_grad():
            for k, model in enumerate(models):
                stack._rows[k].copy_(stack.layout.row(dict(model.named_parameters())))
        assert stack.n_last == batches[0].n_last == self.SCORED
        for k, (model, batch) in enumerate(zip(models, batches, strict=True)):
            ours, theirs = stack.model(k)(batch.tokens), model(batch.tokens)
            assert (ours - theirs).abs().max() < 1e-12 * max(1, theirs.abs().max())
            assert (stack.model(k).at_end(3)(batch.tokens) - theirs[:, -3:]).abs().max() < 1e-12 * max(
                1, theirs.abs().max()
            )
        losses = stack._loss(torch.arange(40).repeat(2, 1) + torch.tensor([[0], [40]]))
        grads = torch.cat([g.flatten(1) for g in torch.autograd.grad(losses.sum(), stack.leaves)], dim=1)
        for k, (model, batch) in enumerate(zip(models, batches, strict=True)):
            loss = functional.cross_entropy(
                model(batch.tokens).flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE
            )
            loss.backward()
            assert abs(losses[k] - loss) < 1e-12
            for name, grad in stack.layout.views(grads).items():
                assert (grad[k] - dict(model.named_parameters())[name].grad).abs().max() < 1e-12, name

    def test_padding_is_never_seen(self):
        batch, losses = self.batch(0, gaps=True), []
        padding = (batch.targets == IGNORE) & (torch.arange(self.N_POS) >= self.N_POS - self.SCORED)
        for filler in (31, 32):
            tokens = batch.tokens.masked_fill(padding, filler)
            train = replace(RECIPE, n_samples=40, batch_size=40, dtype="float64")
            run = RunConfig(TASK, shape(gamma=0.4), train)
            stack = Stack([run], [TokenBatch(tokens, batch.targets)], CPU)
            stack.advance(5)
            kept = {
                name: w for name, w in stack.weights(0).items() if name not in ("embed.W_E", "unembed.W_U")
            }
            losses.append((stack.advance(6)[0].loss, kept))
        assert padding.any() and losses[0][0] == losses[1][0]
        assert all(torch.equal(losses[0][1][name], losses[1][1][name]) for name in losses[0][1])

    def test_nothing_to_score_is_refused(self):
        nothing = TokenBatch(torch.zeros(40, 7, dtype=torch.int64), torch.full((40, 7), IGNORE))
        train = replace(RECIPE, n_samples=40, batch_size=40)
        with pytest.raises(ValueError, match="must have a target at some position"):
            Stack([RunConfig(TASK, shape(), train)], [nothing], CPU)

    def test_its_cost_is_counted(self):
        task = AdditionTask(mode="reversed")
        model = ModelConfig.for_task(task, d_model=32, d_head=16, n_heads=2, d_mlp=32)
        train = replace(RECIPE, n_samples=512, batch_size=64)
        last, every = (
            count_cost(RunConfig(replace(task, mode=mode), model, train)) for mode in ("number", "reversed")
        )
        assert last.parameters == every.parameters and last.flops < every.flops


@pytest.mark.parametrize("act_fn", ["gelu", "gelu_new", "relu"])
def test_every_activation(act_fn):
    config = shape(act_fn=act_fn)
    model = randomised(config, 0, "float64")
    layout = Transformer(config)
    tokens = TASK.sample(16).tokens
    parameters = layout.merged(layout.row(dict(model.named_parameters())).unsqueeze(0))
    vocabulary = torch.arange(config.d_vocab)
    ours = logits_at_end(parameters, config, table_rows(tokens).unsqueeze(0), vocabulary)
    assert (ours[0, :, 0] - model(tokens)[:, -1]).abs().max() < 1e-12


@pytest.mark.parametrize("act_fn", ["relu", "gelu"])
def test_answers_of_a_vocabulary_of_their_own(act_fn):
    """The targets 0..10, though the tokens are 0..29."""
    run = RunConfig(TASK, shape("plain", d_vocab_out=11, act_fn=act_fn), replace(RECIPE, dtype="float64"))
    generator = torch.Generator().manual_seed(0)
    tokens, targets = (
        torch.randint(0, n, size, generator=generator) for n, size in ((30, (512, 9)), (11, (512,)))
    )
    stack = Stack([run], [TokenBatch(tokens, targets)], CPU)
    model = stack.layout.build(run.model_config, stack.weights(0), "cpu")
    logits = model(tokens[:64])
    assert logits.shape == (64, 9, 11) and (stack.model(0)(tokens[:64]) - logits).abs().max() < 1e-12
    loss = functional.cross_entropy(logits[:, -1], targets[:64])
    assert abs(stack._loss(torch.arange(64)[None]) - loss) < 1e-12
    stack.advance(RECIPE.total_steps)
    assert stack.weights(0)["unembed.W_U"].shape == (24, 11)


def hooked_transformer_loop(run):
    """The recipe written once more, on HookedTransformer itself: the final model, and the losses."""
    train, data = run.train_config, training_set(run.task, run.train_config)
    model = build_model(run.model_config, seed=train.seed, dtype=train.dtype)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, weight_decay=train.weight_decay, eps=train.eps)
    losses = []
    for step in range(train.total_steps):
        epoch, within = divmod(step, train.steps_per_epoch)
        rows = epoch_order(train, epoch)[within * train.batch_size :][: train.batch_size]
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(train, step)
        loss = functional.cross_entropy(model(data.tokens[rows])[:, -1], data.targets[rows])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, train.clip_norm)
        optimizer.step()
        losses.append(loss.item())
    return model, losses


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_member_is_a_hooked_transformer_trained_alone(variant):
    runs = members(variant)
    stack = stack_of(runs)
    losses = [[] for _ in runs]
    for step in range(RECIPE.total_steps):
        for k, update in enumerate(stack.advance(step + 1)):
            losses[k].append(update.loss)
    for k, run in enumerate(runs):
        model, expected = hooked_transformer_loop(run)
        assert losses[k] == pytest.approx(expected, abs=1e-9)
        weights = stack.weights(k)
        for name, parameter in model.named_parameters():
            # Adam divides by the square root of tiny second moments, which magnifies rounding
            assert (weights[name] - parameter).abs().max() < 1e-6, name


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("float64", 1e-9)])
def test_a_member_in_a_stack_is_the_member_alone(dtype, tolerance):
    runs = members(dtype=dtype)
    together = stack_of(runs)
    together.advance(RECIPE.total_steps)
    for k, run in enumerate(runs):
        alone = stack_of([run])
        alone.advance(RECIPE.total_steps)
        weights = alone.weights(0)
        for name, weight in together.weights(k).items():
            # The scores of a query all move alike with b_K, which the softmax undoes: its gradient is zero,
            # and what Adam scales up to steps is rounding.
            if not name.endswith("b_K") or dtype == "float64":
                assert (weight - weights[name]).abs().max() < tolerance, name
        tokens = TASK.sample(64).tokens
        assert (together.model(k)(tokens) - alone.model(0)(tokens)).abs().max() < tolerance


@pytest.mark.slow
def test_the_final_phase_is_the_same_in_a_stack_and_alone():
    """One member learns its sixty-four sequences by heart, the other is too slow to."""
    recipe = replace(RECIPE, n_samples=64, steps=160, eval_every=160, early_stop_evaluations=None)
    config = ModelConfig(n_layers=1, d_model=64, d_head=32, d_mlp=128, gamma=0.5)
    runs = [RunConfig(TASK, config, replace(recipe, lr=lr)) for lr in (3e-3, 1e-5)]

    def trained(runs):
        together = [Member(run, training_set(run.task, run.train_config), None) for run in runs]
        Loop(together, CPU).run(lambda done, text: None)
        return [member.result.behaviour.phase.label for member in together]

    assert trained(runs) == trained(runs[:1]) + trained(runs[1:]) == ["Phase 1", "undecided: underfit"]


class TestDivergence:
    def runs(self):
        bad = members(dtype="float32")
        bad[1] = bad[1]._replace(train_config=replace(bad[1].train_config, lr=1e38))
        return bad

    def test_it_is_frozen_and_reported_and_touches_no_other(self):
        good, bad = stack_of(members(dtype="float32")), stack_of(self.runs())
        first = bad.advance(4)
        frozen_at = first[1].failed_at
        assert frozen_at is not None and not math.isfinite(first[1].loss)
        before = bad.weights(1)
        updates, expected = bad.advance(12), good.advance(12)
        assert str(updates[1]) == str(first[1]._replace(lr=updates[1].lr))  # NaN is not equal to itself
        assert all(torch.equal(weight, before[name]) for name, weight in bad.weights(1).items())
        for k in (0, 2):
            assert updates[k] == expected[k]
            other = good.weights(k)
            assert all(torch.equal(weight, other[name]) for name, weight in bad.weights(k).items())

    def test_in_the_loop_the_others_end_as_usual(self):
        together = [Member(run, training_set(run.task, run.train_config), None) for run in self.runs()]
        Loop(together, CPU).run(lambda done, text: None)
        assert [member.result.status for member in together] == ["finished", "diverged", "finished"]
        assert "training diverged: loss is" in together[1].result.message
        assert all(w.isfinite().all() for w in together[1].result.checkpoint.weights.values())
        assert [len(member.log) for member in together] == [3, 0, 3]


def test_members_that_end_leave_a_smaller_stack_that_goes_on_to_the_same_weights():
    runs = [
        run._replace(train_config=replace(run.train_config, early_stop_evaluations=2)) for run in members()
    ]
    whole = stack_of(runs)
    whole.advance(24)
    together = [Member(run, training_set(run.task, run.train_config), None) for run in runs]
    loop = Loop(together, CPU)
    loop._advance(set(), lambda done, text: None)
    for k in (0, 2):
        loop._end(k, together[k], "stopped early")
    loop._shrink()
    assert len(loop.stack) == 1 and loop.members == [together[1]]
    loop.run(lambda done, text: None)
    assert together[1].result.status == "finished" and together[0].step == 8
    expected = whole.weights(1)
    for name, weight in together[1].result.checkpoint.weights.items():
        assert torch.allclose(weight, expected[name], atol=1e-9)


def test_restored_members_go_on_to_the_same_bits():
    first = stack_of(members())
    first.advance(10)
    states = [first.state(k) for k in range(3)]
    resumed = stack_of(members())
    resumed.restore(10, states)
    assert resumed.advance(20) == first.advance(20)
    for k in range(3):
        expected = first.weights(k)
        assert all(torch.equal(weight, expected[name]) for name, weight in resumed.weights(k).items())


def test_a_state_stays_as_it_was_when_training_goes_on():
    stack = stack_of(members())
    stack.advance(4)
    state = stack.state(1)
    kept = {name: tensor.clone() for name, tensor in state.items()}
    stack.advance(8)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in state.items())


def test_the_last_good_weights_of_a_member_hold_no_others():
    together = [Member(run, training_set(run.task, run.train_config), None) for run in members()]
    loop = Loop(together, CPU)
    loop._advance(set(), lambda done, text: None)
    for member in together:
        assert member.good[1].untyped_storage().nbytes() == loop.stack.layout.size * 8


def test_members_with_data_of_their_own_learn_from_them():
    runs = members()
    sets = [TASK.sample(512, split="train", seed=seed) for seed in range(3)]
    sets[1] = TokenBatch(sets[1].tokens.clamp(max=60), sets[1].targets)  # of fewer tokens than the others
    together = Stack(runs, sets, CPU)
    found = together.advance(8)
    for k, (run, own) in enumerate(zip(runs, sets, strict=True)):
        assert found[k].loss == pytest.approx(Stack([run], [own], CPU).advance(8)[0].loss, abs=1e-9)


def test_only_the_states_of_the_members_are_restored():
    first = stack_of(members())
    first.advance(4)
    states = [first.state(k) for k in range(3)]
    for step, wrong in ((4, states[:1]), (4, [*states, states[0]]), (-3, states), (0, states), (25, states)):
        with pytest.raises(ValueError, match="of another model"):
            stack_of(members()).restore(step, wrong)
    halved = [{name: tensor.float() for name, tensor in state.items()} for state in states]
    with pytest.raises(ValueError, match="of another model"):
        stack_of(members()).restore(4, halved)


def test_a_restored_stack_has_forgotten_a_divergence():
    good = stack_of(members(dtype="float32"))
    good.advance(4)
    bad = members(dtype="float32")
    bad[1] = bad[1]._replace(train_config=replace(bad[1].train_config, lr=1e38))
    stack = stack_of(bad)
    assert stack.advance(4)[1].failed_at is not None
    stack.restore(4, [good.state(k) for k in range(3)])
    assert all(update.failed_at is None for update in stack.advance(5))


def test_parameters_have_hooked_transformers_names_and_shapes_behind_the_member():
    stack = stack_of(members())
    model = build_model(stack.runs[0].model_config, seed=1, dtype="float64")
    shapes = {name: (3, *parameter.shape) for name, parameter in model.named_parameters()}
    assert {name: tuple(value.shape) for name, value in stack.layout.views(stack._rows).items()} == shapes
    assert torch.equal(stack.layout.views(stack._rows)["blocks.1.attn.W_V"][0], model.blocks[1].attn.W_V)
    assert all(not value.any() for name, value in stack.state(0).items() if name.startswith("exp_avg"))
    stack.advance(1)
    assert not torch.equal(stack.layout.views(stack._rows)["blocks.1.attn.W_V"][0], model.blocks[1].attn.W_V)


def test_members_of_different_shape_are_refused():
    runs = members()
    for other in (
        runs[1]._replace(model_config=shape(d_mlp=48)),
        runs[1]._replace(train_config=replace(runs[1].train_config, steps=25)),
        runs[1]._replace(train_config=replace(runs[1].train_config, batch_size=32)),
    ):
        with pytest.raises(ValueError, match="of equal shape and duration"):
            stack_of([runs[0], other])
    with pytest.raises(ValueError, match="got no run or different runs"):
        Stack([], [], CPU)


@pytest.mark.parametrize("rows", [7, 512, 1040, 1056])
@pytest.mark.parametrize(("d_in", "d_out"), [(24, 40), (40, 24), (33, 201)])
def test_linear_maps_and_their_gradients(rows, d_in, d_out):
    """Against float64; around the sizes where the way of multiplying changes."""
    generator = torch.Generator().manual_seed(0)
    x, w, b = (torch.randn(s, generator=generator) for s in ((2, rows, d_in), (2, d_in, d_out), (2, d_out)))
    weights = torch.randn(2, rows, d_out, generator=generator)
    results = []
    for convert in (torch.Tensor.float, torch.Tensor.double):
        operands = [convert(t).requires_grad_() for t in (x, w, b)]
        y = linear(*operands)
        results.append([y, *torch.autograd.grad((y * convert(weights)).sum(), operands)])
    for ours, exact in zip(*results, strict=True):
        assert torch.allclose(ours.double(), exact, rtol=1e-4, atol=1e-3)


def test_bf16_rounds_and_float32_does_not():
    x, w = torch.randn(1, 64, 32), torch.randn(1, 32, 16)
    exact = torch.bmm(x.double(), w.double())
    errors = [
        (linear(x, w, None, bf16=bf16) - exact).abs().max() / exact.abs().max() for bf16 in (False, True)
    ]
    assert errors[0] < 1e-6 < 1e-4 < errors[1] < 2e-2


@pytest.mark.parametrize("n_queries", [9, 4, 1])
@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("block", [64, 4, 2])
def test_attention_is_torchs(n_queries, n_heads, block, monkeypatch):
    """The queries are those of the last positions, and each sees what stands before it."""
    monkeypatch.setattr(attention_module, "_BLOCK", block)
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(5, n_queries, n_heads, 8, generator=generator, dtype=torch.float64) * 9
    kv = torch.randn(5, 9, 2, n_heads, 8, generator=generator, dtype=torch.float64)
    mix = torch.randn(5, n_queries, n_heads, 8, generator=generator, dtype=torch.float64)
    results = []
    for own in (True, False):
        operands = [q.clone().requires_grad_(), kv.clone().requires_grad_()]
        if own:
            z = attention(*operands)
        else:
            heads = (t.transpose(1, 2) for t in (operands[0], *operands[1].unbind(2)))
            seen = torch.ones(9, 9, dtype=torch.bool).tril()[-n_queries:]
            z = functional.scaled_dot_product_attention(*heads, attn_mask=seen).transpose(1, 2)
        results.append([z, *torch.autograd.grad((z * mix).sum(), operands)])
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_torchs_fused_attention_in_parts_is_ours(monkeypatch):
    """The way taken on CUDA, where a kernel takes so many sequences at once."""
    monkeypatch.setattr(attention_module, "_LARGEST_GRID", 4)
    for n_queries in (9, 4, 1):
        q, kv = torch.randn(5, n_queries, 2, 8), torch.randn(5, 9, 2, 2, 8)
        parts = zip(q.split(2), kv.split(2), strict=True)
        fused = torch.cat([attention_module._fused(*part) for part in parts])
        assert torch.allclose(fused, attention(q, kv), atol=1e-6)


def test_attention_survives_scores_of_any_size():
    q, kv = torch.full((1, 9, 1, 4), 1e15), torch.full((1, 9, 2, 1, 4), 1e15)
    assert torch.allclose(attention(q, kv), kv[:, :, 1])


BARE = """
import sys

missing = ("transformer_lens jaxtyping typer rich filelock safetensors tqdm sklearn plotly circuitsvis "
           "einops loky").split()
sys.modules.update(dict.fromkeys(missing))  # None: as if they were not installed
import torch
from anchorlens.recipes.presets import preset
from anchorlens.engine.engines import Stack
runs = [preset("quick", gamma=g, n_samples=512, d_model=16, d_head=8, d_mlp=16, steps=3) for g in (0.3, 0.7)]
data = runs[0].task.sample(512, split="train", seed=0)
stack = Stack(runs, [data, data], torch.device("cpu"))
assert all(update.loss > 0 for update in stack.advance(3)) and stack.weights(1)
"""


@pytest.mark.slow
def test_the_engine_needs_torch_and_psutil_alone():
    subprocess.run([sys.executable, "-c", BARE], check=True)


@pytest.mark.gpu
class TestOnAGpu:
    """The update as a captured graph."""

    def test_is_what_the_cpu_computes(self):
        cpu, gpu = stack_of(members()), stack_of(members(), torch.device("cuda"))
        for stop in (5, 13, 24):  # over the ends of epochs
            for ours, theirs in zip(gpu.advance(stop), cpu.advance(stop), strict=True):
                assert ours.failed_at is theirs.failed_at is None
                assert ours[:3] == pytest.approx(theirs[:3], rel=1e-6)
        for k in range(3):
            weights = cpu.weights(k)
            for name, weight in gpu.weights(k).items():
                assert torch.allclose(weight.cpu(), weights[name], atol=1e-6), name

    def test_waits_for_the_device_only_to_report(self):
        stack = stack_of(members(), torch.device("cuda"))
        stack.advance(2)  # and six updates of the epoch are left
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(4):
                stack._update_once()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_a_diverging_member_touches_no_other(self):
        bad = members(dtype="float32")
        bad[1] = bad[1]._replace(train_config=replace(bad[1].train_config, lr=1e38))
        stacks = [stack_of(runs, torch.device("cuda")) for runs in (members(dtype="float32"), bad)]
        good, updates = (stack.advance(12) for stack in stacks)
        assert updates[1].failed_at is not None
        for k in (0, 2):
            assert updates[k].loss == pytest.approx(good[k].loss, rel=1e-4)

    @pytest.mark.parametrize("matmul", ["tf32", "bf16"])
    def test_lower_precision_is_close(self, matmul):
        runs = members(dtype="float32")
        low = [run._replace(train_config=replace(run.train_config, matmul=matmul)) for run in runs]
        exact, rounded = (stack_of(r, torch.device("cuda")).advance(1) for r in (runs, low))
        for k in range(3):
            assert rounded[k].loss == pytest.approx(exact[k].loss, rel=2e-2)

    def test_attention_on_both_devices(self):
        q, kv = torch.randn(4, 9, 2, 8), torch.randn(4, 9, 2, 2, 8)
        ours = attention(q.cuda(), kv.cuda()).cpu()
        assert np.allclose(ours, attention(q, kv), atol=1e-5)

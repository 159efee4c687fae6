"""Holdout, on models that were trained on a rule or on random labels, and on copies that forget nothing."""

import json

import numpy as np
import pytest
import torch
from known_fits import CONFIG, PAIRS, RANDOM, copier_of, fitted, memoriser_of
from known_models import ARCHITECTURES, own_answers, user_built

from anchorlens import AnchorTask, ModelConfig, build_model, load_checkpoint, preset, train
from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.models.config import VARIANTS
from anchorlens.probes import COSTLY, PROBES, REPORT_PROBES, SHIPPED
from anchorlens.probes.any_model.holdout import holdout
from anchorlens.probes.shared.parameters import Copies
from anchorlens.training import checkpoints

hardly_trained = pytest.mark.usefixtures("few_updates")
FEW = {"n_copies": 1, "batch_size": 8, "lr": 1e-7}
SHIPPED_MODELS = {path.stem: path for path in checkpoints.shipped()}


@pytest.fixture(scope="module")
def memoriser(tmp_path_factory):
    """A model that has fit random labels, which no rule gives."""
    return memoriser_of(tmp_path_factory)


class TestKnownAnswers:
    def test_random_labels_are_forgotten(self, memoriser):
        found = holdout(memoriser, training_set=(PAIRS, RANDOM), related=False)
        assert found.holdout_ratio <= 0.5 and found.others > 0.8 and 0 < found.dose < 5
        assert (found.left_out_accuracies[0] == 1).all() and found.n_left_out == 40

    def test_a_rule_survives(self, tmp_path_factory):
        """The answer is the first token, whatever the second is."""
        found = holdout(copier_of(tmp_path_factory), training_set=(PAIRS, PAIRS[:, 0]), related=False)
        assert found.holdout_ratio >= 0.85 and found.ratio_at_20 >= 0.85 and found.others > 0.8

    def test_of_a_rule_with_exceptions_the_exceptions_alone_are_forgotten(self):
        """The rule of before, and one sequence in twenty with a random label."""
        which = np.arange(400) % 20 == 7
        targets = torch.where(torch.from_numpy(which), RANDOM, PAIRS[:, 0])
        model = fitted(PAIRS, targets, 300)
        assert holdout(model, training_set=(PAIRS, targets), which=which).holdout_ratio <= 0.7
        of_the_rule = ~which & (np.arange(400) % 20 == PAIRS[:, 0].numpy())
        assert holdout(model, training_set=(PAIRS, targets), which=of_the_rule).holdout_ratio >= 0.85

    def test_nothing_is_forgotten_where_nothing_is_trained(self, memoriser):
        found = holdout(memoriser, training_set=(PAIRS, RANDOM), lr=1e-7, weight_decay=0)
        assert (found.ratios == 1).all() and found.holdout_ratio == found.others == 1 and found.dose == 0

    def test_the_dose_is_the_whole_decay_where_every_batch_is_answered(self, memoriser):
        assert holdout(memoriser, training_set=(PAIRS, RANDOM), **FEW).dose == 5

    def test_no_ratio_is_read_where_the_others_are_lost(self, memoriser):
        found = holdout(memoriser, training_set=(PAIRS, RANDOM), lr=0.5, weight_decay=1)
        assert found.lr == 0.125 and found.weight_decay == 4
        assert found.others < 0.8 and found.holdout_ratio is None and np.isnan(found.ratios[-1]).any()
        assert found.headline().startswith("no ratio: accuracy 0.") and found.plot().to_json()

    @pytest.mark.parametrize(
        "name",
        [
            "phase3",
            pytest.param("phase2", marks=pytest.mark.slow),
            pytest.param("phase2-commutative", marks=pytest.mark.slow),
        ],
    )
    def test_the_shipped_models(self, name):
        """They learnt something that more sequences need; Phase 1, in the example of `holdout`, did not."""
        assert holdout(SHIPPED_MODELS[name], related=False).holdout_ratio >= 0.85

    @pytest.mark.slow
    @pytest.mark.parametrize(("gamma", "decay"), [(0.3, 0.0), (0.7, 0.1)])
    def test_sums_in_reversed_digits(self, gamma, decay):
        """Of these two recipes the first memorises 1,559 sums, and the second learns addition.

        Some digits of a sum follow a rule in the first too, so that it reads more than random labels.
        """
        recipe = {"gamma": gamma, "weight_decay": decay, "n_held_out": 8000, "steps": 1500}
        found = train(*preset("addition-reversed", **recipe), progress=False)
        ratio = holdout(found).holdout_ratio
        assert ratio < 0.85 if decay == 0 else ratio >= 0.95

    @pytest.mark.slow
    def test_grokked_addition_modulo_29(self):
        """Every trained pair in every update, with decay, until the pairs held out are answered."""
        sizes = {"modulus": 29, "trained_share": 0.8, "d_vocab": 30, "d_vocab_out": 29, "d_mlp": 128}
        recipe = {"n_samples": 673, "batch_size": 673, "steps": 2000, "eval_every": 2000}
        found = train(*preset("grokking-quick", **sizes, **recipe), progress=False)
        assert found.behaviour.measure("id").value >= 0.95
        assert holdout(found).holdout_ratio >= 0.95

    @pytest.mark.slow
    def test_exceptions_of_a_composing_model(self):
        """60 of the 1,200 (key, pair) have a random answer: 5 % of the training set."""
        found = train(*preset("phase3", n_exceptions=60), progress=False)
        task, sequences = found.checkpoint.task, found.checkpoint.training_set().tokens.tolist()
        exceptions = {(one.key, *one.pair) for one in task.exceptions}
        at = [next(k for k, token in enumerate(row) if token in task.anchors) for row in sequences]
        asked = [tuple(row[k - 1 : k + 2]) for k, row in zip(at, sequences, strict=True)]
        which = np.array([one in exceptions for one in asked])
        assert holdout(found, which=which).holdout_ratio <= 0.7
        assert holdout(found, which=~which & (np.arange(len(which)) % 10 == 3)).holdout_ratio >= 0.85


class TestTrainingData:
    @hardly_trained
    def test_a_checkpoint_knows_its_own(self, memoriser):
        checkpoint = load_checkpoint(SHIPPED_MODELS["phase1"])
        own = holdout(checkpoint, related=False, **FEW)
        data = checkpoint.training_set()
        given = holdout(checkpoint.build_model(), training_set=data, related=False, **FEW)
        assert own.to_dict() == given.to_dict() and own.n_distinct == 5000 and own.n_left_out == 500

    @hardly_trained
    def test_of_a_task_they_are_drawn(self):
        """Phase 1 knows its own training set alone, and Phase 3 other noise as well."""
        model, task = load_checkpoint(SHIPPED_MODELS["phase3"]).build_model(), AnchorTask()
        assert holdout(model, task, related=False, **FEW).n_distinct > 9000
        with pytest.raises(ValueError, match=r"training accuracy.*0.9, got 0.0"):
            holdout(load_checkpoint(SHIPPED_MODELS["phase1"]).build_model(), task, **FEW)

    @hardly_trained
    def test_a_file(self, memoriser, tmp_path):
        np.savez(tmp_path / "data.npz", tokens=PAIRS.numpy(), targets=RANDOM.numpy())
        found = holdout(memoriser, training_set=str(tmp_path / "data.npz"), **FEW)
        assert found.to_dict() == holdout(memoriser, training_set=(PAIRS, RANDOM), **FEW).to_dict()

    @hardly_trained
    def test_equal_sequences_count_once(self, memoriser):
        twice = (torch.cat([PAIRS, PAIRS.flip(0)]), torch.cat([RANDOM, RANDOM.flip(0)]))
        found = holdout(memoriser, training_set=twice, **FEW)
        assert found.to_dict() == holdout(memoriser, training_set=(PAIRS, RANDOM), **FEW).to_dict()

    @hardly_trained
    def test_sequences_are_scored_by_tokens(self):
        """Targets at two positions, the model's own answers; then every 20th first one, and all, are not."""
        model = build_model(CONFIG)
        tokens = PAIRS[torch.randperm(400, generator=torch.Generator().manual_seed(0))[:250]]
        targets = model(tokens).argmax(dim=-1)
        targets[:, 0] = -100
        found = holdout(model, training_set=(tokens, targets), **FEW)
        assert found.holdout_ratio == found.others == 1
        answers = targets.clone()
        targets[::20, 1] = (targets[::20, 1] + 1) % 20
        few = holdout(model, training_set=(tokens, targets), n_sequences=250, **FEW)
        assert few.other_accuracies[0, 0] == pytest.approx(1 - 13 / 500, abs=0.01)
        targets[:, 1] = (answers[:, 1] + 1) % 20
        with pytest.raises(ValueError, match="got 0.50"):
            holdout(model, training_set=(tokens, targets), **FEW)

    def test_chance_is_subtracted(self):
        """Three answers to random labels: what is forgotten is still answered once in three."""
        targets = RANDOM % 3
        found = holdout(fitted(PAIRS, targets, 600), training_set=(PAIRS, targets), related=False)
        assert 0.25 < found.chance < 0.5 and found.holdout_ratio <= 0.6
        left, others = found.left_out_accuracies[-1], found.other_accuracies[-1]
        assert (left / others).mean() > found.holdout_ratio + 0.1

    def test_no_ratio_is_read_where_the_last_token_says_the_answer(self):
        tokens = PAIRS.flip(1)
        found = holdout(fitted(tokens, tokens[:, -1], 100), training_set=(tokens, tokens[:, -1]))
        assert found.chance == 1 and found.holdout_ratio is None and found.others > 0.9

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({}, "holdout must get the training data"),
            ({"training_set": (PAIRS[:199], RANDOM[:199])}, "at least 200 distinct sequences, got 199"),
            ({"training_set": (PAIRS[:1].repeat(300, 1), RANDOM[:1].repeat(300))}, "got 1. Use more"),
            ({"training_set": (PAIRS, (RANDOM + 1) % 20)}, "must be at least 0.9, got 0.0"),
            ({"training_set": (PAIRS + 1, RANDOM)}, r"must be in 0\.\.19"),
            ({"training_set": (PAIRS.repeat(1, 2), RANDOM)}, "n_ctx"),
            ({"training_set": "a model"}, "a model"),
            ({"which": np.ones(400, bool)}, "`which` must be a bool mask .* 400 true"),
            ({"which": np.zeros(400, bool)}, "`which` must be .* 0 true"),
            ({"which": np.arange(400)}, "`which` must be a bool mask .* got int64"),
            ({"n_copies": 11}, "n_copies"),
            ({"lr": 0}, "lr"),
            ({"weight_decay": -1}, "weight_decay"),
            ({"batch_size": 0}, "batch_size"),
            ({"n_sequences": 0}, "n_sequences"),
            ({"seed": -1}, "seed"),
        ],
    )
    def test_what_is_refused(self, memoriser, options, match):
        data = {} if not options else {"training_set": (PAIRS, RANDOM)}
        with pytest.raises(ValueError, match=match) as error:
            holdout(memoriser, **{**data, **options})
        assert "\n" not in str(error.value)

    def test_a_task_that_the_model_cannot_read(self):
        with pytest.raises(ValueError, match="d_vocab"):
            holdout(build_model(CONFIG), AdditionTask())

    def test_answers_that_the_model_cannot_give(self):
        model = user_built(d_vocab_out=7)
        tokens, answers = own_answers(model)
        with pytest.raises(ValueError, match=r"targets.*below d_vocab_out.*7"):
            holdout(model, training_set=(tokens, answers + 7), **FEW)


class TestCopies:
    @pytest.mark.parametrize("fields", [{}, {"num_experts": 2}, {"act_fn": "relu"}])
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_the_engine_computes_our_variants(self, variant, fields):
        config = ModelConfig(**{**CONFIG.to_dict(), "variant": variant, **fields})
        copies = Copies(build_model(config).eval(), 2, PAIRS)
        assert copies.config.variant == variant and copies.config.activation == config.activation

    @hardly_trained
    @pytest.mark.parametrize("fields", ARCHITECTURES.values(), ids=ARCHITECTURES)
    def test_any_hooked_transformer(self, fields):
        model = user_built(**fields)
        data = own_answers(model)
        is_ours = fields in ({}, {"normalization_type": "LN"})
        assert (Copies(model.eval(), 1, data[0]).config is not None) == is_ours
        assert holdout(model, training_set=data, **FEW).others > 0.9  # ties are near

    @hardly_trained
    def test_a_hook_that_changes_the_answers_is_kept(self, memoriser):
        """The module computes the copies, with the hook."""
        memoriser.unembed.register_forward_hook(lambda module, args, out: out.roll(1, dims=-1))
        try:
            assert Copies(memoriser, 1, PAIRS).config is None
            found = holdout(memoriser, training_set=(PAIRS, (RANDOM + 1) % 20), **FEW)
            assert found.holdout_ratio == 1 and len(memoriser.unembed._forward_hooks) == 1
        finally:
            memoriser.unembed._forward_hooks.clear()

    @pytest.mark.parametrize("in_engine", [True, False])
    def test_updates_are_those_of_torchs_optimizer(self, memoriser, in_engine):
        """Two copies with a decay each, against torch.optim.AdamW on models of their own."""
        models = [build_model(CONFIG) for _ in range(2)]
        copies = Copies(models[0], 2, PAIRS)
        if not in_engine:
            copies.config = None
            copies.weights = {
                name: weight.detach().repeat(2, *[1] * weight.dim()).requires_grad_()
                for name, weight in models[0].named_parameters()
            }
        decays = (0.0, 5.0)
        theirs = [
            torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=decay)
            for model, decay in zip(models, decays, strict=True)
        ]
        tokens, targets = PAIRS.unflatten(0, (2, 200)), RANDOM.unflatten(0, (2, 200))
        for _ in range(3):
            losses = copies.answers(tokens, targets).losses
            copies.update(losses, 1e-2, torch.tensor(decays))
            for k, one in enumerate(theirs):
                one.zero_grad()
                torch.nn.functional.cross_entropy(models[k](tokens[k])[:, -1], targets[k]).backward()
                one.step()
        for k, model in enumerate(models):
            loss = torch.nn.functional.cross_entropy(model(tokens[k])[:, -1], targets[k])
            assert abs(copies.answers(tokens, targets).losses[k] - loss) < 1e-4


def test_no_copy_is_trained_on_what_it_leaves_out(memoriser):
    """The module computes the copies, since a hook changes the logits."""
    seen, which = [], np.arange(400) % 10 == 3
    hooks = [
        memoriser.embed.register_forward_pre_hook(lambda module, args: seen.append(args[0])),
        memoriser.unembed.register_forward_hook(lambda module, args, out: 2 * out),
    ]
    try:
        holdout(memoriser, training_set=(PAIRS, RANDOM), which=which, n_copies=2, batch_size=100)
    finally:
        for hook in hooks:
            hook.remove()
    left_out = {tuple(row) for row in PAIRS[torch.from_numpy(which)].tolist()}
    batches = [{tuple(row) for row in tokens.tolist()} for tokens in seen if len(tokens) == 100]
    assert len(batches) == 2 * 100 and not any(batch & left_out for batch in batches)
    assert set.union(*batches) == {tuple(row) for row in PAIRS.tolist()} - left_out


def test_it_repeats_bit_for_bit_and_leaves_the_model_as_it_was():
    model = build_model(CONFIG).train()
    tokens, targets = own_answers(model, n_pos=3)
    model.embed.W_E.requires_grad_(False)
    state = torch.get_rng_state(), np.random.get_state()[1].tolist()
    before = {name: (weight.clone(), weight.requires_grad) for name, weight in model.named_parameters()}
    first, again = (holdout(model, training_set=(tokens, targets), n_copies=2).to_dict() for _ in range(2))
    assert first == again != holdout(model, training_set=(tokens, targets), seed=1).to_dict()
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name][0]) and weight.requires_grad == before[name][1]
        assert weight.grad is None
    assert model.training and all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state[0]) and np.random.get_state()[1].tolist() == state[1]
    assert torch.is_grad_enabled() and not torch.are_deterministic_algorithms_enabled()


def test_it_is_costly_and_not_among_the_probes_of_every_model():
    assert holdout in COSTLY and holdout in SHIPPED and holdout not in (*PROBES, *REPORT_PROBES)

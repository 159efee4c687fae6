import json
import math

import numpy as np
import pytest
import torch

from anchorlens.models.config import ModelConfig
from anchorlens.models.hooked import build_model
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.tasks.shared.phases import phase_by_definition
from anchorlens.tasks.two_anchor.behaviour import AnchorEvaluation, evaluate, quick_accuracies
from anchorlens.tasks.two_anchor.task import AnchorTask


def oracle(answer):
    """A model that finds key and anchors by itself and answers `answer(x, a1, a2, i, tokens)`."""

    def model(tokens):
        replies = []
        for sequence in tokens.tolist():
            i = next(p for p, token in enumerate(sequence) if token < 20) - 1
            replies.append(answer(sequence[i], sequence[i + 1], sequence[i + 2], i, sequence))
        logits = torch.zeros(*tokens.shape, 201)
        logits[range(len(replies)), -1, replies] = 1.0
        return logits

    return model


SHIFT = {1: 5, 2: 1, 3: -2, 4: -8}


def rules(x, a, b, i, tokens):
    return x + SHIFT[a] + SHIFT[b]


def no_unseen(x, a, b, i, tokens):
    """Right on seen pairs; on (3, 4) and (4, 3) the same wrong answer."""
    return x - 6 if {a, b} == {3, 4} else rules(x, a, b, i, tokens)


def two_ways(x, a, b, i, tokens):
    """Right on seen pairs; on (3, 4) and (4, 3) two different wrong answers."""
    return {(3, 4): x - 6, (4, 3): x - 7}.get((a, b), rules(x, a, b, i, tokens))


def memoriser(x, a, b, i, tokens):
    """Knows the trained cells only."""
    return rules(x, a, b, i, tokens) if x % 9 != i % 9 and {a, b} != {3, 4} else 0


def inconsistent(x, a, b, i, tokens):
    """Wrong on a fifth of the held-out cells, right on unseen pairs."""
    held_out = x % 9 == i % 9 and {a, b} != {3, 4}
    return 0 if held_out and x % 5 == 0 else rules(x, a, b, i, tokens)


@pytest.mark.parametrize(
    ("answer", "label", "numbers"),
    [
        (rules, "Phase 3", (1, 1, 1, 1)),
        (no_unseen, "Phase 2 with commutativity", (1, 1, 0, 1)),
        (two_ways, "Phase 2 without commutativity", (1, 1, 0, 0)),
        (memoriser, "Phase 1", (1, 0, 0, 1)),
        (inconsistent, "undecided: inconsistent", (1, 0.8, 1, 1)),
        (lambda *_: 0, "undecided: training data unknown", (0, 0, 0, 1)),
    ],
)
def test_known_solutions_get_their_phase(answer, label, numbers):
    result = evaluate(oracle(answer), AnchorTask(), n_noise=2)
    assert result.phase.label == label
    found = [result.train.value, result.id.value, result.ood.value, result.commutativity.value]
    assert found == pytest.approx(numbers, abs=0.05)
    assert result.symmetric is None  # both orders are unseen: there is no trained mirror


@pytest.mark.parametrize(
    ("unseen_answer", "symmetric", "ood", "label"),
    [
        (-6, 1.0, 0.0, "symmetric solution"),
        (-10, 0.0, 1.0, "inferential solution"),
        (-9, 0.0, 0.0, "neither solution"),
    ],
)
def test_symmetric_solution_of_the_conflict_regime(unseen_answer, symmetric, ood, label):
    def answer(x, a, b, i, tokens):
        return {(3, 4): x - 6, (4, 3): x + unseen_answer}.get((a, b), rules(x, a, b, i, tokens))

    result = evaluate(oracle(answer), AnchorTask(regime="conflict"), n_noise=2)
    assert (result.symmetric.value, result.ood.value) == (symmetric, ood)
    assert result.symmetric.n_sequences == 80 * 7 * 2  # keys x positions x noise of (4, 3) alone
    assert result.commutativity.value == symmetric
    assert result.phase.label == label


def test_symmetric_accuracy_needs_a_mirror_with_another_target():
    # (3, 4) is trained on the composition: mirrored and inferential targets are the same number
    assert evaluate(oracle(rules), AnchorTask(unseen_pairs=[(4, 3)]), n_noise=2).symmetric is None


def test_every_cell_is_asked():
    task = AnchorTask()
    asked = []

    def recording(x, a, b, i, tokens):
        asked.append(((a, b), x, i))
        return rules(x, a, b, i, tokens)

    evaluate(oracle(recording), task, n_noise=2, max_trials=20_000)
    assert set(asked) == {cell for split in ("train", "id", "ood") for cell in task.trials(split)}


def test_accuracy_of_a_pair_and_of_its_splits():
    def one_bad_pair(x, a, b, i, tokens):
        return 0 if (a, b) == (1, 2) else rules(x, a, b, i, tokens)

    result = evaluate(oracle(one_bad_pair), AnchorTask(), n_noise=2)
    by_pair = {(p.pair, p.split): p.accuracy.value for p in result.pairs}
    assert len(by_pair) == 16
    assert by_pair[(1, 2), "id"] == 0 and by_pair[(2, 1), "id"] == 1 and by_pair[(3, 4), "ood"] == 1
    assert result.id.value == pytest.approx(13 / 14)


def test_deviations_are_answer_minus_target():
    def three_too_many(x, a, b, i, tokens):
        return rules(x, a, b, i, tokens) + (3 if {a, b} == {3, 4} else 0)

    off = evaluate(oracle(three_too_many), AnchorTask(), n_noise=2)
    assert off.deviations["id"] == {0: 1.0}
    assert off.deviations["ood"] == {3: 1.0}


def test_standard_error_by_hand():
    # two cells with 2 draws: shares 1/2 and 1. Variance of one draw in the first cell, unbiased:
    # 1/2 * 1/2 * 2/1 = 1/2; of the sum of its 2 draws 1. One right and one wrong draw are added: of then 6
    # draws 4 are right, and the two deviate by 1/3 and 2/3. So it is (1 + 1/9 + 4/9) / 6^2 for the mean
    accuracy = Accuracy.of_draws(np.array([[True, False], [True, True]]))
    assert (accuracy.value, accuracy.n_sequences) == (0.75, 4)
    assert accuracy.standard_error == pytest.approx(np.sqrt(14 / 9) / 6)


def test_a_few_answers_have_a_standard_error_also_if_all_are_right():
    # k + 1 of n + 2: for 1 of 1 p = 2/3, and p (1 - p) / 3 = 2/27; for 5 of 5 p = 6/7, and 6/49 / 7
    assert Accuracy.of_some(np.ones(1, bool)).standard_error == pytest.approx(np.sqrt(2 / 27))
    assert Accuracy.of_some(np.ones(5, bool)).standard_error == pytest.approx(np.sqrt(6 / 343))
    assert Accuracy.of_some(np.zeros(5, bool)).standard_error == pytest.approx(np.sqrt(6 / 343))
    # a random choice of questions: their shares 1, 1, and 0 and 1 added; the variance of 1, 1, 0, 1 is 1/4
    chosen = Accuracy.of_draws(np.ones((2, 8), bool), whole=False)
    assert chosen.standard_error == pytest.approx(np.sqrt(1 / 4 / 4))
    # 0 only where all that exist were asked: each once without noise, or as many as there are
    assert Accuracy.of_draws(np.ones((2, 1), bool)).standard_error == 0
    assert Accuracy.of_some(np.ones(5, bool), of=5).standard_error == 0
    assert 0 < Accuracy.of_draws(np.ones((2, 8), bool)).standard_error < 0.06


@pytest.mark.parametrize("n", [1, 2, 5, 17, 18, 100])
def test_how_many_right_answers_are_clearly_above_the_threshold(n):
    clear = Accuracy.of_some(np.ones(n, bool))
    assert (1 - 2 * clear.standard_error > 0.90) == (n >= 18)
    phase = phase_by_definition(clear, 1.0, 1.0, None, standard_errors=2)
    assert phase.label == ("Phase 3" if n >= 18 else "undecided: borderline")


@pytest.mark.parametrize("name", ["id", "ood", "commutativity"])
def test_standard_error_is_the_spread_over_seeds(name, noisy_runs):
    values = np.array([getattr(run, name).value for run in noisy_runs])
    stated = np.mean([getattr(run, name).standard_error for run in noisy_runs])
    # the spread of 60 values is itself known to 1 / sqrt(2 * 60) = 9 %: three of these
    assert values.std(ddof=1) == pytest.approx(stated, rel=0.28)


@pytest.fixture(scope="module")
def noisy_runs():
    """A model that looks at the noise: right for an even sum of all tokens, else off by the second anchor."""
    task = AnchorTask()
    rows = torch.arange(100_000)

    def model(tokens):
        n = rows[: len(tokens)]
        first = (tokens < 20).int().argmax(dim=1)  # position of the first anchor
        x, a, b = (tokens[n, first + offset] for offset in (-1, 0, 1))
        shift = torch.tensor([0, 5, 1, -2, -8])
        answer = x + shift[a] + shift[b] + b * (tokens.sum(dim=1) % 2)
        logits = torch.zeros(*tokens.shape, 201)
        logits[n, -1, answer] = 1.0
        return logits

    return [evaluate(model, task, n_noise=2, seed=seed) for seed in range(60)]


def test_without_noise_the_numbers_are_exact():
    task = AnchorTask(seq_len=3, split_modulus=4)
    result = evaluate(oracle(rules), task)
    assert result.ood.standard_error == result.id.standard_error == 0
    assert result.ood.n_sequences == 2 * 80


def test_a_large_task_is_asked_on_a_random_choice_of_cells():
    task = AnchorTask(chain_length=3, seq_len=8, key_min=40)

    def wrong_for_even_keys(tokens):
        logits = torch.zeros(*tokens.shape, 201)
        for row, sequence in enumerate(tokens.tolist()):
            i = next(p for p, token in enumerate(sequence) if token < 40) - 1
            key, chain = sequence[i], tuple(sequence[i + 1 : i + 4])
            logits[row, -1, 0 if key % 2 == 0 else task.inferential_target(key, chain)] = 1.0
        return logits

    result = evaluate(wrong_for_even_keys, task, n_noise=2, max_trials=500)
    assert result.id.n_sequences == result.ood.n_sequences == 1000
    # the draws of a cell agree, so the error is that of 500 coins: sqrt(1/4 / 500) = .022
    assert result.ood.standard_error == pytest.approx(0.5 / np.sqrt(500), rel=0.02)
    assert abs(result.ood.value - 0.5) < 5 * result.ood.standard_error


def test_mirrored_pairs_get_the_same_noise():
    result = evaluate(oracle(lambda x, a, b, i, tokens: sum(tokens) % 201), AnchorTask(), n_noise=2)
    assert result.commutativity.value == 1.0  # the sum is the same in both orders only for equal noise
    by_order = evaluate(oracle(lambda x, a, b, i, t: (sum(t) + a) % 201), AnchorTask(), n_noise=2)
    assert by_order.commutativity.value == 0.0


def test_train_accuracy_is_on_the_training_set_when_it_is_known():
    task = AnchorTask()
    data = task.sample(500, seed=7)
    known = {tuple(tokens) for tokens in data.tokens.tolist()}

    def by_heart(x, a, b, i, tokens):
        return rules(x, a, b, i, tokens) if tuple(tokens) in known else 0

    result = evaluate(oracle(by_heart), task, training_set=data, n_noise=2)
    assert (result.train.value, result.train.n_sequences) == (1.0, 500)
    assert result.train.standard_error == pytest.approx(1 / 501, rel=0.01)  # 500 of very many, all right
    assert result.train_fresh.value == 0.0
    assert result.phase.label == "Phase 1"
    fresh = evaluate(oracle(by_heart), task, n_noise=2)
    assert fresh.train_source == "fresh noise" and fresh.phase.cause == "training data unknown"
    nothing = evaluate(oracle(lambda *_: 0), task, training_set=data, n_noise=2)
    assert nothing.train_source == "training set" and nothing.phase.label == "undecided: underfit"


def test_a_task_without_unseen_pairs_has_no_phase():
    result = evaluate(oracle(rules), AnchorTask(complexity=0), n_noise=2)
    assert result.ood is result.commutativity is result.symmetric is None
    assert result.phase.label == "undecided: no unseen pair"


def test_a_pair_of_equal_anchors_has_no_mirror():
    result = evaluate(oracle(rules), AnchorTask(unseen_pairs=[(3, 3)]), n_noise=2)
    assert result.commutativity is None and result.phase.label == "Phase 3"


def test_logits_that_are_not_finite_give_no_phase():
    result = evaluate(lambda tokens: oracle(rules)(tokens) / 0.0 * 0.0, AnchorTask(), n_noise=2)
    assert not result.finite and result.phase.label == "undecided: not finite"


def test_every_submodule_keeps_its_mode():
    model = build_model(ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16)).train()
    model.blocks[0].eval()
    model.extra = torch.nn.Dropout(0.5)
    modes = [module.training for module in model.modules()]
    asked = []
    model.embed.register_forward_pre_hook(lambda *_: asked.append(any(m.training for m in model.modules())))
    evaluate(model, AnchorTask(), n_noise=2)
    assert asked and not any(asked)
    assert [module.training for module in model.modules()] == modes


def test_the_training_set_may_be_in_any_order():
    task = AnchorTask()
    sequences = task.sequences(task.trials("train"))  # pair after pair
    result = evaluate(
        oracle(lambda x, a, *rest: 0 if a == 4 else rules(x, a, *rest)), task, training_set=sequences
    )
    truth = np.mean(sequences.trials.pairs[:, 0] != 4)
    assert abs(result.train.value - truth) < 5 * result.train.standard_error


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key_max": 400}, "d_vocab of the model must be at least 411"),
        ({"seq_len": 12}, "n_ctx of the model must be at least 12"),
    ],
)
def test_a_model_too_small_for_the_task_is_refused(fields, message):
    model = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16))
    with pytest.raises(ValueError, match=message):
        evaluate(model, AnchorTask(**fields), n_noise=2)


def test_a_model_is_left_as_it_was():
    model = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16)).train()
    before = {name: p.clone() for name, p in model.named_parameters()}
    state = torch.get_rng_state()
    evaluate(model, AnchorTask(), n_noise=2)
    assert model.training and all(p.grad is None for p in model.parameters())
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_repeats_bit_for_bit_and_is_json_ready():
    model = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16, gamma=0.2))
    a, b, c = (evaluate(model, AnchorTask(), n_noise=2, seed=s).to_dict() for s in (0, 0, 1))
    assert a == b and a != c
    assert json.loads(json.dumps(a, allow_nan=False)) == a


def test_quick_accuracies_are_the_same_numbers():
    data = AnchorTask().sample(300, seed=0)
    numbers = quick_accuracies(oracle(two_ways), AnchorTask(), data)
    assert numbers == {"train_accuracy": 1.0, "id_accuracy": 1.0, "ood_accuracy": 0.0}
    none = quick_accuracies(oracle(rules), AnchorTask(complexity=0), data)
    assert none["ood_accuracy"] is None


@pytest.mark.parametrize(
    ("train", "id", "ood", "commutativity", "label"),
    [
        (0.90, 0.90, 0.50, 0.70, "Phase 2 with commutativity"),  # every threshold itself
        (0.90, 0.90, 0.50, 0.6999, "Phase 2 without commutativity"),
        (0.90, 0.90, 0.5001, 0.0, "Phase 3"),
        (0.90, 0.8999, 0.50, 1.0, "Phase 1"),
        (0.90, 0.8999, 0.5001, 1.0, "undecided: inconsistent"),
        (0.8999, 1.0, 1.0, 1.0, "undecided: underfit"),
        (1.0, 1.0, None, None, "undecided: no unseen pair"),
        (1.0, 1.0, 0.1, None, "Phase 2"),
        (1.0, math.nan, 0.1, 0.1, "undecided: not finite"),
    ],
)
def test_the_definition_at_its_thresholds(train, id, ood, commutativity, label):
    assert phase_by_definition(train, id, ood, commutativity).label == label
    unknown = phase_by_definition(train, id, ood, commutativity, train_source="fresh noise")
    assert unknown.label == label.replace("underfit", "training data unknown")


@pytest.mark.parametrize(
    ("train", "id", "ood", "label"),
    [
        (0.95, 0.95, 0.75, "Phase 2"),  # every threshold itself, half of the way to 1 further up
        (0.95, 0.95, 0.7501, "Phase 3"),
        (0.95, 0.9499, 0.75, "Phase 1"),
        (1.0, 0.50, 0.51, "Phase 1"),  # at chance
        (0.9499, 1.0, 1.0, "undecided: underfit"),
    ],
)
def test_what_is_right_by_chance_counts_for_nothing(train, id, ood, label):
    assert phase_by_definition(train, id, ood, None, chance=0.5).label == label


def test_a_number_is_near_to_the_threshold_that_chance_moved():
    near = {ood: Accuracy(ood, 0.01, 2000) for ood in (0.51, 0.74)}
    found = {
        ood: phase_by_definition(1.0, 1.0, one, None, chance=0.5, standard_errors=2)
        for ood, one in near.items()
    }
    assert found[0.51].number == 2 and found[0.74].cause == "borderline"
    assert "of 0.75" in found[0.74].reason


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (lambda tokens: tokens, {}, "logits [batch, pos, d_vocab >= 110]"),
        (lambda tokens: torch.zeros(*tokens.shape, 50), {}, "d_vocab >= 110] for tokens [868, 9]"),
        (oracle(rules), {"n_noise": 1}, "n_noise must be an integer >= 2, got 1"),
        (oracle(rules), {"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
    ],
)
def test_bad_input_says_what_is_wrong(model, options, message):
    with pytest.raises(ValueError) as error:
        evaluate(model, AnchorTask(), **{"batch_size": 868, **options})
    assert message in str(error.value)


def test_repr_is_one_line_with_the_phase():
    result = evaluate(oracle(rules), AnchorTask(), n_noise=2)
    assert isinstance(result, AnchorEvaluation)
    assert repr(result) == "AnchorEvaluation(Phase 3; train 1.000, ID 1.000, OOD 1.000)"


def test_each_half_of_the_unseen_pairs_is_asked_by_itself():
    """A model that composes for even keys alone: Phase 3 on one half, Phase 2 on the other."""

    def even(x, a, b, i, tokens):
        return rules(x, a, b, i, tokens) if x % 2 == 0 else no_unseen(x, a, b, i, tokens)

    found = [
        evaluate(oracle(even), AnchorTask(), n_noise=2, max_trials=2000, half=half) for half in (0, 1, None)
    ]
    assert [one.ood.value for one in found] == [1, 0, 0.5]
    assert [one.phase.number for one in found] == [3, 2, 2]
    assert found[0].ood.n_sequences + found[1].ood.n_sequences == found[2].ood.n_sequences
    assert {one.id.value for one in found} == {1} and len({one.id.n_sequences for one in found}) == 1
    assert found[1].options["half"] == 1 and "half" not in found[2].options
    with pytest.raises(ValueError, match="half must be an integer >= 0 and <= 1, got 2"):
        evaluate(oracle(even), AnchorTask(), half=2)

"""Answers by position of the key, of models that answer by a rule at each, and the solution's name."""

import json

import pytest
import torch

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.plots.from_specs import figure_of
from anchorlens.tasks.registry import read_evaluation
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.shared.evaluator import _FEW
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.tasks.two_anchor import evaluation
from anchorlens.tasks.two_anchor.behaviour import evaluate
from anchorlens.tasks.two_anchor.evaluation import PositionAnswers, solution_of

SHIFTS = torch.tensor([0, 5, 1, -2, -8])
CONFLICT = AnchorTask(regime="conflict")
INFERENTIAL, SYMMETRIC, NEITHER = -10, -6, -9


def answering(shifts, seen_at=lambda position: torch.ones_like(position, dtype=torch.bool)):
    """A model that answers (4, 3) by `shifts[position of the key]`, (3, 4) as trained, others by the rules.

    Where `seen_at(position)` is false it answers seen pairs wrongly.
    """

    def model(tokens):
        rows = torch.arange(len(tokens))
        position = (tokens < 20).int().argmax(dim=1) - 1
        x, a, b = (tokens[rows, position + offset] for offset in range(3))
        answer = x + SHIFTS[a] + SHIFTS[b]
        unseen = (a == 4) & (b == 3)
        answer = torch.where((a == 3) & (b == 4), x + SYMMETRIC, answer)
        answer = torch.where(unseen, x + torch.tensor(shifts)[position], answer)
        answer = torch.where(unseen | seen_at(position), answer, 0)
        logits = torch.zeros(*tokens.shape, 201)
        logits[rows, -1, answer] = 1.0
        return logits

    return model


@pytest.mark.parametrize(
    ("shifts", "solution", "line"),
    [
        ([INFERENTIAL] * 7, "inferential", "unseen pairs: inferential"),
        ([SYMMETRIC] * 7, "symmetric", "unseen pairs: symmetric"),
        (
            [SYMMETRIC] * 6 + [INFERENTIAL],
            "mixed by position",
            "unseen pairs: mixed by position",
        ),
        ([NEITHER] * 7, "other", "unseen pairs: other"),
        (
            [INFERENTIAL] * 6 + [NEITHER],
            "other",
            "unseen pairs: other",
        ),
    ],
)
def test_the_solution_of_known_models(shifts, solution, line):
    result = evaluate(answering(shifts), CONFLICT, n_noise=2)
    assert result.solution == solution and result.in_words()[2:] == ([line] if line else [])
    assert [one.position for one in result.positions] == list(range(7))
    for one, shift in zip(result.positions, shifts, strict=True):
        assert one.ood == one.inferential  # (4, 3) is the only unseen pair
        assert one.inferential.value == float(shift == INFERENTIAL)
        assert one.symmetric.value == float(shift == SYMMETRIC)
        assert one.ood.n_sequences == 80 * 2  # keys x noise
        assert one.train.value == one.id.value == 1.0


def test_the_mean_over_positions_is_the_accuracy():
    """Seen pairs fail where the pair stands last: at one position of seven."""
    model = answering([INFERENTIAL] * 3 + [SYMMETRIC] * 4, seen_at=lambda position: position < 6)
    result = evaluate(model, CONFLICT, n_noise=2)
    for name in ("train", "id", "ood", "symmetric"):
        parts = [getattr(one, name) for one in result.positions]
        n = sum(part.n_sequences for part in parts)
        mean = sum(part.value * part.n_sequences for part in parts) / n
        assert getattr(result, name).value == pytest.approx(mean) and getattr(result, name).n_sequences == n
    assert [one.id.value for one in result.positions] == [one.train.value for one in result.positions]
    assert result.positions[6].id.value == 0.0 and result.solution == "mixed by position"


def test_train_is_asked_on_the_training_set_by_the_position_of_its_anchors():
    data = CONFLICT.sample(500, seed=3)
    bare = TokenBatch(data.tokens, data.targets)  # says nothing of positions
    model = answering([INFERENTIAL] * 7, seen_at=lambda position: position != 2)
    for given in (data, bare):
        result = evaluate(model, CONFLICT, training_set=given, n_noise=2)
        assert [one.train.value for one in result.positions] == [1, 1, 0, 1, 1, 1, 1]
        asked = [one.train.n_sequences for one in result.positions]
        assert asked == [int((data.trials.positions == place).sum()) for place in range(7)]


def test_without_a_second_target_there_is_no_solution():
    result = evaluate(answering([INFERENTIAL] * 7), AnchorTask(unseen_pairs=[(4, 3)]), n_noise=2)
    assert result.solution is None and result.positions[0].symmetric is None
    assert result.positions[0].ood is None  # (3, 4) is trained: an answer blind to order is right too
    every = evaluate(answering([INFERENTIAL] * 7), AnchorTask(complexity=0), n_noise=2)
    assert every.solution is every.positions[0].ood is None and every.positions[0].id is not None


def test_pairs_without_a_second_target_do_not_count_for_the_solution():
    """(1, 2) is unseen too, and its mirror is trained on the composition."""
    task = AnchorTask(unseen_pairs=[(4, 3), (1, 2)], overrides={(3, 4): SYMMETRIC})
    result = evaluate(answering([SYMMETRIC] * 7), task, n_noise=2, max_trials=3000)
    assert result.solution == "symmetric"
    assert all((one.ood.value, one.inferential.value) == (0.0, 0.0) for one in result.positions)


def at(position, inferential, symmetric, error=0.0):
    shares = {"inferential": Accuracy(inferential, error, 99), "symmetric": Accuracy(symmetric, error, 99)}
    return PositionAnswers(position, None, None, shares["inferential"], **shares)


def test_a_solution_holds_beyond_two_standard_errors():
    assert solution_of([at(0, 0.55, 0.0, error=0.02)]) == "inferential"  # .55 - .04 > .5
    assert solution_of([at(0, 0.55, 0.0, error=0.03)]) == "other"  # .55 - .06 < .5
    assert solution_of([at(0, 0.5, 0.5)]) == "other"  # not above a half
    assert solution_of([at(0, 0.9, 0.1), at(1, 0.4, 0.4), at(2, 0.1, 0.9)]) == "mixed by position"
    assert solution_of([]) is None


def test_a_real_model_goes_through_json():
    model = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16, gamma=0.2))
    result = evaluate(model, CONFLICT, n_noise=2)
    values = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert values == result.to_dict() and values["solution"] == result.solution == "other"
    read = read_evaluation(values)
    assert read.positions == result.positions and read.to_dict() == values


def test_asks_no_more_than_before():
    """Train, ID, and the unseen pair with its mirror: all trials, with 2 draws of noise each, and a check."""
    asked = []
    model = answering([INFERENTIAL] * 7)

    def counting(tokens):
        asked.append(len(tokens))
        return model(tokens)

    evaluate(counting, CONFLICT, n_noise=2, max_trials=20_000)
    n = {split: CONFLICT.n_trials(split) for split in ("train", "id", "ood")}
    assert sum(asked) == 2 * (n["train"] + n["id"] + 2 * n["ood"]) + _FEW


def test_a_long_sequence_is_not_told_apart_by_position():
    long = AnchorTask(seq_len=evaluation.MOST_POSITIONS + 3, split_modulus=9)
    model = build_model(ModelConfig.for_task(long, n_layers=1, d_model=4, d_head=4, d_mlp=4))
    result = evaluate(model, long, n_noise=2, max_trials=50, max_train=20, training_set=long.sample(50))
    assert result.positions == () and result.figure_specs == () and result.ood is not None


def test_the_picture_has_a_line_for_each_accuracy():
    result = evaluate(answering([SYMMETRIC] * 6 + [INFERENTIAL]), CONFLICT, n_noise=2)
    (figure_spec,) = result.figure_specs
    figure = figure_of(figure_spec)
    drawn = {trace.name: list(trace.y) for trace in figure.data}
    assert drawn["OOD"] == [0, 0, 0, 0, 0, 0, 1] and drawn["symmetric"] == [1, 1, 1, 1, 1, 1, 0]
    assert drawn.keys() == {"train", "ID", "OOD", "symmetric"}
    styles = {(trace.line.color, trace.line.dash) for trace in figure.data}
    assert len(styles) == 4

"""Addition with a left-out square: what is asked and held out, and what known answerers come to."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from anchorlens.configuration import field_types
from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.models.config import ModelConfig
from anchorlens.models.hooked import build_model
from anchorlens.plots.from_specs import figure_of
from anchorlens.tasks.registry import read_evaluation, read_task
from anchorlens.tasks.shared.batch import IGNORE

MODES = ("number", "digits", "reversed")


def pairs(task, split):
    return set(map(tuple, task.sums(split).tolist()))


class Answerer:
    """A function of tokens that knows some sums: the others it answers with 0s, or with end marks."""

    def __init__(self, task, known):
        self.task = task
        side = task.largest + 1
        every = np.stack(np.meshgrid(range(side), range(side), indexing="ij"), axis=-1).reshape(-1, 2)
        batch = task.sequences(every)
        wrong = torch.where(batch.targets == 0, task.d_vocab - 1, 0)
        knows = torch.tensor([known(a, b) for a, b in every.tolist()])
        answers = torch.where(knows.view(-1, *[1] * (batch.targets.dim() - 1)), batch.targets, wrong)
        self.answers = {
            tuple(row): answer for row, answer in zip(batch.tokens.tolist(), answers, strict=True)
        }
        assert len(self.answers) == side**2

    def __call__(self, tokens):
        width, behind = tokens.shape[1], self.task.seq_len - tokens.shape[1]
        rows = [(*row, *[self.task.d_vocab - 1] * behind) for row in tokens.tolist()]
        found = torch.stack([self.answers[row] for row in rows]).clamp(min=0)
        found = found.unsqueeze(1) if found.dim() == 1 else found[:, :width]
        return torch.nn.functional.one_hot(found, self.task.d_vocab).float()


class TestSplits:
    def test_the_square_is_that_of_the_paper(self):
        task = AdditionTask()
        assert pairs(task, "ood") == {(a, b) for a in range(40, 61) for b in range(40, 61)}
        assert [len(pairs(task, split)) for split in ("train", "id", "ood")] == [9159, 400, 441]

    @pytest.mark.parametrize("split", ["square", "random"])
    def test_no_sum_is_in_two_splits_and_all_are_in_one(self, split):
        task = AdditionTask(split=split)
        parts = [pairs(task, name) for name in task.splits]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 10_000

    def test_the_random_split_holds_out_the_share_that_is_asked_for(self):
        task = AdditionTask(split="random")
        assert list(task.splits) == ["train", "id"] == [metric.name for metric in task.metrics]
        assert len(task.sums("id")) == 3000 + 400
        inside = ((task.sums("id") >= 40) & (task.sums("id") <= 60)).all(axis=1).sum()
        assert 90 < inside < 210  # about .34 of 441

    def test_the_seed_decides_what_is_held_out_and_not_the_square(self):
        one, same, other = (AdditionTask(split_seed=seed) for seed in (0, 0, 1))
        assert pairs(one, "id") == pairs(same, "id") != pairs(other, "id")
        assert pairs(one, "ood") == pairs(other, "ood")

    def test_every_answer_of_the_square_is_trained_elsewhere(self):
        task = AdditionTask()
        trained = set(task.sums("train").sum(axis=1).tolist())
        assert set(task.sums("ood").sum(axis=1).tolist()) <= trained

    def test_an_unknown_split_is_refused(self):
        with pytest.raises(ValueError, match="split must be one of train, id, ood, got 'test'"):
            AdditionTask().sums("test")


class TestSequences:
    def test_a_token_for_each_number(self):
        batch = AdditionTask().sequences(np.array([[42, 57], [0, 99]]))
        assert batch.tokens.tolist() == [[42, 199, 57, 200], [0, 199, 99, 200]]
        assert batch.targets.tolist() == [99, 99]

    @pytest.mark.parametrize(("mode", "answer"), [("digits", [1, 0, 5]), ("reversed", [5, 0, 1])])
    def test_a_token_for_each_digit(self, mode, answer):
        batch = AdditionTask(mode=mode).sequences(np.array([[42, 63], [7, 80]]))
        end, shorter = 12, [8, 7] if mode == "digits" else [7, 8]
        assert batch.tokens.tolist() == [[4, 2, 10, 6, 3, 11, *answer], [7, 10, 8, 0, 11, *shorter, end, end]]
        assert batch.targets.tolist() == [
            [IGNORE] * 5 + [*answer, end],
            [IGNORE] * 4 + [*shorter, end, IGNORE, IGNORE],
        ]

    def test_numbers_of_more_digits(self):
        task = AdditionTask(mode="digits", largest=123)
        assert task.in_words(np.array([[7, 123]])) == ["7+123=130"]
        assert task.sequences(np.array([[7, 123]])).tokens.shape[1] == task.seq_len == 11

    @pytest.mark.parametrize("mode", MODES)
    def test_tokens_and_targets_fit_the_vocabulary(self, mode):
        task = AdditionTask(mode=mode)
        batch = task.training_set(20_000, 0)
        assert batch.tokens.shape == (20_000, task.seq_len) and batch.tokens.min() >= 0
        assert max(batch.tokens.max(), batch.targets.max()) < task.d_vocab

    def test_the_training_set_has_every_training_sum_equally_often(self):
        task = AdditionTask()
        tokens = task.training_set(2 * 9159, 3).tokens.numpy()
        found, counts = np.unique(tokens[:, [0, 2]], axis=0, return_counts=True)
        assert set(map(tuple, found.tolist())) == pairs(task, "train") and set(counts) == {2}
        few = task.training_set(100, 3).tokens.numpy()
        assert len(np.unique(few, axis=0)) == 100


class TestEvaluation:
    @pytest.mark.parametrize("mode", MODES)
    def test_who_knows_every_sum_composes(self, mode):
        task = AdditionTask(mode=mode)
        found = task.evaluate(Answerer(task, lambda a, b: True))
        assert found.phase.label == "Phase 3"
        assert all(found.measure(name).value == 1.0 for name in ("train", "id", "ood"))
        grid, curve = found.figure_specs
        assert np.array(grid.values).all() and set(curve.y) == {1.0}

    @pytest.mark.parametrize("mode", MODES)
    def test_who_knows_all_but_the_square_has_a_hole(self, mode):
        task = AdditionTask(mode=mode)
        found = task.evaluate(Answerer(task, lambda a, b: not (40 <= a <= 60 and 40 <= b <= 60)))
        assert found.phase.label == "Phase 2"
        grid, curve = found.figure_specs
        plane = np.array(grid.values)
        assert not plane[40:61, 40:61].any() and plane.sum() == 10_000 - 441
        assert grid.frame == (40, 40, 60, 60)
        shares = dict(zip(curve.x, curve.y, strict=True))
        assert all(share == (distance < 1) for distance, share in shares.items())
        assert min(shares) == -39 and max(shares) == 11

    def test_who_knows_the_training_sums_alone_memorises(self):
        task = AdditionTask(mode="reversed")
        known = pairs(task, "train")
        found = task.evaluate(Answerer(task, lambda a, b: (a, b) in known))
        assert found.phase.label == "Phase 1" and found.measure("train").value == 1.0

    def test_one_wrong_digit_makes_an_answer_wrong(self):
        task = AdditionTask(mode="reversed")
        whole = Answerer(task, lambda a, b: True)

        def last_wrong(tokens):
            logits = whole(tokens)
            logits[..., 12] = 0  # it never says the end mark
            return logits

        assert task.evaluate(last_wrong).measure("train").value == 0.0

    def test_train_is_what_was_trained(self):
        task = AdditionTask()
        few = task.sequences(task.sums("train")[:50])
        known = set(map(tuple, task.sums("train")[:50].tolist()))
        found = task.evaluate(Answerer(task, lambda a, b: (a, b) in known), training_set=few)
        assert found.measure("train").value == 1.0 and found.measure("train").n_sequences == 50

    def test_who_memorised_a_few_sums_is_not_called_underfit_where_they_are_not_known(self):
        task = AdditionTask()
        few = task.sums("train")[:50]
        known = set(map(tuple, few.tolist()))
        model = Answerer(task, lambda a, b: (a, b) in known)
        unknown, told = task.evaluate(model), task.evaluate(model, training_set=task.sequences(few))
        assert not unknown.train_is_known and told.train_is_known
        assert unknown.phase.cause == unknown.phase_if_clear().cause == "training data unknown"
        reason = unknown.phase.reason
        assert "train accuracy 0.005 on every training sum" in reason and "--train-data FILE" in reason
        assert "train longer" not in reason and "noise" not in reason
        assert told.phase.label == "Phase 1"
        meanings = [next(unknown.rows())[2], next(told.rows())[2]]
        assert meanings == ["every training sum", "sums it was trained on"]
        nothing = task.evaluate(Answerer(task, lambda a, b: False), training_set=task.sequences(few))
        assert nothing.phase.cause == "underfit"

    @pytest.mark.parametrize("told", [True, False])
    def test_it_comes_back_from_json(self, told):
        task = AdditionTask(mode="digits")
        data = task.sequences(task.sums("train")[:9]) if told else None
        found = task.evaluate(Answerer(task, lambda a, b: a < 70), training_set=data)
        again = read_evaluation(json.loads(json.dumps(found.to_dict())))
        assert again.to_dict() == found.to_dict() and again.phase == found.phase
        assert again.train_is_known == told

    def test_a_hooked_transformer_and_its_fast_form_answer_alike(self):
        from anchorlens.files.checkpoint import Checkpoint

        task = AdditionTask(mode="reversed", largest=9, square_min=4, square_max=6, n_held_out=10)
        config = ModelConfig.for_task(task, n_layers=2, n_heads=2, d_model=16, d_head=8, d_mlp=16, gamma=0.3)
        model = build_model(config, seed=3)
        checkpoint = Checkpoint.from_model(model, config, task)
        assert checkpoint.evaluate().to_dict() == task.evaluate(model).to_dict()

    def test_a_model_that_gives_the_last_position_alone_is_refused(self):
        task = AdditionTask(mode="digits")
        with pytest.raises(ValueError, match="logits at every scored position, got the last 1"):
            task.evaluate(lambda tokens: torch.zeros(len(tokens), 1, 13))


class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"mode": "roman"}, "mode must be one of"),
            ({"square_max": 120}, r"square_max.*>= 40 and <= 99"),
            ({"square_min": 70}, r"square_max.*>= 70 and <= 99"),
            ({"largest": 50}, r"square_max.*>= 40 and <= 50"),
            ({"n_held_out": 9559}, "the splits must leave a pair to train"),
            (
                {"mode": "modular"},
                "mode must be one of number, digits, reversed",
            ),
            ({"random_share": 0.0, "split": "random"}, "random_share must be a finite number > 0"),
            ({"split_seed": -1}, "split_seed must be an integer >= 0"),
        ],
    )
    def test_one_clear_error(self, fields, message):
        with pytest.raises(ValueError, match=message):
            AdditionTask(**fields)

    def test_a_field_of_another_task(self):
        with pytest.raises(ValueError, match=r"two_anchor, got mode .*addition"):
            read_task({"mode": "digits"})
        with pytest.raises(ValueError, match=r"addition, got regime .*two_anchor"):
            read_task({"kind": "addition", "regime": "conflict"})

    def test_an_unknown_task(self):
        with pytest.raises(ValueError, match=r"task.*known.*Did you mean 'addition'"):
            read_task({"kind": "adition"})
        with pytest.raises(ValueError, match="task must be a known task, got 3"):
            read_task({"kind": 3})

    def test_a_mode_that_does_not_fit_the_vocabulary(self):
        with pytest.raises(ValueError, match="d_vocab must be at least 201 for the task, got 110"):
            ModelConfig(d_vocab=110).check_task(AdditionTask())

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (([[1, 2]], [3]), r"shape \[batch, 4\]"),
            (([[1, 199, 2, 200]], [500]), "targets of the training data must be 0 to 200"),
            (
                ([[1, 199, 2, 200]], [[1, 2, 3, 4]]),
                r"a target for each row .* targets \[1, 4\]",
            ),
            (([[1.5, 199, 2, 200]], [3]), "must be integers"),
        ],
    )
    def test_training_data_of_another_shape_or_vocabulary(self, data, message):
        task = AdditionTask()
        with pytest.raises(ValueError, match=message):
            task.evaluate(Answerer(task, lambda a, b: True), training_set=data)


def test_it_travels_as_data():
    task = AdditionTask(mode="reversed", split="random", split_seed=4)
    assert read_task(task.to_dict()) == task and task.to_dict()["kind"] == "addition"
    assert set(task.to_dict()) == {"kind", *field_types(AdditionTask)}
    assert dataclasses.replace(task, mode="digits") != task and hash(task) == hash(read_task(task.to_dict()))


def test_its_pictures_are_drawn_with_what_they_mark():
    task = AdditionTask()
    grid, curve = map(figure_of, task.evaluate(Answerer(task, lambda a, b: a < 50)).figure_specs)
    assert np.array(grid.data[0].z)[:50].all() and not np.array(grid.data[0].z)[50:].any()
    (frame,) = grid.layout.shapes
    assert (frame.x0, frame.y1, frame.fillcolor, frame.opacity) == (39.5, 60.5, "rgba(0,0,0,0)", 1)
    (border,) = curve.layout.shapes
    assert border.x0 == 0.5 and border.line.width > 0

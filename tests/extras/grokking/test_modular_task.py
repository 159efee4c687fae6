"""The modular task: answers, layouts and splits against brute force, and what evaluate measures."""

from itertools import permutations, product

import numpy as np
import pytest
import torch

from anchorlens.extras.grokking.operations import answers
from anchorlens.extras.grokking.task import ModularTask
from anchorlens.tasks.registry import read_task

P = 7


def model_of(task, answer):
    """A function of tokens that answers with `answer(a, b)`."""

    def logits(tokens):
        found = torch.zeros(len(tokens), 1, task.d_vocab)
        place = task.tokens.split()
        a, b = tokens[:, place.index("a")].tolist(), tokens[:, place.index("b")].tolist()
        for row, pair in enumerate(zip(a, b, strict=True)):
            found[row, 0, answer(*pair)] = 1
        return found

    return logits


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        ("add", lambda a, b: (a + b) % P),
        ("subtract", lambda a, b: (a - b) % P),
        ("multiply", lambda a, b: a * b % P),
        ("divide", lambda a, b: next((c for c in range(P) if c * b % P == a), -1) if b else -1),
        ("x2xyy2", lambda a, b: (a**2 + a * b + b**2) % P),
        ("x3xy", lambda a, b: (a**3 + a * b) % P),
    ],
)
def test_answers_are_those_of_the_definition(operation, answer):
    found = answers(operation, P)
    assert found.tolist() == [answer(a, b) for a, b in product(range(P), repeat=2)]
    task = ModularTask(modulus=P, operation=operation)
    assert task.pairs.tolist() == np.flatnonzero(found >= 0).tolist()
    assert task.commutes == all(answer(a, b) == answer(b, a) for a, b in product(range(P), repeat=2))


def test_permutations_are_composed_right_to_left():
    group = list(permutations(range(3)))
    composed = [tuple(a[b[k]] for k in range(3)) for a, b in product(group, repeat=2)]
    assert answers("permutations", 6).tolist() == [group.index(one) for one in composed]


def test_a_table_is_its_rows():
    task = ModularTask(modulus=3, operation="table", table="0 1 2; 1 2 0\n2,0,1", trained_share=0.5)
    assert task.answers.tolist() == answers("add", 3).tolist() and task.commutes
    assert read_task(task.to_dict()) == task


@pytest.mark.parametrize(
    ("tokens", "row"), [("a b =", [2, 5, 7]), ("a op b =", [2, 8, 5, 7]), ("a b", [2, 5])]
)
def test_layouts(tokens, row):
    task = ModularTask(modulus=P, tokens=tokens)
    batch = task.sequences(np.array([2 * P + 5]))
    assert batch.tokens.tolist() == [row] and batch.targets.tolist() == [0]
    assert task.d_vocab == max(row[:-1] + row[-1:] + [P - 1]) + 1 and task.seq_len == len(row)
    assert task.pairs_of(batch.tokens).tolist() == [2 * P + 5]
    strange = batch.tokens.clone()
    strange[0, -1] = 99
    assert task.targets_of(strange).tolist() == [-1]


def test_the_split_is_a_share_by_seed_and_groups_are_counted_by_hand():
    task = ModularTask(modulus=11, trained_share=0.3, split_seed=4)
    assert task.trained.sum() == round(0.3 * 121)
    assert (ModularTask(modulus=11, trained_share=0.3, split_seed=5).trained != task.trained).any()
    groups = {name: set(np.flatnonzero(mask)) for name, mask in task.groups(task.trained).items()}
    trained = {tuple(divmod(pair, 11)) for pair in np.flatnonzero(task.trained)}
    held_out = set(product(range(11), repeat=2)) - trained
    mirrored = {11 * a + b for a, b in held_out if (b, a) in trained}
    assert groups["id"] == {11 * a + b for a, b in held_out}
    assert groups["mirrored"] == mirrored and groups["unmirrored"] == groups["id"] - mirrored


def test_one_that_knows_the_trained_pairs_in_both_orders():
    task = ModularTask(modulus=P, trained_share=0.5)
    known = {tuple(divmod(pair, P)) for pair in np.flatnonzero(task.trained)}
    knows = model_of(task, lambda a, b: (a + b + ((a, b) not in known and (b, a) not in known)) % P)
    evaluation = task.evaluate(knows)
    shares = {metric.name: evaluation.measure(metric.name).value for metric in task.metrics}
    n = {name: int(mask.sum()) for name, mask in task.groups(task.trained).items()}
    assert shares == {"train": 1, "mirrored": 1, "unmirrored": 0, "id": n["mirrored"] / n["id"]}
    assert all(evaluation.measure(metric.name).standard_error == 0 for metric in task.metrics)
    plane, bars = evaluation.figure_specs
    marked = [value == 0.25 for row in plane.values for value in row]
    assert marked == task.trained.tolist() and bars.y["mirror not trained"] == 0
    dark = {divmod(i, P) for i, value in enumerate(sum(plane.values, [])) if value == 1}
    assert dark == {(a, b) for b, a in known if (a, b) not in known}


def test_with_a_training_set_every_other_pair_is_held_out():
    task = ModularTask(modulus=P)
    pairs = np.array([0, 1, 2, 8])
    batch = task.sequences(pairs)
    evaluation = task.evaluate(model_of(task, lambda a, b: (a + b) % P), training_set=batch)
    assert evaluation.measure("train").n_sequences == 4
    assert evaluation.measure("id").n_sequences == P * P - 4
    assert evaluation.train_source == "training set"


def test_training_sets_hold_every_trained_pair_equally_often():
    task = ModularTask(modulus=P)
    batch = task.training_set(2 * task.n_trained, seed=3)
    counts = np.bincount(task.pairs_of(batch.tokens), minlength=P * P)
    assert (counts == 2 * task.trained).all()
    assert torch.equal(batch.targets, task.targets_of(batch.tokens))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"modulus": 1}, "modulus must be an integer >= 2"),
        ({"modulus": 8, "operation": "divide"}, r"modulus.*prime.*divide`, got 8"),
        ({"operation": "table"}, "`table` must be given with the operation `table`"),
        ({"table": "0 1;1 0"}, "`table` must be given with the operation `table`"),
        ({"modulus": 2, "operation": "table", "table": "0 1;1"}, "`table` must be 2 rows of 2 numbers"),
        ({"modulus": 2, "operation": "table", "table": "0 2;1 0"}, "`table` must be 2 rows of 2 numbers"),
        ({"operation": "permutations"}, "modulus must be 6, 24 or 120"),
        ({"modulus": 2, "trained_share": 0.01}, "trained_share must leave one of the"),
    ],
)
def test_what_makes_no_sense_gets_one_clear_error(fields, message):
    with pytest.raises(ValueError, match=message):
        ModularTask(**fields)

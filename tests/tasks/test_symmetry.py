"""What symmetry answers shows no composition: an answer blind to order is right on it too."""

import numpy as np
import pytest
import torch

from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.extras.scan.task import ScanTask
from anchorlens.tasks.registry import read_evaluation
from anchorlens.tasks.shared.phases import passed_at
from anchorlens.tasks.two_anchor.behaviour import evaluate, quick_accuracies
from anchorlens.tasks.two_anchor.task import AnchorTask

SMALL = {"key_min": 20, "key_max": 49}
LONG = {"key_min": 40, "key_max": 60, "chain_length": 3}
ONE_ORDER = AnchorTask(**SMALL, unseen_pairs=[(3, 4)])


def answering(task, answer):
    """A model that answers `answer(key, chain)`, both as in the sequence."""

    def model(tokens):
        logits = torch.zeros(*tokens.shape, 201)
        for row, sequence in enumerate(tokens.tolist()):
            first = next(place for place, token in enumerate(sequence) if token in task.anchors)
            logits[
                row, -1, answer(sequence[first - 1], tuple(sequence[first : first + task.chain_length]))
            ] = 1
        return logits

    return model


def blind_to_order(task):
    """A table by key and anchors in any order, of what is trained; it composes nothing."""
    table = {
        (key, *sorted(chain)): task.target(key, chain)
        for chain in task.seen_pairs
        for key in task.keys.tolist()
    }
    return answering(task, lambda key, chain: table.get((key, *sorted(chain)), 0))


def composer(task):
    return answering(task, task.inferential_target)


class TestPairs:
    def test_a_table_by_unordered_pairs_is_not_in_phase_3(self):
        found = evaluate(blind_to_order(ONE_ORDER), ONE_ORDER, n_noise=2)
        assert found.phase.label == found.phase_if_clear().label == "undecided: answered by symmetry"
        assert "trained in another order on the same target" in found.phase.reason
        assert found.ood is None and "ood" not in found.deviations
        assert found.by_symmetry.value == found.by_pair()[3, 4].accuracy.value == 1.0
        assert any("not counted in OOD" in line for line in found.in_words())
        assert read_evaluation(found.to_dict()).phase.label == found.phase.label

    def test_nor_is_a_composer_that_is_asked_nothing_else(self):
        assert evaluate(composer(ONE_ORDER), ONE_ORDER, n_noise=2).phase.cause == "answered by symmetry"

    def test_with_both_orders_left_out_the_composer_is_and_the_table_is_not(self):
        task = AnchorTask(**SMALL)
        assert evaluate(composer(task), task, n_noise=2).phase.label == "Phase 3"
        assert evaluate(blind_to_order(task), task, n_noise=2).phase.number == 2

    def test_ood_is_measured_on_the_pairs_that_symmetry_does_not_answer(self):
        task = AnchorTask(**SMALL, unseen_pairs=[(3, 4), (1, 2), (2, 1)])
        table = evaluate(blind_to_order(task), task, n_noise=2)
        assert (table.ood.value, table.by_symmetry.value, table.phase.number) == (0.0, 1.0, 2)
        assert evaluate(composer(task), task, n_noise=2).phase.label == "Phase 3"
        assert table.ood.n_sequences == 2 * 30 * 7 * 2  # of (1, 2) and (2, 1) alone

    def test_a_random_choice_of_many_is_of_those_that_count(self):
        task = AnchorTask(**SMALL, unseen_pairs=[(3, 4), (2, 4), (1, 2), (2, 1)])
        found = evaluate(blind_to_order(task), task, n_noise=2, max_trials=100)
        assert (found.ood.value, found.ood.n_sequences, found.by_symmetry) == (0.0, 200, None)

    def test_where_order_matters_only_keys_with_the_same_target_are_left_out(self):
        # 2 x + 1 and 2 (x + 1) differ for every key; a table that is x + 3 for odd keys commutes there
        never = {1: lambda x: 2 * x, 2: 1}
        task = AnchorTask(anchors=never, key_min=20, key_max=49, unseen_pairs=[(1, 2)])
        assert not task.answered_by_symmetry(task.trials("ood")).any()
        assert evaluate(blind_to_order(task), task, n_noise=2).phase.number == 2
        assert evaluate(composer(task), task, n_noise=2).phase.label == "Phase 3"
        other = {(2, 1): {x: task.inferential_target(x, (1, 2)) + x % 2 for x in range(20, 50)}}
        task = AnchorTask(anchors=never, key_min=20, key_max=49, unseen_pairs=[(1, 2)], overrides=other)
        trials = task.trials("ood")
        assert (task.answered_by_symmetry(trials) == (trials.keys % 2 == 0)).all()

    def test_the_conflict_regime_is_as_it_was(self):
        task = AnchorTask(regime="conflict")
        assert not task.answered_by_symmetry(task.trials("ood")).any()
        assert evaluate(composer(task), task, n_noise=2).phase.label == "inferential solution"
        assert evaluate(blind_to_order(task), task, n_noise=2).phase.label == "symmetric solution"

    def test_an_exception_of_the_mirror_makes_no_question(self):
        task = AnchorTask(**SMALL, unseen_pairs=[(3, 4)], n_exceptions=200)
        assert task.answered_by_symmetry(task.trials("ood")).all()

    def test_the_log_has_no_ood_accuracy_and_nothing_passes(self):
        line = quick_accuracies(blind_to_order(ONE_ORDER), ONE_ORDER, ONE_ORDER.sample(20))
        assert line["ood_accuracy"] is None and line["id_accuracy"] == 1.0
        passed = passed_at([{"step": 5, **line}], ONE_ORDER.metrics)
        assert passed == {"train": 5, "id": 5, "ood": None}


class TestChains:
    def test_a_chain_is_answered_by_any_order_of_its_anchors(self):
        task = AnchorTask(**LONG)
        trials = task.trials("ood")
        by_symmetry = task.answered_by_symmetry(trials)
        # (3, 4, a) and its like with another anchor a: (3, a, 4) is trained; with 3 or 4 no order is
        expected = [not set(chain) <= {3, 4} for chain, _, _ in trials]
        assert by_symmetry.tolist() == expected
        table = evaluate(blind_to_order(task), task, n_noise=2, max_trials=10_000)
        assert (table.ood.value, table.by_symmetry.value, table.phase.number) == (0.0, 1.0, 2)
        assert evaluate(composer(task), task, n_noise=2).phase.label == "Phase 3"

    def test_a_chain_that_reads_the_same_backwards_has_other_orders(self):
        # (4, 1, 4) is its own mirror, but (1, 4, 4) and (4, 4, 1) are trained
        task = AnchorTask(**LONG, unseen_pairs=[(4, 1, 4)])
        assert evaluate(blind_to_order(task), task, n_noise=2).phase.cause == "answered by symmetry"


class Summing:
    """Answers the sums that are trained, in this order or in any."""

    def __init__(self, task, blind):
        self.task, a, b = task, *task.sums("train").T
        self.known = set(zip(a.tolist(), b.tolist(), strict=True))
        self.known |= {(b, a) for a, b in self.known} if blind else set()

    def __call__(self, tokens):
        answers = [a + b if (a, b) in self.known else 0 for a, _, b, _ in tokens.tolist()]
        return torch.nn.functional.one_hot(torch.tensor(answers)[:, None], self.task.d_vocab).float()


class TestAddition:
    def test_the_random_split_has_no_test_of_another_kind(self):
        task = AdditionTask(split="random", largest=19, n_held_out=20)
        trained = set(map(tuple, task.sums("train").tolist()))
        mirrored = [(b, a) in trained for a, b in task.sums("id").tolist()]
        found = task.evaluate(Summing(task, blind=True))
        assert found.id.value == pytest.approx(np.mean(mirrored)) and found.ood is None
        assert found.phase.label == "memorises"
        by_heart = task.evaluate(Summing(task, blind=False))
        assert by_heart.id.value == 0.0 and by_heart.phase.label == "memorises"
        logged = task.measure(Summing(task, blind=True), task.training_set(50, 0))
        assert logged.keys() == {"train_accuracy", "id_accuracy"}

    def test_the_square_is_its_own_mirror(self):
        assert not AdditionTask().answered_by_symmetry.any()


@pytest.mark.parametrize("task", [ScanTask(), ScanTask(split="simple")])
def test_commands_have_no_other_order_with_the_same_answer(task):
    """Unless both sides of an `and` do the same, which is one command."""
    assert not task.answered_by_symmetry.any()
    of_words = {}
    for split in ("train", "ood"):
        for prompt, answer in zip(task.splits[split].prompts, task.splits[split].answers, strict=True):
            of_words.setdefault((tuple(sorted(prompt.split())), answer), set()).add(split)
    assert np.mean([found == {"train", "ood"} for found in of_words.values()]) < 0.02

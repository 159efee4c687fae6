"""Labels of tasks without OOD: thresholds, borderline, courses, and where they are shown."""

import json

import numpy as np
import pytest
import torch

from anchorlens import AnchorTask, ModelConfig, TrainConfig, classify, train
from anchorlens.extras.grokking.task import ModularTask
from anchorlens.extras.sweep.diagram import outcomes
from anchorlens.show.terminal.verdict import print_verdict
from anchorlens.tasks.registry import read_evaluation
from anchorlens.tasks.shared.measures import Accuracy, has_labels, has_phases
from anchorlens.tasks.shared.phases import LEARNT, course_in_words, learnt_by_definition, passed_at

MEMORISES, ORDER, GENERALISES = LEARNT
P = 13


def answerer(task, knows):
    """Logits that answer the pairs for which `knows(a, b)` holds, and give the others one more."""

    def model(tokens):
        a, b = tokens[:, 0], tokens[:, 1]
        right = torch.from_numpy(task.answers.astype(np.int64))[a * task.modulus + b]
        known = torch.tensor([bool(knows(*pair)) for pair in zip(a.tolist(), b.tolist(), strict=True)])
        said = torch.where(known, right, (right + 1) % task.modulus)
        return torch.nn.functional.one_hot(said, task.d_vocab).float()

    return model


class TestDefinition:
    @pytest.mark.parametrize(
        ("train", "id", "mirrored", "label"),
        [
            (0.90, 0.90, 0.90, GENERALISES),
            (0.90, 0.90, 0.0, GENERALISES),
            (1.0, 0.8999, 0.90, ORDER),
            (1.0, 0.8999, 0.8999, MEMORISES),
            (1.0, 0.0, 0.0, MEMORISES),
            (1.0, 0.5, None, MEMORISES),
            (0.8999, 1.0, 1.0, "undecided: underfit"),
            (1.0, None, None, "undecided: no unseen pair"),
            (1.0, float("nan"), 1.0, "undecided: not finite"),
        ],
    )
    def test_thresholds(self, train, id, mirrored, label):
        assert learnt_by_definition(train, id, mirrored).label == label

    @pytest.mark.parametrize(
        ("train", "id", "mirrored", "label"),
        [
            (0.92, 0.5, 0.5, "undecided: borderline"),
            (1.0, 0.92, 1.0, "undecided: borderline"),
            (1.0, 0.5, 0.88, "undecided: borderline"),
            (1.0, 0.95, 0.88, GENERALISES),  # the mirrored pairs decide nothing there
            (0.5, 0.9, 0.9, "undecided: underfit"),
            (1.0, 0.5, 0.95, ORDER),
        ],
    )
    def test_two_standard_errors(self, train, id, mirrored, label):
        given = [Accuracy(value, 0.02, 100) for value in (train, id, mirrored)]
        assert learnt_by_definition(*given, standard_errors=2).label == label

    def test_unknown_training_data(self):
        found = learnt_by_definition(0.5, 0.2, train_source="every pair of the task's split")
        assert found.cause == "training data unknown"

    def test_a_label_is_named_and_coloured(self):
        for label in LEARNT:
            phase = learnt_by_definition(
                *{MEMORISES: (1, 0, 0), ORDER: (1, 0, 1), GENERALISES: (1, 1, 1)}[label]
            )
            assert phase.is_named and phase.label == phase.solution == label and phase.number is None
            assert phase.colour.startswith("#") and phase.gloss in phase.reason

    def test_which_tasks_have_labels(self):
        assert has_labels(ModularTask.metrics) and not has_phases(ModularTask.metrics)
        assert has_labels(AnchorTask().metrics) and has_phases(AnchorTask().metrics)


class TestEvaluation:
    def labelled(self, knows, task=None):
        task = task or ModularTask(modulus=P)
        trained = set(map(tuple, np.argwhere(task.trained.reshape(task.modulus, -1)).tolist()))
        found = task.evaluate(
            answerer(task, lambda a, b: knows((a, b), trained)), training_set=task.training_set(300, 0)
        )
        assert read_evaluation(json.loads(json.dumps(found.to_dict()))).phase == found.phase
        return found.phase_if_clear()

    def test_a_table_of_the_trained_pairs_memorises(self):
        assert self.labelled(lambda pair, trained: pair in trained).label == MEMORISES

    def test_a_table_in_both_orders_knows_that_the_order_does_not_matter(self):
        phase = self.labelled(lambda pair, trained: pair in trained or pair[::-1] in trained)
        assert phase.label == ORDER and "mirrored 1.000" in phase.reason

    @pytest.mark.parametrize("share", [None, 0.97])
    def test_a_table_in_both_orders_does_not_generalise_where_mirrors_are_trained(self, share):
        """All pairs a <= b are trained, or nearly all pairs, so that symmetry answers most of the others."""
        p = 59 if share else 30
        task = ModularTask(modulus=p, **({"trained_share": share} if share else {}))
        a, b = np.divmod(np.arange(p * p), p)
        pairs = np.flatnonzero(task.trained if share else a <= b)
        known = set(zip(a[pairs].tolist(), b[pairs].tolist(), strict=True))
        model = answerer(task, lambda a, b: (a, b) in known or (b, a) in known)
        found = task.evaluate(model, training_set=task.sequences(pairs))
        assert found.id.value > 0.9 and found.phase_if_clear().cause == "answered by symmetry"

    def test_where_answers_do_not_commute_no_mirror_is_needed(self):
        task = ModularTask(modulus=59, operation="subtract", trained_share=0.97)
        found = task.evaluate(answerer(task, lambda a, b: True), training_set=task.training_set(300, 0))
        assert found.by_symmetry is None and found.phase_if_clear().label == GENERALISES

    def test_one_that_answers_few_pairs_without_a_trained_mirror_knows_the_order(self):
        """Nine of ten held-out pairs are right, but only half of those that symmetry does not answer."""
        measures = {"train": Accuracy(1.0, 0.0, 400), "id": Accuracy(0.9, 0.0, 400)}
        measures |= {"mirrored": Accuracy(1.0, 0.0, 320), "unmirrored": Accuracy(0.5, 0.0, 80)}
        of = ModularTask(modulus=P).evaluation(measures, by_symmetry=Accuracy(1.0, 0.0, 320))
        assert of.phase.label == ORDER and "without a trained mirror 0.500" in of.phase.reason

    @pytest.mark.parametrize("n", [1, 19])
    def test_few_pairs_give_no_label_however_certain(self, n):
        task = ModularTask(modulus=30)
        pairs = np.flatnonzero(task.trained)[:n]
        trained = set(zip(*(part.tolist() for part in np.divmod(pairs, 30)), strict=True))
        found = task.evaluate(
            answerer(task, lambda a, b: (a, b) in trained), training_set=task.sequences(pairs)
        )
        assert found.train.value == 1 and found.phase.cause == "too few training sequences"

    def test_one_that_computes_generalises(self):
        assert self.labelled(lambda pair, trained: True).label == GENERALISES

    def test_one_that_knows_little_is_underfit(self):
        assert self.labelled(lambda pair, trained: pair[0] == 1).cause == "underfit"

    def test_training_data_of_another_operation(self):
        task, other = ModularTask(modulus=P), ModularTask(modulus=P, operation="subtract")
        found = task.evaluate(answerer(other, lambda a, b: True), training_set=other.training_set(300, 0))
        assert found.phase.cause == "targets of another task"


class TestCourse:
    LINES = [
        {"step": step, "train_accuracy": train, "id_accuracy": id}
        for step, train, id in (
            (10, 0.5, 0.0),
            (180, 1.0, 0.1),
            (900, 1.0, 0.95),
            (1000, 1, 0.8),
            (6480, 1, 0.99),
        )
    ]

    def test_steps_are_those_from_which_it_passes_for_good(self):
        assert passed_at(self.LINES, ModularTask.metrics) == {"train": 180, "id": 6480}
        assert passed_at(self.LINES[:4], ModularTask.metrics) == {"train": 180, "id": None}

    def test_in_words(self):
        assert course_in_words(180, 6480) == "grokked: fits after 180 steps, generalises 6,300 later"
        assert course_in_words(180, 360).startswith("grokked: ")
        assert course_in_words(180, 359) == "did not grok: fits after 180 steps, generalises 179 later"
        assert course_in_words(180, 180) == "did not grok: fits after 180 steps, generalises by then"
        end = "and does not generalise by its end"
        assert course_in_words(180, None) == f"did not grok: fits after 180 steps, {end}"
        assert course_in_words(None, None) == "did not grok: does not fit by its end"
        assert "fits at its first measured step already (0)" in course_in_words(0, 9, [0, 9])

    def test_in_words_the_steps_measured_around_both(self):
        assert course_in_words(99, 749, range(49, 999, 50), "checkpoints").endswith("(checkpoints every 50)")
        assert course_in_words(10, 200, [1, 10, 100, 200]).endswith("(evaluations every 9 to 100)")


class Cell:
    """What `outcomes.course` looks at."""

    def __init__(self, train_passed_at, id_passed_at, train=1.0, id=1.0, status="done", phase=None):
        self.numbers = {
            "train_passed_at": train_passed_at,
            "id_passed_at": id_passed_at,
            "train": train,
            "id": id,
        }
        self.status, self.phase = status, phase or learnt_by_definition(train, id)


class TestDiagram:
    @pytest.mark.parametrize(
        ("cell", "name"),
        [
            (Cell(180, 1179), "comprehension"),
            (Cell(180, 1180), "grokking"),
            (Cell(500, 400), "comprehension"),
            (Cell(180, None, id=0.2), "memorisation"),
            (Cell(None, None, train=0.5, id=0.2), "confusion"),
            (Cell(None, None, train=1.0, id=0.2), "no log"),
            (Cell(180, None, id=0.95), "no log"),
            (Cell(180, 180, status="failed"), "failed or diverged"),
        ],
    )
    def test_the_four_names(self, cell, name):
        assert outcomes.course(cell).name == name

    def test_no_two_share_a_sign(self):
        signs = [(one.sign, one.hatch) for one in outcomes.COURSES]
        assert len(set(signs)) == len(signs)


@pytest.fixture(scope="module")
def memorising(tmp_path_factory):
    """A run that memorises: 20 % of the pairs, no decay, a few updates."""
    folder = tmp_path_factory.mktemp("runs") / "memorising"
    task = ModularTask(modulus=P, trained_share=0.2)
    model = ModelConfig(
        variant="plain",
        d_model=32,
        n_heads=2,
        d_head=16,
        d_mlp=64,
        d_vocab=14,
        n_ctx=3,
        n_layers=1,
        gamma=0.5,
    )
    recipe = TrainConfig(
        n_samples=64, batch_size=32, steps=200, lr=3e-3, weight_decay=0.0, eval_every=20, threads=1
    )
    return train(task, model, recipe, out=folder), folder


class TestRun:
    def test_its_verdict_says_when_it_fit(self, memorising):
        result, folder = memorising
        verdict = classify(folder)
        assert verdict.phase.label in (MEMORISES, ORDER) and verdict.agreement is None
        fits = f"did not grok: fits after {result.passed_at['train']:,} steps"
        assert verdict.course == f"{fits}, and does not generalise by its end"
        why = "The probe verdict is undecided (no readings: training data must have at least 200"
        assert why in verdict.explanation

    def test_its_log_has_the_mirror_split(self, memorising):
        assert {"mirrored_accuracy", "unmirrored_accuracy"} <= memorising[0].log[-1].keys()

    def test_its_report_defines_the_labels(self, memorising, tmp_path):
        classify(memorising[1]).report(tmp_path / "report.html")
        text = (tmp_path / "report.html").read_text()
        assert "The labels by definition" in text and "The phases by definition" not in text
        assert all(label in text for label in LEARNT)

    def test_its_report_begins_with_what_it_did_and_its_curve(self, memorising, tmp_path):
        verdict = classify(memorising[1])
        verdict.report(tmp_path / "report.html")
        text = (tmp_path / "report.html").read_text()
        places = [
            text.index(one) for one in (verdict.course, "By the probes", "Training curve", 'id="evidence"')
        ]
        assert places == sorted(places) and text.count('id="training_curve"') == 1
        assert "<code>a b =</code>" in text and "read as `" not in text
        trajectory = text[text.index("Label against step") :].partition("</table>")[0]
        assert ">OOD<" not in trajectory and ">Phase<" not in trajectory and ">none<" not in trajectory

    def test_the_screen_says_it_below_the_label(self, memorising, capsys):
        verdict = classify(memorising[1], name="run")
        print_verdict(verdict)
        first, second = capsys.readouterr().out.replace("\n", " ").split("┏")[0].split(" did not grok: ")
        assert first == f"run: {verdict.headline}" and second.startswith("fits after")

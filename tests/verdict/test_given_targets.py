"""Training data that a caller gives: their targets are the task's, and enough of them are different."""

import json
from dataclasses import replace

import anchorlens_command
import numpy as np
import pytest
import torch

from anchorlens import (
    AdditionTask,
    AnchorTask,
    Checkpoint,
    ModelConfig,
    PrOntoQATask,
    ScanTask,
    build_model,
    classify,
    evaluate,
    load_checkpoint,
    save_checkpoint,
)
from anchorlens.files.loaded_model import PAPERS_TASK
from anchorlens.tasks.registry import read_evaluation
from anchorlens.tasks.shared.data_checks import OtherTargets, compared
from anchorlens.training import checkpoints

TASK = AnchorTask()
OTHER = AnchorTask(anchors={1: 4, 2: 2, 3: -1, 4: -6})
PHASE3 = load_checkpoint(checkpoints.shipped()[-1])
MODEL = PHASE3.build_model()
FEW = {"n_noise": 2, "max_trials": 200}


def composing(task):
    """A model that composes the functions of a task."""
    table = torch.full((8, 8, 200), 0)
    for chain in task.pairs:
        for key in task.keys.tolist():
            table[chain[0], chain[1], key] = task.inferential_target(key, chain)

    def model(tokens):
        rows = torch.arange(len(tokens))
        first = (tokens < 20).int().argmax(dim=1)
        answers = table[tokens[rows, first], tokens[rows, first + 1], tokens[rows, first - 1]]
        return torch.nn.functional.one_hot(answers, 200).float()[:, None]

    return model


class TestOtherTask:
    def test_a_composer_of_another_task_has_no_phase_by_the_papers(self):
        data = OTHER.sample(3000)
        found = evaluate(composing(OTHER), training_set=data, **FEW)
        assert found.phase.label == found.phase_if_clear().label == "undecided: targets of another task"
        n = int((data.targets.numpy() != TASK.targets(data.trials)).sum())
        assert found.phase.reason.endswith(
            f"{n:,} of 3,000 training targets differ from those of this task. Give the task of the "
            "training data"
        )
        assert read_evaluation(found.to_dict()).phase.label == found.phase.label
        own = evaluate(composing(OTHER), OTHER, training_set=data, **FEW)
        assert own.phase.label == "Phase 3" and own.caveats == ()

    def test_classify_takes_no_readings_then(self):
        verdict = classify(MODEL, OTHER, training_set=TASK.sample(200))
        assert {verdict.phase.cause, verdict.by_probes.phase.cause} == {"targets of another task"}
        assert verdict.by_probes.probabilities is None and verdict.agreement is None
        assert verdict.explanation.startswith("No verdict: targets of another task: ")

    def test_sequences_that_ask_nothing_of_the_task_are_not_its_own(self):
        without = np.random.default_rng(0).integers(20, 100, (100, 9))
        found = evaluate(MODEL, TASK, training_set=(without, np.full(100, 50)), **FEW)
        assert found.phase.reason.count("100 of 100 training targets differ from those of this task") == 1

    def test_overrides_exceptions_and_conflict_are_of_the_task(self):
        for task in (
            AnchorTask(regime="conflict"),
            AnchorTask(complexity=3),
            AnchorTask(n_exceptions=300),
            AnchorTask(chain_length=3, key_min=40),
            AnchorTask(seq_len=3, split_modulus=4),
        ):
            batch = task.sample(500)
            assert compared(batch, task.targets_of(batch.tokens)).n_other == 0
            assert compared(batch, replace(task, anchors={1: 6, 2: 1, 3: -2, 4: -8}, regime="reasoning",
                complexity=None).targets_of(batch.tokens)).n_other > 50  # fmt: skip

    def test_targets_in_another_order_do_not_belong_to_their_tokens(self):
        data = TASK.sample(500)
        shuffled = torch.from_numpy(np.random.default_rng(0).permutation(500))
        for targets in (data.targets.flip(0), data.targets[shuffled]):
            found = evaluate(MODEL, TASK, training_set=(data.tokens, targets), **FEW)
            assert found.phase.cause == "targets of another task"
            assert "in another order than the tokens" in found.phase.reason
            assert "train longer" not in found.phase.reason

    def test_a_few_wrong_labels_are_a_warning(self):
        data = TASK.sample(500)
        targets = data.targets.clone()
        targets[:50] += 1
        verdict = classify(MODEL, TASK, training_set=(data.tokens, targets), quick=True)
        (warning,) = verdict.warnings
        assert warning.startswith("50 of 500 training targets differ")
        assert verdict.phase.cause == "borderline"  # its train accuracy is .90, that of the right labels
        targets[50] += 1
        assert evaluate(MODEL, TASK, training_set=(data.tokens, targets), **FEW).phase.cause == (
            "targets of another task"
        )


class TestOfOtherKinds:
    @pytest.mark.parametrize("mode", ["number", "digits", "reversed"])
    def test_sums(self, mode):
        task = AdditionTask(mode=mode, largest=29, square_min=10, square_max=14, n_held_out=20)
        batch = task.training_set(300, 0)
        assert compared(batch, task.targets_of(batch.tokens)).n_other == 0
        wrong = batch.targets.clone()
        wrong[:40] = wrong[-40:]
        assert 0 < compared(replace(batch, targets=wrong), task.targets_of(batch.tokens)).n_other <= 40
        smaller = replace(task, largest=19)
        if not task.in_numbers:  # the others have another vocabulary
            n_beyond = sum(max(a, b) > 19 for a, b in task.sums("train").tolist())
            assert n_beyond and (smaller.targets_of(batch.tokens) == -1).all(dim=1).any()

    @pytest.mark.parametrize(
        "more", [{}, {"ontology": "official"}, {"says": "deduction"}, {"loss_on": "sequence"}]
    )
    def test_deductions(self, more):
        """Labels that the rules of the prompt contradict are seen, though the questions are a sample."""
        task = PrOntoQATask(**more)
        batch = task.training_set(100, 0)
        assert compared(batch, task.targets_of(batch.tokens)) == OtherTargets(100, 0)
        true, false = (task.vocabulary.tokens(word)[0] for word in ("true", "false"))
        is_label = (batch.targets == true) | (batch.targets == false)
        flipped = torch.where(is_label, true + false - batch.targets, batch.targets)
        found = compared(replace(batch, targets=flipped), task.targets_of(batch.tokens))
        assert found.n_other == 100 and found.of_another_task
        assert (task.targets_of(batch.tokens.flip(1)) == -1).all()

    def test_commands(self):
        task = ScanTask()
        batch = task.training_set(200, 0)
        assert compared(batch, task.targets_of(batch.tokens)).n_other == 0
        flipped = replace(batch, targets=batch.targets.flip(0))
        found = compared(flipped, task.targets_of(batch.tokens))
        assert found.reordered and found.n_other > 150
        cut = task.targets_of(batch.tokens[:, :12])
        assert cut.shape == (200, 12) and (cut == -1).all(dim=1).any()  # answers that do not fit
        nonsense = batch.tokens.clone()
        nonsense[:, 1] = nonsense[:, 2]
        assert (task.targets_of(nonsense) == -1).all(dim=1).any()


class TestFewSequences:
    @pytest.mark.parametrize(("n", "times"), [(1, 1), (1, 500), (5, 1), (19, 10)])
    def test_no_phase(self, n, times):
        data = TASK.sample(n, seed=4)
        given = (data.tokens.repeat(times, 1), data.targets.repeat(times))
        found = evaluate(MODEL, TASK, training_set=given, **FEW)
        assert found.train.n_sequences == n and found.train.standard_error > 0.04
        assert found.phase.label == found.phase_if_clear().label == "undecided: too few training sequences"
        assert f"is from {n} distinct sequence{'s' * (n > 1)}; give at least 20" in found.phase.reason

    def test_twenty_are_enough(self):
        found = evaluate(MODEL, TASK, training_set=TASK.sample(20, seed=4), **FEW)
        assert found.phase.label == found.phase_if_clear().label == "Phase 3"

    def test_fewer_than_20_give_no_phase_even_if_no_more_exist(self):
        """18 sums are trained and asked, so their accuracy has no standard error."""
        task = AdditionTask(largest=4, square_min=1, square_max=2, n_held_out=3)
        every = task.sequences(task.sums("train"))
        answers = {tuple(row): answer for row, answer in zip(
            task.sequences(np.indices((5, 5)).reshape(2, -1).T).tokens.tolist(),
            task.answers(np.indices((5, 5)).reshape(2, -1).T).tolist(), strict=True)}  # fmt: skip

        def model(tokens):
            found = torch.tensor([[answers[tuple(row)]] for row in tokens.tolist()])
            return torch.nn.functional.one_hot(found, task.d_vocab).float()

        found = task.evaluate(model, training_set=every)
        assert (len(every), found.train.standard_error) == (18, 0.0)
        assert found.phase.cause == "too few training sequences"

    def test_a_reason_names_their_number(self):
        data = TASK.sample(100, seed=4)
        targets = data.targets.clone()
        targets[:10] += 1
        found = evaluate(MODEL, TASK, training_set=(data.tokens, targets), **FEW)
        assert "from 100 distinct sequences is within 2 standard errors" in found.phase_if_clear().reason

    def test_a_sequence_with_two_targets_counts_twice(self):
        data = TASK.sample(50, seed=4)
        given = (data.tokens.repeat(2, 1), torch.cat([data.targets, data.targets + 1]))
        found = evaluate(MODEL, TASK, training_set=given, **FEW)
        assert (found.train.n_sequences, found.train.value) == (100, 0.5)


class TestNoTask:
    def test_the_papers_was_taken(self):
        found = evaluate(MODEL, **FEW)
        assert found.caveats[0] == PAPERS_TASK and len(found.caveats) == 2
        assert read_evaluation(json.loads(json.dumps(found.to_dict()))).caveats == found.caveats
        assert PAPERS_TASK not in evaluate(MODEL, TASK, **FEW).caveats
        assert evaluate(PHASE3, **FEW).caveats == ()

    @pytest.mark.needs("importers")
    def test_on_the_command_line(self, tmp_path):
        torch.save(MODEL.state_dict(), tmp_path / "theirs.pt")
        (tmp_path / "theirs.toml").write_text("[model]\nvariant = 'gpt2'\nact_fn = 'gelu'\n")
        given = (tmp_path / "theirs.pt", "--config", tmp_path / "theirs.toml", "--n-noise", 2)
        done = anchorlens_command.call("evaluate", *given)
        assert f"note: {PAPERS_TASK}" in " ".join(done.stdout.split())
        found = json.loads(anchorlens_command.call("evaluate", *given, "--json").stdout)
        assert PAPERS_TASK in found["behaviour"]["notes"]


class TestNumbersThatAreNone:
    def test_of_nan_there_is_no_accuracy(self, tmp_path):
        model = build_model(ModelConfig(n_layers=1, d_model=8, d_head=4, d_mlp=8))
        with torch.no_grad():
            model.unembed.W_U[0, 0] = torch.nan
        found = evaluate(model, TASK, **FEW)
        assert found.phase.label == "undecided: not finite" and not any(found.measures.values())
        assert repr(found) == "AnchorEvaluation(undecided: not finite)"
        assert list(found.rows()) == [] and found.pairs == found.positions == () and found.in_words() == []
        config = ModelConfig(n_layers=1, d_model=8, d_head=4, d_mlp=8)
        save_checkpoint(tmp_path / "nan.pt", Checkpoint.from_model(model, config, TASK))
        done = anchorlens_command.call("evaluate", tmp_path / "nan.pt", "--n-noise", 2)
        assert "not finite" in done.stdout and "0.0" not in done.stdout

    def test_a_model_of_another_vocabulary_is_one_error(self):
        class Plain(torch.nn.Module):
            def __init__(self, n_tokens, n_answers):
                super().__init__()
                self.embed = torch.nn.Embedding(n_tokens, n_answers)

            def forward(self, tokens):
                return self.embed(tokens)

        with pytest.raises(ValueError, match=r"tokens 0 to 109 .*IndexError"):
            evaluate(Plain(50, 110), TASK, **FEW)
        with pytest.raises(ValueError, match="d_vocab >= 110"):
            evaluate(Plain(110, 50), TASK, **FEW)

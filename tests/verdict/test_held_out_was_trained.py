"""What was trained is never called held out; a model at chance gets no phase by the probes."""

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
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.two_anchor.behaviour import overlap_with_training
from anchorlens.training import checkpoints

TASK = AnchorTask()
CAUSE = "held-out questions were trained"
PHASE3 = load_checkpoint(checkpoints.shipped()[-1])


def joined(*batches):
    return TokenBatch(*(torch.cat([getattr(b, n) for b in batches]) for n in ("tokens", "targets")))


def row(key, pair, position, task=TASK):
    """One sequence with this key and pair there, and its inferential target."""
    trials = task.product([pair], np.array([key]), np.array([position]))
    return joined(task.sequences(trials))


class TestCounts:
    def test_its_own_training_set_holds_none_and_every_id_and_ood_sequence_is_one(self):
        for split, counts in (("train", (0, 0)), ("id", (300, 0)), ("ood", (0, 300))):
            found = overlap_with_training(joined(TASK.sample(300, split=split)), TASK)
            assert (found.counts["id"], found.counts["ood"]) == counts and found.n_sequences == 300

    @pytest.mark.parametrize(
        ("key", "pair", "position", "which"),
        [
            (40, (3, 4), 0, "ood"),
            (45, (4, 3), 6, "ood"),
            (45, (1, 2), 0, "id"),  # 45 mod 9 = 0
            (46, (1, 2), 0, None),  # 46 mod 9 = 1
            (46, (1, 2), 1, "id"),
            (45, (3, 4), 0, "ood"),  # an unseen pair is no ID question, wherever its key stands
        ],
    )
    def test_by_hand(self, key, pair, position, which):
        counts = overlap_with_training(row(key, pair, position), TASK).counts
        assert counts == {"id": int(which == "id"), "ood": int(which == "ood")}

    def test_longer_chains_other_splits_and_sequences_that_ask_nothing(self):
        task = AnchorTask(chain_length=3, key_min=30, unseen_pairs=[(1, 2, 3)], split_modulus=5)
        assert overlap_with_training(row(41, (1, 2, 3), 0, task), task).counts == {"id": 0, "ood": 1}
        assert overlap_with_training(row(45, (1, 2, 1), 0, task), task).counts == {"id": 1, "ood": 0}
        assert overlap_with_training(row(46, (1, 2, 1), 0, task), task).counts == {"id": 0, "ood": 0}
        nothing = TokenBatch(torch.full((2, 9), 50), torch.tensor([50, 50]))
        assert overlap_with_training(nothing, TASK).counts == {"id": 0, "ood": 0}
        nothing.tokens[0, 8] = nothing.tokens[1, 0] = 3  # anchors with no pair, or without a key before them
        assert overlap_with_training(nothing, TASK).counts == {"id": 0, "ood": 0}

    def test_what_another_task_draws_is_counted_too(self):
        trained_on_all = AnchorTask(complexity=0).lazy_sample(1600, seed=0)
        found = evaluate(PHASE3.last_position_model(), TASK, training_set=trained_on_all, n_noise=2)
        assert 150 < found.overlap.counts["ood"] < 250  # 2 of 16 pairs
        own = evaluate(
            PHASE3.last_position_model(), TASK, training_set=TASK.lazy_sample(50, seed=0), n_noise=2
        )
        assert own.overlap.counts == {"id": 0, "ood": 0} and own.phase.label == "Phase 3"

    @pytest.mark.parametrize(
        "task",
        [AdditionTask(), AdditionTask(mode="digits"), AdditionTask(mode="reversed"), ScanTask(n_held_out=50)],
        ids=lambda task: getattr(task, "mode", task.kind),
    )
    def test_prompts_and_sums_of_other_tasks(self, task):
        if isinstance(task, AdditionTask):
            splits = {split: task.sequences(task.sums(split)[:40]) for split in ("train", "id", "ood")}
        else:
            wide = {split: task.examples(split)[np.arange(40)] for split in ("train", "id", "ood")}
            splits = {s: task.vocabulary.sequences(e, task.seq_len) for s, e in wide.items()}
        model = build_model(ModelConfig.for_task(task, n_layers=1, d_model=16, d_head=8, d_mlp=16))
        for given, counts in (
            ([splits["train"]], {"id": 0, "ood": 0}),
            ([splits["train"], splits["ood"]], {"id": 0, "ood": 40}),
            ([splits["train"], splits["id"]], {"id": 40, "ood": 0}),
        ):
            found = task.evaluate(model, training_set=joined(*given))
            assert found.overlap.counts == counts
            assert (found.phase.cause == CAUSE) is any(counts.values())

    def test_longer_deductions_are_held_out_whichever_stand_in_the_test(self):
        task, all_steps = PrOntoQATask(most_hops=2, n_test=20), PrOntoQATask(most_hops=3, n_test=20)
        few = task.training_set(30, 0)
        assert task.overlap(few).counts == {"id": 0, "ood": 0}
        more = all_steps.training_set(60, 0)
        assert 10 < task.overlap(more).counts["ood"] < 30  # a third has 3 steps
        tests = task.sequences(task.examples("id"))
        assert task.overlap(tests).counts["id"] == 20


@pytest.fixture(scope="module")
def given():
    """Its own data, with an eighth of sequences that ask the unseen pairs."""
    return joined(TASK.sample(700), TASK.sample(100, split="ood"))


class TestVerdicts:
    def test_trained_on_unseen_pairs_is_no_phase_whatever_it_answers(self, given):
        verdict = classify(PHASE3.build_model(), TASK, training_set=given)
        assert verdict.phase.number is None and verdict.phase.cause == CAUSE
        assert verdict.by_probes.phase == verdict.phase and verdict.by_probes.probabilities is None
        assert verdict.by_probes.evidence == () and verdict.agreement is None
        words = "of 800 training sequences, 100 are in the test on unseen pairs"
        assert words in verdict.phase.reason and verdict.explanation.count(words) == 1
        again = type(verdict).from_dict(json.loads(json.dumps(verdict.to_dict())))
        assert again.behaviour.overlap == verdict.behaviour.overlap and again.phase.cause == CAUSE

    def test_its_id_trained_is_no_phase_either(self):
        data = joined(TASK.sample(700), TASK.sample(1, split="id"))
        behaviour = evaluate(PHASE3.last_position_model(), TASK, training_set=data, n_noise=2)
        assert behaviour.phase.label == f"undecided: {CAUSE}"
        assert "1 are in the test on held-out keys" in behaviour.phase.reason

    def test_on_the_command_line(self, given, tmp_path):
        save_checkpoint(tmp_path / "a.pt", replace(PHASE3, train_config=None))
        np.savez(tmp_path / "data.npz", tokens=given.tokens, targets=given.targets)
        told = ["--train-data", tmp_path / "data.npz"]
        done = anchorlens_command.call("classify", tmp_path / "a.pt", *told, "--json")
        content = json.loads(done.stdout)
        assert content["phase"]["number"] is None and content["phase"]["cause"] == CAUSE
        assert content["behaviour"]["overlap"] == {"n_sequences": 800, "counts": {"id": 0, "ood": 100}}
        done = anchorlens_command.call("evaluate", tmp_path / "a.pt", *told, "--n-noise", 2)
        assert f"undecided: {CAUSE}" in " ".join(done.stdout.split())
        done = anchorlens_command.call("evaluate", tmp_path / "a.pt", "--n-noise", 2)
        assert "note: the training data are unknown: the verdict assumes" in " ".join(done.stdout.split())

    def test_without_them_it_says_what_it_assumes(self):
        model = PHASE3.build_model()
        verdict = classify(model, TASK, quick=True)
        assert verdict.phase.label == "Phase 3"
        (note,) = verdict.warnings
        assert "never trained on the pairs (3, 4) and (4, 3), nor on key x at position i where x" in note
        assert note.isprintable() and "fresh noise" in note
        assert classify(model, TASK, training_set=TASK.sample(50), quick=True).warnings == ()


class TestAtChance:
    @pytest.mark.parametrize("variant", ["gpt2", "postnorm", "released"])
    def test_a_random_network_has_no_phase_by_the_probes(self, variant):
        small = {"d_model": 32, "d_head": 16, "d_mlp": 64}
        verdict = classify(build_model(ModelConfig(n_layers=4, variant=variant, **small)), TASK)
        assert verdict.by_probes.phase.cause == "at chance" and verdict.by_probes.probabilities is None
        assert "no sign of training on this task" in verdict.by_probes.phase.reason
        assert verdict.phase.cause == "training data unknown"
        given = classify(verdict.subject.model, TASK, training_set=TASK.sample(500))
        assert (given.phase.cause, given.by_probes.phase.cause) == ("underfit", "at chance")

    def test_chance_follows_from_the_task(self):
        for task in (TASK, AnchorTask(anchors={1: 0, 2: 1}, key_min=20, key_max=29, unseen_pairs=[(1, 2)])):
            targets = task.targets(task.trials("train"))
            best = int(np.bincount(targets).argmax())

            def constant(tokens, best=best):
                return torch.nn.functional.one_hot(torch.full((len(tokens), 1), best), 200).float()

            behaviour = evaluate(constant, task, n_noise=2, max_trials=20_000)
            assert behaviour.best_constant.value == behaviour.train_fresh.value == np.mean(targets == best)
            assert behaviour.at_chance is not None

    def test_models_of_every_phase_are_above_it_also_a_memoriser_without_its_data(self):
        for path in checkpoints.shipped():
            checkpoint = load_checkpoint(path)
            behaviour = evaluate(checkpoint.last_position_model(), checkpoint.task, n_noise=2)
            assert behaviour.at_chance is None

    @pytest.mark.needs("importers")
    def test_a_foreign_model_is_shown_with_what_is_known_of_it(self, tmp_path):
        torch.save(build_model(ModelConfig(n_layers=1)).state_dict(), tmp_path / "theirs.pt")
        (tmp_path / "theirs.toml").write_text(
            "[model]\nvariant = 'gpt2'\nact_fn = 'gelu'\n[task]\nseq_len = 9\n"
        )
        verdict = classify(tmp_path / "theirs.pt", config=tmp_path / "theirs.toml")
        checkpoint = verdict.subject.to_dict()
        assert checkpoint["step"] is None and checkpoint["model_config"]["gamma"] is None
        shown = repr(verdict.subject.checkpoint) + verdict.subject.checkpoint.overview
        assert "gamma" not in shown and "step" not in shown
        save_checkpoint(tmp_path / "saved.pt", verdict.subject.checkpoint)
        again = load_checkpoint(tmp_path / "saved.pt")
        assert again.step is None and again.model_config.gamma is None
        with pytest.raises(ValueError, match="gamma must be set before weights are drawn"):
            build_model(again.model_config)

    def test_a_checkpoint_of_a_loop_of_ones_own_has_no_step_unless_it_is_given(self):
        config = ModelConfig(n_layers=1)
        made = Checkpoint.from_model(build_model(config), config, TASK)
        assert made.step is None and "step" not in repr(made)
        assert Checkpoint.from_model(build_model(config), config, TASK, step=7).step == 7

"""SCAN: the published commands and splits, sequences, and what known answerers come to."""

import collections
import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from anchorlens.configuration import field_types
from anchorlens.extras.scan.task import ACTIONS, COMMAND_WORDS, ScanTask, all_commands
from anchorlens.extras.shared import split_task
from anchorlens.extras.shared.words import BOS, EOS, PAD, SEP, Examples, Vocabulary
from anchorlens.randomness import generator
from anchorlens.tasks.registry import read_evaluation, read_task
from anchorlens.tasks.shared.batch import IGNORE
from anchorlens.tasks.shared.figure_specs import Lines, SampleTable

PUBLISHED = Path(__file__).parents[4] / "shared/data/scan"
needs_files = pytest.mark.skipif(not PUBLISHED.exists(), reason=f"no published SCAN files at {PUBLISHED}")
TASK = ScanTask()


def published(name):
    """(command, actions) of every line of a published file."""
    with gzip.open(PUBLISHED / f"{name}.txt.gz", "rt") as file:
        return [tuple(line.removeprefix("IN: ").strip().split(" OUT: ")) for line in file]


def pairs(examples):
    return list(zip(examples.prompts, examples.answers, strict=True))


class Answerer:
    """A function of tokens that gives what `said` makes of the command, word by word."""

    def __init__(self, task, said):
        self.task, self.said = task, said

    def __call__(self, tokens):
        words = self.task.vocabulary
        logits = torch.zeros(*tokens.shape, len(words))
        for row, sequence in enumerate(tokens.tolist()):
            start = sequence.index(SEP)
            answer = [*words.tokens(self.said(words.text(sequence[1:start]))), EOS]
            for k, token in enumerate(answer[: len(sequence) - start]):
                logits[row, start + k, token] = 1
        return logits


def knows(task, *splits):
    """Answers right what these splits hold, and `I_RUN` to everything else."""
    answers = {p: a for split in splits for p, a in pairs(task.examples(split))}
    return Answerer(task, lambda command: answers.get(command, "I_RUN"))


class TestTheGrammar:
    def test_there_are_20_910_commands_of_13_words_and_6_actions(self):
        commands = all_commands()
        assert len(commands) == 20_910 == 102 + 2 * 102**2
        assert {word for command in commands for word in command.split()} == set(COMMAND_WORDS)
        assert {word for actions in commands.values() for word in actions.split()} == set(ACTIONS)
        assert max(len(command.split()) for command in commands) == 9
        assert max(len(actions.split()) for actions in commands.values()) == 48

    @pytest.mark.parametrize(
        ("command", "actions"),
        [
            ("jump thrice", "I_JUMP I_JUMP I_JUMP"),
            ("turn opposite left", "I_TURN_LEFT I_TURN_LEFT"),
            ("turn around right", " ".join(["I_TURN_RIGHT"] * 4)),
            ("look around left", " ".join(["I_TURN_LEFT I_LOOK"] * 4)),
            ("walk and run", "I_WALK I_RUN"),
            ("walk after run twice", "I_RUN I_RUN I_WALK"),
        ],
    )
    def test_by_hand(self, command, actions):
        assert all_commands()[command] == actions

    @needs_files
    def test_it_is_the_published_set(self):
        assert dict(published("tasks")) == dict(all_commands())


class TestSplits:
    @needs_files
    @pytest.mark.parametrize(("split", "copies"), [("turn_left", 2189), ("jump", 1467)])
    def test_they_are_the_published_files(self, split, copies):
        task = ScanTask(split=split)
        left_out = published(f"tasks_test_addprim_{split}")
        assert len(left_out) == len(task.examples("ood"))
        assert set(left_out) == set(pairs(task.examples("ood")))
        lines = collections.Counter(published(f"tasks_train_addprim_{split}"))
        assert set(lines) == set(pairs(task.examples("train")) + pairs(task.examples("id")))
        bare = (task.primitive, all_commands()[task.primitive])
        assert lines.pop(bare) == copies == round(0.1 * (copies + sum(lines.values())))
        assert set(lines.values()) == {1}

    @needs_files
    def test_simple_is_of_the_published_size(self):
        task = ScanTask(split="simple")
        assert len(task.examples("ood")) == len(published("tasks_test_simple")) == 4182

    @pytest.mark.parametrize("split", ["turn_left", "jump", "simple"])
    def test_no_command_is_in_two_and_all_are_in_one(self, split):
        parts = [set(ScanTask(split=split).examples(name).prompts) for name in ("train", "id", "ood")]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 20_910 and len(parts[1]) == 1000

    def test_the_bare_command_is_trained_and_never_held_out(self):
        for split, bare in (("turn_left", "turn left"), ("jump", "jump")):
            for seed in range(3):
                assert (
                    bare in ScanTask(split=split, split_seed=seed, n_held_out=5000).examples("train").prompts
                )
        assert {"turn around left", "turn opposite left"} <= set(TASK.examples("train").prompts) | set(
            TASK.examples("id").prompts
        )

    def test_they_are_by_seed(self):
        one, same, other = (ScanTask(split_seed=seed).examples("id").prompts for seed in (1, 1, 2))
        assert list(one) == list(same) != list(other)
        with pytest.raises(ValueError, match="split must be one of train, id, ood, got 'test'"):
            TASK.examples("test")


class TestTrainingSet:
    def test_a_tenth_are_copies_and_the_rest_are_different_commands(self):
        drawn = TASK.training_examples(2222, generator(3, "data"))
        counts = collections.Counter(drawn.prompts)
        assert counts.pop("turn left") == 222
        assert len(counts) == 2000 and set(counts.values()) == {1}
        assert set(counts) <= set(TASK.examples("train").prompts)
        assert [all_commands()[prompt] for prompt in drawn.prompts] == list(drawn.answers)

    def test_more_than_there_are_come_again(self):
        counts = collections.Counter(TASK.training_examples(30_000, generator(0, "data")).prompts)
        assert set(counts.values()) == {1, 2, 3000}

    def test_the_simple_split_has_no_copies(self):
        task = ScanTask(split="simple")
        assert len(set(task.training_examples(1000, generator(0, "data")).prompts)) == 1000

    def test_sequences_ask_for_the_answer_and_its_end_and_end_in_padding(self):
        batch = TASK.training_set(50, 0)
        words = TASK.vocabulary
        assert batch.tokens.shape == batch.targets.shape == (50, TASK.training_width)
        for tokens, targets, length in zip(
            batch.tokens.tolist(), batch.targets.tolist(), batch.lengths.tolist(), strict=True
        ):
            start = tokens.index(SEP)
            command, said = words.text(tokens[1:start]), tokens[start + 1 : length]
            assert tokens[0] == BOS and words.text(said) == all_commands()[command]
            assert targets[:start] == [IGNORE] * start and targets[start:length] == [*said, EOS]
            assert set(tokens[length:]) <= {PAD} and set(targets[length:]) <= {IGNORE}


class TestEvaluate:
    @pytest.mark.parametrize(
        ("splits", "expected"),
        [
            (("train", "id", "ood"), "Phase 3"),
            (("train", "id"), "Phase 2"),
            (("train",), "Phase 1"),
            ((), "undecided: training data unknown"),
        ],
    )
    def test_what_known_answerers_come_to(self, splits, expected):
        found = TASK.evaluate(knows(TASK, *splits), max_train=200)
        assert found.phase.label == expected
        for name in splits:
            assert found.measure(name).value == 1
        assert found.measure("id").n_sequences == 1000 and found.measure("ood").n_sequences == 1208

    def test_sequences_that_are_made_some_at_a_time_are_the_same(self, monkeypatch):
        """Half of the commands are right, some but for their end mark."""
        known = {p: a for p, a in pairs(TASK.examples("ood")) if len(p) % 2}
        some = Answerer(TASK, lambda p: known.get(p, "I_RUN") + " I_RUN" * (len(p) % 3 == 0))
        whole = TASK.evaluate(some, max_train=50)
        monkeypatch.setattr(split_task, "AT_ONCE", 100)
        assert TASK.evaluate(some, max_train=50).to_dict() == whole.to_dict()
        assert 0.2 < whole.measure("ood").value < whole.measure("ood_without_end").value < 0.6

    def test_the_end_mark_is_asked_and_also_not(self):
        right = {p: a for p, a in pairs(TASK.examples("ood"))}
        one_more = Answerer(TASK, lambda command: f"{right[command]} I_RUN" if command in right else "I_RUN")
        found = TASK.evaluate(one_more, max_train=50)
        assert found.measure("ood").value == 0 and found.measure("ood_without_end").value == 1

    def test_a_training_set_that_is_given_is_asked_once_for_each_sequence(self):
        data = TASK.training_set(300, 0)
        found = TASK.evaluate(knows(TASK, "train"), training_set=data)
        assert found.measure("train").n_sequences == 271 and found.train_source == "training set"

    def test_the_picture_and_the_transcript(self):
        found = TASK.evaluate(knows(TASK, "id"), max_train=50)
        lines, sample_table = found.figure_specs
        assert isinstance(lines, Lines) and isinstance(sample_table, SampleTable)
        assert {y for y in lines.y["ID"] if y is not None} == {1.0}
        assert {y for y in lines.y["OOD"] if y is not None} == {0.0}
        assert list(lines.x) == sorted(lines.x)
        by_split = collections.Counter((one.asked_of, one.right) for one in sample_table.answers)
        assert by_split == {("ID", True): 4, ("OOD", False): 4}
        for one in sample_table.answers:
            assert one.expected == all_commands()[one.prompt]
            assert one.said == (one.expected if one.right else "I_RUN")

    def test_it_comes_back_from_json(self):
        found = TASK.evaluate(knows(TASK, "train"), max_train=50)
        back = read_evaluation(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
        assert back.to_dict() == found.to_dict() and back.figure_specs[1] == found.figure_specs[1]

    def test_quickly_it_asks_a_sample(self):
        data = TASK.training_set(300, 0)
        found = TASK.measure(knows(TASK, "train", "id"), data)
        assert found == {"train_accuracy": 1.0, "id_accuracy": 1.0, "ood_accuracy": 0.0}


class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"split": "around_right"}, "split must be one of turn_left, jump, simple"),
            ({"n_held_out": 0}, r"n_held_out.*>= 1 and <= 5000"),
            ({"split_seed": -1}, "split_seed must be an integer >= 0"),
        ],
    )
    def test_one_clear_error(self, fields, message):
        with pytest.raises(ValueError, match=message):
            ScanTask(**fields)

    def test_unknown_words(self):
        with pytest.raises(ValueError, match=r"19 words.*got 'fly' in 'fly twice'"):
            TASK.sequences(Examples(["fly twice"], ["I_RUN"]))

    def test_an_example_that_is_too_long(self):
        with pytest.raises(ValueError, match=r"example.*at most 5 tokens, got 6"):
            TASK.vocabulary.sequences(Examples(["walk and run"], ["I_RUN"]), 5)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (([[1, 4, 2, 17]], [3]), r"target for each token, got .* targets \[1\]"),
            (([[1, 4, 2, 23]], [[-100, -100, 17, 3]]), "tokens of the training data must be 0 to 22"),
            ((np.ones((1, 60), int), np.ones((1, 60), int)), "must have at most 59 tokens, got 60"),
        ],
    )
    def test_training_data_of_another_shape_or_vocabulary(self, data, message):
        with pytest.raises(ValueError, match=message):
            TASK.evaluate(knows(TASK), training_set=data)


def test_it_travels_as_data():
    task = ScanTask(split="jump", n_held_out=7, split_seed=4)
    assert read_task(task.to_dict()) == task and task.to_dict()["kind"] == "scan"
    assert set(task.to_dict()) == {"kind", *field_types(ScanTask)}
    assert dataclasses.replace(task, split="simple") != task and hash(task) == hash(read_task(task.to_dict()))


def test_it_says_what_it_is_in_words():
    text = TASK.describe()
    assert "18,702 commands, a tenth of the examples `turn left`" in text and "1,208 commands" in text
    assert "at random" in ScanTask(split="simple").describe()


def test_tokens_that_no_word_has_are_written_as_numbers():
    assert Vocabulary(("walk",)).text([4, EOS, 9]) == "walk <eos> <9>"


def test_each_half_of_what_is_left_out_is_measured_by_itself():
    task = dataclasses.replace(TASK, split="jump")
    known = {p: a for split in ("train", "id") for p, a in pairs(task.examples(split))}
    known |= dict(pairs(task.examples("ood"))[::2])
    model = Answerer(task, lambda command: known.get(command, "I_RUN"))
    found = [task.evaluate(model, max_train=10, half=half) for half in (0, 1, None)]
    assert [one.ood.value for one in found[:2]] == [1, 0] and abs(found[2].ood.value - 0.5) < 0.01
    assert {one.id.value for one in found} == {1}


@pytest.mark.parametrize(
    ("theirs", "advice"),
    [
        *((name, ". Did you mean 'jump'?") for name in ("addprim_jump", "add-prim-jump", "add_jump", "Jump")),
        ("tasks_train_addprim_turn_left.txt", ". Did you mean 'turn_left'?"),
        ("xyz", "got 'xyz'"),
    ],
)
def test_a_split_of_another_name_is_known(theirs, advice):
    with pytest.raises(ValueError, match="split must be one of turn_left, jump, simple, got") as error:
        ScanTask(split=theirs)
    assert advice in str(error.value) and (theirs != "xyz" or str(error.value).endswith(advice))

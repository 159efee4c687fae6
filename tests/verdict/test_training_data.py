"""A stranger's model that memorised: Phase 1 with its training data, undecided without them."""

import functools
import json
from dataclasses import replace

import anchorlens_command
import numpy as np
import pytest
import torch

from anchorlens import (
    AnchorTask,
    Checkpoint,
    CheckpointError,
    ModelConfig,
    build_model,
    classify,
    evaluate,
    load_checkpoint,
    save_checkpoint,
    train,
)
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.shared.phases import Phase
from anchorlens.training import checkpoints
from anchorlens.verdict import ProbeVerdict
from anchorlens.verdict.explanation import explain

PHASE1 = next(path for path in checkpoints.shipped() if path.stem == "phase1")
TINY = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16)
TINY_MODEL = build_model(TINY)


@pytest.fixture(scope="module")
def checkpoint():
    return load_checkpoint(PHASE1)


@pytest.fixture(scope="module")
def data(checkpoint):
    return checkpoint.training_set()


@pytest.fixture(scope="module")
def files(tmp_path_factory, checkpoint, data):
    """Its weights as a bare state dict and as a checkpoint that does not say how it was trained; its data."""
    folder = tmp_path_factory.mktemp("theirs")
    torch.save(dict(checkpoint.weights), folder / "theirs.pt")
    (folder / "theirs.toml").write_text("[model]\nvariant = 'gpt2'\nact_fn = 'gelu'\ngamma = 0.3\n")
    save_checkpoint(folder / "untold.pt", replace(checkpoint, train_config=None))
    rows = np.column_stack([data.tokens.numpy(), data.targets.numpy()])
    np.savetxt(folder / "data.csv", rows, fmt="%d", delimiter=",")
    return folder


call = functools.partial(anchorlens_command.call, code=None)


def test_a_path_is_as_good_as_what_is_in_its_file(checkpoint, data, files):
    model = checkpoint.build_model()
    given = evaluate(model, training_set=files / "data.csv", n_noise=2)
    assert given.to_dict() == evaluate(model, training_set=data, n_noise=2).to_dict()
    assert classify(
        TINY_MODEL, training_set=str(files / "data.csv"), even_underfit=False
    ).behaviour.train_is_known
    with pytest.raises(CheckpointError, match="nothing.csv: cannot be read: No such file"):
        classify(TINY_MODEL, training_set="nothing.csv")


class TestInMemory:
    def test_with_its_training_data_it_is_phase_1(self, checkpoint, data):
        verdict = classify(
            checkpoint.build_model(), checkpoint.task, training_set=(data.tokens, data.targets)
        )
        assert verdict.phase.label == verdict.by_probes.phase.label == "Phase 1"
        assert verdict.agreement is True and verdict.warnings == ()
        assert verdict.behaviour.to_dict() == checkpoint.evaluate(training_set=data).to_dict()
        assert verdict.to_dict()["behaviour"]["train_source"] == "training set"

    def test_without_them_they_are_unknown_and_the_probes_name_its_phase(self, checkpoint):
        verdict = classify(checkpoint.build_model(), checkpoint.task)
        assert verdict.phase.cause == verdict.behaviour.phase.cause == "training data unknown"
        assert verdict.phase.number is None and verdict.agreement is None
        assert verdict.by_probes.phase.label == "Phase 1"
        words = " ".join((verdict.explanation, verdict.phase.reason, *verdict.warnings))
        assert "train longer" not in words and "--train-data FILE" in words
        assert "If the model has fit its training data, its activations and weights resemble those" in words
        assert words.count("the verdict assumes that the model was never trained on the pairs (3, 4)") == 1


class TestOnTheCommandLine:
    @pytest.mark.needs("importers")
    def test_a_bare_state_dict_with_and_without_its_training_data(self, files):
        command = ["classify", files / "theirs.pt", "--config", files / "theirs.toml"]
        done = call(*command, "--json", "--train-data", files / "data.csv")
        content = json.loads(done.stdout)
        assert (done.exit_code, content["phase"]["label"], content["agreement"]) == (0, "Phase 1", True)
        assert content["behaviour"]["train_source"] == "training set"
        assert not [line for line in content["warnings"] if "training data" in line]

        without = call(*command, "--strict")
        text = " ".join(without.stdout.split())
        assert without.exit_code == 4 and "undecided: training data unknown" in text
        assert "train longer" not in text and text.count("give these data: training_set") == 1
        assert "not known: train accuracy" not in text

    @pytest.mark.slow
    def test_they_are_for_those_that_do_not_carry_their_own(self, files):
        phase3 = checkpoints.shipped()[-1]
        done = call(
            "classify", "--quick", files / "untold.pt", phase3, "--json", "--train-data", files / "data.csv"
        )
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [row["phase"]["label"] for row in rows] == ["Phase 1", "Phase 3"] and done.exit_code == 0
        assert [row["behaviour"]["train_source"] for row in rows] == ["training set"] * 2

    @pytest.mark.parametrize("command", ["classify", "evaluate"])
    def test_where_every_checkpoint_carries_its_own_they_are_refused(self, files, command):
        done = call(command, PHASE1, "--train-data", files / "data.csv")
        assert done.exit_code == 2 and done.stdout == ""
        assert "only checkpoints that describe their" in done.stderr and done.stderr.count("\n") == 1

    def test_evaluate_takes_them(self, files):
        done = call("evaluate", files / "untold.pt", "--n-noise", 2, "--train-data", files / "data.csv")
        assert done.exit_code == 0 and "Phase 1" in done.stdout
        done = call("evaluate", files / "untold.pt", "--n-noise", 2)
        assert done.exit_code == 0 and "undecided: training data unknown" in " ".join(done.stdout.split())

    @pytest.mark.parametrize(
        ("text", "cause"),
        [
            ("23,1,2,29\n", "got tokens [1, 3]"),
            ("23,1,2,30,31,32,33,34,110,29\n", "tokens of the training data must be 0 to 109"),
            ("23,1,2,30,31,32,33,34,35,110\n", "targets of the training data must be 0 to 109"),
        ],
    )
    def test_data_of_another_task_are_refused_before_anything(self, files, tmp_path, text, cause):
        (tmp_path / "other.csv").write_text(text)
        given = ["--train-data", tmp_path / "other.csv"]
        for command in (["classify", PHASE1, files / "untold.pt"], ["evaluate", files / "untold.pt"]):
            done = call(*command, *given)
            assert done.exit_code == 3 and done.stdout == ""
            assert "other.csv: " in done.stderr and cause in done.stderr and done.stderr.count("\n") == 1

    def test_a_checkpoint_that_cannot_be_read_is_still_what_is_complained_of(self, files, tmp_path):
        (tmp_path / "broken.pt").write_bytes(b"PK\x03\x04 and no more")
        done = call("classify", tmp_path / "broken.pt", "--train-data", files / "data.csv")
        assert done.exit_code == 3 and "broken.pt" in done.stderr and "--train-data" not in done.stderr
        assert call("classify", PHASE1, "--train-data", tmp_path / "none.csv").exit_code == 2


@pytest.mark.parametrize(
    "form",
    [
        lambda data: data,
        lambda data: TokenBatch(data.tokens, data.targets),
        lambda data: (data.tokens.int(), data.targets.short()),
        lambda data: (data.tokens.numpy(), data.targets.numpy().astype(">u2")),
        lambda data: [data.tokens.tolist(), data.targets.tolist()],
    ],
)
def test_every_form_of_the_same_data_gives_the_same_bits(form):
    task, model = AnchorTask(), build_model(TINY)
    drawing = task.lazy_sample(50, split="train", seed=0)
    options = {"n_noise": 2, "max_trials": 20, "max_train": 30}
    expected = evaluate(model, task, training_set=drawing, **options).to_dict()
    assert evaluate(model, task, training_set=form(drawing.all()), **options).to_dict() == expected


TOKENS, TARGETS = [[23, 1, 2, 30, 31, 32, 33, 34, 35]], [29]


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ("nothere.csv", "nothere.csv: cannot be read: No such file"),
        ((TOKENS, TARGETS, None), "must be a pair (tokens, targets), got 3 values"),
        (([], []), "got tokens [0] "),
        ((torch.zeros(0, 9, dtype=int), []), "got tokens [0, 9]"),
        ((TOKENS[0], TARGETS), "got tokens [9] and"),
        (([TOKENS[0][:8]], TARGETS), "got tokens [1, 8]"),
        (([TOKENS[0], [1]], TARGETS), "must be integers in rows of equal length"),
        ((TOKENS, [29, 30]), "a target for each row of tokens, got tokens [1, 9] and targets [2]"),
        ((TOKENS, TOKENS), "a target for each row of tokens, got tokens [1, 9] and targets [1, 9]"),
        ((TOKENS, [29.0]), "must be integers, got float64"),
        ((torch.tensor(TOKENS).float(), TARGETS), "must be integers, got float32"),
        ((torch.tensor(TOKENS).bfloat16(), TARGETS), "must be integers"),
        ((torch.tensor(TOKENS) > 1, TARGETS), "must be integers, got bool"),
        ((TOKENS, [float("nan")]), "must be integers, got float64"),
        ((TOKENS, ["a"]), "must be integers, got <U1"),
        ((TOKENS, [-1]), "targets of the training data must be 0 to 109"),
        (([[110, *TOKENS[0][1:]]], TARGETS), "tokens of the training data must be 0 to 109"),
        ((TOKENS, [2**70]), "must be integers, got object"),
        (AnchorTask(seq_len=12).sample(3, seed=0), "got tokens [3, 12]"),
        (AnchorTask(seq_len=12).lazy_sample(3, split="train", seed=0), "drawn from a task with seq_len 9"),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_refused_before_the_model_is_asked(given, cause):
    def model(tokens):
        raise AssertionError("asked")

    with pytest.raises(ValueError) as error:
        evaluate(model, AnchorTask(), training_set=given)
    assert cause in str(error.value) and str(error.value).isprintable()


def test_a_checkpoint_that_knows_its_own_takes_no_other(data, checkpoint):
    for own in (checkpoint, PHASE1):
        with pytest.raises(ValueError, match="training_set must be omitted"):
            classify(own, training_set=data)
    result = train(
        model_config=TINY,
        train_config=replace(checkpoint.train_config, steps=1, n_samples=100, batch_size=10),
    )
    with pytest.raises(ValueError, match="training_set must be omitted"):
        classify(result, training_set=data)


def test_a_checkpoint_in_memory_that_does_not_say_how_it_was_trained_takes_it():
    task = AnchorTask()
    given = Checkpoint.from_model(build_model(TINY), TINY, task)
    verdict = classify(given, training_set=task.sample(20, seed=0))
    assert verdict.behaviour.train.n_sequences == 20 and verdict.phase.label == "undecided: underfit"


def test_the_inside_is_shown_only_where_it_names_a_phase():
    unknown = Phase.undecided("training data unknown", "x")
    agreement, text = explain(unknown, ProbeVerdict(Phase.undecided("ambiguous", "y"), {}, ()))
    assert agreement is None and "resemble" not in text and "ambiguous: y" in text
    agreement, text = explain(unknown, ProbeVerdict(Phase(3, None, ""), {}, ()))
    assert (
        agreement is None
        and "If the model has fit its training data, its activations and weights resemble those of models "
        "that compose the rules."
        in text
    )

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from anchorlens_command import call as run

from anchorlens import AnchorTask, ModelConfig, TrainConfig, load_checkpoint
from anchorlens.verdict import ClassifiedModel

ROOT = Path(__file__).parents[2]
WIDE = {**os.environ, "COLUMNS": "200"}
SMALL = ["--n-layers", "1", "--d-model", "16", "--d-head", "8", "--d-mlp", "16"]
FAST = [*SMALL, "--steps", "4", "--n-samples", "600", "--n-checkpoints", "0"]


def run_process(*arguments):
    """The real command in a process of its own."""
    command = [sys.executable, "-m", "anchorlens", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, env=WIDE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "run"
    return run_process("train", "--preset", "quick", "--gamma", 0.3, "--seed", 5, *FAST, "--out", out), out


class TestTrain:
    def test_saves_a_checkpoint_and_prints_accuracies_with_their_meaning(self, trained):
        done, out = trained
        checkpoint = load_checkpoint(out / "ckpt.pt")
        assert (checkpoint.model_config.gamma, checkpoint.train_config.seed, checkpoint.step) == (0.3, 5, 4)
        for words in (
            "train",
            "ID",
            "OOD",
            "commutativity",
            "undecided: underfit",
            "trained pairs at held-out",
        ):
            assert words in done.stdout
        began, *ended = done.stderr.splitlines()  # and no progress bar
        assert began == f"training gpt2, 1 layer, 1 head, d_model 16 · gamma 0.3, seed 5 · 4 steps in {out}"
        assert ended == [f"finished at step 4; the model is in {out}/ckpt.pt"]

    def test_every_field_is_an_option(self):
        text = run("train", "--help-all").stdout
        for cls in (AnchorTask, ModelConfig, TrainConfig):
            for name in cls.__dataclass_fields__:
                flag = f"--{name.replace('_', '-')}"
                assert flag in text, flag

    def test_toml_and_flags(self, tmp_path):
        (tmp_path / "run.toml").write_text(
            """
            preset = "paper-2l1h"
            [task]
            regime = "conflict"
            anchors = {1 = 5, 2 = 1, 3 = -2, 4 = -8}
            overrides = {"1,2" = 9}
            [model]
            gamma = 0.9
            [train]
            steps = 4
            """
        )
        flags = ["--d-model", 16, "--d-head", 8, "--d-mlp", 16, "--n-samples", 300, "--batch-size", 32]
        toml = ["--config", tmp_path / "run.toml", "--warmup-steps", 2]
        run("train", *toml, *flags, "--gamma-qk", 0.2, "--anchors", '{"1": 4, "2": 1, "3": -2, "4": -8}',
            "--regime", "reasoning", "--unseen-pairs", "[[3, 3]]", "--out", tmp_path / "run")  # fmt: skip
        checkpoint = load_checkpoint(tmp_path / "run/ckpt.pt")
        model = checkpoint.model_config
        assert (model.variant, model.gamma, model.gamma_qk) == ("postnorm", 0.9, 0.2)
        assert checkpoint.train_config.steps == 4 and checkpoint.train_config.epochs is None
        assert checkpoint.task.anchors[1] == 4 and checkpoint.task.ood_pairs == ((3, 3),)
        assert checkpoint.task.overrides == {(1, 2): 9}

    def test_resume(self, trained):
        _, out = trained
        done = run("train", "--resume", "--json", "--out", out)
        assert json.loads(done.stdout)["subject"]["step"] == 4

    def test_resume_takes_the_rest_from_the_run(self, trained):
        _, out = trained
        run("train", "--resume", "--out", out, "--threads", 1)  # where it runs may change
        done = run("train", "--resume", "--out", out, "--gamma", 0.9, code=2)
        assert "gamma of a resumed run must stay" in done.stderr

    def test_a_preset_by_flag_beats_the_one_in_the_file(self, tmp_path):
        (tmp_path / "run.toml").write_text('preset = "paper-gpt2"\n[train]\nbatch_size = 100')
        run("train", "--preset", "quick", "--config", tmp_path / "run.toml", *FAST, "--out", tmp_path / "run")
        checkpoint = load_checkpoint(tmp_path / "run/ckpt.pt")
        assert (checkpoint.train_config.batch_size, checkpoint.train_config.epochs) == (100, None)

    @pytest.mark.needs()
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["train"], "--out must be the folder of the run, got none"),
            (["train", "--out", "{out}"], "must not contain a run"),
            (["train", "--out", "{new}", "--preset", "slow"], "preset must be one of quick, paper-2l1h"),
            (["train", "--out", "{new}", "--gama", "1"], "No such option: --gama (Possible options: --gamma"),
            (["train", "--out", "{new}", "--d-model", "x"], "d_model must be an integer >= 1, got 'x'"),
            (["train", "--out", "{new}", "--variant", "rnn"], "variant must be one of gpt2, "),
            (["train", "--out", "{new}", "--preset", "scan", "--split", "add_jump"], "Did you mean 'jump'?"),
            (["train", "--out", "{new}", "--anchors", "3,4"], "--anchors must be JSON, got '3,4'"),
            (["train", "--out", "{new}", "--lr", "-1"], "lr must be a finite number > 0, got -1.0"),
            (["train", "--out", "{new}", "--epochs", "3", "--steps", "3"], "must not both be given"),
            (["train", "--out", "{new}", "--config", "/no.toml"], "does not exist"),
            (["train", "--out", "{new}", "--device", "gpu"], "device must be auto, cpu, cuda, cuda:N or mps"),
            (["evaluate"], "Missing argument"),
            (["compose"], "the command must be available, got 'compose'"),
        ],
    )
    def test_wrong_usage_is_exit_2_and_one_clear_message(self, trained, tmp_path, arguments, message):
        filled = [a.format(out=trained[1], new=tmp_path / "new") for a in arguments]
        done = run(*filled, code=2)
        assert message in " ".join(done.stderr.replace("│", " ").split())
        assert done.stdout == "" and not (tmp_path / "new").exists()

    def test_unusable_toml(self, tmp_path):
        (tmp_path / "a.toml").write_text("gamma = ")
        done = run("train", "--out", tmp_path / "new", "--config", tmp_path / "a.toml", code=2)
        assert "a.toml: the file must be TOML" in done.stderr
        (tmp_path / "a.toml").write_text("[modle]\ngamma = 1.0")
        done = run("train", "--out", tmp_path / "new", "--config", tmp_path / "a.toml", code=2)
        assert "must be one of task, model, train, got 'modle'" in done.stderr

    def test_a_diverging_run_is_exit_1_with_a_message(self, tmp_path):
        done = run("train", *FAST, "--lr", 1e38, "--warmup-steps", 1, "--out", tmp_path / "run", code=1)
        assert done.stderr.splitlines()[-1].startswith("anchorlens: training diverged: ")


@pytest.mark.usefixtures("all_questions")
class TestEvaluate:
    def test_json_is_one_object_and_everything_else_is_elsewhere(self, trained):
        content = json.loads(run("evaluate", trained[1] / "ckpt.pt", "--json", "--n-noise", 2).stdout)
        assert content["schema_version"] == 1
        assert content["subject"]["step"] == 4
        assert content["subject"]["model_config"]["gamma"] == 0.3
        stored = load_checkpoint(trained[1] / "ckpt.pt")
        described = ClassifiedModel.of(stored, stored.task, stored.build_model()).to_dict()
        shared = described.keys() & content["subject"].keys()
        assert {"step", "model_config", "train_config", "versions"} <= shared  # as classify --json has them
        assert {name: described[name] for name in shared - {"path"}} == {
            name: content["subject"][name] for name in shared - {"path"}
        }
        behaviour = content["behaviour"]
        assert behaviour["phase"]["label"] == "undecided: underfit"
        measures = behaviour["measures"]
        assert set(measures) == {"train", "id", "ood", "symmetric", "commutativity"}
        assert measures["symmetric"] is None and 0 <= measures["ood"]["value"] <= 1
        assert len(behaviour["pairs"]) == 16

    def test_agrees_with_what_training_reported(self, trained):
        content = json.loads(run("evaluate", trained[1] / "ckpt.pt", "--json").stdout)
        metrics = load_checkpoint(trained[1] / "ckpt.pt").metrics
        for name in ("train", "id", "ood", "commutativity"):
            assert content["behaviour"]["measures"][name]["value"] == metrics[name]

    @pytest.mark.parametrize(
        ("content", "cause"), [(b"", "it is empty"), (b"PK\x03\x04 no zip at all", "truncated or damaged")]
    )
    def test_an_unreadable_checkpoint_is_exit_3_and_one_line(self, tmp_path, content, cause):
        (tmp_path / "a.pt").write_bytes(content)
        done = run("evaluate", tmp_path / "a.pt", "--json", code=3)
        assert done.stdout == "" and done.stderr.count("\n") == 1
        assert done.stderr.startswith(f"anchorlens: {tmp_path}/a.pt: ") and cause in done.stderr

    def test_a_missing_checkpoint_is_exit_3(self, tmp_path):
        assert "cannot be read: No such file" in run("evaluate", tmp_path / "a.pt", code=3).stderr


class TestLightness:
    """Help and wrong arguments must not pay for torch or transformer_lens."""

    CODE = """
import sys
from anchorlens.cli import main
sys.argv = ["anchorlens", *ARGUMENTS[0]]
for number, arguments in enumerate(ARGUMENTS):
    try:
        if number == 0:
            main()
        else:  # what main calls
            from anchorlens.cli.commands import app

            app(arguments)
    except SystemExit:
        pass
    print(arguments, sorted({"torch", "transformer_lens"} & set(sys.modules)), file=sys.stderr)
"""
    ARGUMENTS = (
        ["--help"],
        ["--version"],
        ["train", "--help"],
        ["train", "--preset", "scan", "--help-all"],
        ["train", "--gama"],
        ["train", "--lr", "-1", "--out", "x"],
        ["sweep", "--help"],
        ["sweep", "--gamma", "0.8:0.3:0.1", "--out", "x"],
        ["sweep", "--gamma", "0.3,0.5", "--lr", "-1", "--out", "x"],
    )

    def test_no_heavy_import(self):
        code = f"ARGUMENTS = {self.ARGUMENTS}\n{self.CODE}"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
        )
        lines = done.stderr.splitlines()
        assert all(f"{arguments} []" in lines for arguments in self.ARGUMENTS), done.stderr

"""What a file of somebody else's may name: what the user did not name is not opened, hashed or looked up."""

import builtins
import hashlib
import io
import json
import os
import shutil

import pytest
import torch
from anchorlens_command import call
from foreign_checkpoints import write_hugging_face
from sweeping import tiny

from anchorlens import (
    CheckpointError,
    CogsTask,
    TextTask,
    build_model,
    load_checkpoint,
    preset,
    save_checkpoint,
)
from anchorlens.extras.sweep import open_sweep
from anchorlens.extras.sweep.sweep_folder import SweepFolder
from anchorlens.files import container
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.importers import open_checkpoint
from anchorlens.probes import training_regime
from anchorlens.recipes.run_config import RunConfig
from anchorlens.recipes.train_config import TrainConfig

SMALL = {
    "n_layers": 1,
    "d_model": 16,
    "d_head": 8,
    "d_mlp": 16,
    "n_samples": 64,
    "batch_size": 64,
    "steps": 2,
}
WATCHED = [(os, "stat"), (os, "lstat"), (os, "open"), (os, "scandir"), (os, "listdir"), (os, "access")]
WATCHED += [(io, "open"), (builtins, "open")]


@pytest.fixture
def secret(tmp_path):
    """A file that the user did not name."""
    path = tmp_path / "private" / "secret.txt"
    path.parent.mkdir()
    path.write_bytes(b"the only copy of a password")
    return path


@pytest.fixture
def touched(secret, monkeypatch):
    """What was asked of the folder of the secret."""
    found = []

    def watching(owner, name):
        real = getattr(owner, name)

        def watched(path=None, *args, **options):
            if isinstance(path, str | bytes | os.PathLike) and str(secret.parent) in str(path):
                found.append((name, str(path)))
            return real(path, *args, **options)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in WATCHED:
        watching(owner, name)
    return found


def stored(path, part="train", **fields):
    """A checkpoint in which somebody wrote these fields."""
    task, config, train = preset("quick", **SMALL)
    save_checkpoint(
        path, Checkpoint.from_model(build_model(config), config, task, train_config=train, step=2)
    )
    header, tensors = container.read(path)
    header[part].update(fields)
    container.write(path, header, tensors)
    return path


def test_the_watch_sees(secret, touched):
    assert secret.exists() and secret.read_bytes() and os.path.isfile(secret)
    assert {name for name, _ in touched} >= {"stat", "open"}


class TestTheStartOfARun:
    @pytest.mark.parametrize(
        "command", ["evaluate --json", "classify --json", "probe stable_rank", "control"]
    )
    def test_without_its_hash_a_checkpoint_is_refused(self, command, secret, touched, tmp_path):
        path = stored(tmp_path / "theirs.pt", start=str(secret))
        out = ["--out", tmp_path / "out"] if command == "control" else []
        done = call(*command.split(), path, *out, code=3)
        assert done.stderr.splitlines()[-1].startswith("anchorlens: ") and not touched
        assert "must hold the start_sha256" in done.stderr
        assert hashlib.sha256(secret.read_bytes()).hexdigest() not in done.output
        with pytest.raises(CheckpointError, match="must hold the start_sha256"):
            load_checkpoint(path)

    @pytest.mark.parametrize("guess", ["right", "wrong", "no such file"])
    def test_with_a_hash_nothing_tells_whether_it_is_right(self, guess, tmp_path, secret, touched):
        named = secret.with_name("nothing") if guess == "no such file" else secret
        digest = hashlib.sha256(secret.read_bytes()).hexdigest() if guess == "right" else 64 * "0"
        path = stored(tmp_path / "theirs.pt", start=str(named), start_sha256=digest)
        checkpoint = load_checkpoint(path)
        touched.clear()  # the test itself looked
        assert json.loads(call("evaluate", path, "--json").stdout)
        with pytest.raises(ValueError, match=r"start must be .*this run started from") as error:
            checkpoint.initial_model()
        with pytest.raises(ValueError) as of_probe:
            training_regime(path)
        assert str(of_probe.value) == str(error.value) and str(named) in str(error.value)
        assert digest not in str(error.value) and not touched

    def test_the_user_names_it(self, tmp_path):
        first, other = (tmp_path / name for name in ("first.pt", "other.pt"))
        task, config, _ = preset("quick", **SMALL)
        for seed, path in enumerate((first, other)):
            save_checkpoint(path, Checkpoint.from_model(build_model(config, seed=seed), config, task))
        recipe = TrainConfig(start=str(first))
        path = stored(tmp_path / "theirs.pt", start="/nowhere/else.pt", start_sha256=recipe.start_sha256)
        model = load_checkpoint(path).initial_model(start=first)
        assert torch.equal(model.embed.W_E, load_checkpoint(first).weights["embed.W_E"])
        assert "weights moved" in call("probe", "training_regime", path, "--initial", first).stdout
        with pytest.raises(ValueError, match="start must be the file with SHA-256"):
            load_checkpoint(path).initial_model(start=other)
        with pytest.raises(ValueError, match="start must be None for a run"):
            load_checkpoint(stored(tmp_path / "drawn.pt")).initial_model(start=first)

    @pytest.mark.needs("importers")
    def test_nor_does_a_run_or_a_sweep_name_a_file_to_hash(self, secret, touched, tmp_path):
        runs = tiny({"seed": "0:2"})
        with SweepFolder(tmp_path / "sweep").lock(runs):
            pass
        config = {"format": "anchorlens run", "format_version": 1, **runs[0].to_dict()}
        config["train"]["start"] = str(secret)
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
        listed = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
        listed["cells"][1]["train"]["start"] = str(secret)
        (tmp_path / "sweep" / "sweep.json").write_text(json.dumps(listed))
        commands = [
            ("train", "--resume", "--out", tmp_path / "run"),
            ("status", tmp_path / "sweep", "--json"),
            ("status", tmp_path / "sweep"),
            ("diagram", tmp_path / "sweep", "--table", tmp_path / "cells.csv"),
        ]
        for command in commands:
            done = call(*command, code=3)
            assert "must hold the start_sha256" in done.stderr and done.stderr.count("\n") == 1
        with pytest.raises(CheckpointError):
            open_sweep(tmp_path / "sweep")
        with pytest.raises(ValueError, match="must hold the start_sha256"):
            RunConfig.from_dict({"train": {"start": str(secret)}})
        torch.save(build_model(preset("quick", **SMALL).model_config).state_dict(), tmp_path / "bare.pt")
        with pytest.raises(CheckpointError, match="must hold the start_sha256"):
            open_checkpoint(tmp_path / "bare.pt", config={"train": {"start": str(secret)}})
        assert not touched and not (tmp_path / "cells.csv").exists()

    @pytest.mark.parametrize("start", [b"", b"PK\x03\x04"])
    def test_only_a_checkpoint_is_hashed(self, start, tmp_path, monkeypatch):
        """Not three terabytes that take no room on the disk."""
        path = tmp_path / "sparse.pt"
        with path.open("wb") as file:
            file.write(start)
            file.truncate(3 * 2**40)
        monkeypatch.setattr(hashlib, "sha256", None)
        with pytest.raises(ValueError, match=r"start.*(not a checkpoint|free memory)"):
            TrainConfig(start=str(path))


class TestTheFilesOfATask:
    """`text` and `cogs` keep the paths that they were trained on."""

    @pytest.mark.parametrize("there", [True, False])
    def test_of_a_checkpoint_they_are_not_opened(self, there, secret, touched, tmp_path):
        named = secret.parent if there else secret.parent / "nothing"
        version = "1 file, 27 bytes, SHA-256 0123456789abcdef"
        fields = {"kind": "text", "corpus": "files", "data": str(named), "version": version}
        task = TextTask(corpus="files", version=version, seq_len=32)
        path = tmp_path / "theirs.pt"
        config = preset("text", **{**SMALL, "n_ctx": 32, "n_heads": 1}).model_config
        save_checkpoint(path, Checkpoint.from_model(build_model(config), config, task))
        header, tensors = container.read(path)
        header["task"].update(fields)
        container.write(path, header, tensors)
        assert load_checkpoint(path).task == task and load_checkpoint(path).task.data == ""
        for command in ("evaluate", "classify"):
            done = call(command, path, "--json", code=None)
            assert done.exit_code and f"data must name the files of {version}" in done.output
        assert not touched

    def test_nor_are_those_of_a_sweep(self, secret, touched, tmp_path):
        for fields, says in (
            ({"version": ""}, "must have the field version"),
            ({"version": "1 file, 27 bytes"}, ""),
        ):
            out = tmp_path / f"sweep{len(says)}"
            with SweepFolder(out).lock(tiny({"seed": "0:2"})):
                pass
            listed = json.loads((out / "sweep.json").read_text())
            run = preset("text", **{**SMALL, "n_ctx": 256, "n_heads": 1}).to_dict()
            run["task"].update(corpus="files", data=str(secret), **fields)
            listed["cells"] = [run, {**run, "train": {**run["train"], "seed": 1}}]
            (out / "sweep.json").write_text(json.dumps(listed))
            done = call("status", out, "--json", code=3 if says else 0)
            assert (
                says in done.stderr
                and hashlib.sha256(secret.read_bytes()).hexdigest()[:16] not in done.output
            )
        touched.clear()
        assert open_sweep(out).cells[1].run.task.data == "" and not touched

    def test_of_cogs_neither(self, secret, touched, tmp_path):
        config = preset("cogs", **SMALL).model_config
        path = tmp_path / "theirs.pt"
        save_checkpoint(
            path, Checkpoint.from_model(build_model(config), config, CogsTask(data=str(secret.parent)))
        )
        assert load_checkpoint(path).task.data == "" and not touched


class TestLinksOutOfAFolder:
    """What an archive may bring: links to files of the reader, whose existence and content stay unknown."""

    @pytest.fixture(params=[True, False], ids=["there", "not there"])
    def elsewhere(self, request, tmp_path):
        """A folder of the user's, with one of our checkpoints, or none."""
        folder = tmp_path / "elsewhere"
        if request.param:
            (folder / "checkpoints").mkdir(parents=True)
            for name in ("ckpt.pt", "checkpoints/step_00000001.pt"):
                stored(folder / name)
            (folder / "log.jsonl").write_text('{"step": 98765432, "loss": 1.0}\n')
            (folder / "cell.json").write_text("{}")
        return folder

    @pytest.fixture
    def run(self, tmp_path):
        """The folder of a run that somebody has sent."""
        folder = tmp_path / "run"
        folder.mkdir()
        config = {"format": "anchorlens run", "format_version": 1, **preset("quick", **SMALL).to_dict()}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    @pytest.mark.parametrize("name", ["ckpt.pt", "checkpoints", "config.json"])
    def test_of_a_run(self, name, run, elsewhere):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(elsewhere / name)
        done = call("evaluate", run, code=3)
        assert f"got {name!r}, which leads out of" in done.stderr
        if name != "config.json":
            done = call("probe", "stable_rank", run, "--along", code=3)
            assert "which leads out of the folder through a link" in done.stderr

    def test_of_its_log(self, run, elsewhere):
        stored(run / "ckpt.pt")
        (run / "log.jsonl").symlink_to(elsewhere / "log.jsonl")
        done = call("classify", run, "--json", code=3)
        assert "log.jsonl: the file must be in its folder" in done.stderr and "98765432" not in done.stdout

    @pytest.mark.parametrize("what", ["cells", "cell.json", "failed", "unfinished", "sweep.json"])
    def test_of_a_sweep(self, what, tmp_path, elsewhere):
        out = tmp_path / "sweep"
        with SweepFolder(out).lock(tiny({"seed": "0:2"})) as ((name, _), _):
            pass
        places = {
            "cells": (out / "cells" / name, elsewhere),
            "cell.json": (out / "cells" / name / "cell.json", elsewhere / "cell.json"),
            "failed": (out / "failed" / f"{name}.json", elsewhere / "cell.json"),
            "unfinished": (out / "unfinished" / name, elsewhere),
            "sweep.json": (out / "sweep.json", elsewhere / "cell.json"),
        }
        link, target = places[what]
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        done = call("status", out, code=3 if what == "sweep.json" else 0, columns=500)
        assert "98765432" not in done.stdout.replace(",", "") and "in training" not in done.stdout
        if what in ("cell.json", "failed", "sweep.json"):
            assert "which leads out of the folder through a link" in done.output
        if what not in ("unfinished", "sweep.json"):
            assert open_sweep(out).counts == {"damaged": 1, "missing": 1}

    def test_links_within_the_folder_and_to_the_folder_are_followed(self, run, tmp_path):
        stored(run / "step.pt")
        (run / "ckpt.pt").symlink_to("step.pt")
        (tmp_path / "latest").symlink_to(run)
        assert open_checkpoint(tmp_path / "latest").checkpoint.step == 2
        assert load_checkpoint(run).step == 2

    @pytest.mark.needs("importers")
    def test_a_snapshot_of_the_hugging_face_cache_is_read(self, tmp_path):
        blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
        write_hugging_face(blobs)
        snapshot.mkdir(parents=True)
        for file in blobs.iterdir():
            (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
        assert open_checkpoint(snapshot).kind == "Hugging Face GPT-2"
        shutil.move(blobs, tmp_path / "others")
        (snapshot / "config.json").unlink()
        (snapshot / "config.json").symlink_to("../../others/config.json")
        with pytest.raises(CheckpointError, match="which leads out of the folder through a link"):
            open_checkpoint(snapshot)

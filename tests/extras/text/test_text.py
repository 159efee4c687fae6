"""Text: where it comes from, what is held out, what is no text, and bits per byte by hand."""

import dataclasses
import functools
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from anchorlens import (
    Checkpoint,
    CheckpointError,
    TextTask,
    build_model,
    load_checkpoint,
    preset,
    save_checkpoint,
    train,
)
from anchorlens.cli import app
from anchorlens.extras.text import corpus, documents
from anchorlens.extras.text.corpus import END, Corpus, held_out
from anchorlens.files import container
from anchorlens.plots.curves import training_curve
from anchorlens.recipes.run_config import identity
from anchorlens.safe import read_tensors
from anchorlens.tasks.registry import read_evaluation, read_stored_task, read_task
from anchorlens.training.checkpoints import shipped

LINES = [f"line {k} of a text, with ümlauts\n" for k in range(400)]
SMALL = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_head": 8, "d_mlp": 16, "n_ctx": 32}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ANCHORLENS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    """Forty files of text."""
    made = tmp_path / "texts"
    (made / "below").mkdir(parents=True)
    for k in range(40):
        (made / ("below" if k % 2 else ".") / f"{k}.txt").write_text("".join(LINES[k : k + 20]))
    (made / ".hidden").write_bytes(b"\0")
    return made


@pytest.fixture
def task(folder):
    return TextTask(data=str(folder), seq_len=32, held_out_share=0.1)


def small(task, **fields):
    """A run of the task that takes a second."""
    run = preset("text", **SMALL, n_samples=64, batch_size=4, steps=12, epochs=None, eval_every=4, **fields)
    return run._replace(task=task)


class Knows:
    """Answers the next byte of the text with a given probability, others alike."""

    def __init__(self, text, share):
        self.text, self.share = text, share

    def __call__(self, tokens):
        logits = torch.full((*tokens.shape, 256), math.log((1 - self.share) / 255))
        for row, asked in enumerate(tokens):
            start = self.text.index(bytes(asked.tolist()))
            following = self.text[start + 1 : start + 1 + len(asked)]
            logits[row, range(len(asked)), list(following)] = math.log(self.share)
        return logits


docstrings = functools.cache(documents._docstrings)


@functools.cache
def contents(corpus):
    """Name -> content of every document; those of Python take seconds to find, so each is read once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_docstrings", docstrings)
        found = [(name, b"".join(pieces)) for name, pieces in documents.documents(corpus)]
    assert len(found) == len(dict(found)) or corpus == "code+text"
    return found


class TestDocuments:
    def test_code_is_the_standard_library_without_its_tests(self):
        found = dict(contents("code"))
        assert found["random.py"] == Path(os.__file__).with_name("random.py").read_bytes()
        assert sum(map(len, found.values())) > 5_000_000 and list(found) == sorted(found)
        assert not any("test" in Path(name).parts[:-1] for name in found)
        for content in found.values():
            assert content.decode() and b"\0" not in content

    def test_text_is_its_docstrings_and_help_topics(self):
        found = {name: content.decode() for name, content in contents("text")}
        assert "Random variable generators." in found["random.py"] and "import" not in found["random.py"][:80]
        assert found["help topic lambda"].startswith("Lambdas") and sum(map(len, found.values())) > 1_000_000

    def test_both_keep_what_comes_from_one_file_together(self):
        names = [name for name, _ in contents("code+text")]
        assert names.count("random.py") == 2

    def test_files_are_those_that_are_named_without_hidden_ones_and_links(self, folder, tmp_path):
        (tmp_path / "elsewhere.txt").write_text("not of the folder")
        (folder / "link.txt").symlink_to(tmp_path / "elsewhere.txt")
        (folder / "loop").symlink_to(folder)
        found = documents.named_files(str(folder))
        assert len(found) == 40 and {"texts/0.txt", "texts/below/1.txt"} <= set(found)
        both = documents.named_files(os.pathsep.join([str(tmp_path / "elsewhere.txt"), str(folder)]))
        assert list(both)[0] == "elsewhere.txt" and len(both) == 41

    def test_a_file_is_read_in_pieces_that_may_cut_a_letter(self, tmp_path, monkeypatch):
        monkeypatch.setattr(documents, "_PIECE", 3)
        path = tmp_path / "a.txt"
        path.write_text("ümlaut, ü, €uro")
        pieces = list(documents.text_of(path))
        assert max(map(len, pieces)) == 3 and b"".join(pieces).decode() == "ümlaut, ü, €uro"


class TestSplits:
    @pytest.mark.parametrize("corpus", ["code+text", "files"])
    def test_no_source_is_in_two_and_all_are_in_one(self, corpus, task, monkeypatch):
        found = list(documents.documents("files", task.data)) if corpus == "files" else contents(corpus)
        names = {name for name, _ in found}
        if corpus != "files":
            names = set(sorted(names)[::4])  # the others would take seconds more
            some = [(name, [content]) for name, content in found if name in names]
            monkeypatch.setattr(f"{Corpus.__module__}.documents", lambda *given: some)
        text = task.text if corpus == "files" else TextTask(corpus=corpus).text
        trained, held = (set(text.manifest[split]) for split in ("train", "validation"))
        assert not trained & held and trained | held == names
        share = text.n_bytes("validation") / (text.n_bytes("validation") + text.n_bytes("train"))
        assert share == pytest.approx(0.1 if corpus == "files" else 0.05, abs=0.03)

    def test_a_text_is_written_whole_with_a_nul_behind_each_document(self, task, folder):
        parts = (task.text.folder / "train.bin").read_bytes().split(END)[:-1]
        files = {name: path.read_bytes() for name, path in documents.named_files(str(folder)).items()}
        assert parts == [files[name] for name in task.text.manifest["train"]]
        assert all(
            task.text.manifest["train"][name]["bytes"] == len(files[name])
            for name in task.text.manifest["train"]
        )

    def test_the_seed_decides_what_is_held_out(self):
        sizes = {str(k): 10 for k in range(100)}
        found = [held_out(sizes, 0.05, seed) for seed in (0, 0, 1)]
        assert found[0] == found[1] != found[2] and len(found[0]) == 5

    def test_of_a_single_file_the_end_is_held_out_from_a_line_on(self, tmp_path, monkeypatch):
        monkeypatch.setattr(documents, "_PIECE", 1000)
        path = tmp_path / "one.txt"
        path.write_text("".join(LINES))
        text = TextTask(data=str(path), seq_len=32).text
        trained, held = (
            (text.folder / f"{split}.bin").read_bytes()[:-1] for split in ("train", "validation")
        )
        assert trained + held == path.read_bytes() and trained.endswith(b"\n")
        assert len(trained) == pytest.approx(0.95 * path.stat().st_size, abs=40)

    def test_a_text_that_is_there_twice_counts_once(self, tmp_path):
        made = tmp_path / "texts"
        made.mkdir()
        for k in range(60):
            (made / f"{k}.txt").write_text("".join(LINES[k // 3 : k // 3 + 20]))
        manifest = TextTask(data=str(made), seq_len=32).text.manifest
        trained, held = ({one["sha256"] for one in manifest[split].values()} for split in manifest)
        assert not trained & held and len(trained) + len(held) == 20

    def test_where_no_file_is_of_the_share_the_end_of_the_largest_is_held_out(self, tmp_path):
        made = tmp_path / "texts"
        made.mkdir()
        for k, n in enumerate((3, 4000, 3000)):
            (made / f"{k}.txt").write_text("".join(f"line {j} of file {k}\n" for j in range(n)))
        text = TextTask(data=str(made), seq_len=32).text
        n_held, n_trained = text.n_bytes("validation"), text.n_bytes("train")
        assert n_held / (n_held + n_trained) == pytest.approx(0.05, abs=0.002)
        assert list(text.manifest["validation"]) == ["texts/1.txt"] and len(text.manifest["train"]) == 3

    def test_a_text_of_one_line_is_cut_between_two_letters(self, tmp_path):
        path = tmp_path / "one.txt"
        path.write_text("ü" * 10_001)
        text = TextTask(data=str(path), seq_len=32, held_out_share=0.1).text
        halves = [(text.folder / f"{split}.bin").read_bytes()[:-1] for split in ("train", "validation")]
        assert b"".join(halves) == path.read_bytes() and all(half.decode() for half in halves)

    @pytest.mark.parametrize(
        "damage", ["cut", "another byte", "no text", "no manifest", "another manifest", "no sums"]
    )
    def test_a_damaged_cache_is_made_anew(self, task, damage):
        made = task.text.folder
        whole = (made / "train.bin").read_bytes()
        files = sorted(path.name for path in made.iterdir())
        if damage == "cut":
            (made / "train.bin").write_bytes(whole[:1000])
        elif damage == "another byte":
            (made / "train.bin").write_bytes(whole[:-2] + b"?" + whole[-1:])
        elif damage == "no sums":
            (made / "sha256.json").unlink()
        elif damage == "no text":
            (made / "train.bin").unlink()
        elif damage == "no manifest":
            (made / "manifest.json").unlink()
        else:
            (made / "manifest.json").write_text("[1]")
        again = dataclasses.replace(task).text
        assert (again.folder / "train.bin").read_bytes() == whole and again.is_whole
        assert [path.name for path in made.parent.iterdir()] == [made.name]
        assert sorted(path.name for path in made.iterdir()) == files

    def test_every_process_checks_the_bytes_once(self, task, monkeypatch):
        """A byte that the disk lost, which neither size nor time of the file tell."""
        path = task.text.folder / "train.bin"
        whole, status = path.read_bytes(), path.stat()
        path.write_bytes(whole[:-2] + b"?" + whole[-1:])
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        documents._file_digest.cache_clear()  # as in another process
        assert (dataclasses.replace(task).text.folder / "train.bin").read_bytes() == whole
        assert dataclasses.replace(task).text.is_whole
        monkeypatch.setattr(documents, "_pieces", None)
        assert dataclasses.replace(task).text.is_whole

    def test_a_run_on_damaged_bytes_is_the_run_on_the_text(self, task):
        """Its text_sha256 is of what it read."""
        whole = train(*small(task)).checkpoint.weights
        path = task.text.folder / "train.bin"
        path.write_bytes(path.read_bytes()[::-1])
        again = train(*small(dataclasses.replace(task))).checkpoint.weights
        assert all(torch.equal(whole[name], again[name]) for name in whole)

    @pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are in Linux' /proc")
    def test_all_of_it_is_on_the_disk_before_it_has_its_name(self, task, monkeypatch):
        """What a power cut leaves is the whole text or none: each file was written through, then the name."""
        done, fsync, replace = [], os.fsync, os.replace
        monkeypatch.setattr(
            os, "fsync", lambda fd: (done.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))
        )
        monkeypatch.setattr(os, "replace", lambda a, b: (done.append("renamed"), replace(a, b)))
        folder = task.text.folder
        names = [Path(name).name for name in done]
        assert set(names[: names.index("renamed")]) >= {path.name for path in folder.iterdir()}
        assert names[-1] == folder.parent.name

    def test_what_somebody_else_made_meanwhile_is_left_alone(self, task, monkeypatch):
        made = task.text.folder
        kept = made.with_name("kept")
        made.rename(kept)
        write = corpus._write

        def slower(*args):
            write(*args)
            kept.rename(made)

        monkeypatch.setattr(corpus, "_write", slower)
        inode = kept.stat().st_ino
        assert dataclasses.replace(task).text.folder.stat().st_ino == inode

    def test_the_text_is_put_together_once(self, task, cache, monkeypatch):
        made = task.text.folder
        assert made.is_relative_to(cache)
        monkeypatch.setattr("anchorlens.extras.text.corpus._write", None)
        assert dataclasses.replace(task).text.folder == made

    def test_a_cache_that_cannot_be_made_names_the_variable_that_chooses_another(self, folder, monkeypatch):
        monkeypatch.delenv("ANCHORLENS_CACHE")
        for name in ("HOME", "XDG_CACHE_HOME"):
            monkeypatch.setenv(name, "/dev/null")  # in which nobody can make a folder
        with pytest.raises(OSError, match=r"Not a directory.*ANCHORLENS_CACHE"):
            _ = TextTask(data=str(folder)).text

    def test_nothing_is_left_of_a_text_that_cannot_be_put_together(self, folder, cache):
        (folder / "zz.txt").write_bytes(b"\xff")
        with pytest.raises(ValueError, match=r"UTF-8.*invalid bytes near byte 0"):
            _ = TextTask(data=str(folder)).text
        assert not list((cache / "text").iterdir())

    def test_a_byte_order_mark_is_no_text(self, folder, cache):
        for file in folder.rglob("*.txt"):
            file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
        text = TextTask(data=str(folder)).text.folder
        both = [(text / f"{split}.bin").read_bytes() for split in ("train", "validation")]
        assert all(both) and not any(b"\xef\xbb\xbf" in part for part in both)
        (folder / "zz.txt").write_text("PowerShell", encoding="utf-16")
        with pytest.raises(ValueError, match="got invalid bytes near byte 0"):
            _ = TextTask(data=str(folder)).text


class TestTraining:
    def test_sequences_follow_one_another_and_are_read_from_the_disk(self, task):
        text = (task.text.folder / "train.bin").read_bytes()
        windows = task.text.windows("train", 32)
        batch = windows.take(np.array([0, 1, 5]))
        assert (
            bytes(batch.tokens[1].tolist()) == text[32:64] and bytes(batch.targets[1].tolist()) == text[33:65]
        )
        assert len(windows) == (len(text) - 1) // 32

    def test_the_training_set_is_drawn_without_repetition(self, task):
        chosen = task.training_set(100, 0)
        assert len(chosen) == 100 == len(set(chosen.places.tolist()))
        assert chosen.places.tolist() == task.training_set(100, 0).places.tolist()

    def test_the_loss_of_a_random_start_of_small_weights_is_that_of_a_guess(self, task):
        model = build_model(small(task, gamma=1.0).model_config, seed=0)
        found = task.evaluate(model)
        assert found.measure("train_bits").value == pytest.approx(8, abs=0.1)
        assert found.measure("perplexity").value == pytest.approx(256, rel=0.1)
        loss = task.loss(model, task.training_set(8, 0).take(np.arange(8)), None)
        assert loss.item() == pytest.approx(math.log(256), abs=0.1)

    def test_it_learns_and_resumes_to_the_same_bits(self, task, tmp_path, monkeypatch):
        whole = train(*small(task), out=tmp_path / "whole")
        measured, measure = [], TextTask.measure

        def dying(*args, **options):
            measured.append(1)
            if len(measured) == 3:
                raise KeyboardInterrupt
            return measure(*args, **options)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(TextTask, "measure", dying)
            train(*small(task, state_every_seconds=0), out=tmp_path / "cut")
        cut = train(*small(task), out=tmp_path / "cut", resume=True)
        weights = [result.checkpoint.weights for result in (whole, cut)]
        assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
        assert (
            whole.checkpoint.step == 12 and whole.log[-1]["validation_bits"] < whole.log[0]["validation_bits"]
        )
        assert identity(small(task)) == identity(small(dataclasses.replace(task, data="elsewhere")))
        curve = training_curve(whole.log)
        assert curve.layout.yaxis.title.text == "bits per byte" and len(curve.data) == 3


class TestMoved:
    """A run's files are somewhere else now."""

    def test_paths_are_kept_absolute(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        task = TextTask(data=os.pathsep.join(["0.txt", "below"]))
        assert task.data == os.pathsep.join(map(str, (folder / "0.txt", folder / "below")))
        assert TextTask(data=f"0.txt{os.pathsep}").data == str(folder / "0.txt")

    def test_the_run_goes_on_with_the_same_files_elsewhere(self, task, folder, tmp_path, cache):
        train(*small(task), out=tmp_path / "run")
        new = tmp_path / "new"
        new.mkdir()
        there = folder.rename(new / folder.name)
        shutil.rmtree(cache)
        path = str(tmp_path / "run" / "ckpt.pt")
        for command in ("evaluate", "classify"):
            done = CliRunner().invoke(app, [command, path])
            assert done.exit_code != 0 and "data must name the files of" in done.output
            done = CliRunner().invoke(app, [command, path, "--data", str(there)])
            assert done.exit_code == 0, done.output
        why = "no readings: training data must have at least 200 distinct sequences"
        assert why in " ".join(done.output.split())  # their sequences are read from the disk
        along = ["probe", "stable_rank", str(tmp_path / "run"), "--along", "--json"]
        assert "data must name the files of" in CliRunner().invoke(app, along).output
        done = CliRunner().invoke(app, [*along, "--data", str(there)])
        assert done.exit_code == 0 and json.loads(done.stdout)["rows"][-1]["validation_bits"] > 0
        run = small(dataclasses.replace(task, data=str(there)))
        assert train(*run, out=tmp_path / "run", resume=True).checkpoint.step == 12

    def test_a_task_without_files_has_none_elsewhere(self, tmp_path):
        done = CliRunner().invoke(app, ["evaluate", str(shipped()[0]), "--data", "x"])
        assert done.exit_code != 0 and "got the task two_anchor without files. Omit" in done.output

    def test_several_paths_are_several_options(self, folder, tmp_path):
        options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
        given = [f"--data={folder / name}" for name in ("below", "0.txt")]
        rest = ["--seq-len=32", "--n-samples=64", "--batch-size=16", f"--out={tmp_path / 'run'}"]
        done = CliRunner().invoke(app, ["train", "--preset=text", *options, *given, *rest])
        assert done.exit_code == 0, done.output
        assert load_checkpoint(tmp_path / "run" / "ckpt.pt").task.version.startswith("21 files")


class TestEvaluation:
    def test_a_model_that_has_diverged_has_no_perplexity(self, task):
        found = task.evaluate(lambda tokens: -1e4 * torch.nn.functional.one_hot(tokens.roll(-1, 1), 256))
        assert found.measure("perplexity") is None and found.measure("validation_bits").value > 1000
        assert json.dumps(found.to_dict(), allow_nan=False)

    def test_what_was_read_is_told(self, task):
        found = task.evaluate(build_model(small(task).model_config), max_asked=2)
        assert found.options["text_sha256"] == dataclasses.replace(task).text.sha256

    def test_bits_by_hand(self, task):
        text = (task.text.folder / "validation.bin").read_bytes()
        text += (task.text.folder / "train.bin").read_bytes()
        found = task.evaluate(Knows(text, 0.5))
        assert found.measure("validation_bits").value == pytest.approx(1, abs=0.2)
        assert found.measure("perplexity").value == pytest.approx(2, abs=0.3)
        assert found.phase.cause == "not defined"

    def test_what_is_not_measured_is_none_and_it_comes_back_from_json(self, task):
        found = task.evaluate(build_model(small(task).model_config))
        assert found.measure("ood") is None
        again = read_evaluation(json.loads(json.dumps(found.to_dict())))
        assert again.to_dict() == found.to_dict()

    def test_every_sequence_asked_leaves_no_error(self, task):
        found = task.evaluate(build_model(small(task).model_config), max_asked=10**6)
        assert found.measure("validation_bits").standard_error == 0
        assert found.measure("validation_bits").n_sequences == len(task.text.windows("validation", 32))


class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"data": "/nowhere/a.txt"}, "data must name existing text files or folders"),
            ({"corpus": "files"}, "data must name the files of the corpus"),
            ({"corpus": "code", "data": "x"}, "corpus must be 'files' if data is given"),
            ({"corpus": "poems"}, "corpus must be"),
            ({"data": 3}, "data must be text"),
            ({"seq_len": 1}, "seq_len"),
            ({"held_out_share": 0}, "held_out_share"),
        ],
    )
    def test_one_clear_error(self, fields, message):
        with pytest.raises(ValueError, match=message):
            TextTask(**fields)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "an empty file"),
            (b"a\0b", "NUL byte"),
            (b"abc\xff", "near byte 3"),
            (b"abc\xe2\x82", "near byte 5"),
        ],
    )
    def test_what_is_no_text(self, tmp_path, content, message):
        path = tmp_path / "bad.txt"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"bad.txt.*{message}"):
            _ = TextTask(data=str(path)).text

    def test_an_empty_folder_and_two_of_one_name(self, tmp_path, folder):
        (tmp_path / "empty").mkdir()
        with pytest.raises(ValueError, match="folders with text files"):
            TextTask(data=str(tmp_path / "empty"))
        with pytest.raises(ValueError, match=r"'0\.txt' twice"):
            TextTask(data=os.pathsep.join([str(folder / "0.txt")] * 2))

    def test_a_device_or_a_pipe_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        for path in ("/dev/zero", str(tmp_path / "pipe")):
            with pytest.raises(ValueError, match="existing text files or folders"):
                TextTask(data=path)

    def test_too_little_text(self, tmp_path):
        path = tmp_path / "short.txt"
        path.write_text("short\n")
        with pytest.raises(ValueError, match=r"splits of the text .*at least 256"):
            TextTask(data=str(path)).training_set(1, 0)

    def test_more_sequences_than_there_are(self, task):
        with pytest.raises(ValueError, match="n_samples must be at most"):
            task.training_set(10**6, 0)

    def test_training_data_of_another_text(self, task, folder):
        other = TextTask(data=str(folder / "below"), seq_len=32).training_set(4, 0)
        longer = dataclasses.replace(task, seq_len=64).training_set(4, 0)
        model = build_model(small(task).model_config)
        for given in (other, longer, task.training_set(4, 0).choose(np.array([], int))):
            with pytest.raises(ValueError, match="sequences of 32 bytes of this task's text"):
                task.evaluate(model, training_set=given)

    @pytest.mark.parametrize("value", [0, -5, 2.5])
    def test_how_many_are_asked(self, task, value):
        with pytest.raises(ValueError, match="max_asked must be"):
            task.evaluate(build_model(small(task).model_config), max_asked=value)

    def test_what_is_no_path_at_all(self):
        for data in ("x" * 100_000, "a\0b"):
            with pytest.raises(ValueError, match="data must name existing text files or folders") as error:
                TextTask(data=data)
            assert len(str(error.value)) < 500

    def test_too_many_files(self, folder, monkeypatch):
        monkeypatch.setattr(documents, "MOST_ENTRIES", 30)
        with pytest.raises(ValueError, match="at most"):
            TextTask(data=str(folder))

    def test_more_text_than_is_read(self, folder, monkeypatch):
        monkeypatch.setattr(documents, "MOST_BYTES", 100)
        with pytest.raises(ValueError, match="at most 100 bytes"):
            TextTask(data=str(folder))


class TestFilesOfOthers:
    def test_a_text_that_has_changed_is_another_one(self, task, folder):
        (folder / "0.txt").write_text("changed\n")
        with pytest.raises(ValueError, match="the text must be '40 files"):
            _ = dataclasses.replace(task).text

    def test_the_sha256_of_files_that_a_checkpoint_names_is_not_told(self, task, folder):
        """With it whoever wrote the checkpoint could tell which of the texts that he guesses is there."""
        (folder / "0.txt").write_bytes((folder / "0.txt").read_bytes().replace(b"line", b"word"))
        with pytest.raises(ValueError, match="got 40 files, .* bytes with other contents. Name"):
            _ = dataclasses.replace(task).text
        found = documents.fingerprint(str(folder)).split()[-1]
        with pytest.raises(ValueError) as error:
            _ = dataclasses.replace(task).text
        assert found != task.version.split()[-1] and found not in str(error.value)

    def test_no_file_is_read_where_number_or_bytes_differ(self, folder, monkeypatch):
        task = TextTask(
            data=str(folder), corpus="files", version="1 file, 10 bytes, SHA-256 0123456789abcdef"
        )
        monkeypatch.setattr(documents, "_pieces", None)
        with pytest.raises(ValueError, match="got 40 files"):
            _ = task.text

    def test_a_checkpoint_that_names_files_must_say_what_they_hold(self, task, tmp_path):
        values = {**task.to_dict(), "version": ""}
        assert read_task(values) == task  # the user's own words are settled
        with pytest.raises(ValueError, match="must have the field version"):
            read_stored_task(values)
        run = small(task)
        path = tmp_path / "model.pt"
        save_checkpoint(
            path,
            Checkpoint(run.model_config, run.task, dict(build_model(run.model_config).named_parameters())),
        )
        assert load_checkpoint(path).task == task
        content = read_tensors(path).values
        header, _ = container.unpack(path, content)
        assert header["task"]["version"] == task.version

    def test_another_python_is_another_text(self):
        with pytest.raises(ValueError, match=r"must be Python 2\.7, got Python"):
            _ = TextTask(version="Python 2.7").text


def test_it_travels_as_data(task):
    assert read_task(json.loads(json.dumps(task.to_dict()))) == task
    assert TextTask() == TextTask(corpus="code") and TextTask().version.startswith("Python ")
    assert "held out" in task.describe().lower() and isinstance(task.text, Corpus)
    with pytest.raises(CheckpointError):
        load_checkpoint(task.text.folder / "manifest.json")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux' /proc")
def test_memory_does_not_grow_with_the_text(tmp_path):
    """The peak of a process that puts a text together, and draws and evaluates some of it."""
    code = (
        "import re, sys; from anchorlens import TextTask, build_model, preset;"
        "task = TextTask(data=sys.argv[1]);"
        "model = build_model(preset('text', n_layers=2, d_model=16, d_head=8, d_mlp=16).model_config);"
        "task.evaluate(model, training_set=task.training_set(1000, 0), max_asked=64);"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    peaks = []
    for n_bytes in (2**20, 2**28):
        path = tmp_path / f"{n_bytes}.txt"
        path.write_bytes(b"".join(b"line %d of a text\n" % k for k in range(2**14)) * (n_bytes // 2**18))
        done = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True)
        peaks.append(1024 * int(done.stdout))
    assert peaks[1] - peaks[0] < 2**28 / 4  # the order of its sequences, and pages of the file

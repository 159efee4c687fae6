"""A file is read once: what happens to it afterwards changes no weight, kills nobody, and is not hashed."""

import hashlib
import os
import sys
import threading

import forked
import numpy as np
import pytest
import torch
from foreign_checkpoints import write_bare, write_own

from anchorlens import AnchorTask
from anchorlens.files.importers import open_checkpoint
from anchorlens.files.writing import atomic_write
from anchorlens.safe import CheckpointError, read_tensors


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_file_that_is_overwritten_or_cut_later_changes_nothing(tmp_path, suffix):
    path = write_own(tmp_path, suffix).path
    before = path.read_bytes()
    opened = open_checkpoint(path)
    kept = {name: weight.clone() for name, weight in opened.checkpoint.weights.items()}
    with path.open("r+b") as file:  # in place, as cp does
        file.write(bytes(len(before)))
    assert all(torch.equal(weight, opened.checkpoint.weights[name]) for name, weight in kept.items())
    with path.open("r+b") as file:
        file.truncate(10)  # a mapped file would end the process with SIGBUS
    assert all(torch.equal(weight, opened.checkpoint.weights[name]) for name, weight in kept.items())
    assert opened.sha256 == hashlib.sha256(before).hexdigest()


@pytest.mark.needs("importers")
def test_the_hash_is_that_of_the_weights_while_another_replaces_the_file(tmp_path):
    """Two files take turns under one name; whichever was read, its weights and its hash go together."""
    written, contents = write_bare(tmp_path), {}
    weights = torch.load(written.files[0])
    for scale in (1.0, 2.0):
        path = tmp_path / f"{scale}.pt"
        torch.save({name: scale * weight for name, weight in weights.items()}, path)
        contents[hashlib.sha256(path.read_bytes()).hexdigest()] = scale, path.read_bytes()
    ended = threading.Event()

    def replace():
        while not ended.is_set():
            for _, data in contents.values():
                with atomic_write(written.files[0]) as file:
                    file.write(data)

    name = "blocks.0.attn.W_Q"
    other = threading.Thread(target=replace)
    other.start()
    try:
        for _ in range(60):
            opened = open_checkpoint(written.path, config=written.config)
            if opened.sha256 in contents:  # not the file from before
                scale, _ = contents[opened.sha256]
                assert torch.equal(opened.checkpoint.weights[name], scale * weights[name])
    finally:
        ended.set()
        other.join()
    assert opened.sha256 in contents


def test_a_file_larger_than_the_memory_is_not_read(tmp_path):
    path = write_own(tmp_path).path
    with path.open("r+b") as file:
        file.truncate(2**43)
    with pytest.raises(CheckpointError, match="to read this file of 8,796.1 gigabytes, got"):
        read_tensors(path)


def test_a_name_with_a_null_character_is_refused_in_one_line():
    with pytest.raises(CheckpointError, match="null byte"):
        open_checkpoint("a\0b.pt")


COUNT_OPENS = """
import collections, os, sys
opened, target = collections.Counter(), os.path.realpath(sys.argv[1])
def note(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path.startswith(target) and not os.path.isdir(path):
            opened[os.path.relpath(path, target)] += 1
sys.addaudithook(note)
sys.argv = ["anchorlens", *sys.argv[2:]]
from anchorlens.cli import main
try:
    main()
finally:
    print(dict(opened), file=sys.stderr)
"""


@pytest.mark.parametrize("command", ["classify", "evaluate"])
@pytest.mark.needs("importers")
def test_a_command_opens_each_file_once(command, tmp_path):
    """The weights, their configuration, and the training data that they do not carry."""
    written = write_bare(tmp_path)
    batch = AnchorTask().training_set(100, seed=0)
    np.savez(tmp_path / "train.npz", tokens=batch.tokens, targets=batch.targets)
    words = [command, str(written.files[0]), "--config", str(written.config), "--json"]
    words += ["--train-data", str(tmp_path / "train.npz")]
    done = forked.run(
        [sys.executable, "-c", COUNT_OPENS, str(tmp_path), *words],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    opened = eval(done.stderr.splitlines()[-1])
    names = {path.name for path in (written.files[0], tmp_path / "train.npz")}
    assert {name: n for name, n in opened.items() if name in names} == dict.fromkeys(names, 1)

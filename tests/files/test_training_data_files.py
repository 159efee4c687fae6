"""Training data in files: four formats with the same content, and everything else in one line."""

import io
import json
import os
import random
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from fuzz_checkpoints import damaged
from malicious_files import touch
from typer.testing import CliRunner

from anchorlens import (
    AdditionTask,
    AnchorTask,
    Checkpoint,
    CheckpointError,
    ModelConfig,
    PrOntoQATask,
    build_model,
    load_checkpoint,
    save_checkpoint,
)
from anchorlens.cli import app
from anchorlens.files import training_data
from anchorlens.files.training_data import read_training_data
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.training.checkpoints import shipped

TASK = AnchorTask()
DATA = TASK.sample(40, seed=0)
TOKENS, TARGETS = DATA.tokens.numpy(), DATA.targets.numpy()
ROWS = np.column_stack([TOKENS, TARGETS])


def csv(rows=ROWS, header="", end="\n"):
    return (header + "".join(",".join(map(str, row)) + end for row in rows)).encode()


def npz(save=np.savez, tokens=TOKENS, targets=TARGETS, **more):
    file = io.BytesIO()
    save(file, tokens=tokens, targets=targets, **more)
    return file.getvalue()


def pt(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def jsonl(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


NAMED = {"tokens": DATA.tokens, "targets": DATA.targets}
VALID = {
    "data.pt": pt(NAMED),
    "small.pt": pt({name: tensor.to(torch.int16) for name, tensor in NAMED.items()} | {"seed": 4}),
    "arrays.pt": pt({"tokens": TOKENS, "targets": TARGETS}),
    "data.safetensors": safetensors.torch.save(NAMED),
    "data.npz": npz(),
    "packed.npz": npz(np.savez_compressed, np.asfortranarray(TOKENS).astype(">i4"), note=np.array("x")),
    "data.csv": csv(),
    "named.csv": b"\xef\xbb\xbf" + csv(header="a,b,c,d,e,f,g,h,i,target\r\n", end="\r\n"),
    "quoted.csv": csv([[f'"{value}"' for value in row] for row in ROWS]),
    "semicolons.csv": csv().replace(b",", b";"),
    "tabs.tsv": csv().decode().replace(",", "\t").encode("utf-16"),
    "floats.csv": csv(ROWS / 1.0),
    "pair.pt": pt((DATA.tokens, DATA.targets)),
    "lists.jsonl": jsonl({"x": x, "y": y} for x, y in zip(TOKENS.tolist(), TARGETS.tolist(), strict=True)),
    "columns.jsonl": jsonl(dict(zip([*"abcdefghi", "label"], row, strict=True)) for row in ROWS.tolist()),
    "savetxt.csv": b"\n".join(b"  ".join(b"%.18e" % value for value in row) for row in ROWS),
}


@pytest.mark.parametrize("name", VALID)
def test_every_format_gives_the_same_whatever_it_is_called(tmp_path, name):
    for path in (tmp_path / name, tmp_path / "data"):
        path.write_bytes(VALID[name])
        read = read_training_data(path)
        assert torch.equal(read.tokens, DATA.tokens) and torch.equal(read.targets, DATA.targets)
        assert read.tokens.dtype == read.targets.dtype == torch.int8  # whatever the file has
        some = read.take(np.array([3, 1]))
        assert some.tokens.dtype == some.targets.dtype == torch.int64


def frame(*names, **more):
    """The rows as pandas writes them by default, with these names."""
    return pd.DataFrame(ROWS, columns=list(names) or None).assign(**more)


X = [f"x{place}" for place in range(9)]
HEADERS = {
    "pandas' own": frame(),
    "pandas' own for the tokens": frame(*range(9), "target"),
    "from one": frame(*range(1, 11)),
    "another order": frame(*X, "target")[["x4", "target", *X[5:], *X[3::-1]]],
    "an answer that is not last": frame(*X, "Label")[["Label", *X]],
    "spaces": frame(*(f" pos {place + 1} " for place in range(9)), "ANSWER"),
    "brackets": frame(*(f"tokens[{place}]" for place in range(9)), "y"),
    "the key first": frame("key", *(f"a{place}" for place in range(1, 9)), "target").sort_index(axis=1),
}


@pytest.mark.parametrize("quoting", [0, 1])
@pytest.mark.parametrize("name", HEADERS)
def test_columns_are_taken_by_name(tmp_path, name, quoting):
    """The header is no sequence, and no column is where its name says that it is not."""
    HEADERS[name].to_csv(tmp_path / "data.csv", index=False, quoting=quoting)
    read = read_training_data(tmp_path / "data.csv")
    assert torch.equal(read.tokens, DATA.tokens) and torch.equal(read.targets, DATA.targets)


COUNTING = pd.DataFrame(np.arange(20)[:, None] + np.arange(4))
ASKED = {
    "an index": (
        frame().to_csv(),
        "line 1: the first column must have a name, got ''. If the column is the index of",
    ),
    "an index beside names": (frame(*X, "target").to_csv(), "write the file with to_csv(..., index=False)"),
    "an index read again": (
        frame().to_csv(index_label="Unnamed: 0"),
        "got 'Unnamed: 0'. If the column is the index",
    ),
    "an index without a header": (
        frame().to_csv(header=False),
        "the first column must contain tokens, got numbers that count the rows. If the column is the",
    ),
    "an index that the header lacks": (
        frame().to_csv(index_label=False),
        "got 11. Correct the row, or write the file without an index",
    ),
    "rows that count up too": (
        COUNTING.to_csv(index=False, header=False),
        "must clearly be column names or a sequence, got the values 0 to 3",
    ),
    "few rows": (
        frame()[:5].to_csv(index=False),
        "must clearly be column names or a sequence, got the values 0 to 9",
    ),
    "a split": (frame(*X, "target", split="test").to_csv(index=False), "'x2', ...), got 'split'"),
    "a column before": (
        frame("id", *X[:8], "y").to_csv(index=False),
        "'x2', ...), got 'id'",
    ),
    "no answer": (
        frame(*X, "x9").to_csv(index=False),
        "must name one column target (or label, answer, y), or",
    ),
    "two answers": (
        frame(*X[:8], "target", "y").to_csv(index=False),
        "token, got 'target', 'y'. Rename the columns",
    ),
    "names without an order": (frame(*"acegikmoq", "y").to_csv(index=False), "got 'c' at position 2. Rename"),
    "a gap": (
        frame(*X[:8], "x9", "y").to_csv(index=False),
        "without gaps (x0, x1, ..), got 'x9' at position 9",
    ),
    "a name twice": (frame(*X[:8], "x0", "y").to_csv(index=False), "must be different, got 'x0' twice"),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_a_header_leaves_open_is_asked_and_not_guessed(tmp_path, name):
    text, question = ASKED[name]
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(CheckpointError) as error:
        read_training_data(tmp_path / "data.csv")
    assert question in str(error.value) and str(error.value).isprintable()


def test_a_default_header_is_no_sequence_that_was_trained(tmp_path):
    """0, 1, 2, 3, ... read as a sequence would ask the held-out pair (3, 4)."""
    frame().to_csv(tmp_path / "data.csv", index=False)
    checkpoint = load_checkpoint(shipped()[3])
    found = checkpoint.evaluate(training_set=read_training_data(tmp_path / "data.csv"), n_noise=2)
    assert found.phase.number == 3


def test_every_format_on_the_command_line(tmp_path):
    config = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16)
    save_checkpoint(tmp_path / "a.pt", Checkpoint.from_model(build_model(config), config, TASK))
    for name, content in VALID.items():
        (tmp_path / name).write_bytes(content)
        command = ["evaluate", str(tmp_path / "a.pt"), "--n-noise", "2", "--json", "--train-data"]
        done = CliRunner().invoke(app, [*command, str(tmp_path / name)])
        assert done.exit_code == 0, done.stderr
        behaviour = json.loads(done.stdout)["behaviour"]
        assert behaviour["train_source"] == "training set"
        assert behaviour["measures"]["train"]["n_sequences"] == 40


def lying_about_its_size():
    """A compressed array of 80 MB whose directory claims 200 bytes."""
    data = bytearray(npz(np.savez_compressed, np.zeros((10**6, 10), dtype=np.int64)))
    entry = data.find(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 200)
    return bytes(data)


def npy_that_claims(shape, dtype="<i8"):
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode().ljust(118)
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(80)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tokens.npy", array)
        archive.writestr("targets.npy", array)
    return file.getvalue()


def unknown_compression():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("tokens.npy", bytes(10))
        archive.writestr("targets.npy", bytes(10))
    return file.getvalue()


def changed(row, column, value):
    rows = ROWS.astype(object)
    rows[row, column] = value
    return csv(rows)


REFUSED = {
    "empty": (b"", "it is empty"),
    "text": (b"these are no numbers", "or rows of 2 to 10,000 integers, got a first row of length 1. Give"),
    "too many columns": (b"1," * 20_000 + b"1\n", "got a first row of length 20,001. Give"),
    "names alone": (b"a,b,y\n", "must have a row below its header, got none"),
    "fewer names than columns": (b"a,y\n1,2,3\n", "as the header has, got 3. Correct"),
    "a float": (changed(3, 2, "1.5"), "line 4: the value in column 3 must be an integer of up to 18 digits"),
    "a float in the first row": (changed(0, 2, "1.5"), "up to 18 digits, got '1.5'"),
    "a decimal comma": (b"1,5;2\n", "line 1: the value in column 1 must be an integer of up to 18 digits"),
    "NaN": (changed(0, 0, "nan"), "got 'nan'"),
    "nothing": (changed(3, 9, ""), "column 10 must be an integer of up to 18 digits, got an empty cell"),
    "a word": (changed(3, 9, "\x1b[31mred"), "got '\\x1b[31mred'"),
    "a huge number": (changed(3, 9, 10**30), "up to 18 digits, got '1000"),
    "a float beyond what is exact": (changed(3, 9, "1e17"), "got '1e17'"),
    "a negative number": (changed(3, 9, -5), "targets of the training data must be 0 or more, got -5"),
    "a cut row": (csv()[:-6], "line 40: the row must have 10 values, as the first line has, got"),
    "an endless line": (b"1,2\n" + b"1" * 3_000_000, "must have at most 1,048,576 characters"),
    "another encoding": ("é,a\n1,2\n".encode("latin-1"), "must be UTF-8 text, got byte 0xe9"),
    "a bare pickle": (b"\x80\x04N.", "but a bare pickle"),
    "an array without its targets": (b"\x93NUMPY" + bytes(100), "must be next to it, as y.npy of x.npy"),
    "another row": (jsonl([{"x": [1, 2], "y": 3}, {"x": [1], "y": 3}]), "line 2: the row must be an object"),
    "a row that is no JSON": (b'{"x": [1], "y": 3}\n{"x": [1], \n', "the content must be valid JSON"),
    "JSON of words": (jsonl([{"x": ["a"], "y": 3}]), "line 1: x[0] must be an integer of up to 18 digits, g"),
    "fewer targets than tokens": (b"x0,x1,x2,y0,y1\n1,2,3,4,5\n", "or one for each token, got 'x0', "),
    "a cut .pt": (VALID["data.pt"][:-200], "truncated or damaged"),
    "a .pt of three": (
        pt((DATA.tokens, DATA.targets, DATA.targets)),
        "must have the keys tokens and targets, got no keys",
    ),
    "a .pt of other names": (pt({"x": DATA.tokens, "z": DATA.targets}), "got 'x', 'z'. Save a dict"),
    "a .pt of floats": (pt(NAMED | {"tokens": DATA.tokens / 1}), "must be integers, got float32"),
    "a cut .safetensors": (VALID["data.safetensors"][:-9], "truncated or damaged"),
    "a .safetensors of other names": (safetensors.torch.save({"x": DATA.tokens}), "got 'x'"),
    "a huge header": (struct.pack("<Q", 2**40) + b"{" + bytes(50), "unsafe: its header must have at most"),
    "a cut .npz": (VALID["data.npz"][:-30], "truncated or damaged"),
    "an .npz of objects": (npz(tokens=TOKENS.astype(object)), "must be integers, got 'object'"),
    "an .npz of floats": (npz(targets=TARGETS / 2), "must be integers, got 'float64'"),
    "an .npz without sequences": (npz(tokens=TOKENS[:0], targets=TARGETS[:0]), "must not be empty"),
    "a bomb": (lambda: npz(np.savez_compressed, np.zeros((10**6, 9), int)), "bytes, got 72,000,320. Use"),
    "a bomb of bytes": (
        lambda: npz(np.savez_compressed, np.zeros((10**6, 9), np.int8)),
        "unsafe: the unpacked",
    ),
    "a lie": (lying_about_its_size, "truncated or damaged"),
    "many numbers of a byte": (
        lambda: npz(tokens=np.zeros((2**22, 9), np.int8)),
        "at most 33,554,432 numbers",
    ),
    "many sequences": (lambda: npz(tokens=np.zeros((2**22 + 1, 1), np.int8)), "in 4,194,305 sequences. Give"),
    "many numbers in a .pt": (
        lambda: pt(NAMED | {"tokens": torch.zeros(2**25, dtype=torch.int8)}),
        "got 33,554,4",
    ),
    "many rows": (lambda: b"1,2\n" * (2**22 + 1), "in 4,194,305 sequences. Give a part of the data"),
    "a huge shape": (npy_that_claims((10**12, 9)), "must have the size of its shape (1000000000000, 9)"),
    "a negative shape": (npy_that_claims((-5, -2)), "must have the size of its shape (-5, -2)"),
    "true for a length": (npy_that_claims((True,)), "must have the size of its shape (True,)"),
    "true for one of two": (npy_that_claims((True, 10)), "must have the size of its shape (True, 10)"),
    "no shape": (npy_that_claims("x"), "truncated or damaged"),
    "a strange type": (npy_that_claims((5, 2), "no type"), "truncated or damaged"),
    "another compression": (unknown_compression(), "the compression must be as in numpy.savez_compressed"),
    "many entries": (npz() + b"PK\x01\x02" * 2000, "unsafe: its zip must have at most 1,000 entries"),
}  # fmt: skip


EVERY = [[-100, -100, 4], [-100, 7, 5]]
EACH_POSITION = {
    "lists.jsonl": jsonl({"tokens": [1, 2, 3], "targets": row} for row in EVERY),
    "columns.csv": b"x1,x0,x2,y0,y1,y2\n" + b"".join(b"2,1,3,%d,%d,%d\n" % tuple(row) for row in EVERY),
    "columns.tsv": b"x0\tx1\tx2\ty2\ty1\ty0\n"
    + b"".join(b"1\t2\t3\t%d\t%d\t%d\n" % tuple(row[::-1]) for row in EVERY),
    "data.npz": npz(tokens=np.array([[1, 2, 3]] * 2), targets=np.array(EVERY)),
    "pair.pt": pt((torch.tensor([[1, 2, 3]] * 2), torch.tensor(EVERY))),
}


@pytest.mark.parametrize("name", EACH_POSITION)
def test_targets_of_every_position(tmp_path, name):
    (tmp_path / name).write_bytes(EACH_POSITION[name])
    read = read_training_data(tmp_path / name)
    assert read.tokens.tolist() == [[1, 2, 3]] * 2 and read.targets.tolist() == EVERY


@pytest.mark.parametrize(
    ("x", "y"), [("x", "y"), ("train_x", "train_y"), ("X-test", "y-test"), ("tokens", "targets")]
)
def test_two_arrays_next_to_each_other(tmp_path, x, y):
    np.save(tmp_path / f"{x}.npy", TOKENS), np.save(tmp_path / f"{y}.npy", TARGETS)
    read = read_training_data(tmp_path / f"{x}.npy")
    assert torch.equal(read.tokens, DATA.tokens) and torch.equal(read.targets, DATA.targets)
    np.save(tmp_path / f"{y}.npy", np.array([touch(tmp_path / "ran")], dtype=object))
    with pytest.raises(CheckpointError, match="must be integers, got 'object'"):
        read_training_data(tmp_path / f"{x}.npy")
    assert not (tmp_path / "ran").exists()


FEATURES = np.array([[1.5, 2.0], [3.0, -4.25]])
OF_NUMBERS = {
    "data.npz": npz(tokens=FEATURES, targets=np.array([0, 1])),
    "pair.pt": pt((torch.tensor(FEATURES), torch.tensor([0, 1]))),
}


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_inputs_of_any_module_may_be_numbers(tmp_path, name):
    (tmp_path / name).write_bytes(OF_NUMBERS[name])
    x, y = read_training_data(tmp_path / name, floats=True)
    assert np.array_equal(x, FEATURES) and np.asarray(y).tolist() == [0, 1]
    with pytest.raises(CheckpointError, match="integers"):
        read_training_data(tmp_path / name)


@pytest.mark.parametrize("name", REFUSED)
def test_everything_else_is_refused_in_one_line(tmp_path, name):
    content, cause = REFUSED[name]
    path = tmp_path / "theirs"
    path.write_bytes(content() if callable(content) else content)
    with pytest.raises(CheckpointError) as error:
        read_training_data(path)
    assert cause in str(error.value) and str(error.value).startswith(f"{path}: ")
    assert str(error.value).isprintable() and len(str(error.value)) < 1200


def test_nothing_in_a_file_is_run_or_waited_for(tmp_path):
    marker = tmp_path / "ran"
    content = {"tokens": touch(marker), "targets": DATA.targets}
    (tmp_path / "a.pt").write_bytes(pt(content))
    np.savez(tmp_path / "a.npz", tokens=np.array([touch(marker)], dtype=object), targets=TARGETS)
    os.mkfifo(tmp_path / "pipe")
    for name, cause in [("a.pt", "unsafe"), ("a.npz", "must be integers"), ("pipe", "an ordinary file"),
                        ("none", "No such file"), (".", "Is a directory")]:  # fmt: skip
        with pytest.raises(CheckpointError, match=cause):
            read_training_data(tmp_path / name)
    assert not marker.exists()


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**29 + 1)
    with pytest.raises(CheckpointError, match="must have at most 536,870,912 bytes"):
        read_training_data(tmp_path / "large")


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")  # pickletools' own
@pytest.mark.parametrize("name", VALID)
def test_damaged_files_are_refused_or_integers(tmp_path, name):
    path, refused = tmp_path / name, 0
    for i in range(150):
        path.write_bytes(damaged(VALID[name], random.Random(f"{name} {i}")))
        try:
            read = read_training_data(path)
        except CheckpointError as error:
            assert str(error).isprintable()
            refused += 1
        else:
            assert read.tokens.ndim == 2 and read.targets.shape == (len(read),) and len(read) >= 1
            assert min(read.tokens.min(), read.targets.min()) >= 0
    assert refused > 20  # the fuzzer does damage


class Peak:
    """Memory that a part of a process takes, as Python and NumPy know it."""

    def __enter__(self):
        tracemalloc.start()
        return self

    def __exit__(self, *_):
        self.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


@pytest.mark.parametrize("task", [TASK, AdditionTask(), AdditionTask(mode="digits"), PrOntoQATask()])
def test_narrow_numbers_stay_narrow_until_they_are_asked(task):
    """Of 2 MB in a byte each, 16 MB in int64, no step takes that much."""
    n = 2**21 // task.seq_len
    whole = task.kind == "prontoqa" or getattr(task, "mode", "") == "digits"
    given = (np.ones((n, task.seq_len), np.int8), np.ones((n, task.seq_len) if whole else n, np.int8))
    with Peak() as peak:
        task.checked_training_set(given)
    assert peak.bytes < 2**22


def test_different_sequences_are_those_of_numpy():
    rng = np.random.default_rng(0)
    for low, high, n_pos in [(0, 3, 2), (-100, 120, 9), (0, 110, 60), (0, 2**31 - 1, 4), (5, 6, 1)]:
        tokens = rng.integers(low, high, (500, n_pos), endpoint=True)[rng.integers(0, 300, 900)]
        dtype = np.int8 if high < 128 else np.int64
        targets = rng.integers(0, 2, 900)
        batch = TokenBatch(torch.from_numpy(tokens.astype(dtype)), torch.from_numpy(targets))
        found, rows = batch.distinct(), np.column_stack([tokens, targets])
        both = np.column_stack([found.tokens.numpy(), found.targets.numpy()])
        assert both.tolist() == np.unique(rows, axis=0).tolist()
        assert found.tokens.dtype == batch.tokens.dtype


def test_csv_takes_three_times_its_size():
    """Its bytes, its numbers in blocks, and the numbers in one."""
    data = (b",".join([b"1,2,3,4,5,6,7,8,9,1"] * 10) + b"\n") * 20_000
    with Peak() as peak:
        tokens, _ = training_data._pair(data, "iu")
    assert tokens.shape == (20_000, 99)
    assert len(data) + peak.bytes < 3 * len(data)


def test_the_checkpoints_are_opened_before_the_data(tmp_path):
    """Data that nobody asks for are not read: these would be refused."""
    (tmp_path / "data.csv").write_bytes(b"no numbers")
    trained = str(next(path for path in shipped() if path.stem == "phase1"))
    for command in ("classify", "evaluate"):
        done = CliRunner().invoke(app, [command, trained, "--train-data", str(tmp_path / "data.csv")])
        assert done.exit_code == 2
        assert "only checkpoints that describe their" in done.stderr
    (tmp_path / "none.pt").write_bytes(b"none")
    data = ["--train-data", str(tmp_path / "data.csv")]
    done = CliRunner().invoke(app, ["classify", str(tmp_path / "none.pt"), *data])
    assert done.exit_code == 3 and "none.pt: not a checkpoint" in done.stderr
    assert "data.csv" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux' /proc")
@pytest.mark.parametrize("command", ["evaluate", "classify"])
def test_the_largest_that_a_small_file_may_become_takes_less_than_a_gigabyte(tmp_path, command):
    """As many numbers as there may be, eight bytes each, 268 MB in a file of 3 MB."""
    config = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16)
    save_checkpoint(tmp_path / "a.pt", Checkpoint.from_model(build_model(config), config, TASK))
    tokens = np.resize(TOKENS[:1], (2**25 // 10, 9))
    content = npz(np.savez_compressed, tokens, np.resize(TARGETS[:1], len(tokens)))
    with zipfile.ZipFile(file := io.BytesIO(content), "a") as archive:
        archive.writestr("more", random.Random(0).randbytes(2**21))
    (tmp_path / "data.npz").write_bytes(file.getvalue())
    assert len(file.getvalue()) < 4_000_000
    code = (
        "import re, sys; from anchorlens.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    arguments = [command, tmp_path / "a.pt", "--train-data", tmp_path / "data.npz", "--json"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert '"train_source": "training set"' in done.stdout, done.stderr
    assert 1024 * int(done.stdout.split()[-1]) < 10**9

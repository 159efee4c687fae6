"""Datasets as files: what a good one becomes, and what is said of a bad one."""

import json
import os
import re
import time

import numpy as np
import pytest

from anchorlens import AnchorTask
from anchorlens.extras.audit import files, mappings_of, open_dataset, read_csv

GOOD = """key,a1,a2,target,violates
-5,7,30,1000000,0
30,7,30,-4,1
30,30,7,30,0
"""


@pytest.fixture
def written(tmp_path):
    def write(text, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def as_dict(mappings):
    """Question -> (target, violates) in the dataset's own numbers."""
    truth = [None] * len(mappings) if mappings.violates is None else mappings.violates.tolist()
    questions = zip(map(tuple, mappings.chains.tolist()), mappings.keys.tolist(), strict=True)
    return dict(zip(questions, zip(mappings.targets.tolist(), truth, strict=True), strict=True))


class TestGood:
    EXPECTED = {((7, 30), -5): (1000000, False), ((7, 30), 30): (-4, True), ((30, 7), 30): (30, False)}

    def test_numbers_mean_nothing_but_themselves(self, written):
        mappings = read_csv(written(GOOD))
        assert as_dict(mappings) == self.EXPECTED and mappings.name == "data.csv"
        assert mappings.groups == ((7, 30), (30, 7)) and mappings.group_violates.tolist() == [False, False]

    @pytest.mark.parametrize(
        "text",
        [
            "\ufeff" + GOOD,
            GOOD.replace("\n", "\r\n"),
            GOOD.replace(",", ", ") + "\n\n",
            GOOD.replace("key", '"KEY"'),
            GOOD + "30,7,30,-4,1\n",  # a row that repeats another
            "violates,target,a2,key,a1\n0,1000000,30,-5,7\n1,-4,30,30,7\n0,30,7,30,30",
            GOOD.replace(",", ";").replace("target", "Label"),
            GOOD.replace(",", "\t").encode("utf-16"),
            GOOD.replace("30", "30.0"),
        ],
    )
    def test_is_read_however_it_was_saved(self, written, text):
        assert as_dict(read_csv(written(text))) == self.EXPECTED

    def test_rows_with_two_targets_are_found_and_the_most_frequent_counts(self, written):
        rows = ["1,1,2,9", "2,1,2,7", "1,1,2,8", "2,1,2,8", "1,1,2,8", "3,1,2,4", "3,1,2,4"]
        mappings = read_csv(written("key,a1,a2,target\n" + "\n".join(rows)))
        assert mappings.targets.tolist() == [8, 7, 4]  # two of three; of one and one the first
        assert mappings.disagreeing == {0: [(2, 9), (4, 8), (6, 8)], 1: [(3, 7), (5, 8)]}
        with_truth = read_csv(written("key,a1,a2,target,violates\n1,1,2,9,1\n1,1,2,8,0\n1,1,2,8,0\n"))
        assert with_truth.violates.tolist() == [False]

    @pytest.mark.parametrize("name", ["data.tsv", "data.jsonl"])
    def test_other_tables_are_read_as_csv_is(self, written, name):
        names, *rows = [line.split(",") for line in GOOD.splitlines()]
        objects = (dict(zip(names, map(int, row), strict=True)) for row in rows)
        text = GOOD.replace(",", "\t") if name == "data.tsv" else "\n".join(map(json.dumps, objects))
        assert as_dict(open_dataset(written(text, name))) == self.EXPECTED

    def test_without_a_truth_there_is_none(self, written):
        text = "\n".join(line.rsplit(",", 1)[0] for line in GOOD.splitlines())
        mappings = read_csv(written(text))
        assert mappings.violates is None and len(mappings) == 3

    def test_every_sequence_asks_what_the_file_says(self, written):
        """A token for each number, the same one for a key and an equal target, another one for an anchor."""
        text = "\n".join(f"{key},{a},{b},{key + a - b}" for key in range(40) for a in (5, 6) for b in (5, 8))
        mappings = read_csv(written("key,a1,a2,target\n" + text))
        assert (
            len(mappings) == 160 and len(mappings.task.seen_pairs) == 4 and len(mappings.task.ood_pairs) == 5
        )
        for batch in (mappings.training_set(5000, np.random.default_rng(0)),
                      mappings.questions(2, np.random.default_rng(0))):  # fmt: skip
            tokens, targets = batch.tokens.numpy(), batch.targets.numpy()
            rows, at = np.arange(len(tokens)), batch.trials.positions
            assert tokens.shape[1] == 9 and set(at) == set(range(7))
            # tokens: anchors 5, 6, 8 are 0, 1, 2; keys 0..39 are 3..42, other targets (-3, ...) behind
            anchor = np.array([5, 6, 8])
            first, second = anchor[tokens[rows, at + 1]], anchor[tokens[rows, at + 2]]
            asked = tokens[rows, at] - 3 + first - second
            inside = (asked >= 0) & (asked < 40)
            assert (targets[inside] - 3 == asked[inside]).all() and (targets[~inside] >= 43).all()
            assert len(set(targets[~inside])) == len(set(asked[~inside]))
            noise = np.ones(tokens.shape, dtype=bool)
            for offset in range(3):
                noise[rows, at + offset] = False
            assert tokens[noise].min() >= 3 and tokens[noise].max() <= 42

    def test_keys_that_a_chain_lacks_are_never_asked(self, written):
        text = "key,a1,a2,target\n" + "\n".join(f"{key},1,{1 + key % 2},50" for key in range(20))
        mappings = read_csv(written(text))
        batch = mappings.training_set(2000, np.random.default_rng(0))
        assert len(mappings) == 20
        assert ((batch.trials.keys - 2) % 2 == batch.trials.pairs[:, 1]).all()

    def test_chains_of_three(self, written):
        mappings = read_csv(written("key,a1,a2,a3,target\n1,1,2,3,4\n2,3,2,1,4\n"))
        assert mappings.groups == ((1, 2, 3), (3, 2, 1)) and mappings.task.seq_len == 10

    def test_a_task_survives_the_way_through_a_file(self, written):
        task = AnchorTask(complexity=1)
        own = mappings_of(task)
        lines = [
            f"{key},{a},{b},{target},{int(wrong)}"
            for (a, b), key, target, wrong in zip(
                own.chains.tolist(), own.keys, own.targets, own.violates, strict=True
            )
        ]
        assert as_dict(read_csv(written("key,a1,a2,target,violates\n" + "\n".join(lines)))) == as_dict(own)

    def test_many_keys_load_in_time_that_grows_with_their_number(self, written):
        rows = [(key, 1 + key % 2, 1 + key // 2 % 2, key + 3) for key in range(60_000)]
        path = written("key,a1,a2,target\n" + "\n".join(",".join(map(str, row)) for row in rows))
        start = time.process_time()
        mappings = read_csv(path)
        assert time.process_time() - start < 20  # minutes, were each row to look at every key
        assert len(mappings) == 60_000 and (mappings.targets == mappings.keys + 3).all()
        one = mappings.questions(1, np.random.default_rng(0))
        assert (one.targets.numpy() == one.trials.keys + 3).all()


HEADER = "key,a1,a2,target\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "got an empty file"),
        ("\n \n", "got an empty file"),
        (HEADER, "a row below its header"),
        ("1,2,3,4\n", r"line 1: the header .*if .* no header"),
        ("key,a1,target\n1,2,3\n", "got 'a2' missing"),
        ("key,a1,a3,target\n1,2,3,4\n", "got 'a2' missing"),
        ("a1,a2,target\n1,2,3\n", "got 'key' missing"),
        ("key,a1,a2\n1,2,3\n", "got 'target' missing"),
        ("key,a1,a2,target,violate\n1,2,3,4,0\n", "got 'violate' .*in addition"),
        ("key,a1,a2,target,note\n1,2,3,4,hello\n", "got 'note'"),
        ("key,a1,a2,target,key\n1,2,3,4,1\n", "got 'key' twice"),
        (HEADER + "1,2,3,4\n1,2,3\n", r"line 3: the row .* 4 values.* got 3"),
        (HEADER + "1,2,3,4,5\n", "line 2: the row must have 4 values, .* got 5"),
        (HEADER + "1,2,3,4\n\n1,2,x,4\n", "line 4: a2 must be an integer .* got 'x'"),
        (HEADER + "1.5,2,3,4\n", "line 2: key must be an integer"),
        (HEADER + "1,2,3,\n", r"line 2: target .*integer.*empty cell"),
        (HEADER + "1,2,3,1_000\n", "target must be an integer"),
        (HEADER + "1,2,3,٣\n", "target must be an integer"),
        (HEADER + f"1,2,3,{'9' * 5000}\n", "up to 18 digits"),
        (HEADER + "1,2,3,nan\n", "target must be an integer"),
        ("key,a1,a2,target,violates\n1,2,3,4,2\n", "line 2: `violates` must be 0 or 1, got 2"),
        ("key,a1,a2,target,violates\n1,2,3,4,\n", "line 2: violates must be an integer"),
        ("key,a1,a2,target,violates\n1,2,3,4,0\n1,2,3,4,1\n",
         r"violates .*one value.*line 3 and 0"),
        (",key,a1,a2,target\n0,1,2,3,4\n", r"line 1: the first column.*index=False"),
        ("0,1,2,3\n5,2,3,4\n", r"line 1: the header .*key, .*has no header"),
        (HEADER + '1,2,3,"4\n', "line 2: a quoted value must end"),
        (HEADER + '1,2,"3"x,4\n', "line 2: the row must be valid CSV"),
        (HEADER + '1,2,3,"\n4"\n', "line 2: a quoted value must end in its line"),
        (HEADER + "1," * 60_000 + "\n", r"line 2: the row .* 4 values.*60,001"),
        (HEADER + "1," * 600_000 + "\n", r"line 2: the row .*1,048,576 characters"),
        (",".join(f"a{k}" for k in range(1, 10_000)), "the header must have the columns key, a1"),
        ("key,a1,a2," + "x" * 5_000, "got 'target' missing"),
        (HEADER.encode() + b"1,2,3,\xff\n", "must be UTF-8 text, got byte 0xff"),
        (HEADER.encode() + b"1,2,3,\x00\n", "line 2: "),
        ("key a1 a2 target\n1 2 3 4\n", "must have the columns key"),
        (HEADER + "1,2,2,4\n", "anchors must hold at least 2 anchors"),
        (HEADER + "\n".join(f"{k},{k},{k + 1},0" for k in range(200)), "keys must be at most 2,000,000"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line_with_its_place(written, text, expected):
    path = written(text)
    with pytest.raises(ValueError, match=expected) as caught:
        read_csv(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message and len(message) < 400


def test_far_too_large_a_file_is_not_read(written, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 40)
    with pytest.raises(ValueError, match="must have at most"):
        read_csv(written(GOOD))
    monkeypatch.undo()
    monkeypatch.setattr(files, "MOST_MAPPINGS", 2)
    with pytest.raises(ValueError, match="at most 2 mappings"):
        read_csv(written(GOOD))


class TestTaskFile:
    def test_its_overrides_are_the_truth(self, written):
        path = written('[task]\nunseen_pairs = []\n[task.overrides]\n"1,2" = 4\n', "task.toml")
        mappings = open_dataset(path)
        assert mappings.name == "task.toml" and len(mappings) == 1280
        assert mappings.violates.sum() == 80 and mappings.group_violates.sum() == 1

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", r"only the table \[task\], got no table"),
            ("task = 3", "got no table of that name"),
            ("[task]\n[model]\ngamma = 0.5\n", "got also 'model'"),
            ("[task]\ncomplexity = 9\n", "complexity must be"),
            ("[task]\ncomplexty = 1\n", "Did you mean 'complexity'"),
            ("[task", "must be valid TOML"),
            (b"[task]\n#\xff", "must be UTF-8"),
            ("[task]\nseq_len = " + "9" * 10_000, "integers of at most 30 digits"),
            ("[task]\nx = " + "[" * 100_000, "nested at most 64 levels"),
            ("[task]\nkey_max = 90000\nseq_len = 9\nunseen_pairs = []\n[task.anchors]\n1 = 0\n2 = 0\n3 = 0\n",
             "must train at most 5,000,000"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_is_said_with_its_place(self, written, text, expected):
        path = written(text, "task.toml")
        with pytest.raises(ValueError, match=expected) as caught:
            open_dataset(path)
        assert str(caught.value).startswith(str(path))

    def test_a_suffix_says_what_it_is(self, written):
        assert len(open_dataset(written(GOOD))) == 3
        with pytest.raises(ValueError, match=re.escape("must be a .csv, .tsv or .jsonl file of")):
            open_dataset(written(GOOD, "data.txt"))
        with pytest.raises(OSError):
            open_dataset(written(GOOD).with_name("missing.csv"))

    @pytest.mark.parametrize("suffix", [".csv", ".toml"])
    def test_what_is_no_ordinary_file_is_not_waited_for(self, tmp_path, suffix):
        os.mkfifo(tmp_path / f"pipe{suffix}")
        with pytest.raises(ValueError, match="must name an ordinary file"):
            open_dataset(tmp_path / f"pipe{suffix}")

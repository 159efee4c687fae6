"""COGS: the published files or a small stand-in, what is always trained, the cases, and damaged files."""

import collections
import dataclasses
import functools
import gzip
import hashlib
import http.server
import json
import os
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from anchorlens_command import call

from anchorlens import CogsTask, preset
from anchorlens.configuration import field_types
from anchorlens.extras.cogs import files
from anchorlens.extras.cogs.files import FILES, published_files
from anchorlens.extras.cogs.task import MEAN_LENGTH, N_TEST, STRUCTURAL, UNKNOWN
from anchorlens.extras.shared.words import EOS, SEP
from anchorlens.plots.from_specs import figure_of
from anchorlens.randomness import generator
from anchorlens.recipes.run_config import identity
from anchorlens.tasks.registry import read_evaluation, read_task

PUBLISHED = Path(__file__).parents[4] / "shared/data/cogs"
needs_files = pytest.mark.skipif(not PUBLISHED.exists(), reason=f"no published COGS files at {PUBLISHED}")
NOUNS = ["cat", "dog", "cow", "hen"]
SMALL = {
    "train.tsv": [(f"A {n} ran .", f"run . agent ( x _ 2 , {n} )", "in_distribution") for n in NOUNS]
    + [
        ("ant", "LAMBDA a . ant ( a )", "primitive"),
        ("A bee ran .", "run . agent ( x _ 2 , bee )", "exposure_x"),
    ],
    "dev.tsv": [("A cat ran .", "run . agent ( x _ 2 , cat )", "in_distribution")],
    "test.tsv": [("A dog ran .", "run . agent ( x _ 2 , dog )", "in_distribution")],
    "gen.tsv": [
        ("A ant ran .", "run . agent ( x _ 2 , ant )", "prim_to_subj_common"),
        ("A yak ran .", "run . agent ( x _ 2 , yak )", "prim_to_subj_common"),
        ("A bee ran .", "run . agent ( x _ 2 , bee )", "pp_recursion"),
        ("A bee ran .", "run . agent ( x _ 2 , bee )", "cp_recursion"),
    ],
}
"""A stand-in of the same form."""


def content(name, lines=None):
    return "".join("\t".join(line) + "\n" for line in (SMALL[name] if lines is None else lines)).encode()


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    files._read.cache_clear()
    monkeypatch.setenv("ANCHORLENS_CACHE", str(tmp_path / "cache"))
    yield
    files._read.cache_clear()


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A folder with the stand-in, taken for the published files."""
    folder = tmp_path / "cogs"
    folder.mkdir()
    for name in SMALL:
        (folder / name).write_bytes(content(name))
        known = len(content(name)), hashlib.sha256(content(name)).hexdigest()
        monkeypatch.setitem(FILES, name, known)
    return folder


@pytest.fixture
def task(small):
    return CogsTask(data=str(small))


class Server(http.server.ThreadingHTTPServer):
    """A local one that serves a folder."""


@pytest.fixture
def server(small):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(small))
    handler.log_message = lambda *_: None
    with Server(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()


def answerer(task, said):
    """A function of tokens that gives what `said` makes of the sentence."""

    def logits(tokens):
        words = task.vocabulary
        found = torch.zeros(*tokens.shape, task.d_vocab)
        for row, sequence in enumerate(tokens.tolist()):
            at = sequence.index(SEP)
            answer = [*words.tokens(said(words.text(sequence[1:at]))), EOS]
            for k, token in enumerate(answer[: len(sequence) - at]):
                found[row, at + k, token] = 1
        return found

    return logits


@needs_files
class TestPublished:
    TASK = CogsTask(data=str(PUBLISHED))

    def test_counts(self):
        read = published_files(str(PUBLISHED))
        assert {name: len(lines) for name, lines in read.items()} == {
            "train": 24_155, "dev": 3000, "test": 3000, "gen": 21_000,
        }  # fmt: skip
        kinds = collections.Counter(line.kind.split("_example")[0] for line in read["train"])
        assert kinds == {"in_distribution": 24_000, "primitive": 143, "exposure": 12}
        cases = collections.Counter(line.kind for line in read["gen"])
        assert len(cases) == 21 and set(cases.values()) == {1000} and set(STRUCTURAL) <= set(cases)

    def test_vocabulary_and_length_are_those_that_are_known_without_the_files(self):
        task = self.TASK
        assert len(task.vocabulary) == task.d_vocab == 836
        lengths = {name: task.vocabulary.length(examples) for name, examples in task.splits.items()}
        assert max(found.max() for found in lengths.values()) == task.seq_len == 543
        assert task.training_width == lengths["train"].max() == 177
        asked = [*lengths["id"], *lengths["ood"]]
        assert len(asked) == N_TEST and round(sum(asked) / N_TEST) == MEAN_LENGTH

    def test_words_that_are_never_trained_set_a_ceiling(self):
        unreachable = [UNKNOWN in answer.split() for answer in self.TASK.splits["ood"].answers]
        by_case = collections.Counter(c for c, no in zip(self.TASK.cases, unreachable, strict=True) if no)
        assert sum(by_case.values()) == 1634
        assert (by_case["cp_recursion"], by_case["pp_recursion"]) == (844, 782)
        prompts = [p for p in self.TASK.splits["ood"].prompts if UNKNOWN in p.split()]
        assert prompts  # gardner and monastery

    @pytest.mark.parametrize("n", [1000, 24_155, 30_000])
    def test_primitives_and_exposures_are_always_trained(self, n):
        drawn = self.TASK.training_examples(n, generator(0, "data"))
        counts = collections.Counter(drawn.prompts)
        fixed = [line.sentence for line in self.TASK._files["train"] if line.kind != "in_distribution"]
        assert len(drawn) == n and len(fixed) == 155
        assert all(counts[sentence] == (2 if n > 24_155 else 1) for sentence in fixed)
        assert max(counts.values()) == (2 if n > 24_155 else 1)


class TestStandIn:
    def test_what_is_trained_and_what_the_words_are(self, task):
        drawn = task.training_examples(4, generator(0, "data"))
        assert {"ant", "A bee ran ."} <= set(drawn.prompts) and len(drawn) == 4
        assert set(task.vocabulary.words) >= {"cat", "ant", UNKNOWN} and "yak" not in task.vocabulary.words
        assert task.splits["ood"].prompts[1] == f"A {UNKNOWN} ran ."
        with pytest.raises(ValueError, match="n_samples must be more than 2"):
            task.training_examples(2, generator(0, "data"))

    def test_cases_means_and_the_ceiling(self, task):
        knows = {p: a for e in task.splits.values() for p, a in zip(e.prompts, e.answers, strict=True)}
        found = task.evaluate(answerer(task, lambda p: "run" if "ant" in p or UNKNOWN in p else knows[p]))
        values = {
            name: found.measure(name).value for name in ("id", "ood", "lexical", "structural", "ceiling")
        }
        assert values == {"id": 1.0, "ood": 0.5, "lexical": 0.0, "structural": 1.0, "ceiling": 0.75}
        bars = found.figure_specs[0]
        assert bars.y == {"prim to subj common": 0.0, "cp recursion": 1.0, "pp recursion": 1.0}
        figure = figure_of(bars)
        assert list(figure.data[0].x) == [0.0, 1.0, 1.0] and figure.layout.yaxis.autorange == "reversed"
        back = read_evaluation(json.loads(json.dumps(found.to_dict())))
        assert back.to_dict() == found.to_dict()

    def test_line_ends_of_windows_and_a_byte_order_mark_are_read(self, small, task):
        expected = published_files(str(small))
        files._read.cache_clear()
        for name in SMALL:
            data = (small / name).read_bytes().replace(b"\n", b"\r\n")
            (small / name).write_bytes(b"\xef\xbb\xbf" + data)
        assert published_files(str(small)) == expected

    def test_packed_files_are_read_too(self, small):
        for name in SMALL:
            (small / f"{name}.gz").write_bytes(gzip.compress((small / name).read_bytes()))
            (small / name).unlink()
        assert len(published_files(str(small))["train"]) == 6


class TestIdentity:
    def test_where_the_files_are_makes_no_other_task(self):
        one, other = CogsTask(data="/a"), CogsTask(data="/b")
        assert one == other and hash(one) == hash(other)
        assert identity(preset("cogs", data="/a")) == identity(preset("cogs", data="/b"))
        assert read_task(one.to_dict()).data == "/a" and set(one.to_dict()) == {
            "kind",
            *field_types(CogsTask),
        }

    def test_its_shape_is_known_without_the_files(self):
        assert preset("cogs").model_config.n_ctx == CogsTask().seq_len and "21,000" in CogsTask().describe()
        task = CogsTask(data="")  # nothing is read or fetched
        assert task.sequences_asked(100, quickly=False) == round(27_100 * 74 / 543)
        assert task.bytes_to_ask(100) == 2 * 8 * 543 * (round(27_100 * 74 / 543) + 200)
        assert CogsTask().bytes_to_ask(10) > 0 and CogsTask().table_size == 0


class TestFetching:
    def test_they_are_fetched_once(self, server, small, tmp_path):
        assert len(published_files(url=server)["gen"]) == 4
        for name in SMALL:
            (small / name).unlink()
        files._read.cache_clear()
        assert len(published_files(url=server)["gen"]) == 4
        assert sorted(path.name for path in (tmp_path / "cache/cogs").iterdir()) == sorted(SMALL)

    def test_a_folder_that_is_not_there_is_named_and_nothing_is_fetched(self, server, small, tmp_path):
        for folder in ("/no/such/folder", str(small / "gen.tsv")):
            with pytest.raises(ValueError, match=f"got '{folder}', which was not found. Give another"):
                published_files(folder, url=server)
        assert not (tmp_path / "cache").exists()

    def test_a_download_that_is_cut_off_is_one_error(self, server, small, tmp_path):
        (small / "gen.tsv").write_bytes(content("gen.tsv")[:-20])
        with pytest.raises(ValueError, match=r"download of gen.tsv: .* Put the files"):
            published_files(url=server)
        assert not (tmp_path / "cache/cogs/gen.tsv").exists()

    def test_no_network_is_one_error(self):
        with pytest.raises(ValueError, match=r"COGS must be in a folder.*give this"):
            published_files(url="http://127.0.0.1:9/")


class TestBadFiles:
    @pytest.mark.parametrize(
        ("name", "data", "message"),
        [
            ("train.tsv", b"a secret\n", r"train.tsv.*published.*other contents"),
            ("gen.tsv", content("gen.tsv")[:-3], r"gen.tsv.*published.*bytes with SHA"),
            ("dev.tsv", content("dev.tsv") + b"x", "other contents, perhaps cut off"),
            ("dev.tsv", content("dev.tsv") + bytes(2**15), "got other contents"),
            (
                "dev.tsv",
                content("dev.tsv") + bytes(2**16),
                r"dev.tsv.*at most .*published file",
            ),
            ("dev.tsv", b"version https://git-lfs.github.com/spec/v1\n", "got other contents"),
            (
                "dev.tsv",
                content("dev.tsv").replace(b"cat", b"bat").replace(b"\n", b"\r\n"),
                "Windows line ends .CRLF",
            ),
            ("dev.tsv", content("dev.tsv")[:-1] + b"\xff", "got other contents"),
            ("test.tsv", None, "must hold .* without test.tsv"),
        ],
    )
    def test_one_clear_error(self, small, name, data, message):
        (small / name).unlink()
        if data is not None:
            (small / name).write_bytes(data)
        with pytest.raises(ValueError, match=message):
            published_files(str(small))

    def test_of_the_wrong_size_ends_as_other_files_that_cannot_be_read(self, small, tmp_path):
        (small / "dev.tsv").write_bytes(content("dev.tsv") + b"x")
        command = ["train", "--task", "cogs", "--data", small, "--steps", 1, "--out", tmp_path / "run"]
        assert "other contents" in call(*command, code=3).stderr

    def test_of_other_contents_nothing_is_told(self, small):
        """The folder may be a stranger's choice, and a hash or a line is a hint at what stands there."""
        (small / "train.tsv").write_bytes(secret := b"a secret\n")
        with pytest.raises(ValueError, match="other contents") as error:
            published_files(str(small))
        assert "secret" not in str(error.value)
        assert hashlib.sha256(secret).hexdigest()[:8] not in str(error.value)

    def test_no_more_is_read_than_the_published_file_has(self, small):
        """Four megabytes of gzip may be four gigabytes."""
        (small / "train.tsv").unlink()
        (small / "train.tsv.gz").write_bytes(gzip.compress(bytes(2**26)))  # 64 MiB of 64 kB
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match="train.tsv must be the published file"):
                published_files(str(small))
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("name", ["train.tsv", "train.tsv.gz"])
    def test_a_pipe_or_a_device_is_not_waited_for(self, small, name):
        (small / "train.tsv").unlink()
        os.mkfifo(small / name)
        with pytest.raises(ValueError, match=f"{name}: the path must name an ordinary file"):
            published_files(str(small))
        (small / name).unlink()
        (small / name).symlink_to("/dev/zero")
        with pytest.raises(ValueError, match="must name an ordinary file"):
            published_files(str(small))

    def test_a_folder_is_a_text_and_kept_absolute(self, small, monkeypatch):
        monkeypatch.chdir(small.parent)
        assert CogsTask(data="cogs").data == str(small)
        with pytest.raises(ValueError, match="data must be text, got"):
            CogsTask(data=small)

    def test_a_packed_file_with_damage_inside(self, small):
        """Blocks of gzip that make no sense are an error of zlib's, which is no OSError."""
        packed = bytearray(gzip.compress((small / "gen.tsv").read_bytes(), 9))
        (small / "gen.tsv").unlink()
        for place in range(10, len(packed) - 8):
            changed = bytes([*packed[:place], packed[place] ^ 0xFF, *packed[place + 1 :]])
            (small / "gen.tsv.gz").write_bytes(changed)
            files._read.cache_clear()
            with pytest.raises(ValueError, match=r"gen\.tsv.*(cannot be read|must )"):
                published_files(str(small))

    def test_a_packed_file_that_is_cut_off(self, small):
        packed = gzip.compress((small / "gen.tsv").read_bytes())
        (small / "gen.tsv").unlink()
        (small / "gen.tsv.gz").write_bytes(packed[:-12])
        with pytest.raises(ValueError, match="must be readable, got"):
            published_files(str(small))


def test_it_cannot_be_changed(task):
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.data = "/elsewhere"
    assert np.isfinite(task.bytes_to_ask(10))

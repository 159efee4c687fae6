"""Where files are written: nothing but an ordinary file is replaced, and nothing that is read."""

import collections
import os
import shutil
import stat

import pytest
from anchorlens_command import call
from fuzz_output_paths import fuzz

from anchorlens.files.writing import atomic_write, check_can_write
from anchorlens.training import checkpoints

GOOD = next(path for path in checkpoints.shipped() if path.stem == "phase3")


@pytest.mark.parametrize("n", [30, pytest.param(130, marks=pytest.mark.slow)])
def test_what_may_not_be_replaced_is_refused_in_one_line_and_nothing_else_changes(n):
    outcomes = collections.Counter(fuzz(n, seed=0, quick=True))
    assert {name for name, _ in outcomes} == set(NAMES) or n < 130
    assert sum(k for (_, outcome), k in outcomes.items() if outcome == "written") > n / 6.5


NAMES = [
    "write_report", "Verdict.report", "Verdict.summary", "write_diagram", "SweepResult.diagram",
    "write_table",
    "SweepResult.table", "Audit.table", "plots.save", "save_checkpoint", "probe --plot",
    "probe --initial --plot", "classify --report", "audit --plot",
]  # fmt: skip


class TestAtomicWrite:
    @pytest.mark.parametrize("kind", ["pipe", "folder", "link to pipe"])
    def test_replaces_nothing_that_is_no_file(self, tmp_path, kind):
        path = tmp_path / "out"
        if kind == "folder":
            path.mkdir()
        else:
            os.mkfifo(tmp_path / "pipe" if kind == "link to pipe" else path)
        if kind == "link to pipe":
            path.symlink_to("pipe")
        before = path.lstat().st_ino
        with (
            pytest.raises(OSError, match="it is a folder|it is not an ordinary file") as found,
            atomic_write(path),
        ):
            pytest.fail("nothing may be written")
        assert found.value.filename == str(path) and path.lstat().st_ino == before
        assert len(list(tmp_path.iterdir())) == (2 if kind == "link to pipe" else 1)

    def test_replaces_a_link_and_not_what_it_leads_to(self, tmp_path):
        (tmp_path / "kept").write_text("before")
        (tmp_path / "out").symlink_to("kept")
        with atomic_write(tmp_path / "out") as file:
            file.write(b"after")
        assert (tmp_path / "kept").read_text() == "before" and not (tmp_path / "out").is_symlink()
        assert (tmp_path / "out").read_text() == "after"


class TestCheckCanWrite:
    def test_gives_the_path(self, tmp_path):
        assert check_can_write(str(tmp_path / "a.html"), "--out", (".html",)) == tmp_path / "a.html"
        (tmp_path / "a.html").write_text("before")
        check_can_write(tmp_path / "a.html", "--out", (".html",), [None, tmp_path / "none", GOOD])

    def test_says_what_it_expected(self, tmp_path):
        def refused(path, *inputs):
            with pytest.raises(ValueError) as found:
                check_can_write(path, "--out", (".csv", ".parquet"), inputs)
            return str(found.value)

        (tmp_path / "a.csv").write_text("before")
        (tmp_path / "link.csv").symlink_to("a.csv")
        (tmp_path / "folder.csv").mkdir()
        assert refused("a.html") == "--out must end in .csv or .parquet, got 'a.html'. Change it"
        assert refused(tmp_path / "no/a.csv").startswith("--out must be in a folder that exists, got ")
        assert refused(tmp_path / "folder.csv").endswith("it is a folder. Give another file")
        assert "File name too long" in refused(tmp_path / f"{'n' * 300}.csv")
        for name in ("a.csv", "link.csv"):
            said = refused(tmp_path / name, tmp_path / "a.csv")
            assert said.endswith("it is one of the files that are read. Give another file")


def test_classify_refuses_to_write_a_report_over_a_checkpoint(tmp_path):
    shutil.copy(GOOD, tmp_path / "a.pt")
    os.mkfifo(tmp_path / "pipe.html")
    before = (tmp_path / "a.pt").read_bytes()
    said = call("classify", "--report", tmp_path / "a.pt", GOOD, code=2).stderr
    assert said.count("\n") == 1 and "--report must end in .html, got 'a.pt'" in said
    shutil.copy(GOOD, tmp_path / "a.html")
    said = call("classify", GOOD, tmp_path / "a.html", "--report", tmp_path / "a.html", code=2).stderr
    assert said.count("\n") == 1 and "it is one of the files that are read" in said
    said = call("classify", GOOD, "--report", tmp_path / "pipe.html", code=2).stderr
    assert said.count("\n") == 1 and "it is not an ordinary file" in said
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "a.html").read_bytes() == before
    assert stat.S_ISFIFO((tmp_path / "pipe.html").stat().st_mode)


def test_an_audit_refuses_to_write_its_table_over_its_dataset(tmp_path):
    dataset = tmp_path / "mappings.csv"
    dataset.write_text("key,a1,a2,target\n" + "".join(f"{k},1,2,{k + 1}\n" for k in range(20, 60)))
    before = dataset.read_bytes()
    said = call("audit", dataset, "--steps", 1, "--out", tmp_path, "--workers", 1, code=2).stderr
    assert said.count("\n") == 1 and "it is one of the files that are read" in said
    assert dataset.read_bytes() == before and os.listdir(tmp_path) == ["mappings.csv"]


@pytest.mark.parametrize("name", ["audit.json", "mappings.csv", "audit.html"])
def test_an_audit_refuses_a_folder_that_holds_something_else_before_it_trains(tmp_path, name):
    os.mkfifo(tmp_path / name)
    said = call("audit", "--steps", 100_000, "--out", tmp_path, "--workers", 1, code=2).stderr
    assert said.count("\n") == 1 and "it is not an ordinary file" in said


def test_a_demo_refuses_a_page_that_is_no_file_before_it_begins(tmp_path):
    os.mkfifo(tmp_path / "report.html")
    said = call("demo", "--out", tmp_path, code=2).stderr
    assert said.count("\n") == 1 and "it is not an ordinary file" in said


@pytest.mark.parametrize(("option", "name"), [("--out", "a.html"), ("--table", "a.csv")])
def test_a_diagram_refuses_what_is_no_file_before_it_reads(tmp_path, option, name):
    os.mkfifo(tmp_path / name)
    said = call("diagram", tmp_path, option, tmp_path / name, code=2).stderr
    assert said.count("\n") == 1 and f"{option} " in said and "it is not an ordinary file" in said

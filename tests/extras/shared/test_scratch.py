"""Folders of killed processes go after a day; those in use, and whatever else lies there, stay."""

import os
import signal
import subprocess
import sys
import time

import pytest

from anchorlens.extras.shared.cache import user_cache
from anchorlens.extras.shared.scratch import DAY, LOCK, scratch_folder

HOLDING = """
import sys, time
from anchorlens.extras.shared.scratch import scratch_folder
with scratch_folder("work-", sys.argv[1]) as folder:
    (folder / "large").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """A process with such a folder, and the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, tmp_path / os.path.basename(process.stdout.readline().strip())
        finally:
            process.kill()


def make_old(folder):
    before = time.time() - DAY - 60
    os.utime(folder / LOCK, (before, before))


def use(place):
    with scratch_folder("work-", place):
        pass


def test_it_is_this_users_alone_and_goes_with_the_context(tmp_path):
    with pytest.raises(KeyError), scratch_folder("work-", tmp_path) as folder:
        assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
        (folder / "inside").mkdir()
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_that_of_a_killed_process_goes_after_a_day(holder, tmp_path):
    process, folder = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    use(tmp_path)
    assert (folder / "large").exists()
    make_old(folder)
    use(tmp_path)
    assert not folder.exists()


def test_that_of_a_process_at_work_stays(holder, tmp_path):
    _, folder = holder
    make_old(folder)
    use(tmp_path)
    assert (folder / "large").exists()


def test_other_folders_stay(tmp_path):
    """One of that name without a lock, one of another name, a link to one elsewhere, one of another user."""
    folders = {name: tmp_path / name for name in ("work-of-mine", "other", "elsewhere", "work-of-others")}
    for name, folder in folders.items():
        folder.mkdir()
        if name != "work-of-mine":
            (folder / LOCK).touch()
            make_old(folder)
    (tmp_path / "work-link").symlink_to(folders["elsewhere"])
    if os.getuid() == 0:
        os.chown(folders["work-of-others"], 12345, 12345)
    else:
        (folders["work-of-others"] / LOCK).unlink()
    use(tmp_path)
    assert all(folder.is_dir() for folder in folders.values())


def test_a_corpus_is_put_together_in_one(tmp_path, monkeypatch):
    """What is left of it after a kill is removed when the next is put together."""
    from anchorlens.extras.text import corpus

    monkeypatch.setenv("ANCHORLENS_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "a.txt"
    text.write_text("some words\n" * 1000)
    left = tmp_path / "cache/text/files-0123"
    left.mkdir(parents=True)
    (left / LOCK).touch()
    make_old(left)
    made = corpus.corpus_of("files", str(text), "1", 0.1, 0)
    assert made.is_whole and not left.exists()
    assert [folder.stat().st_mode & 0o777 for folder in left.parent.iterdir()] == [0o700]


def test_the_cache_is_where_the_system_keeps_caches(monkeypatch, tmp_path):
    monkeypatch.delenv("ANCHORLENS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache("cogs") == tmp_path / "anchorlens" / "cogs" and user_cache("cogs").is_dir()

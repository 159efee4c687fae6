"""What checkpoints are called: a run by its folder, and never two alike."""

import os

from anchorlens.texts import LONGEST, safe_repr, titles


def test_a_run_is_called_by_the_end_of_its_path_wherever_one_stands(tmp_path, monkeypatch):
    (tmp_path / "runs/a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert titles(["runs/a"]) == titles([tmp_path / "runs/a"]) == [os.path.join("runs", "a")]
    monkeypatch.chdir("runs/a")
    assert titles(["."]) == titles(["../a"]) == [os.path.join("runs", "a")]


def test_those_that_end_alike_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [f"{top}/{run}/x" for top in ("p", "q") for run in ("a", "b")]
    for path in paths:
        os.makedirs(path)
    assert titles([paths[0], paths[1]]) == ["a/x", "b/x"]
    assert titles([paths[0], paths[2], "ckpt.pt"]) == ["p/a/x", "q/a/x", "ckpt.pt"]
    assert titles([paths[0], paths[0]]) == ["a/x", "a/x"]


def test_lists_that_share_a_list_are_shown_in_short():
    shared = "a"
    for _ in range(7):
        shared = [shared] * 25
    assert len(safe_repr(shared)) <= LONGEST and safe_repr([[1, "b"]] * 2) == "[[1, 'b'], [1, 'b']]"

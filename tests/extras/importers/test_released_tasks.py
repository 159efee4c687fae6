"""What a run of the released code trained is what its config.json says, or there is no phase."""

import json
from itertools import product

import pytest
from foreign_checkpoints import write_released

from anchorlens import AnchorTask, CheckpointError, classify, evaluate, load_checkpoint, save_checkpoint
from anchorlens.files.importers import open_checkpoint

PAIRS = tuple(product((1, 2, 3, 4), repeat=2))
NINE = tuple(product(range(1, 10), repeat=2))


def groups(trained, pairs=PAIRS, keys=("xel",)):
    """The lists of a config.json for these trained pairs, on these keys."""
    names = [f"{a}{b}_{which}" for which in ("xm0", "xel") for a, b in pairs]
    flags = [int(which in keys and pair in trained) for which in ("xm0", "xel") for pair in pairs]
    return {"data_name": names, "data_mode": names, "data_train": flags, "data_percent": [1.0] * len(names)}


def without(*pairs):
    return [pair for pair in PAIRS if pair not in pairs]


@pytest.mark.parametrize(
    ("changes", "task"),
    [
        (groups(without((3, 4), (4, 3))), AnchorTask()),
        (groups(without((4, 3))), AnchorTask(regime="conflict")),
        (groups(without((3, 4))), AnchorTask(unseen_pairs=[(3, 4)])),
        (groups(without((1, 2), (3, 4))), AnchorTask(unseen_pairs=[(1, 2), (3, 4)])),
        (groups(without((1, 2))), AnchorTask(unseen_pairs=[(1, 2)], overrides={(3, 4): -6})),
        (groups(PAIRS), AnchorTask(unseen_pairs=[], overrides={(3, 4): -6})),
        (groups(PAIRS) | {"target": "composition_test"}, AnchorTask(complexity=0)),
        (groups(PAIRS) | {"target": "composition_random", "random_data_num": 2}, AnchorTask(complexity=2)),
        (
            groups(without((1, 2), (4, 4))) | {"target": "composition_random", "random_data_num": 1},
            AnchorTask(unseen_pairs=[(1, 2), (4, 4)], overrides={(2, 1): 4}),
        ),
        (
            groups(NINE[1:], NINE) | {"target": "composition_more_anchor"},
            AnchorTask(anchors={a: a - 5 for a in range(1, 10)}, unseen_pairs=[(1, 1)]),
        ),
    ],
    ids=str,
)
def test_its_task_is_that_of_the_file(tmp_path, changes, task):
    opened = open_checkpoint(write_released(tmp_path, **changes).path)
    assert opened.checkpoint.task == task
    assert opened.checkpoint.overlap.n_sequences > 0 and not opened.checkpoint.overlap.there_is_some
    assert not any("are not given" in note for note in opened.notes)


def test_a_pair_is_trained_by_its_mode_and_size_and_not_by_its_name(tmp_path):
    lists = groups(PAIRS)
    lists["data_percent"] = [0.0 if name == "12_xel" else 1.0 for name in lists["data_name"]]
    lists["data_mode"] = ["11_xel" if name.startswith(("34", "43")) else name for name in lists["data_name"]]
    opened = open_checkpoint(write_released(tmp_path, **lists).path)
    assert set(opened.checkpoint.task.ood_pairs) == {(1, 2), (3, 4), (4, 3)}
    assert any("in different proportions" in note for note in opened.notes)  # (1, 1) is there three times


@pytest.mark.parametrize("keys", [("xm0",), ("xm0", "xel")])
def test_trained_keys_of_the_id_test_leave_no_phase(tmp_path, keys):
    """32 groups of 32 sequences each: those of `xm0`, 14 pairs, ask held-out keys."""
    trained = groups(without((3, 4), (4, 3)), keys=keys) | {"data_size": 1024}
    path = write_released(tmp_path, **trained).path
    saved = tmp_path / "again.pt"
    save_checkpoint(saved, open_checkpoint(path).checkpoint)
    for given in (path, saved):
        found = evaluate(open_checkpoint(given).checkpoint, n_noise=2)
        assert found.phase.cause == "held-out questions were trained"
        assert (
            f"of {448 * len(keys)} training sequences, 448 are in the test on held-out keys"
            in found.phase.reason
        )
    assert load_checkpoint(saved).overlap.counts == {"id": 448, "ood": 0}
    verdict = classify(path)
    assert verdict.by_probes.phase.cause == verdict.phase.cause == "held-out questions were trained"
    assert not any("never trained on" in warning for warning in verdict.warnings)


def test_what_the_file_leaves_out_is_assumed_aloud_and_may_be_given(tmp_path):
    written = write_released(tmp_path, data_min=20, data_max=100)
    assumed = open_checkpoint(written.path)
    assert assumed.checkpoint.task == AnchorTask() and assumed.checkpoint.overlap is None
    note = "its training pairs (data_mode, data_train) are not given; assumed: all but (3, 4), (4, 3)"
    assert note in " ".join(assumed.notes)
    told = open_checkpoint(written.path, task=AnchorTask(unseen_pairs=[(1, 2)]))
    assert told.checkpoint.task.ood_pairs == ((1, 2),)
    with pytest.raises(CheckpointError, match="key_max of the task must be 99, got 80"):
        open_checkpoint(written.path, task=AnchorTask(key_max=80))
    for name in ("data_name", "data_mode", "data_percent"):
        some = {field: value for field, value in groups(without((4, 3))).items() if field != name}
        with pytest.raises(CheckpointError, match="data_percent must be lists of equal length"):
            open_checkpoint(write_released(tmp_path / name, **some).path)


def test_every_field_is_used_or_listed(tmp_path):
    written = write_released(
        tmp_path, **groups(PAIRS), data_size_34_xm0=3, resume_model="a.pt", data_show=[1]
    )
    config = json.loads((written.path / "config.json").read_text())
    [note] = [note for note in open_checkpoint(written.path).notes if "not used: " in note]
    listed = set(note.partition("not used: ")[2].split(", "))
    assert {"data_show", "resume_model"} <= listed <= config.keys()
    assert not listed & {"data_train", "data_size_34_xm0", "qk_std", "d_v", "n_heads", "target", "model"}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"target": "3x_to_x"}, "target must be one of composition"),
        (groups(PAIRS) | {"data_train": [1]}, "must be lists of equal length"),
        (groups(PAIRS) | {"data_train": "1 1"}, "must be lists of equal length"),
        (groups([]), "data_train must be 1 for at least one group"),
        (groups(PAIRS) | {"data_train": [2] * 32}, "data_train must be an integer >= 0 and <= 1"),
        (groups(PAIRS) | {"data_mode": ["34_xall"] * 32}, "data_mode must hold modes such as '34_xel'"),
        (groups(PAIRS) | {"data_mode": ["56_xel"] * 32}, "data_mode must name pairs of the anchors 1..4"),
        (groups(PAIRS) | {"data_percent": [-1] * 32}, "data_percent must be a finite number >= 0"),
        (groups(PAIRS) | {"data_size": None}, "data_size must be an integer"),
        (
            groups(PAIRS) | {"target": "composition_random"},
            "random_data_num must be an integer >= 0 and <= 6",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, changes, cause):
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(write_released(tmp_path, **changes).path)
    assert cause in str(error.value)

"""What an audit prints: for people within 80 columns, for programs one JSON object."""

import json
from dataclasses import replace

import numpy as np
import pytest

from anchorlens import AnchorTask, ModelConfig, TrainConfig
from anchorlens.extras.audit import Audit, mappings_of
from anchorlens.extras.audit.lateness import NEVER
from anchorlens.extras.audit.views import audit_tables, print_audit
from anchorlens.show.terminal.console import print_json

MOMENTS = tuple(range(10, 110, 10))
BULK = np.where(np.arange(1280) % 2, 20.0, 30.0)  # of every group a half at 20, a half at 30: fence 60


def found(*runs, task=None, known=True):
    mappings = mappings_of(task or AnchorTask(complexity=1))
    right = (np.array(MOMENTS)[None, :, None] >= np.array(runs)[:, None]).astype(np.float32)
    mappings = mappings if known else replace(mappings, violates=None)
    return Audit(mappings, right, MOMENTS, tuple(range(len(runs))), 4, ModelConfig(gamma=0.8), TrainConfig())


@pytest.fixture
def printed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def show(audit, **options):
        print_audit(audit, **options)
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80
        return text, " ".join(text.split())

    return show


def late(rows, step=NEVER):
    steps = BULK.copy()
    steps[rows] = step
    return steps


def test_what_stands_out_comes_first(printed):
    mappings = mappings_of(AnchorTask(complexity=1))
    broken = mappings.groups.index((1, 2))
    audit = found(late(mappings.group_of == broken), late(mappings.group_of == broken, 90))
    text, words = printed(audit, top=3)
    assert text.startswith("task: 1,280 mappings in 16 groups; gamma 0.8, 100 steps, 2 seeds\n")
    assert (
        "80 of 1,280 mappings are outliers: they are fit late or never. Most mappings of (1, 2) are" in words
    )
    assert "80 were never fit by some model (censored)" in words
    assert "│ 1 │ 1 2" in words and "│ 3 │ 1 2" in words and "│ 4 │ 1 2" not in words
    assert "never, 90" in text
    # AUC: 80 violating last, 80 like the 1,120 that obey: (80 + 80 / 2) / 160 = .75
    assert "0.750 ± 0.0" in words and "│ 1.00" in text and "│ 0.50" in text


def test_a_threshold_of_ones_own_is_named(printed):
    assert ", fit from probability 0.2" in printed(replace(found(BULK), fit=0.2))[1]


def test_a_clean_dataset_says_so(printed):
    _, words = printed(found(BULK[:1120], task=AnchorTask()))
    assert "There are no outliers." in words and "All were fit." in words and "yes" not in words


def test_rows_with_different_targets_are_listed(printed):
    audit = found(BULK, BULK)
    (a, b), key, target = (
        audit.mappings.groups[0],
        *(int(x[0]) for x in (audit.mappings.keys, audit.mappings.targets)),
    )
    mappings = replace(audit.mappings, disagreeing={0: [(2, target), (9, 77)]})
    audit = replace(audit, mappings=mappings)
    said = f"({a}, {b}) with key {key} has different targets: {target} in line 2, 77 in line 9; {target}"
    _, words = printed(audit)
    assert said in words and "1,280 mappings, 1 of them with different targets in 16 groups" in words
    assert said in audit._repr_html_()
    (record,) = audit.to_dict()["dataset"]["disagreeing"]
    assert record == {
        "anchors": [a, b],
        "key": key,
        "rows": [(2, target), (9, 77)],
    }


def test_mirrors_are_named(printed):
    mappings = mappings_of(AnchorTask(complexity=1))
    row = next(k for k in range(1280) if mappings.mirror[k] >= 0)
    _, words = printed(found(late([row, mappings.mirror[row]])))
    assert "2 of them form reversed pairs" in words


def test_models_that_have_not_fit_rank_nothing(printed):
    text, words = printed(found(late(slice(0, 700))))
    assert "No result" in words and "the latest" not in text
    _, words = printed(found(late(slice(0, 700)), late([5])))
    assert "1 of 2 models have not fit their data and are excluded" in words


def test_too_few_steps_are_said_first(printed):
    wide = np.where(np.arange(1280) % 2, 20.0, 50.0)  # the fence is 140, the last step 100
    wide[:47] = NEVER
    text, words = printed(found(wide, late(slice(0, 47))), top=3)
    assert text.splitlines()[1].startswith(
        "The steps are too few: 47 of 1,280 mappings were never fit by some"
    )
    assert "1 of 2 thresholds lie after the last step (at 140)" in words
    assert "flag no mapping. Train for more than 100 steps." in words
    assert "No mapping is flagged. Mappings that are fit later than step 60 (one threshold" in words
    _, words = printed(found(late(slice(0, 256)), late(slice(0, 256))))
    assert (
        "few: 256 of 1,280 mappings were never fit by some model. Train for more than 100 steps. 256 of"
        in words
    )


def test_ties_are_counted_and_ordered_by_the_loss(printed):
    audit = found(late([5, 6, 7]), late([5, 6, 7]))
    audit.right[:, -1, [5, 6, 7]] = 0.25, 0.125, 0.5**10
    text, words = printed(audit, top=2)
    assert "the latest 2 of 1,280 mappings (1 to 3 are equally late and ordered by their final loss)" in words
    assert "never │ 6.93" in " ".join(text.split()) and "never, never" not in text and "1.39" not in text
    assert "equally late" not in printed(found(late([5])), top=1)[1]


def test_without_a_truth_there_is_no_score(printed):
    text, words = printed(found(late([5]), known=False))
    assert "AUC" not in text and "violat" not in text and "1 of 1,280 mappings are outliers" in words


def test_the_steps_of_all_seeds_are_listed():
    audit = found(*[late([5], step) for step in (70, 80, 90, 100)], late([5]))
    (latest,) = [table for table in audit_tables(audit, 1) if table.title.startswith("the latest 1 of")]
    assert "70, 80, 90, 100, never" in latest.rows[0]


def test_json_is_one_object_on_one_line(capsys):
    audit = found(late([5]), late([5, 6]))
    print_json(audit.to_dict())
    (line,) = capsys.readouterr().out.splitlines()
    content = json.loads(line)
    assert content["schema_version"] == 1 and content["n_flagged"] == 1 and content["n_never_fit"] == 2
    assert content["mappings"][0]["fit_step 0"] is None and len(content["mappings"]) == 1280
    assert content["score"]["n_violating"] == 160 and content["model_config"]["gamma"] == 0.8

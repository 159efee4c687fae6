"""The scripts of the figures of 2501.08537: their numbers by hand, and each of them whole at a small size."""

import json
import shutil
import sys
from argparse import Namespace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from few_questions import draw_little
from sweeping import TINY, tiny

import j3_phases
import j4_masking
import j5_complexity
import j6_concept_graphs
import j7a_scan
import j7b_cogs
import j7c_addition
import j7d_text
import j7e_prontoqa
import j8_convergence
import j10_condensation
from anchorlens import classify, load_checkpoint, preset
from anchorlens.extras.concept_graphs.images import TRAINED
from anchorlens.extras.sweep import Cell, sweep
from anchorlens.extras.sweep.cells import cell_id
from anchorlens.extras.sweep.sweep_folder import SweepFolder
from anchorlens.files.checkpoint import training_set
from anchorlens.probes import apply, embedding_pca, mask_key_token, q_condensation, stable_rank
from anchorlens.tasks.shared.phases import PHASES, Phase
from claims.side_claims_j import larger
from shared import arms, common, pair_fit, phases_grid
from shared.ordering import order, share_above

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared/data"
SHIPPED = ("phase1", "phase2", "phase2-commutative", "phase3")
FOUR = {"gamma": (0.3, 0.8), "weight_decay": (0.01, 1)}
"""A grid that holds them: (.3, .01), (.3, 1), (.8, .01), (.8, 1)."""


def cell(
    gamma,
    decay=0.01,
    seed=0,
    phase=None,
    label=None,
    accuracies=(1.0, 1.0, 1.0),
    rank=None,
    path=Path("nowhere"),
):
    """A cell as if it were trained, with these numbers."""
    run = preset("quick", gamma=gamma, weight_decay=decay, seed=seed)
    numbers = dict(zip(("train", "id", "ood"), accuracies, strict=True))
    numbers |= {"phase": phase, "commutative": None, "label": label or f"Phase {phase}"}
    numbers |= {"by_probes_phase": None, "by_probes_label": "undecided", "stable_rank.w_q": rank}
    known = Cell(run, "finished", path)
    number, commutative = PHASES.get(numbers["label"], (phase, None))
    vars(known).update(numbers=numbers, phase=Phase(number, commutative, ""))  # cached properties
    return known


class TestPhases:
    def test_the_share_in_order_by_hand(self):
        # seed 0: 1, none, 3, 2: of the pairs 1-3, 1-2, 3-2 two rise and one falls; seed 1: 2, 2: one is equal
        cells = [cell(g, phase=p) for g, p in zip((0.3, 0.4, 0.5, 0.6), (1, None, 3, 2), strict=True)] + [
            cell(g, seed=1, phase=2) for g in (0.3, 0.6)
        ]
        found = j3_phases.measure_phases(cells[::-1])
        assert found["order"] == {
            0: {
                "rising": 2,
                "equal": 0,
                "falling": 1,
                "n_pairs": 3,
                "share": 2 / 3,
                "share_shuffled": 1 / 2,  # each pair that differs: a coin
                "rising_share": 2 / 3,
                "ends": {"rising": 1, "equal": 0, "falling": 0},
            },
            1: {
                "rising": 0,
                "equal": 1,
                "falling": 0,
                "n_pairs": 1,
                "share": 1.0,
                "share_shuffled": 1.0,
                "rising_share": None,
                "ends": {"rising": 0, "equal": 1, "falling": 0},
            },
        }
        rows = {row["seed"]: row for row in found["rows"]}
        assert rows[0]["phases"] == [1, None, 3, 2] and rows[0]["has_all_three"]
        assert rows[1]["share"] == 1.0 and not rows[1]["has_all_three"]
        assert found["n_cells_by_label"] == {"Phase 1": 1, "Phase 2": 3, "Phase 3": 1, "Phase None": 1}

    def test_a_reversed_order_is_found(self):
        cells = [cell(g, phase=p) for g, p in ((0.3, 3), (0.5, 2), (0.8, 1))]
        assert j3_phases.measure_phases(cells)["order"][0]["share"] == 0.0

    def test_where_accuracies_pass_and_where_they_never_do(self):
        curves = {0: ((0.1, 0.0), (0.95, 0.2), (1.0, 0.9)), 1: ((0.2, 0.0), (0.8, 0.1), (0.95, 0.5))}
        cells = [
            cell(g, seed=seed, accuracies=(1.0, *values))
            for seed, row in curves.items()
            for g, values in zip((0.3, 0.5, 0.7), row, strict=True)
        ]
        cells.append(cell(0.3, decay=1, accuracies=(1.0, 1.0, 1.0)))  # another weight decay: not in the curve
        found = j3_phases.measure_accuracies(cells)
        assert found["first_gamma"] == {0: {"id": 0.5, "ood": 0.7}, 1: {"id": 0.7, "ood": None}}
        assert found["id_before_ood"] == {"n_seeds": 2, "of": 2}
        id_curve = found["curves"]["id"]
        assert id_curve["mean"] == pytest.approx([0.15, 0.875, 0.975])
        assert id_curve["spread"][0] == pytest.approx(0.1 / 2**0.5)  # of .1 and .2, n - 1
        figure = j3_phases.draw_accuracies(found)
        assert [list(trace.y) for trace in figure.data if trace.name == "ID: held-out keys"] == [
            id_curve["mean"]
        ]

    def test_the_largest_accuracy_of_any_evaluation(self, tmp_path):
        known = cell(0.5, accuracies=(1.0, 0.9, 0.2), path=tmp_path)
        lines = ({"step": 100, "id_accuracy": 0.4, "ood_accuracy": 0.7}, {"step": 150, "loss": 0.1})
        (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        found = j3_phases.measure_accuracies([known])["curves"]
        assert found["id"]["largest"]["mean"] == [0.9]  # where training ended
        assert found["ood"]["largest"]["by_seed"] == {0: [0.7]}  # on the way

    def test_both_before_at_one_gamma_is_not_before(self):
        cells = [cell(0.3, accuracies=(1.0, 0.1, 0.0)), cell(0.5, accuracies=(1.0, 1.0, 1.0))]
        assert j3_phases.measure_accuracies(cells)["id_before_ood"] == {"n_seeds": 0, "of": 1}


class TestTheGrid:
    def test_numbers_along_both_axes(self):
        # gamma .3 -> .8 falls at each decay, decay .01 -> 1 falls at .3 and rises at .8
        cells = [
            cell(0.3, 0.01, phase=2, rank=20.0),
            cell(0.3, 1, phase=2, rank=10.0),
            cell(0.8, 0.01, phase=3, rank=3.0),
            cell(0.8, 1, phase=3, rank=4.0),
        ]
        groups = [phases_grid.Group("Phase 2 with commutativity", "grid", tuple(cells[:2]))]
        groups.append(phases_grid.Group("Phase 3", "grid", tuple(cells[2:])))
        found = phases_grid.summary(cells, groups, "stable_rank.w_q")
        falls = {"rising": 0, "equal": 0, "falling": 2}  # two gammas: their ends are all there is
        assert found["along_gamma"][0]["ends"] == falls
        assert found["along_gamma"][0].items() >= {**falls, "rising_share": 0.0}.items()
        assert found["along_weight_decay"][0]["rising_share"] == 0.5
        assert found["phase_3_larger"] == {0: 0.0}
        assert found["by_label"]["Phase 3"]["median"] == {"stable_rank.w_q": 3.5}

    def test_seeds_are_counted_by_themselves(self):
        # seed 0 falls along gamma at both weight decays, seed 1 rises at the one that it has
        cells = [cell(0.3, decay, label="Phase 2 with commutativity", rank=20.0) for decay in (0.01, 1)]
        cells += [cell(0.8, decay, phase=3, rank=3.0) for decay in (0.01, 1)]
        cells.append(cell(0.3, seed=1, label="Phase 2 with commutativity", rank=2.0))
        cells.append(cell(0.8, seed=1, phase=3, rank=8.0))
        given = Namespace(preset="paper-2l1h", seed=[0, 1])
        found = phases_grid.summary(cells, phases_grid.labelled(given, cells), "stable_rank.w_q")
        assert {seed: each["rising_share"] for seed, each in found["along_gamma"].items()} == {0: 0.0, 1: 1.0}
        assert found["phase_3_larger"] == {0: 0.0, 1: 1.0}
        phase_3 = found["by_label"]["Phase 3"]
        assert phase_3["n_cells_by_seed"] == {0: 2, 1: 1}
        assert phase_3["median_by_seed"] == {"stable_rank.w_q": {0: 3.0, 1: 8.0}}

    def test_without_numbers_nothing_is_claimed(self):
        assert order([None, 1.0]).not_falling is None and order([2.0, 2.0]).rising_share is None
        assert share_above([], [1.0]) is None

    def test_a_stand_in_is_taken_where_the_grid_has_no_such_label(self, tmp_path):
        stand_ins = common.grid("phase1", {"seed": [0, 1]}, n_checkpoints=0)
        fill(tmp_path / "sweep", stand_ins, ("phase1", "phase3"))  # the second did not become Phase 1
        cells = [cell(0.6, phase=2, label="Phase 2 with commutativity"), cell(0.8, phase=3)]
        given = Namespace(preset="quick", seed=[0, 1], sweep=tmp_path / "sweep", engine="serial")
        groups = phases_grid.labelled(given, cells)
        assert [(group.label, group.source) for group in groups] == [
            ("Phase 1", "phase1"),
            ("Phase 2 with commutativity", "grid"),
            ("Phase 3", "grid"),
        ]
        assert groups[0].cells[0].run.train_config.seed == 0 and len(groups[0].cells) == 1
        assert groups[0].name == "Phase 1 (preset phase1)"
        given.preset = "paper-2l1h"  # its scale is another: no stand-in
        assert [group.label for group in phases_grid.labelled(given, cells)] == [
            "Phase 2 with commutativity",
            "Phase 3",
        ]

    def test_weights_of_another_shape_do_not_stand_in(self, tmp_path):
        cells = [cell(0.3, phase=1), cell(0.8, phase=3)]
        given = Namespace(preset="quick", seed=[0], sweep=tmp_path / "none", engine="serial")
        groups = phases_grid.labelled(given, cells, alike=True)
        assert [group.label for group in groups] == ["Phase 1", "Phase 3"]
        assert not (tmp_path / "none").exists()  # phase2-commutative has four heads: it is not even trained

    def test_no_phase_at_all_is_an_error(self):
        given = Namespace(preset="paper-2l1h", seed=[0])
        with pytest.raises(SystemExit, match="no cell"):
            phases_grid.labelled(given, [cell(0.3, label="undecided: underfit")])


def test_clusters_are_counted():
    checkpoint = load_checkpoint(ROOT / "anchorlens/training/checkpoints/phase1.pt")
    found = apply(mask_key_token, checkpoint, perplexity=None, n_sequences=4)
    noise = np.random.default_rng(0).normal(0, 0.01, found.logits.shape)
    corners = np.eye(12, found.logits.shape[1])
    for logits, expected in ((corners[found.labels], 12), (corners[found.labels // 2], 6)):
        moved = logits + noise
        answers = {**vars(found), "logits": moved}
        for name, labels in (("ordered", found.labels), ("unordered", found.labels // 2)):
            answers[f"silhouette_{name}"] = j4_masking.silhouette(moved, labels)
        assert j4_masking.n_clusters(type(found)(**answers)) == expected


@pytest.fixture(scope="module")
def pair_cells(tmp_path_factory):
    runs = tiny({"complexity": [1, 0]}, n_checkpoints=4)
    return sweep(runs, tmp_path_factory.mktemp("pairs") / "s", engine="serial").cells


class TestPairs:
    def test_accuracy_is_that_of_the_training_sequences(self, pair_cells):
        found = pair_fit.course(pair_cells[0], n_sequences=1000)
        assert found.steps[0] == 0 and found.steps[-1] == 20 and len(found.accuracy) == 16
        batch = training_set(pair_cells[0].run.task, pair_cells[0].run.train_config)
        with torch.inference_mode():
            model = load_checkpoint(pair_cells[0].path / "ckpt.pt").build_model()
            right = (model(batch.tokens)[:, -1].argmax(-1) == batch.targets).numpy()
        for pair, accuracy in found.accuracy.items():
            own = (batch.trials.pairs == pair).all(axis=1)
            assert accuracy[-1] == pytest.approx(right[own].mean())

    def test_which_rule_is_broken(self, pair_cells):
        broken, control = (pair_fit.course(each, n_sequences=5) for each in pair_cells)
        assert broken.broken and not control.broken
        assert len(broken.accuracy) == 16 and set(pair_fit.MARKED) < set(broken.accuracy)
        assert set(broken.fit_steps(0.6).values()) == {None}  # 20 steps fit nothing: censored, not zero

    def test_what_is_stored_says_the_same(self, pair_cells):
        measured = [pair_fit.course(each, n_sequences=5) for each in pair_cells]
        stored = json.loads(json.dumps(common.plain([each.to_dict() for each in measured])))
        read = [pair_fit.Course.from_dict(each) for each in stored]
        assert pair_fit.summary(read) == pair_fit.summary(measured)
        assert [vars(each) | {"steps": 0, "accuracy": 0} for each in read] == [
            vars(each) | {"steps": 0, "accuracy": 0} for each in measured
        ]

    def test_four_pairs_against_twelve(self):
        steps = {(a, b): 10.0 for a in (1, 2, 3, 4) for b in (1, 2, 3, 4)}
        assert pair_fit.against(steps, pair_fit.MARKED) == {"ratio": 1.0, "p": 1.0, "n_censored": 0}
        slow = {pair: 15.0 if pair in pair_fit.MARKED else step for pair, step in steps.items()}
        found = pair_fit.against(slow, pair_fit.MARKED)
        assert found["ratio"] == 1.5 and found["p"] == pytest.approx(1 / 1820)  # 4 of 16, one choice
        slow[4, 4] = 15.0  # 75 / 5 slow pairs: any four of the five do as well
        assert pair_fit.against(slow, pair_fit.MARKED)["p"] == pytest.approx(5 / 1820)
        assert pair_fit.against({**slow, (3, 3): None}, pair_fit.MARKED) == {
            "ratio": None,
            "p": None,
            "n_censored": 1,
        }

    def test_broken_against_its_control(self):
        control = {(a, b): 10.0 * a + b for a in (1, 2, 3, 4) for b in (1, 2, 3, 4)}
        broken = {pair: step * (2 if pair in pair_fit.BROKEN else 1) for pair, step in control.items()}
        found = pair_fit.paired(broken, control)
        assert found["ratios"] == {
            pair_fit.text(pair): 2.0 if pair in pair_fit.BROKEN else 1.0 for pair in control
        }
        assert found["others"] == 1.0 and found["n_others"] == 12
        assert found["broken_over_others"] == {"ratio": 2.0, "p": pytest.approx(1 / 91), "n_censored": 0}
        assert found["obeying_over_others"] == {"ratio": 1.0, "p": 1.0, "n_censored": 0}
        found = pair_fit.paired(broken | {(3, 3): None}, control | {(1, 1): None})
        assert found["ratios"]["3,3"] is None and found["ratios"]["1,1"] is None and found["n_others"] == 11
        assert found["broken_over_others"]["ratio"] is None

    def test_what_seeds_say_together(self):
        """In one the broken pairs take twice as long, in the other all pairs that hold anchor 2 do."""
        control = {(a, b): 10.0 * a + b for a in (1, 2, 3, 4) for b in (1, 2, 3, 4)}
        slow = (set(pair_fit.BROKEN), {pair for pair in control if 2 in pair})
        rows = []
        for pairs in slow:
            broken = {pair: step * (2 if pair in pairs else 1) for pair, step in control.items()}
            latest = {
                name: pair_fit.latest(steps) for name, steps in (("broken", broken), ("control", control))
            }
            paired = pair_fit.paired(broken, control)
            rows.append({"paired": paired} | {name: {"latest": order} for name, order in latest.items()})
        found = pair_fit.seeds_together(rows)
        assert found["n"] == 2 and found["ratios"]["2,2"] == [1.0, 2.0] and found["without_2"] == [1.0, 1.0]
        assert [found["slower"][pair] for pair in ("1,1", "1,2", "2,2", "2,3")] == [0, 2, 1, 1]
        assert found["excess"] == pytest.approx([0.5, 7 / 4 - 16 / 12])
        assert found["all_slower"] == found["all_last"] == found["early_in_control"] == 0
        assert found["among_last"]["4,4"] == 1 and found["last"]["4,4"] == 1 and found["last"]["4,2"] == 1


def test_the_summary_of_figure_8b_is_that_of_the_accuracies_that_are_stored():
    stored = json.loads((ROOT / "docs/images/figures/j8_convergence.json").read_text())["pairs"]
    courses = [pair_fit.Course.from_dict(run) for run in stored["runs"]]
    rows = pair_fit.summary(courses)
    assert common.plain(rows) == stored["summary"]


@cache
def shipped(name):
    """What `cell.json` holds of a shipped model, and its file."""
    path = ROOT / f"anchorlens/training/checkpoints/{name}.pt"
    checkpoint = load_checkpoint(path)
    probes = {
        f"{probe.__name__}.{reading}": value
        for probe in (stable_rank, q_condensation, embedding_pca)
        for reading, value in apply(probe, checkpoint).numbers().items()
    }
    content = {"status": "finished", "error": None, "step": 1, "seconds": 1.0, "loss": 0.01}
    return {**content, "probes": probes, "verdict": classify(checkpoint).to_dict()}, path


def fill(out, runs, names):
    """A finished sweep whose cells are models that are shipped, whatever their configurations say."""
    folder = SweepFolder(out)
    with folder.lock(runs):
        for run, name in zip(runs, names, strict=True):
            content, path = shipped(name)
            identity = cell_id(run)
            folder.unfinished(identity).mkdir(parents=True)
            shutil.copy(path, folder.unfinished(identity) / "ckpt.pt")
            folder.finish(identity, content)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """A sweep over `FOUR` that holds the four shipped models: nothing is left to train."""
    out = tmp_path_factory.mktemp("four") / "sweep"
    fill(out, common.grid("quick", {**FOUR, "seed": [0]}, **common.SHORT), SHIPPED)
    return out


class TestTheScripts:
    def go(self, script, out, folder, monkeypatch):
        """Run a script; its numbers, and the names of its pictures."""
        monkeypatch.setattr(phases_grid, "MAIN_GRID", FOUR)
        arguments = ["--sweep", out, "--out", folder, "--seed", "0", "--engine", "serial"]
        monkeypatch.setattr(sys, "argv", ["script", *map(str, arguments)])
        script.main()
        pictures = {path.stem for path in folder.glob("*.html")}
        return json.loads((folder / f"{script.__name__}.json").read_text()), pictures

    def test_3(self, four, tmp_path, monkeypatch):
        numbers, pictures = self.go(j3_phases, four, tmp_path, monkeypatch)
        assert pictures == {"j3a_accuracy", "j3b_phases", "j3b_commutativity"}
        rows = {row["weight_decay"]: row["phases"] for row in numbers["phases"]["rows"]}
        assert rows == {0.01: [1, 2], 1: [2, 3]} and numbers["phases"]["order"]["0"]["share"] == 1.0
        assert numbers["accuracies"]["gammas"] == [0.3, 0.8]

    @pytest.mark.slow
    def test_4(self, four, tmp_path, monkeypatch):
        numbers, pictures = self.go(j4_masking, four, tmp_path, monkeypatch)
        assert pictures == {"j4c_mask_key", "j4d_mask_second_anchor"}
        by_label = numbers["key_token"]["by_label"]
        n_clusters = {label: found["median"]["n_clusters"] for label, found in by_label.items()}
        assert n_clusters["Phase 1"] == 0 and n_clusters["Phase 2 with commutativity"] == 6
        assert n_clusters["Phase 2 without commutativity"] > 6
        assert by_label["Phase 1"]["n_as_expected"] == {"0": 1}
        assert len(by_label["Phase 3"]["tsne"]["points"]) == 600
        assert numbers["second_anchor"]["shown"]["Phase 3 at gamma 0.8"]["gamma"] == 0.8
        assert "expected" not in by_label["Phase 3"]  # the paper does not say
        against = larger(numbers, "centred_gap")["Phase 3"]
        assert against["Phase 2 with commutativity"] == {"0": 0.0}  # gamma .7 composes without blocks

    def test_5(self, four, tmp_path, monkeypatch):
        numbers, pictures = self.go(j5_complexity, four, tmp_path, monkeypatch)
        assert pictures == {"j5a_condensation", "j5b_embedding", "j5c_stable_rank"}
        assert numbers["stable_rank"]["along_gamma"]["0"]["rising_share"] == 0.0
        assert numbers["embedding"]["phase_3_larger"] == {"0": 1.0}
        assert numbers["network"]["variant"] == ["gpt2"] and numbers["network"]["gamma"] == [0.3, 0.8]
        assert len(numbers["embedding"]["drawn"]) == 4

    def test_10(self, four, tmp_path, monkeypatch):
        numbers, pictures = self.go(j10_condensation, four, tmp_path, monkeypatch)
        assert pictures == {"j10_condensation"}
        assert len(numbers["cells"]) == 4
        assert set(numbers) >= set(j10_condensation.NUMBERS)

    def test_8(self, tmp_path, monkeypatch):
        monkeypatch.setattr(common, "SHORT", {**TINY, "steps": 20})
        monkeypatch.setattr(j8_convergence, "LONGEST", {})
        monkeypatch.setattr(j8_convergence, "N_CHECKPOINTS", 3)
        numbers, pictures = self.go(j8_convergence, tmp_path / "sweep", tmp_path, monkeypatch)
        assert pictures == {"j8b_pairs"}
        assert {step for run in numbers["pairs"]["runs"] for step in run["fit_steps"].values()} == {None}
        assert {each["broken"]["n_censored"] for each in numbers["pairs"]["summary"]} == {16}
        stored = tmp_path / "j8_convergence.json"
        arguments = ["script", "--from-json", stored, "--out", tmp_path / "again"]
        monkeypatch.setattr(sys, "argv", [str(each) for each in arguments])
        j8_convergence.main()
        assert json.loads((tmp_path / "again" / stored.name).read_text()) == numbers
        assert {path.stem for path in (tmp_path / "again").glob("*.html")} == {"j8b_pairs"}


def test_the_condensation_grid_puts_each_matrix_in_its_place():
    cells = [cell(g, d, phase=p) for g, d, p in ((0.3, 0, 1), (0.8, 0, 3), (0.3, 1, 2), (0.8, 1, 3))]
    matrices = {each.id: np.full((2, 2), i / 10) for i, each in enumerate(cells)}
    figure = j10_condensation.draw(cells, matrices)
    canvas, step = np.array(figure.data[0].z), 2 + j10_condensation.GAP
    gap = j10_condensation.GAP
    assert canvas.shape == (2 * step, 2 * step)
    assert (canvas[gap:step, :2] == 0.2).all() and (canvas[gap:step, step : step + 2] == 0.3).all()
    assert (canvas[step + gap :, :2] == 0.0).all() and (canvas[step + gap :, step : step + 2] == 0.1).all()
    assert np.isnan(canvas).sum() == 4 * step**2 - 16
    assert [note.text for note in figure.layout.annotations] == ["1", "3", "2?", "3"]


def test_addition_is_asked_of_square_and_control(tmp_path, monkeypatch):
    """Figure 7C on four small cells of four steps: numbers of each, means, and the pictures."""
    small = {"largest": 19, "square_min": 8, "square_max": 11, "n_held_out": 20}
    parts = {
        "task": {"kind": "addition", "mode": "reversed", **small},
        "model": {"n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16},
        "train": {"n_samples": 300, "batch_size": 50},
    }
    changed = {"SHOWN": (0.3, 0.7), "PRESETS": {"reversed": parts}}
    for name, values in changed.items():
        monkeypatch.setattr(j7c_addition, name, values)
    asked = [
        "--seed",
        0,
        "--gamma",
        0.3,
        0.7,
        "--weight-decay",
        0.01,
        "--steps",
        4,
        "--engine",
        "serial",
        "--sweep",
        tmp_path / "sweep",
        "--out",
        tmp_path,
    ]
    monkeypatch.setattr(sys, "argv", ["j7c_addition.py", *map(str, asked)])
    j7c_addition.main()
    numbers = json.loads((tmp_path / "j7c_addition_reversed.json").read_text())
    assert [(cell["gamma"], cell["split"]) for cell in numbers["cells"]] == [
        (0.3, "square"), (0.7, "square"), (0.3, "random"), (0.7, "random"),
    ]  # fmt: skip
    assert all(cell["at_fit"] == {"step": None, "ood": None} for cell in numbers["cells"])
    assert {len(rows) for rows in numbers["means"].values()} == {2}
    ends = numbers["means"]["OOD accuracy at the end"]
    assert [row["mean"] for row in ends] == [cell["ood"] for cell in numbers["cells"][:2]]
    for name in ("", "_plane", "_distance"):
        assert (tmp_path / f"j7c_addition_reversed{name}.html").is_file()


def small_words(kind, d_vocab, n_ctx, **task):
    """A preset of a small network for a task in words."""
    small = {"n_layers": 1, "n_heads": 2, "d_model": 16, "d_head": 8, "d_mlp": 16}
    return {
        "task": {"kind": kind, **task},
        "model": {**small, "d_vocab": d_vocab, "n_ctx": n_ctx},
        "train": {"batch_size": 20, "n_samples": 50},
    }


def drawn_by(script, asked, tmp_path, monkeypatch):
    """What a script writes, called with these options."""
    folders = ["--sweep", str(tmp_path / "sweep"), "--out", str(tmp_path), "--engine", "serial"]
    monkeypatch.setattr(sys, "argv", ["figure.py", *asked.split(), *folders])
    script.main()
    (numbers,) = tmp_path.glob("*.json")
    return json.loads(numbers.read_text()), {path.stem for path in tmp_path.glob("*.html")}


def test_scan_is_asked_over_the_grid_over_sizes_and_over_rates(tmp_path, monkeypatch):
    """Figure 7A on small cells of four steps: each once, numbers with complexity, and the pictures."""
    monkeypatch.setattr(j7a_scan, "PRESET", small_words("scan", 23, 59))
    monkeypatch.setattr(j7a_scan, "GRID_SIZE", 90)
    asked = "--seed 0 --gamma 0.3 0.7 --weight-decay 0 0.1 --sizes 45 90 --lr 1e-3 2e-3 --steps 4"
    numbers, pictures = drawn_by(j7a_scan, asked, tmp_path, monkeypatch)
    cells = [(one["gamma"], one["weight_decay"], one["n_samples"], one["lr"]) for one in numbers["cells"]]
    # the grid, the two settings at 45 and at the other rate; 1e-3 is the usual one
    assert len(cells) == len(set(cells)) == 4 + 2 + 2
    assert all(0 < one["stable_rank.w_q_normalized"] < 3 for one in numbers["cells"])
    assert {len(rows) for rows in numbers["means"].values()} == {4}
    assert pictures == {f"j7a_scan_turn_left{name}" for name in ("", "_complexity", "_sizes")}


def test_prontoqa_is_asked_over_sizes_and_a_run_that_never_fits_has_no_speed(tmp_path, monkeypatch):
    """Figure 7E on small cells: two settings, three sizes; four steps fit nothing."""
    monkeypatch.setattr(j7e_prontoqa, "PRESET", small_words("prontoqa", 78, 179, n_test=40))
    asked = "--seed 0 1 --sizes 20 40 60 --steps 4 --ontology balanced"
    numbers, pictures = drawn_by(j7e_prontoqa, asked, tmp_path, monkeypatch)
    assert len(numbers["cells"]) == 2 * 3 * 2
    assert {(one["gamma"], one["weight_decay"]) for one in numbers["cells"]} == set(arms.ARMS)
    assert [one["runs"] for one in numbers["never_fit"]] == [2] * 6
    assert all(one["never fit"] == 2 for one in numbers["never_fit"])
    for one in numbers["cells"]:
        assert one["solver"] == 1 and one["at_fit"]["step"] is None
    assert pictures == {"j7e_prontoqa_balanced_error", "j7e_prontoqa_balanced_speed"}


def test_the_error_and_the_speed_of_a_run():
    row = {"gamma": 0.3, "weight_decay": 0.0, "n_samples": 500, "id": 0.75, "at_fit": {"step": 300}}
    assert j7e_prontoqa.error(row) == 0.25 and j7e_prontoqa.updates(row) == 300
    never = {**row, "at_fit": {"step": None}}
    assert [one["never fit"] for one in j7e_prontoqa.censored([row, never, never])] == [2]


def test_concept_graphs_are_asked_over_gamma_and_on_the_way(tmp_path, monkeypatch):
    """Figure 6 on small networks of two steps: numbers, stable ranks, and the pictures."""
    draw_little(monkeypatch)
    asked = (
        "--seed 0 --gamma 0.5 0.8 --steps 2 --set n_feat=8 n_diffusion_steps=10 n_samples=64 batch_size=16"
    )
    numbers, pictures = drawn_by(j6_concept_graphs, asked, tmp_path, monkeypatch)
    assert [(one["gamma"], one["seed"]) for one in numbers["cells"]] == [(0.5, 0), (0.8, 0)]
    for one in numbers["cells"]:
        assert [line["step"] for line in one["on_its_way"]] == [1, 2]
        assert 0 <= one["failure"] <= 1 and set(one["stable_rank"]) == set(j6_concept_graphs.LAYERS)
        assert all(0.3 < rank < 2 for rank in one["stable_rank"].values())
        trained = [one["by_tuple"][each]["all"] for each in TRAINED]
        assert sum(trained) / len(trained) == pytest.approx(one["train"])
    names = ("", "_steps", "_samples", "_gamma_0_5", "_gamma_0_8")
    assert pictures == {f"j6_concept_graphs{name}" for name in names}


def test_text_is_read_at_each_gammas_own_rate(tmp_path, monkeypatch):
    """Figure 7D on a small file: rates are tried with the first seed alone, and the best is held."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the {k} of {k * k % 97}, and so on\n" for k in range(4000)))
    monkeypatch.setattr(j7d_text, "NETWORK", {"n_layers": 1, "d_model": 16, "d_head": 4, "d_mlp": 16})
    asked = f"--data {text} --n-samples 128 --gamma 0.3 0.7 --rates 1e-3 1e-2 --seed 0 1 --weight-decay 0.01"
    numbers, pictures = drawn_by(j7d_text, asked, tmp_path, monkeypatch)
    assert len(numbers["tried"]) == 4 and len(numbers["cells"]) == 4
    for row in numbers["rates"]:
        tried = {
            one["lr"]: one["validation_bits"] for one in numbers["tried"] if one["gamma"] == row["gamma"]
        }
        assert row["lr"] == min(tried, key=tried.get)
        assert {one["lr"] for one in numbers["cells"] if one["gamma"] == row["gamma"]} == {row["lr"]}
    assert numbers["tokens"] == 4 * 32 * 256 and numbers["flops"] > 0
    assert pictures == {f"j7d_text_files{name}" for name in ("", "_tokens", "_complexity")}


@pytest.mark.slow  # 27,000 sentences are asked of each
@pytest.mark.skipif(not (SHARED / "cogs").exists(), reason="the published files of COGS are not here")
def test_cogs_is_asked_over_sizes(tmp_path, monkeypatch):
    """Figure 7B on small cells: the published files, two settings, two sizes and a grid beside them."""
    monkeypatch.setattr(j7b_cogs, "PRESET", small_words("cogs", 836, 543))
    monkeypatch.setattr(j7b_cogs, "GRID_SIZE", 200)
    asked = f"--seed 0 --sizes 160 200 --lr --steps 2 --data {SHARED / 'cogs'} --gamma 0.3 --weight-decay 0 1"
    numbers, pictures = drawn_by(j7b_cogs, asked, tmp_path, monkeypatch)
    cells = {(one["gamma"], one["weight_decay"], one["n_samples"]) for one in numbers["cells"]}
    assert cells == {(0.3, 0, 160), (0.3, 0, 200), (0.3, 1, 200), (0.7, 0.1, 160), (0.7, 0.1, 200)}
    assert all(one["ceiling"] == pytest.approx(0.922, abs=1e-3) for one in numbers["cells"])
    assert pictures == {"j7b_cogs", "j7b_cogs_complexity"} | {f"j7b_cogs_{name}" for name in j7b_cogs.SHOWN}


def test_the_step_at_which_sums_are_fit_is_the_first(tmp_path):
    lines = [{"step": step, "train_accuracy": train, "ood_accuracy": ood}
             for step, train, ood in ((100, 0.5, 0.1), (200, 0.9995, 0.4), (300, 1.0, 0.2))]  # fmt: skip
    cell = SimpleNamespace(log=lambda: [{"step": 50, "loss": 1.0}, *lines])
    assert arms.at_fit(cell) == {"step": 200, "ood": 0.4}
    rows = [{"gamma": 0.3, "weight_decay": 0.0, "ood": ood} for ood in (0.2, None, 0.4)]
    assert arms.means(rows, lambda row: row["ood"]) == {(0.3, 0.0): (pytest.approx(0.3), 2)}


def test_a_line_goes_through_the_means_and_its_seeds_have_its_colour():
    figure = go.Figure()
    common.add_means(figure, "one", {2: [1.0, 3.0], 1: [5.0]})
    common.add_means(figure, "other", {1: [0.0]}, dash="dash")
    one, seeds, other, _ = figure.data
    assert (list(one.x), list(one.y)) == ([1, 2], [5.0, 2.0])
    assert (list(seeds.x), list(seeds.y)) == ([1, 2, 2], [5.0, 1.0, 3.0])
    assert one.line.color == seeds.marker.color != other.line.color == figure.data[3].marker.color
    assert (one.line.dash, other.line.dash) == ("solid", "dash")

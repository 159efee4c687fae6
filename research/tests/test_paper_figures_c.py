"""`research/figures` of 2405.05409: each script for real on tiny cells, numbers by hand where possible."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import known_cells
import numpy as np
import pytest
from sweeping import TINY, tiny

import c2_gamma_depth
import c3_information_flow
import c4_similarity
import c5_condensation
import c6_complexity
import c7_covariance
import complexity_over_training
import gamma_across_widths
from anchorlens import preset
from anchorlens.extras.sweep import Cell, open_sweep
from anchorlens.recipes.schedule import trajectory_steps
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.tasks.two_anchor.evaluation import PositionAnswers
from shared import common, complexity, solutions
from shared.complexity import Time


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("figures")


@pytest.fixture
def numbers_of(folder, monkeypatch, capsys):
    """Run a script on tiny cells of two seeds; what its JSON holds, and the pictures' names."""
    monkeypatch.setattr(
        common, "SHORT", {"steps": 12, "log_every": 2, "eval_every": 6, **TINY, "key_max": 63}
    )
    monkeypatch.setattr(solutions, "QUICK", {})
    monkeypatch.setattr(c6_complexity, "LONGEST", {})

    def run(script, *arguments):
        places = ["--sweep", str(folder / "sweep"), "--out", str(folder / "out"), "--engine", "serial"]
        name = script.__name__
        monkeypatch.setattr(sys, "argv", [name, *places, *arguments])
        script.main()
        pictures = [Path(text) for text in capsys.readouterr().out.split(" and ")[0].split(", ")]
        assert all(path.stat().st_size > 1000 for path in pictures)
        content = json.loads((folder / "out" / f"{name}.json").read_text())
        assert content["figure"] == name and content["preset"] == "quick" and "torch" in content["versions"]
        return content, [path.stem for path in pictures]

    return run


class TestTimeToALoss:
    def cell(self, path, losses):
        lines = [json.dumps({"step": 18 * (i + 1), "loss": loss}) for i, loss in enumerate(losses)]
        (path / "log.jsonl").write_text("\n".join(lines))
        return Cell(preset("quick", complexity=3, seed=5, n_samples=600, batch_size=64), "finished", path)

    def test_is_in_epochs(self, tmp_path):
        # 600 // 64 = 9 steps are an epoch, a log line is 2 of them; lines 3..7 are the first with mean .05
        time = complexity.time_of(
            self.cell(tmp_path, [4.0, 1.0, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0]), "small", "2 layers"
        )
        assert time == Time("small", "2 layers", 3, 5, epochs=14.0, trained_epochs=16.0)

    def test_is_unknown_where_it_is_never_reached(self, tmp_path):
        time = complexity.time_of(self.cell(tmp_path, [4.0, 1.0, 0.25, 0.0, 0.0, 0.0]), "small", "2 layers")
        assert time.epochs is None and time.trained_epochs == 12.0


def times(*epochs, trained=10.0, panel="p", line="l", seed=0):
    return [Time(panel, line, k, seed, each, trained) for k, each in enumerate(epochs)]


class TestOrder:
    def test_by_hand(self):
        assert complexity.order(times(1, 2, 3)) == 1.0
        assert complexity.order(times(3, 2, 1)) == -1.0
        assert complexity.order(times(1, 3, 2)) == pytest.approx(1 / 3)  # two pairs up, one down
        assert complexity.order(times(2, 2, 2)) == 0.0

    def test_a_censored_run_took_longer_than_those_that_reached_it_before_it_ended(self):
        assert complexity.order(times(1, 2, None)) == 1.0
        assert complexity.order(times(None, 1, 2)) == pytest.approx(-1 / 3)  # and 1 before 2 is up
        shorter = [*times(8, trained=10), Time("p", "l", 1, 0, None, 5)]  # 8 against more than 5: not known
        assert complexity.order(shorter) is None
        assert complexity.order(times(None, None, None)) is None

    def test_runs_of_the_same_complexity_say_nothing(self):
        assert complexity.order([*times(1.0, seed=0), *times(9.0, seed=1)]) is None

    def test_times_without_an_order_have_none(self):
        random = np.random.default_rng(0)
        shuffled = [time for seed in range(20) for time in times(*random.random(7).tolist(), seed=seed)]
        assert abs(complexity.order(shuffled)) < 0.2
        assert complexity.order([t for s in range(20) for t in times(*range(7), seed=s)]) == 1.0


class TestTimesOfManyRuns:
    RUNS = (
        *times(2.0, 4.0, 6.0, seed=0),
        *times(4.0, 8.0, None, seed=1),
        *times(3.0, 3.0, 3.0, panel="q"),
    )

    def test_are_summed_up_by_line(self):
        small, large = complexity.numbers(self.RUNS)["lines"]
        assert small["median_epochs"] == {0: 3.0, 1: 6.0, 2: None} and small["last_to_first"] is None
        assert small["n_censored"] == 1 and small["n_runs"] == 6
        # 0-1, 0-2 and 1-2 over both seeds: 4 + 4 + 3 known pairs up, 4 against 4 a tie, 8 against 6 down
        assert small["order"] == pytest.approx((3 + 0 + 4 + 3 - 1) / 12)
        assert small["order_by_seed"] == {0: 1.0, 1: 1.0}
        assert large["last_to_first"] == 1.0 and large["order"] == 0.0 and large["n_censored"] == 0

    def test_that_are_censored_are_null_and_open_never_zero(self, tmp_path):
        given = Namespace(
            out=tmp_path, suffix=".html", preset="quick", seed=[0, 1], set=[], tag="", network={}
        )
        picture = complexity.draw(self.RUNS, "title")
        common.write(given, "c6", picture, complexity.numbers(self.RUNS))
        runs = json.loads((tmp_path / "c6.json").read_text())["runs"]
        assert [run["epochs"] for run in runs] == [2, 4, 6, 4, 8, None, 3, 3, 3]
        drawn = [(t.marker.symbol, x, y) for t in picture.data if t.mode == "markers" for x, y in _points(t)]
        open_ones = [(round(x), y) for symbol, x, y in drawn if symbol == "triangle-up-open"]
        assert open_ones == [(2, 10.0)]  # at the length of the run
        assert sum(symbol == "circle" for symbol, _, _ in drawn) == 8
        assert all(y != 0 for _, _, y in drawn)
        assert any("not reached" in (trace.name or "") for trace in picture.data)
        line = next(trace for trace in picture.data if trace.mode == "lines+markers")
        assert tuple(line.y) == (3.0, 6.0, None)

    def test_without_a_censored_one_say_nothing_of_them(self):
        picture = complexity.draw(times(1.0, 2.0), "title")
        assert not any("not reached" in (trace.name or "") for trace in picture.data)


def _points(trace):
    return [(x, y) for x, y in zip(trace.x, trace.y, strict=True) if x is not None]


def hand_cell(gamma, seed, inferential, symmetric, train=1.0, depth=2, positions=()):
    """A cell with answers given."""
    values = {"train": train, "id": train, "ood": inferential, "symmetric": symmetric}
    run = preset("quick", regime="conflict", gamma=gamma, n_layers=depth, seed=seed)
    verdict = known_cells.of_measures(values, known_cells.by_probes("underfit"), positions=tuple(positions))
    return known_cells.done(run, verdict)


def counted(cells):
    return c2_gamma_depth.counted(c2_gamma_depth.measure(cells))


class TestWhichSolution:
    CELLS = (
        hand_cell(0.4, 0, inferential=0.3, symmetric=0.2, train=0.5),  # has not fit its data: not counted
        hand_cell(0.4, 1, inferential=0.1, symmetric=0.6),
        hand_cell(0.5, 0, inferential=0.5, symmetric=0.2),
        hand_cell(0.5, 1, inferential=0.2, symmetric=0.5),
        hand_cell(0.8, 0, inferential=0.9, symmetric=0.0),
        hand_cell(0.8, 1, inferential=0.7, symmetric=0.1),
    )

    def test_by_hand(self):
        numbers = counted(self.CELLS)
        assert numbers["small_initialisation"]["inferential"] == 1.0
        assert numbers["large_initialisation"]["symmetric"] == pytest.approx(1 / 3)  # .5 is no more than half
        assert numbers["n_underfit"] == 1
        assert numbers["means"]["inferential"]["2"] == pytest.approx({"0.4": 0.2, "0.5": 0.35, "0.8": 0.8})

    def test_each_map_has_its_own_best_rate(self):
        runs = [
            {"gamma": 0.5, "depth": 2, "seed": 0, "lr": lr, "inferential": i, "symmetric": s, "train": 1.0}
            for lr, i, s in ((4e-4, 0.4, 0.5), (8e-4, 0.8, 0.2))
        ]
        numbers = c2_gamma_depth.counted(runs)
        assert numbers["best"] == {"inferential": [1], "symmetric": [0]}
        assert numbers["means"] == {"inferential": {"2": {"0.5": 0.8}}, "symmetric": {"2": {"0.5": 0.5}}}
        assert "each map at its best" in c2_gamma_depth.draw(numbers).layout.title.text

    def test_the_picture_says_which_have_not_fit_their_data(self):
        picture = c2_gamma_depth.draw(counted(self.CELLS))
        inferential, symmetric = picture.data
        assert list(inferential.text[0]) == ["0.20<br>1 underfit", "0.35", "0.80"]
        assert tuple(symmetric.z[0]) == pytest.approx((0.4, 0.35, 0.05))

    def test_by_position(self):
        """Three quarters symmetric by the mean: everywhere but where the pair stands last."""

        def at(position, inferential, symmetric):
            values = {"train": 1.0, "id": 1.0, "ood": inferential}
            values |= {"inferential": inferential, "symmetric": symmetric}
            shares = {name: Accuracy(value, 0.01, 100) for name, value in values.items()}
            return PositionAnswers(position, **shares)

        places = [at(0, 0.0, 1.0), at(1, 0.0, 1.0), at(2, 0.0, 1.0), at(3, 1.0, 0.0)]
        mixed = hand_cell(0.8, 1, 0.25, 0.75, positions=places)
        numbers = counted([*self.CELLS[:5], mixed])
        assert numbers["solutions"] == {"mixed by position": 1}
        found = numbers["runs"][-1]
        assert found["solution"] == "mixed by position" and len(found["by_position"]) == 4
        assert found["by_position"][3]["inferential"]["value"] == 1.0
        assert numbers["runs"][0]["by_position"] == [] and numbers["runs"][0]["solution"] is None
        assert c2_gamma_depth.draw(numbers).data[0].text[0][-1] == "0.57<br>1 mixed"  # mean of .9 and .25
        (heatmap,) = c2_gamma_depth.draw_by_position(numbers).data
        assert list(heatmap.y) == ["gamma 0.8, 2 layers, seed 1, lr 0.001: mixed by position"]
        assert [list(row) for row in heatmap.z] == [[-1.0, -1.0, -1.0, 1.0]]
        assert c2_gamma_depth.draw_by_position(counted(self.CELLS)) is None

    def test_no_run_that_has_fit_its_data_is_no_share(self):
        numbers = counted([hand_cell(0.8, 0, 0.9, 0.1, train=0.3)])
        assert numbers["small_initialisation"]["inferential"] is None


class TestScripts:
    GRID = ("--gamma", "0.5", "0.7", "0.8", "--depth", "2")

    @pytest.mark.slow
    def test_gamma_and_depth(self, numbers_of):
        numbers, pictures = numbers_of(c2_gamma_depth, *self.GRID)
        assert pictures == ["c2_gamma_depth", "c2_by_position"]
        assert numbers["n_runs"] == 6 == len(numbers["runs"])
        assert numbers["n_underfit"] == 6  # after twelve steps
        for run in numbers["runs"]:
            assert run["solution"] == "other" and len(run["by_position"]) == 7
            mean = np.mean([one["symmetric"]["value"] for one in run["by_position"]])
            assert mean == pytest.approx(run["symmetric"])  # as many sequences at each position

    @pytest.mark.parametrize(
        ("script", "pictures", "probes", "arguments"),
        [
            (
                c3_information_flow,
                ["c3_information_flow", "c3_first_layer_tsne"],
                {"information_flow", "first_layer_tsne"},
                ["--n-sequences", "80"],
            ),
            (
                c4_similarity,
                ["c4_fusion_similarity", "c4_v_similarity"],
                {"fusion_similarity", "v_similarity"},
                [],
            ),
            (
                c5_condensation,
                ["c5_condensation", "c5_embedding"],
                {"q_condensation", "embedding_pca", "stable_rank"},
                [],
            ),
        ],
        ids=["c3", "c4", "c5"],
    )
    def test_two_solutions(self, numbers_of, folder, script, pictures, probes, arguments):
        numbers, drawn = numbers_of(script, *arguments)
        assert drawn == pictures and numbers["readings"].keys() == probes
        cells = {
            (cell.run.model_config.gamma, cell.run.train_config.seed): cell
            for cell in open_sweep(folder / "sweep")
            if cell.run.task.regime == "conflict" and not cell.run.train_config.n_checkpoints
        }
        assert len(cells) == 6  # those of figure 2, and no other
        for name, gamma in (("gamma 0.5", 0.5), ("gamma 0.7", 0.7), ("gamma 0.8", 0.8)):
            for by_name in (reading for probe in numbers["readings"].values() for reading in probe.values()):
                assert by_name[name].keys() == {"0", "1"}
            for seed in (0, 1):
                found = numbers["answers"][name][str(seed)]
                assert found["symmetric"] == cells[gamma, seed].numbers["symmetric"]
                if "stable_rank" in probes:
                    rank = numbers["readings"]["stable_rank"]["w_q"][name][str(seed)]
                    assert rank == pytest.approx(cells[gamma, seed].numbers["stable_rank.w_q"])

    def test_complexity(self, numbers_of):
        numbers, pictures = numbers_of(
            c6_complexity, "--complexity", "0", "6", "--depth", "2", "--seed", "0", "--gamma", "0.8", "0.4"
        )
        assert pictures == ["c6_complexity"]
        assert [line["panel"] for line in numbers["lines"]] == ["gamma 0.8", "gamma 0.4"]
        assert numbers["id_accuracy"].keys() == {"gamma 0.8", "gamma 0.4"}
        # a loss of .05 is not reached in twelve steps
        assert all(line["n_censored"] == 2 and line["order"] is None for line in numbers["lines"])
        assert all(run["epochs"] is None and run["trained_epochs"] == 12 / 9 for run in numbers["runs"])

    def test_covariance(self, numbers_of):
        numbers, _ = numbers_of(c7_covariance, "--gamma", "0.5", "0.8")
        for run in numbers["runs"]:
            assert sum(run["spectrum"]) == pytest.approx(1) and len(run["spectrum"]) == 16  # d_model
        # before training one initialisation is a multiple of the other, so their shares are the same
        start = [run["spectrum_at_start"] for run in numbers["runs"] if run["seed"] == 0]
        assert start[0] == pytest.approx(start[1], rel=1e-4)
        assert numbers["components_at_start"]["0.5"] == numbers["components_at_start"]["0.8"]
        least, most = (list(numbers["components"][gamma].values()) for gamma in ("0.5", "0.8"))
        assert numbers["smallest_to_largest_gamma"] == pytest.approx(np.mean(least) / np.mean(most))

    def test_complexity_over_training(self, numbers_of, folder, monkeypatch):
        settings = {
            name: complexity_over_training.SETTINGS[name] for name in ("recipe", "twice the learning rate")
        }
        monkeypatch.setattr(complexity_over_training, "SETTINGS", settings)
        monkeypatch.setattr(complexity_over_training, "N_CHECKPOINTS", 4)
        numbers, _ = numbers_of(complexity_over_training, "--seed", "0")
        assert [(run["setting"], run["gamma"]) for run in numbers["runs"]] == [
            (name, gamma) for name in settings for gamma in (0.8, 0.5)
        ]
        cells = {cell.id: cell for cell in open_sweep(folder / "sweep-trajectories")}
        for run in numbers["runs"]:
            cell = cells[run["cell"]]
            assert run["step"] == trajectory_steps(cell.run.train_config) and run["step"][-1] == 12
            assert cell.run.train_config.lr == (1e-3 if run["setting"] == "recipe" else 2e-3)
            assert run["stable_rank"][-1] == pytest.approx(cell.numbers["stable_rank.w_q_normalized"])
            found = numbers["summary"]["stable_rank"][run["setting"]][str(run["gamma"])]["0"]
            assert found["start"] == run["stable_rank"][0] and found["end"] == run["stable_rank"][-1]
            assert found["least"] == min(run["stable_rank"])
            assert run["step"][run["stable_rank"].index(found["least"])] == found["least_step"]


def test_pictures_show_every_solution_that_an_initialisation_has():
    cells = [
        hand_cell(0.5, 0, inferential=0.1, symmetric=0.6),
        hand_cell(0.8, 0, inferential=0.9, symmetric=0.0),
        hand_cell(0.5, 1, inferential=0.1, symmetric=0.9),
        hand_cell(0.8, 1, inferential=0.1, symmetric=0.8),
        hand_cell(0.8, 2, inferential=0.7, symmetric=0.1),
    ]
    found = [(cell.run.model_config.gamma, cell.run.train_config.seed) for cell in solutions.shown(cells)]
    assert found == [(0.5, 0), (0.8, 0), (0.8, 1)]


class TestScale:
    def test_the_solutions_are_cells_of_the_grid_of_figure_2(self):
        given = Namespace(preset="quick", seed=[0, 1], set=[])
        axes = {"n_layers": [2, 3, 4], "gamma": list(solutions.GAMMAS)}
        grid = {Cell(run).id for run in solutions.conflict_runs(given, axes)}
        own = {Cell(run).id for run in solutions.solution_runs(given)}
        assert len(grid) == 30 and len(own) == 6 and own < grid

    def test_at_the_papers_scale_the_recipe_is_the_conference_papers(self):
        given = Namespace(preset="paper-2l1h", seed=[0], set=[])
        (run, *_) = solutions.solution_runs(given)
        assert run.train_config.lr == pytest.approx(25 * 1e-5)
        assert run.train_config.lr * run.train_config.lr_start_factor == pytest.approx(1e-5)
        assert (run.train_config.n_samples, run.train_config.epochs, run.model_config.variant) == (
            900_000,
            210,
            "postnorm",
        )
        given.gamma, given.depth, given.complexity = [0.8, 0.4], [2], [0]
        for run in c6_complexity.wanted(given):
            assert run.train_config.epochs == 210 and run.train_config.stop_at_loss == 0.05


class TestAnotherNetwork:
    def given(self, *arguments):
        return common.options("").parse_args(list(arguments))

    def test_what_is_set_goes_before_axes_and_fields(self):
        given = self.given("--seed", "3", "--set", "variant=postnorm", "gamma=0.5,0.9", "steps=70")
        runs = common.runs(given, {"gamma": [0.4], "n_layers": [2, 3]}, steps=10)
        found = {(run.model_config.n_layers, run.model_config.gamma) for run in runs}
        assert len(runs) == 4 and found == {(2, 0.5), (2, 0.9), (3, 0.5), (3, 0.9)}
        assert {
            (run.model_config.variant, run.train_config.steps, run.train_config.seed) for run in runs
        } == {("postnorm", 70, 3)}

    @pytest.mark.parametrize("text", ["variant", "gama=0.5"])
    def test_what_is_no_field_is_refused(self, text, capsys):
        with pytest.raises(SystemExit):
            self.given("--set", text)
        assert "argument --set: expected" in capsys.readouterr().err

    def test_cells_are_taken_as_trained(self, tmp_path):
        given = self.given("--sweep", str(tmp_path / "sweep"), "--engine", "serial", "--seed", "0")
        wanted = tiny({"gamma": [0.5, 0.7]}, steps=2)
        trained = common.trained(given, wanted[1:])
        assert [cell.id for cell in common.as_trained(given, wanted)] == [cell.id for cell in trained]
        with pytest.raises(SystemExit, match="has none that is done"):
            common.as_trained(given, wanted[:1])

    def test_curves_of_two_widths(self):
        flat, steep = {0.5: [0.0, 0.2], 0.7: [0.2, 0.2]}, {0.5: [0.1, 0.1], 0.7: [0.9, None]}
        assert gamma_across_widths.distance(flat, steep) == pytest.approx((0.0 + 0.7) / 2)
        assert gamma_across_widths.crossing(flat) is None and gamma_across_widths.crossing(steep) == 0.6
        runs = gamma_across_widths.runs_of(48, gamma_across_widths.TRANSFERRED, [0], steps=10)
        assert [(gamma, run.model_config.gamma) for gamma, run in runs][0] == (0.4, 0.3747)
        assert runs[0][1].train_config.lr == pytest.approx(0.00163299)  # 1e-3 sqrt(128 / 48)
        for way, expected in (
            (gamma_across_widths.GAMMA_ALONE, (0.3747, 1e-3)),
            (gamma_across_widths.RATE_ALONE, (0.4, 0.00163299)),
            (gamma_across_widths.SAME, (0.4, 1e-3)),
        ):
            (_, first), *_ = gamma_across_widths.runs_of(48, way, [0], steps=10)
            assert (first.model_config.gamma, first.train_config.lr) == pytest.approx(expected)
        assert {
            (run.model_config.d_model, run.model_config.d_head, run.model_config.d_mlp) for _, run in runs
        } == {(48, 24, 96)}

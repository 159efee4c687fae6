"""The maps of a sweep: where each seed stands, how it is coloured, hatched and described."""

import itertools
from dataclasses import replace

import pytest
from known_cells import cell, done, square, sweep_of, verdict

from anchorlens.extras.sweep.cells import axes_of
from anchorlens.extras.sweep.diagram import maps, outcomes
from anchorlens.extras.sweep.diagram.axes import choose_axes, slices
from anchorlens.extras.sweep.diagram.layout import arranged, phase_tables
from anchorlens.extras.sweep.diagram.maps import agreement_map, number_map, phase_map, rank_map
from anchorlens.extras.sweep.diagram.outcomes import vote
from anchorlens.recipes.presets import preset
from anchorlens.show.tables import text_of
from anchorlens.tasks.shared.measures import Metric
from anchorlens.tasks.shared.phases import COLOURS, SOLUTION_LABELS, Phase

WITHOUT, WITH = "Phase 2 without commutativity", "Phase 2 with commutativity"


def drawn(figure):
    """Cell's id -> what its bar or bubble looks like, every one once."""
    found = {}
    for trace in figure.data:
        for i, identity in enumerate(trace.customdata if trace.customdata is not None else ()):
            assert identity not in found
            marker = trace.marker.to_plotly_json()
            found[identity] = {
                "name": trace.name,
                "x": trace.x[i],
                "hover": trace.hovertext[i],
                "colour": marker["color"] if isinstance(marker["color"], str) else marker["color"][i],
                "hatch": marker.get("pattern", {}).get("shape"),
                "size": marker.get("size"),
                "symbol": marker.get("symbol"),
            }
            if trace.type == "bar":
                bar = {"width": trace.width[i], "base": trace.base[i], "height": trace.y[i]}
                found[identity] |= bar
    return found


def texts(figure):
    """(column, row) -> what is written there."""
    return {(note.x, note.y): note.text for note in figure.layout.annotations}


class TestPlotOfASweep:
    def test_is_the_map_of_phases(self):
        cells = square()
        assert drawn(sweep_of(cells).plot()) == drawn(phase_map(cells))
        assert sweep_of(cells).plot(x="weight_decay", y="gamma").layout.xaxis.title.text == "weight decay"

    def test_is_of_the_largest_slice_and_says_so(self):
        cells = [*square(), cell("1", n_layers=3)]
        figure = sweep_of(cells).plot()
        assert set(drawn(figure)) == {one.id for one in square()}
        assert figure.layout.title.text == "Phase by behaviour: n_layers 2 (1 of 2 slices)"

    def test_wants_a_cell_and_a_field_that_exists(self):
        with pytest.raises(ValueError, match="at least one run to plot, got none in sweeps/known"):
            sweep_of([]).plot()
        with pytest.raises(ValueError, match="Did you mean 'gamma'"):
            sweep_of(square()).plot(x="gama")


class TestSquares:
    def test_seeds_stand_side_by_side_in_order(self):
        cells = square()
        bands = drawn(phase_map(cells[::-1]))  # whatever order they come in
        assert len(bands) == 12
        third = 0.92 / 3
        for column, row, group in ((0, 0, 0), (1, 0, 3), (0, 1, 6), (1, 1, 9)):
            for seed, one in enumerate(cells[group : group + 3]):
                bar = bands[one.id]
                assert bar["x"] == pytest.approx(column + (seed - 1) * third)
                assert bar["width"] == pytest.approx(third)
                assert (bar["base"], bar["height"]) == (pytest.approx(row - 0.46), pytest.approx(0.92))

    def test_axes_ascend_with_true_values_at_even_distances(self):
        cells = [
            cell("3", gamma=gamma, weight_decay=decay)
            for gamma in (0.7, 0.3, 0.3625)
            for decay in (1, 0.1, 0, 0.01)
        ]
        layout = phase_map(cells).layout
        assert layout.xaxis.ticktext == ("0.3", "0.3625", "0.7") and layout.xaxis.tickvals == (0, 1, 2)
        assert layout.yaxis.ticktext == ("0", "0.01", "0.1", "1") and layout.yaxis.tickvals == (0, 1, 2, 3)
        assert tuple(layout.yaxis.range) == (-0.5, 3.5)  # ascending upwards
        assert layout.xaxis.title.text.startswith("gamma") and layout.yaxis.title.text == "weight decay"

    def test_values_in_windows_stand_behind_numbers_as_they_are_written(self):
        cells = [
            cell("3", gamma=0.7, weight_decay=decay) for decay in ("0 0.25:0.5=1.0", 1.0, "0 0.5:1=1", 0.1)
        ]
        layout = phase_map(cells).layout
        assert layout.yaxis.ticktext == ("0.1", "1", "0 0.25:0.5=1", "0 0.5:1=1")

    def test_fewer_seeds_fill_their_square(self):
        cells = [cell("3", gamma=0.3), cell("3", gamma=0.7), cell("3", gamma=0.7, seed=4)]
        bands = drawn(phase_map(cells, y=None))
        assert [bands[one.id]["width"] for one in cells] == pytest.approx([0.92, 0.46, 0.46])

    def test_every_map_has_the_box_of_every_cell(self):
        cells = square()
        for figure in (phase_map(cells), rank_map(cells), number_map(cells, "id")):
            boxes = figure.layout.meta["boxes"]
            assert boxes.keys() == {one.id for one in cells}
            assert boxes[cells[0].id] == pytest.approx((-0.46, -0.46 + 0.92 / 3, -0.46, 0.46))

    def test_the_colour_bar_beside_a_single_row_has_room_for_its_ticks(self):
        row = [cell("3", gamma=0.3), cell("3", gamma=0.7)]
        bar = rank_map(row, y=None).layout.coloraxis.colorbar
        assert (bar.lenmode, bar.yanchor, bar.y) == ("pixels", "top", 1) and bar.len >= 160

    def test_the_same_cell_twice_stands_once(self):
        assert len(arranged([cell("3"), cell("3")], "gamma", None).squares[0].cells) == 1

    @pytest.mark.parametrize(
        "draw", [phase_map, agreement_map, rank_map, lambda *a: number_map(a[0], "id", *a[1:])]
    )
    def test_cells_that_differ_in_something_else_are_refused(self, draw):
        cells = [
            cell("3", gamma=gamma, regime=regime)
            for gamma in (0.3, 0.7)
            for regime in ("reasoning", "conflict")
        ]
        with pytest.raises(ValueError, match=r"only in gamma and seed.*differ in regime"):
            draw(cells, "gamma", None)
        assert draw(cells[::2], "gamma", None)
        with pytest.raises(ValueError, match="at least one run, got none"):
            draw([], "gamma", None)


class TestPhaseMap:
    def test_a_split_vote_shows_every_colour(self):
        cells = square()
        figure = phase_map(cells)
        bands = drawn(figure)
        split = [bands[one.id] for one in cells[3:6]]  # gamma .7, decay 0: 2, 3, 3
        assert [bar["name"] for bar in split] == [WITHOUT, "Phase 3", "Phase 3"]
        assert [bar["colour"] for bar in split] == [COLOURS[WITHOUT], COLOURS["Phase 3"], COLOURS["Phase 3"]]

    def test_the_vote_is_written(self):
        assert texts(phase_map(square())) == {
            (0, 0): "<b>?</b>",
            (1, 0): "2|3|3",
            (0, 1): "1|×|·",
            (1, 1): "<b>3</b><br>3 of 3",
        }

    def test_hatched_are_the_underfit_and_the_failed_alone(self):
        cells = [*square(), cell("diverged", gamma=0.7, weight_decay=0.01, seed=3)]
        bands = drawn(phase_map(cells))
        hatches = {one.id: bands[one.id]["hatch"] for one in cells}
        expected = ["/", "/", "/", None, None, None, None, "x", None, None, None, None, "x"]
        assert list(hatches.values()) == expected
        assert bands[cells[8].id]["name"] == "not trained yet"
        assert bands[cells[8].id]["colour"] == "rgba(0,0,0,0)"  # an overview alone

    def test_what_there_is_stands_in_the_legend(self):
        names = [trace.name for trace in phase_map([cell("3"), cell("underfit", gamma=0.3)], y=None).data]
        assert names == ["Phase 3", "underfit: no phase"]

    def test_what_is_undecided_is_no_phase(self):
        def answering(phase):
            return done(preset("quick"), replace(verdict("3"), phase=phase, agreement=None))

        borderline = answering(Phase.undecided("borderline", "too near"))
        either = answering(Phase(2, None, "with or without"))
        assert (
            outcomes.outcome(borderline) is outcomes.UNDECIDED and outcomes.outcome(either) is outcomes.EITHER
        )
        assert outcomes.agreement(borderline) is outcomes.NO_COMPARISON

    def test_where_the_data_conflict_solutions_are_drawn(self):
        cells = []
        for seed, solution in enumerate(("inferential", "symmetric", "mixed by position", "other")):
            one = cell("3", regime="conflict", seed=seed)
            phase = Phase(None, None, "", solution=solution)
            cells.append(done(one.run, replace(one.verdict, phase=phase), path=f"cells/{seed}"))
        figure = phase_map(cells)
        bands = drawn(figure)
        assert [bands[one.id]["name"] for one in cells] == list(SOLUTION_LABELS.values())[:4]
        assert list(texts(figure).values()) == ["i|s|m|n"]
        assert figure.layout.title.text == "Solution by behaviour"
        assert {trace.name for trace in figure.data if trace.name} == set(list(SOLUTION_LABELS.values())[:4])

    def test_many_seeds_are_counted(self):
        two, three = outcomes.PHASES[1], outcomes.PHASES[3]
        assert vote([three] * 6 + [two] * 4) == "<b>3</b> 6 of 10<br><b>2</b> 4 of 10"
        assert vote([three]) == "<b>3</b>" and vote([outcomes.MISSING] * 3) == ""
        assert vote([two, *outcomes.PHASES, outcomes.FAILED]).endswith("<br>…")

    @pytest.mark.parametrize("kinds", [outcomes.OUTCOMES, outcomes.AGREEMENTS])
    def test_categories_are_shown_apart_without_colour(self, kinds):
        assert len({(kind.sign, kind.hatch) for kind in kinds}) == len(kinds)
        assert len({kind.name for kind in kinds}) == len(kinds)


class TestNumberMap:
    def test_colours_and_means_are_those_of_the_numbers(self):
        cells = square()
        figure = number_map(cells, "id")
        bands = drawn(figure)
        assert [bands[one.id]["colour"] for one in cells[9:]] == ["rgb(8, 48, 107)"] * 3  # 1: darkest blue
        pale = bands[cells[6].id]["colour"]  # .02: nearly the lightest, rgb(247, 251, 255)
        assert pale != "rgb(8, 48, 107)" and all(int(part) >= 240 for part in pale[4:-1].split(","))
        assert texts(figure) == {
            (0, 0): "0.10",
            (1, 0): "0.99",  # (.98 + 1 + 1) / 3
            (0, 1): "0.02<br>1 of 3",
            (1, 1): "1.00",
        }

    def test_hatched_are_the_underfit_and_the_failed_alone(self):
        cells = [*square(), cell("diverged", gamma=0.7, weight_decay=0.01, seed=3)]
        for number in ("id", "ood", "commutativity"):
            bands = drawn(number_map(cells, number))
            hatches = [bands[one.id]["hatch"] for one in cells]
            assert hatches == ["/", "/", "/", None, None, None, None, "x", None, None, None, None, "x"]

    def test_hatches_lie_over_the_colour_of_the_number(self):
        underfit = cell("underfit")  # commutativity .5: the middle of plotly's Blues
        figure = number_map([underfit, cell("3", gamma=0.3)], "commutativity", y=None)
        (trace,) = [trace for trace in figure.data if trace.customdata == (underfit.id,)]
        assert trace.marker.pattern.shape == "/"
        assert trace.marker.pattern.bgcolor == ("rgb(107, 174, 214)",)

    def test_a_number_that_no_cell_has_is_no_map(self):
        with pytest.raises(
            ValueError,
            match="a value of Symmetric accuracy, got none",
        ):
            number_map(square(), "symmetric")
        with pytest.raises(ValueError, match="a value of ID accuracy, got none"):
            number_map([cell(), cell("failed", seed=1)], "id")
        with pytest.raises(ValueError, match=r"`number` must be one of .*got 'loss'"):
            number_map(square(), "loss")

    def test_a_number_that_some_cells_have_is_drawn_for_those(self):
        cells = [cell("2", regime="conflict", verdict_options={"symmetric": 0.47}), cell("3", seed=1)]
        cells[1] = cell("3", regime="conflict", seed=1)  # a verdict without one
        figure = number_map(cells, "symmetric", y=None)
        bands = drawn(figure)
        assert bands[cells[1].id]["name"] == "not defined for it" and bands[cells[0].id]["name"] is None
        assert texts(figure) == {(0, 0): "0.47<br>1 of 2"}

    @pytest.mark.parametrize("higher_is_better", [True, None, False])
    def test_its_caption_says_where_lower_is_better(self, monkeypatch, higher_is_better):
        bits = Metric("bits", "bits", "Bits per byte", "held-out text", higher_is_better=higher_is_better)
        monkeypatch.setattr(maps, "metrics_of", lambda _: [bits])
        caption = next(one.caption for one in maps.maps_of([cell("3")]) if one.name == "bits")
        assert ("Lower is better" in str(caption)) == (higher_is_better is False)
        assert "held-out text" in str(caption)


class TestRankMap:
    def test_size_is_the_phase_and_colour_the_rank(self):
        cells = [cell(sign, gamma=0.3 + i / 10, rank=20 - i) for i, sign in enumerate(("1", "2", "2c", "3"))]
        bubbles = [drawn(rank_map(cells, y=None))[one.id] for one in cells]
        assert [bubble["colour"] for bubble in bubbles] == [20, 19, 18, 17]
        assert [bubble["size"] for bubble in bubbles] == pytest.approx([0.4 * 26, 0.6 * 26, 0.8 * 26, 26])
        assert {bubble["symbol"] for bubble in bubbles} == {"circle"}

    def test_legend_and_map_have_sizes_in_proportion(self):
        figure = rank_map([cell("1", gamma=0.3), cell("3", gamma=0.7)], y=None)
        legend = {trace.name: trace.marker.size for trace in figure.data if trace.name}
        assert legend["Phase 1"] / legend["Phase 3"] == pytest.approx(0.4) and legend["Phase 3"] == 16

    def test_crosses_are_the_underfit_and_the_failed_alone(self):
        cells = square()
        bubbles = drawn(rank_map(cells))
        symbols = [bubbles[one.id]["symbol"] for one in cells]
        assert symbols == [*["x"] * 3, *["circle"] * 4, "x-thin", "circle-open", *["circle"] * 3]
        assert [bubbles[one.id]["colour"] for one in cells[:3]] == [4.0, 5.0, 6.0]

    def test_seeds_stand_side_by_side_and_their_mean_is_written(self):
        cells = square()
        figure = rank_map(cells)
        assert [drawn(figure)[one.id]["x"] for one in cells[:3]] == pytest.approx([-0.92 / 3, 0, 0.92 / 3])
        assert texts(figure) == {(0, 0): "5", (1, 0): "5", (0, 1): "4, 1 of 3", (1, 1): "5"}

    def test_many_seeds_have_room(self):
        cells = [cell("3", gamma=gamma, seed=seed) for gamma in (0.3, 0.5, 0.7, 0.8) for seed in range(10)]
        figure = rank_map(cells, y=None)
        plot = figure.layout.width - figure.layout.margin.l - figure.layout.margin.r
        assert 10 * drawn(figure)[cells[0].id]["size"] < plot / 4

    def test_a_rank_that_was_not_measured_is_none(self):
        cells = [cell("3"), cell("3", seed=1, rank=None)]
        bubbles = drawn(rank_map(cells, y=None))
        assert bubbles[cells[1].id]["symbol"] == "line-ew"
        with pytest.raises(ValueError, match="a value of stable rank of W_Q, got none"):
            rank_map(cells[1:], y=None)


class TestAgreementMap:
    def test_shows_agreement_disagreement_and_no_comparison(self):
        cells = [
            cell("3"),
            cell("3", seed=1, verdict_options={"inside": "2"}),
            cell("2", seed=2, verdict_options={"inside": "2c"}),  # the same phase
            cell("3", seed=3, verdict_options={"inside": "underfit"}),
            cell("underfit", seed=4),
            cell("failed", seed=5),
        ]
        figure = agreement_map(cells, y=None)
        signs = {kind.name: kind.sign for kind in outcomes.AGREEMENTS}
        assert [signs[drawn(figure)[one.id]["name"]] for one in cells] == ["=", "≠", "=", "?", "?", "×"]
        assert [drawn(figure)[one.id]["hatch"] for one in cells] == [None, None, None, None, "/", "x"]

    def test_both_labels_are_described(self):
        split = cell("3", verdict_options={"inside": "2"})
        shown = drawn(agreement_map([split], y=None))[split.id]["hover"]
        assert f"by behaviour: Phase 3<br>by the probes: {WITHOUT}<br>" in shown


class TestDescription:
    def test_everything_that_is_known(self):
        one = cell("2", gamma=0.5, seed=3, rank=9.25)
        shown = drawn(phase_map([one], y=None))[one.id]["hover"]
        for words in ("gamma 0.5, seed 3", "train 1.000, ID 0.980, OOD 0.100", "commutativity 0.400", "9.25"):
            assert words in shown
        assert "finished after 1,000 steps" in shown and one.id in shown and "symmetric" not in shown

    def test_an_error_is_described_and_is_no_markup(self):
        one = cell("failed", error="<a href='javascript:alert(1)'>x</a> & \ud800")
        shown = drawn(phase_map([one], y=None))[one.id]["hover"]
        assert "&lt;a href='javascript:alert(1)'&gt;x&lt;/a&gt; &amp; \\ud800" in shown
        assert shown.replace("<br>", "").count("<") == 0


class TestAxes:
    GRID = {
        "gamma": (0.3, 0.7),
        "weight_decay": (0, 1),
        "n_layers": (2, 3),
        "lr": (1e-3, 1e-2),
        "seed": (0, 1),
    }

    def grid(self, *names):
        cells = [cell("3")]
        for name in names:
            cells += [cell("3", **{name: value}) for value in self.GRID.get(name, ())]
        return cells

    @pytest.mark.parametrize(
        ("varying", "chosen"),
        [
            (("lr", "weight_decay", "gamma", "seed"), ("gamma", "weight_decay")),
            (("n_layers", "lr"), ("n_layers", "lr")),
            (("weight_decay", "seed"), ("weight_decay", None)),
            (("seed",), ("gamma", None)),
            ((), ("gamma", None)),
        ],
    )
    def test_are_chosen_in_order(self, varying, chosen):
        assert choose_axes(self.grid(*varying)) == chosen

    def test_any_number_will_do_where_none_of_the_first_varies(self):
        cells = [
            cell("3", regime=regime, batch_size=size)
            for regime in ("reasoning", "conflict")
            for size in (64, 512)
        ]
        assert choose_axes(cells) == ("batch_size", None)

    def test_are_those_asked_for(self):
        cells = self.grid("gamma", "lr")
        assert choose_axes(cells, x="lr") == ("lr", "gamma")
        assert choose_axes(cells, y="gamma") == ("lr", "gamma")
        assert choose_axes(cells, x="layers", y="weight_decay") == ("n_layers", "weight_decay")

    def test_what_cannot_be_is_refused(self):
        cells = self.grid("gamma")
        with pytest.raises(ValueError, match=r"field.*configuration.*mean 'gamma'"):
            choose_axes(cells, x="gama")
        with pytest.raises(ValueError, match="two different fields, got 'n_layers' for both"):
            choose_axes(cells, x="layers", y="n_layers")
        with pytest.raises(ValueError, match="x must be a field other than the seed, got 'seed'"):
            choose_axes(cells, x="seed")

    def test_slices_are_all_else_that_varies_the_largest_first(self):
        cells = [
            cell("3", gamma=g, n_layers=n) for n, gammas in ((2, (0.3,)), (3, (0.3, 0.7))) for g in gammas
        ]
        cells += [cell("3", gamma=g, n_layers=2, regime="conflict") for g in (0.3, 0.7, 0.8)]
        found = slices(cells, "gamma", None)
        labels = [one.label for one in found]
        assert labels == [
            "regime conflict, n_layers 2",
            "regime reasoning, n_layers 3",
            "regime reasoning, n_layers 2",
        ]
        assert [len(one.cells) for one in found] == [3, 2, 1]
        assert slices(cells[:1], "gamma", None)[0].label == ""

    def test_what_goes_with_an_axis_is_no_slice_and_is_named(self):
        cells = [cell("3", n_samples=n, steps=s) for n, s in ((1000, 10), (20_000, 200))]
        assert [one.label for one in slices(cells, "n_samples", None)] == [""]
        axis = phase_map(cells, "n_samples", None).layout.xaxis
        assert axis.title.text == "training sequences; with it steps" and axis.ticktext == ("1,000", "20,000")

    def test_equal_numbers_are_one_value(self):
        cells = [cell("3", weight_decay=1), cell("2", weight_decay=1.0, seed=1), cell("3", weight_decay=0.5)]
        assert axes_of(cells)["weight_decay"] == (0.5, 1)


class TestMapsInText:
    def test_a_letter_for_each_seed(self):
        (only,) = phase_tables(sweep_of(square()))
        assert [only.title, *map(text_of, only.columns)] == ["", "weight_decay / gamma", "0.3", "0.7"]
        assert only.rows == [["0", "???", "233"], ["0.01", "1x.", "333"]]

    def test_they_have_the_axes_and_slices_of_the_page(self):
        values = itertools.product((0.3, 0.5), (1e-3, 1e-2), (32, 64))
        cells = [cell("2c", gamma=gamma, lr=lr, d_model=width) for gamma, lr, width in values]
        x, y = choose_axes(cells)
        maps = phase_tables(sweep_of(cells))
        assert [table.title for table in maps] == [part.label for part in slices(cells, x, y)]
        assert {text_of(table.columns[0]) for table in maps} == {f"{y} / {x}"} == {"lr / gamma"}

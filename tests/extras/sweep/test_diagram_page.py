"""The page of maps: what stands in it, and that it lives in a real browser without a network."""

import base64
import gzip
import json
import re
from dataclasses import replace
from functools import partial

import pytest
from browser import Browser, needs_chromium
from html_page import Page
from known_cells import by_probes, cell, done, square, sweep_of, verdict
from known_verdicts import HOSTILE, LOG

from anchorlens.extras.sweep import open_sweep, sweep
from anchorlens.extras.sweep.diagram.page import diagram_html, write_diagram
from anchorlens.recipes.presets import preset
from anchorlens.show import write_report
from anchorlens.tasks.shared.phases import Phase
from anchorlens.verdict import classify

TINY = {
    "n_samples": 600, "batch_size": 64, "d_model": 16, "d_head": 8, "d_mlp": 16, "steps": 6, "eval_every": 3,
    "n_checkpoints": 0, "device": "cpu",
}  # fmt: skip


def hostile_cells():
    """A slice of three layers, where every text that can be is markup."""
    failed = cell("failed", gamma=0.3, n_layers=3, error=HOSTILE, details=f"Traceback\n{HOSTILE}\ud800")
    phase = Phase(3, None, HOSTILE)
    said = verdict("3", explanation=HOSTILE)
    said = replace(
        said,
        by_probes=replace(by_probes("3", reading=HOSTILE), phase=phase),
        subject=replace(said.subject, versions={HOSTILE: HOSTILE}),
    )
    return [failed, done(preset("quick", gamma=0.7, n_layers=3), said, path=f"cells/{HOSTILE}")]


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The square of two layers, one cell of it with a log, and the hostile slice."""
    run = tmp_path_factory.mktemp("run")
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LOG))
    logged = cell("3", gamma=0.7, weight_decay=0.01, seed=2, path=run)
    return [*square()[:-1], logged, *hostile_cells()]


@pytest.fixture(scope="module")
def page(cells, tmp_path_factory):
    """Its runs are in three groups."""
    path = tmp_path_factory.mktemp("page") / "diagram.html"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("anchorlens.extras.sweep.diagram.page._GROUP", 5)
        sweep_of(cells, out=f"sweeps/{HOSTILE.replace('/', '')}").diagram(path)
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def lines_of(html, element):
    """What stands in each line of an element of the page, whose groups are packed by plain gzip."""
    packed = re.search(rf'<script [^>]*id="{element}".*?>(.*?)</script>', html, re.DOTALL).group(1)
    groups = [gzip.decompress(base64.b64decode(group)).decode() for group in packed.split("\n")]
    return [json.loads(line) for group in groups for line in group.split("\n")]


def text_of(report):
    """The texts of a report, with single spaces; its tags must be balanced."""
    return " ".join(" ".join(Page(report.replace("<wbr>", "")).texts).split())


def report_of(html, identity):
    """The report of one cell, as HTML, and the traces of its training curve."""
    runs = zip(*map(partial(lines_of, html), PACKED), strict=True)
    return next((run, curve) for run, curve in runs if f"Cell {identity}<" in run)


PACKED = ("runs", "curves")


class TestContent:
    def test_every_cell_has_its_report(self, cells, page):
        html = page.read_text()
        for one in cells:
            assert html.count(f'data-cell="{one.id}"') == 1
            assert f'<h2 tabindex="-1">gamma {one.fields["gamma"]}' in report_of(html, one.id)[0]
        report, _ = report_of(html, cells[3].id)  # gamma .7, decay 0, seed 0: Phase 2 without
        text = text_of(report)
        for said in (
            "By behaviour Phase 2 without commutativity",
            "train 1.000, ID 0.980",
            "Phase 2 without commutativity 94.0%",
            "v_similarity.centred_gap 0.63",
            "2 (not comm.): ×8.2",
            "anchorlens classify cells/one --report",
        ):
            assert said in text, said
        assert re.search(r"OOD .{0,80} 0.100 ", text)
        assert report.count("<rect x=") == 4, "a band for each phase"
        assert "Phase 1 0 to 0.3; Phase 2 without commutativity 0.2 to 0.5" in report

    def test_a_cell_that_failed_or_is_missing_says_so(self, cells, page):
        html = page.read_text()
        assert "Error: it broke" in text_of(report_of(html, cells[7].id)[0])
        missing, curve = report_of(html, cells[8].id)
        assert "not trained yet" in text_of(missing) and curve == []
        assert "<table" not in missing and "anchorlens classify" not in missing

    def test_the_training_curve_is_that_of_the_log(self, cells, page):
        html = page.read_text()
        report, traces = report_of(html, cells[11].id)
        curve = {trace["name"]: trace for trace in traces}
        assert curve["loss"]["x"][:2] == [10, 20] and curve["loss"]["y"][:2] == [0.5, 0.25]
        assert curve["OOD"]["x"][-1] == 1000 and curve["OOD"]["y"][-1] == 1.0
        assert f"Training curve of {len(LOG)} log lines" in report
        assert report_of(html, cells[0].id)[1] == []

    def test_no_text_steers_a_terminal_or_breaks_a_line(self, cells, page):
        """Control characters are escaped, and what is no text is replaced; line breaks stay."""
        report, _ = report_of(page.read_text(), cells[12].id)
        assert "<pre>Traceback\n" in report and "\\ud800</pre>" in report

    def test_the_summary_counts(self, cells, page):
        html = page.read_text()
        first = re.search(r'<ul class="counts".*?</ul>', html, re.DOTALL).group()
        counts = dict(re.findall(r"(?:</svg>|<li>)([^<>]+) <strong>(.*?)</strong>", first))
        assert counts == {
            "Phase 1": "1", "Phase 2 without commutativity": "1", "Phase 3": "5", "underfit: no phase": "3",
            "failed or diverged": "1", "not trained yet": "1",
        }  # fmt: skip
        assert "14 runs: 11 finished, 2 failed, 1 not trained yet" in html

    def test_a_map_that_cannot_be_says_why(self, page):
        html = page.read_text()
        assert "No map of Symmetric accuracy (at least one run" in html
        assert 'id="map-symmetric"' not in html

    def test_underfit_runs_show_train_accuracy(self):
        html = diagram_html(sweep_of([cell("underfit", seed=0), cell("underfit", seed=1)], out="sweeps/a"))
        assert 'id="map-train"' in html and 'id="map-id"' in html

    def test_strings_stay_strings(self, page):
        html = page.read_text()
        programs = re.findall(r"<script>", html)
        assert len(programs) == 2 and html.count("alert(1)") > 5  # plotly.js and ours
        assert "<img" not in html and "49" not in re.findall(r"&(\d+)", html)
        for run in lines_of(html, "runs"):
            assert not {tag for tag, _ in Page(run).elements} & {"img", "script", "style"}
        assert html.count("<script>alert") == 0

    def test_a_sweep_of_one_axis_is_a_map_of_one_row(self):
        html = diagram_html(sweep_of([cell("3", weight_decay=decay) for decay in (0, 1)]))
        assert "weight_decay (2); weight_decay across ·" in html and 'id="slice"' not in html

    def test_its_title_is_the_name_of_the_folder_and_the_axes(self, tmp_path, monkeypatch):
        (tmp_path / "grid").mkdir()
        monkeypatch.chdir(tmp_path / "grid")
        for out in (".", tmp_path / "grid", "../grid"):
            html = diagram_html(sweep_of([cell("3")], out=out))
            assert "<title>Phase diagram: grid: gamma –" in html and "<h1>grid: gamma</h1>" in html

    def test_symbols_and_captions_are_those_of_its_runs(self):
        def told(*signs):
            cells = [cell(sign, gamma=0.1 * k) for k, sign in enumerate(signs, 3)]
            page = Page(diagram_html(sweep_of(cells)))
            html = " ".join(" ".join(page.texts).split())
            assert "`" not in html.partition("Maps")[2] and "conflict" not in html
            return html

        unfit = told("underfit", "underfit")
        assert "? underfit: no phase (slanted hatch) Maps" in unfit and "none has a phase" in unfit
        both = told("3", "underfit")
        assert "3 Phase 3; ? underfit: no phase (slanted hatch); = agree Maps" in both
        assert "A run that has not fit its training data has no phase." in both and "none has" not in both
        fit = told("3", "2c")
        assert "hatch" not in fit and "has no phase" not in fit and "2c Phase 2 with commutativity" in fit

    def test_132_cells_stay_far_below_ten_megabytes(self, tmp_path):
        (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LOG))
        grid = [
            (0.3 + i / 20, decay, seed)
            for i in range(11)
            for decay in (0, 0.01, 0.1, 1)
            for seed in (0, 1, 2)
        ]
        many = []  # with as many readings as a real one has
        for gamma, decay, seed in grid:
            said = verdict("3")
            (reading,) = said.by_probes.evidence
            evidence = tuple(replace(reading, value=gamma + i) for i in range(16))
            said = replace(said, by_probes=replace(said.by_probes, evidence=evidence))
            run = preset("quick", gamma=gamma, weight_decay=decay, seed=seed)
            many.append(done(run, said, path=tmp_path))
        assert len(diagram_html(sweep_of(many))) < 7e6

    def test_what_cannot_be_written_is_refused(self, tmp_path):
        known = sweep_of(square())
        with pytest.raises(ValueError, match=r"must end in \.html, got 'a.pdf'"):
            known.diagram(tmp_path / "a.pdf")
        with pytest.raises(ValueError, match="must be in a folder that exists"):
            known.diagram(tmp_path / "none" / "a.html")
        with pytest.raises(ValueError, match="Did you mean 'gamma'"):
            known.diagram(tmp_path / "a.html", x="gama")
        with pytest.raises(ValueError, match="at least one run, got none in sweeps/known"):
            sweep_of([]).diagram(tmp_path / "a.html")
        assert not list(tmp_path.iterdir())


def test_a_real_sweep_is_drawn_with_its_reports(tmp_path, monkeypatch):
    few = partial(write_report, probes=["stable_rank"])  # all would take ten seconds
    monkeypatch.setattr("anchorlens.extras.sweep.diagram.page.write_report", few)
    options = []
    monkeypatch.setattr(
        "anchorlens.extras.sweep.diagram.page.classify",
        lambda *given, **chosen: options.append(chosen) or classify(*given, **chosen),
    )
    result = sweep([preset("quick", **TINY)], tmp_path / "s", engine="serial", progress=False)
    path = tmp_path / "my maps.html"
    write_diagram(result, path, reports=True, progress=False)
    reports = sorted((tmp_path / "my maps-reports").iterdir())
    assert [report.stem for report in reports] == [one.id for one in result]
    assert "anchorlens report" in reports[0].read_text()
    assert options == [{"quick": True}]  # the report has the probabilities of the sweep's own verdict
    before = reports[0].stat().st_mtime_ns
    write_diagram(open_sweep(tmp_path / "s"), path, reports=True, progress=False)
    assert reports[0].stat().st_mtime_ns == before  # kept
    report, curve = report_of(path.read_text(), reports[0].stem)
    assert f'href="my%20maps-reports/{reports[0].name}"' in report and "anchorlens classify" not in report
    assert [trace["x"] for trace in curve if trace["name"] == "train"] == [[3, 6]]
    result.table(tmp_path / "cells.csv")
    assert len((tmp_path / "cells.csv").read_text().splitlines()) == 2


VISIT = """(async () => {
  for (const place of document.querySelectorAll("[data-figure]")) {
    if (place.closest("[hidden]")) continue;
    place.scrollIntoView();
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  }
})()"""
DRAWN = "[...document.querySelectorAll('[data-figure]')].filter(p => p.querySelector('.main-svg')).length"
PHASE_MAP = "document.querySelector('#map-phase [data-figure]')"


def point(browser, identity, place=PHASE_MAP, up=0.8):
    """Move the mouse to a cell, so far up in its square: above what is written."""
    x, y = browser.evaluate(f"""(() => {{
      const place = {place};
      place.scrollIntoView({{block: "center"}});
      const [left, right, bottom, top] = place.layout.meta.boxes[{json.dumps(identity)}];
      const {{ _size, xaxis, yaxis }} = place._fullLayout;
      const frame = place.getBoundingClientRect();
      const scale = frame.width / place.layout.width;
      const across = _size.l + xaxis.d2p((left + right) / 2);
      const down = _size.t + yaxis.d2p(bottom + {up} * (top - bottom));
      return [frame.left + scale * across, frame.top + scale * down];
    }})()""")
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    return {"x": x, "y": y}


def click(browser, identity, place=PHASE_MAP, up=0.8):
    """Click a cell with the mouse."""
    where = point(browser, identity, place, up)
    for kind in ("mousePressed", "mouseReleased"):
        browser.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)


def shows(identity):
    return f"!panel.hidden && panel.textContent.includes('Cell {identity}')"


@needs_chromium
class TestInBrowser:
    def test_every_map_is_drawn_and_nothing_complains(self, browser, page):
        browser.open(page)
        browser.evaluate(VISIT)
        browser.wait(f"{DRAWN} === 8")  # of nine: no symmetric accuracy here
        assert (
            browser.evaluate("document.title")
            == "Phase diagram: " + HOSTILE.replace("/", "") + ": gamma × weight_decay – anchorlens"
        )
        assert not browser.complaints()

    def test_a_click_opens_the_report_of_that_cell(self, browser, cells, page):
        browser.open(page)
        browser.wait(f"{DRAWN} > 0")
        for one in (cells[3], cells[11]):
            click(browser, one.id)
            browser.wait(shows(one.id))
            assert browser.evaluate("document.activeElement.tagName") == "H2"
        browser.wait("!!panel.querySelector('[data-curve] .scatterlayer .trace')")  # the last has a log
        assert browser.evaluate(f"{PHASE_MAP}.layout.shapes.length") == 1  # a frame around it
        browser.send("Input.dispatchKeyEvent", type="keyDown", key="Escape")
        browser.wait("panel.hidden")
        assert browser.evaluate(f"{PHASE_MAP}.layout.shapes.length") == 0
        assert not browser.complaints()

    def test_bubbles_and_failed_cells_open_too(self, browser, cells, page):
        browser.open(page)
        bubbles = "document.querySelector('#map-stable_rank [data-figure]')"
        browser.evaluate(f"{bubbles}.scrollIntoView()")
        browser.wait(f"!!{bubbles}.querySelector('.main-svg')")
        for one in (cells[3], cells[7]):  # Phase 2, and one that failed
            click(browser, one.id, bubbles, up=0.56)
            browser.wait(shows(one.id))
        assert "it broke" in browser.evaluate("panel.textContent")
        assert not browser.complaints()

    def test_the_keyboard_reaches_every_cell(self, browser, cells, page):
        browser.open(page)
        assert (
            browser.evaluate("document.querySelectorAll('[data-slice=\"0\"] button[data-cell]').length") == 12
        )
        browser.evaluate(f"document.querySelector('[data-cell=\"{cells[0].id}\"]').focus()")
        browser.send("Input.dispatchKeyEvent", type="keyDown", key="Enter", text="\r")
        browser.wait(shows(cells[0].id))
        browser.send("Input.dispatchKeyEvent", type="keyDown", key="Escape")
        browser.wait("panel.hidden")
        assert browser.evaluate("document.activeElement.dataset.cell") == cells[0].id  # back where it was

    def test_the_choice_of_slice_changes_maps_and_list(self, browser, cells, page):
        browser.open(page)
        labels = browser.evaluate("[...document.querySelectorAll('#slice option')].map(o => o.textContent)")
        assert labels == ["n_layers 2", "n_layers 3"]
        browser.evaluate("slice.value = '1'; slice.dispatchEvent(new Event('change'))")
        hidden = "[...document.querySelectorAll('[data-slice]')].map(e => [e.dataset.slice, e.hidden])"
        assert all(is_hidden == (index == "0") for index, is_hidden in browser.evaluate(hidden))
        failed = cells[12].id
        other = "document.querySelector('#map-phase [data-slice=\"1\"] [data-figure]')"
        browser.evaluate(f"{other}.scrollIntoView()")
        browser.wait(f"!!{other}.querySelector('.barlayer .point')")
        click(browser, failed, other)
        browser.wait(shows(failed))
        assert not browser.complaints()

    def test_no_string_of_a_cell_becomes_markup(self, browser, cells, page):
        browser.open(page)
        browser.evaluate("window.alert = () => { window.attacked = true; }")
        for one in cells[12:]:
            browser.evaluate(f"document.querySelector('[data-cell=\"{one.id}\"]').click()")
            browser.wait(shows(one.id))
            assert HOSTILE in browser.evaluate("panel.textContent")
            assert browser.evaluate("panel.querySelectorAll('img, script').length") == 0
        assert browser.evaluate("window.attacked === undefined")
        assert not browser.complaints()

    def test_the_pointer_shows_what_is_known_of_a_cell(self, browser, cells, page):
        browser.open(page)
        browser.wait(f"!!{PHASE_MAP}.querySelector('.barlayer .point')")
        point(browser, cells[3].id)
        browser.wait(f"{PHASE_MAP}.querySelector('.hoverlayer').textContent.includes('{cells[3].id}')")

    def test_a_phone_needs_no_scrolling_sideways(self, browser, cells, page):
        browser.open(page, width=360, height=740)
        browser.evaluate(VISIT)
        assert browser.evaluate("document.documentElement.scrollWidth") == 360
        browser.evaluate(f"document.querySelector('[data-cell=\"{cells[11].id}\"]').click()")
        browser.wait("!!panel.querySelector('[data-curve] .main-svg')")
        assert browser.evaluate("panel.scrollWidth <= 360 && panel.clientWidth >= 350")
        assert not browser.complaints()

    def test_it_follows_the_colour_scheme(self, browser, page):
        browser.open(page, dark=True)
        browser.wait(f"{DRAWN} > 0")
        assert browser.evaluate(f"{PHASE_MAP}.layout.font.color") == "#e5e9ef"
        browser.send(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}]
        )
        browser.wait(f"{PHASE_MAP}.layout.font.color === '#1c2430'")

    def test_print_has_every_map_of_the_slice(self, browser, page):
        browser.open(page)
        browser.wait("'ready' in document.documentElement.dataset")  # the maps are unpacked
        assert browser.printed().startswith(b"%PDF") and browser.evaluate(DRAWN) == 8
        assert not browser.complaints()

    def test_a_foreign_script_does_not_run(self, browser, page, tmp_path):
        changed = tmp_path / "changed.html"
        changed.write_text(page.read_text().replace("<main>", "<main><script>window.ran = true</script>"))
        browser.open(changed)
        assert browser.evaluate("window.ran === undefined")
        assert "Content Security Policy" in str(browser.complaints())

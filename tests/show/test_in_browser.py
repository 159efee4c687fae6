"""The page in a real browser without a network: drawn, alive, and nothing complained of."""

import json
import re

import pytest
from browser import Browser, needs_chromium

from anchorlens.probes import PROBES, REPORT_PROBES
from anchorlens.show.report.panels import CARD

pytestmark = needs_chromium
DRAWN = "[...document.querySelectorAll('[data-figure]')].filter(p => p.querySelector('.main-svg')).length"
N_PICTURES = len({*REPORT_PROBES} & {*PROBES}) + 2
"""Of every probe of a report, of the answers and the training curve."""
HEIGHT = "document.documentElement.scrollHeight"
UNFOLD = "document.querySelector('#unfold').click()"
VISIT = """(async () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  for (const place of document.querySelectorAll("[data-figure]")) {
    place.scrollIntoView();
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  }
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("name", ["one", pytest.param("several", marks=pytest.mark.slow)])
def test_every_picture_is_drawn_and_nothing_complains(browser, request, name):
    browser.open(request.getfixturevalue(name))
    assert browser.evaluate(DRAWN) < N_PICTURES  # those far below wait
    browser.evaluate(VISIT)
    browser.wait(f"{DRAWN} === {N_PICTURES}")
    assert not browser.complaints()


@pytest.mark.parametrize(("name", "most"), [("one", 3500), ("four", 9000)])
def test_a_page_is_short_before_anything_is_unfolded(browser, request, name, most):
    browser.open(request.getfixturevalue(name))
    browser.evaluate("document.querySelector('[data-figure]').scrollIntoView()")
    browser.wait(f"{DRAWN} >= 1")
    browser.evaluate("scrollTo(0, 0)")
    height = browser.evaluate(HEIGHT)
    assert 1500 < height < most
    cards = "document.querySelector('.pair-map').getBoundingClientRect().bottom"
    assert browser.evaluate(cards) < 900  # on the first screen
    browser.evaluate(UNFOLD)
    assert browser.evaluate(HEIGHT) > height + 1000
    browser.evaluate(UNFOLD)
    browser.wait(f"{HEIGHT} === {height}")
    assert not browser.complaints()


def test_no_scrollbar_lies_over_a_picture_that_fits(browser, one):
    browser.open(one, width=1400)
    browser.evaluate("document.querySelector('[data-figure]').scrollIntoView()")
    browser.wait(f"{DRAWN} >= 1")
    boxes = "[...document.querySelectorAll('.plot-box')].filter(box => box.querySelector('.main-svg'))"
    assert browser.evaluate(f"{boxes}.every(box => getComputedStyle(box).overflowX === 'hidden')")
    browser.evaluate("document.querySelector('.plot-box').style.width = '100px'")
    browser.wait("getComputedStyle(document.querySelector('.plot-box')).overflowX === 'auto'")


def test_the_odds_of_a_model_stay_in_its_column(browser, four):
    """Four columns of six, and the widest factor there is."""
    browser.open(four, width=1100)
    browser.evaluate(UNFOLD)
    browser.evaluate(
        "document.querySelectorAll('.al-several').forEach(table => table.style.maxWidth = '48rem')"
    )
    beyond = (
        "(part => { part.textContent += ' Phase 2 (not comm.) ÷1,000 or more'; "
        "return part.getBoundingClientRect().right > part.closest('td').getBoundingClientRect().right + 1; })"
    )
    assert browser.evaluate("document.querySelectorAll('.al-several .al-change').length") > 10
    assert (
        browser.evaluate(f"[...document.querySelectorAll('.al-several .al-change')].filter({beyond}).length")
        == 0
    )


@pytest.mark.parametrize("name", ["one", "several"])  # as large as it was made, and scaled
def test_pictures_answer_to_the_mouse(browser, request, name):
    browser.open(request.getfixturevalue(name))
    browser.evaluate(UNFOLD)
    browser.evaluate("document.querySelector('#stable_rank .plot').scrollIntoView({block: 'center'})")
    browser.wait("document.querySelector('#stable_rank .nsewdrag')")
    place = browser.evaluate(
        "(({left, top}) => [left + 2, top + 8])"
        "(document.querySelector('#stable_rank .barlayer .point').getBoundingClientRect())"
    )
    x, y = place
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x + 1, y=y)
    browser.wait("document.querySelector('#stable_rank .hoverlayer').textContent.includes('embed')")
    assert not browser.complaints()


def test_it_follows_the_colour_scheme(browser, one):
    ink = "document.querySelector('.plot').layout.font.color"
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.open(one, dark=True)
    browser.evaluate("document.querySelector('.plot').scrollIntoView()")
    browser.wait("document.querySelector('.plot .main-svg')")
    dark = browser.evaluate(f"[{ink}, {ground}]")
    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    browser.wait(f"{ink} !== {json.dumps(dark[0])}")
    assert browser.evaluate(f"[{ink}, {ground}]") == ["#1c2430", "rgb(255, 255, 255)"]
    assert dark == ["#e5e9ef", "rgb(20, 24, 30)"]


@pytest.mark.parametrize("name", ["one", pytest.param("several", marks=pytest.mark.slow)])
def test_a_phone_needs_no_scrolling_sideways(browser, request, name):
    browser.open(request.getfixturevalue(name), width=360, height=740)
    browser.evaluate(VISIT)
    assert browser.evaluate("document.documentElement.scrollWidth") == 360
    assert not browser.complaints()


HINTS = """[...document.querySelectorAll(".al-scroll:has(> :is(.summary, .al-several))")].map((box) => [
  box.scrollWidth > box.clientWidth, getComputedStyle(box, "::before").content.includes("Scroll sideways")
])"""


@pytest.mark.parametrize(("width", "both"), [(360, True), (1280, False)])
def test_tables_of_models_say_that_they_scroll_where_they_do(browser, four, width, both):
    browser.open(four, width=width)
    hints = browser.evaluate(HINTS)
    assert hints and all(hint == [both, both] for hint in hints)


@pytest.mark.slow
def test_print_leaves_out_what_is_folded(browser, one):
    browser.open(one, dark=True)
    n_sheets = {}
    for n_pictures in (len(CARD), N_PICTURES):
        pdf = browser.printed()
        assert pdf.startswith(b"%PDF") and browser.evaluate(DRAWN) == n_pictures
        n_sheets[n_pictures] = len(re.findall(rb"/Type\s*/Page\b", pdf))
        browser.evaluate(UNFOLD)
    assert n_sheets[len(CARD)] < 8 < n_sheets[N_PICTURES]
    assert browser.evaluate("document.documentElement.dataset.print") is None  # and is the screen's again
    assert not browser.complaints()


def test_four_models_are_printed_on_sheets_that_hold_all_columns(browser, four):
    browser.open(four)
    sheets = re.findall(rb"/MediaBox \[0 0 ([0-9.]+) ([0-9.]+)\]", browser.printed())
    assert sheets and all(float(width) > float(height) for width, height in sheets)


def test_a_foreign_script_does_not_run(browser, one, tmp_path):
    page = tmp_path / "changed.html"
    page.write_text(one.read_text().replace("<main>", "<main><script>window.ran = true</script>"))
    browser.open(page)
    assert browser.evaluate("window.ran === undefined") and "Content Security Policy" in str(
        browser.complaints()
    )

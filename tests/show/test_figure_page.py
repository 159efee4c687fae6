"""A picture as a page: it appears whole or not at all, loads nothing, and obeys no text in it."""

import plotly.graph_objects as go
from browser import Browser, needs_chromium
from html_page import Page

from anchorlens import ModelConfig, build_model, plots, probes
from anchorlens.plots.picture import plotly_text
from anchorlens.show import picture_page
from anchorlens.show.words import CAPTIONS

HOSTILE = '</script><script>document.title="ran"</script><img src=x onerror=document.title="ran"><b>&lt;'


def drawn(name):
    return plots.styled(go.Figure(go.Scatter(x=[1, 2], y=[1, 2], name=name)), plotly_text(name))


def test_no_text_ends_the_script_it_stands_in():
    page = picture_page(drawn(HOSTILE))
    assert "<script>document.title" not in page and "<img" not in page
    assert page.count("Content-Security-Policy") == 1
    assert page.count("</script>") == 4  # the figure, its configuration, plotly.js, and what draws it
    assert page.count('name="viewport"') == 1


def test_a_probe_says_what_is_seen_and_how_it_is_read(tmp_path):
    result = probes.stable_rank(build_model(ModelConfig(gamma=0.5)))
    plots.save(result.plot(), tmp_path / "picture.html", result)
    text = " ".join("".join(Page((tmp_path / "picture.html").read_text()).texts).split())
    assert result.headline() in text and CAPTIONS["stable_rank"].how_to_read in text


@needs_chromium
def test_in_a_browser(tmp_path):
    plots.save(drawn(HOSTILE), tmp_path / "picture.html")
    with Browser(tmp_path / "profile") as browser:
        browser.open(tmp_path / "picture.html", width=360, height=740, dark=True)
        browser.wait("document.querySelectorAll('#plot .scatterlayer .trace').length === 1")
        assert browser.evaluate("document.querySelector('h1').textContent") == HOSTILE
        assert not browser.evaluate("document.title").startswith("ran")
        assert browser.evaluate("document.documentElement.scrollWidth") == 360
        assert browser.evaluate("document.querySelector('.plot').layout.font.color") == "#e5e9ef"
        assert browser.complaints() == []

"""A picture as a page: it appears whole or not at all, loads nothing, and obeys no text in it."""

import plotly.graph_objects as go
from browser import Browser, needs_chromium

from anchorlens import figures
from anchorlens.figures.picture import plotly_text
from anchorlens.show import picture_page

HOSTILE = '</script><script>document.title="ran"</script><img src=x onerror=document.title="ran"><b>&lt;'


def drawn(name):
    return figures.styled(go.Figure(go.Scatter(x=[1, 2], y=[1, 2], name=name)), plotly_text(name))


def test_no_text_ends_the_script_it_stands_in():
    page = picture_page(drawn(HOSTILE))
    assert "<script>document.title" not in page and "<img" not in page
    assert page.count("Content-Security-Policy") == 1
    assert page.count("</script>") == 3  # the figure, plotly.js, and what draws it


@needs_chromium
def test_in_a_browser(tmp_path):
    figures.save(drawn(HOSTILE), tmp_path / "picture.html")
    with Browser(tmp_path / "profile") as browser:
        browser.open(tmp_path / "picture.html")
        assert browser.evaluate("document.querySelectorAll('#plot .scatterlayer .trace').length") == 1
        shown = browser.evaluate("document.querySelector('.gtitle').textContent")
        assert shown == HOSTILE and browser.evaluate("document.title") != "ran"
        assert browser.complaints() == []

"""The notebook view of the progress of a run, with a bar and the training curve so far."""

from __future__ import annotations

from anchorlens.show.notebook.training import HEIGHT, WIDTH, small_curve
from anchorlens.show.templating import view
from anchorlens.training.progress import Progress
from anchorlens.views import html


@html.register
def progress_html(progress: Progress) -> str:
    """Return the progress as a few kilobytes of HTML and SVG, without a script."""
    log = progress.log
    return view(
        "progress.html",
        words=repr(progress),
        done=progress.done,
        total=progress.total,
        curve=small_curve(log),
        ends=(log[0]["step"], log[-1]["step"]) if log else (0, 0),
        size=(WIDTH, HEIGHT),
    )

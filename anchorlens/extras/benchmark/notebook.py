"""A benchmark in a notebook."""

from __future__ import annotations

from pathlib import Path

from anchorlens.extras.benchmark.result import Benchmark
from anchorlens.extras.benchmark.shipped import reference
from anchorlens.extras.benchmark.tables import benchmark_table, notes, overview
from anchorlens.show.templating import view
from anchorlens.views import html

TEMPLATE = Path(__file__).parent / "templates/benchmark.html"

MOST_OTHERS = 8
"""The largest number of our readings shown for comparison, those with the AUCs farthest from 0.5."""
ALPHA = "weightwatcher_alpha"
"""The reading that is always shown for comparison."""


@html.register
def benchmark_html(result: Benchmark) -> str:
    """Render the AUCs of the probe's readings and of anchorlens's best readings, without JavaScript."""
    ours = reference()
    if ours is not None:
        best = sorted(ours.readings, key=lambda reading: -reading.telling)
        shown = [one for k, one in enumerate(best) if k < MOST_OTHERS or one.name == ALPHA]
        ours = Benchmark(ours.probe, tuple(shown), ours.models, {})
    return view(
        TEMPLATE,
        overview=overview(result),
        table=benchmark_table(result, ours).shortened(60),
        notes=list(notes(result, ours)),
    )

"""The ratio of holdout while five MLPs grok, logged by examples/ratio_in_a_loop.py, and the picture of it.

    python research/ratio_in_a_loop.py                  # trains the seeds that are missing, draws the picture
    python research/ratio_in_a_loop.py --table          # prints the steps at which each line passes its bound

The logs are in research/loop/ratio.json. Chrome or Chromium and kaleido (extra [export]) draw the picture. A
seed takes about three minutes of one core.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens import plots
from anchorlens.probes.any_model.holdout import LEARNT_OF_MODULES as LEARNT
from anchorlens.probes.any_model.holdout import MEMORISED

ROOT = Path(__file__).parents[1]
LOGS, PICTURE = Path(__file__).parent / "loop/ratio.json", ROOT / "docs/images/ratio_in_a_loop.png"
SEEDS, STEPS = range(5), 6000
LINES = {
    "ratio": ("ratio", plots.ORANGE, "solid"),
    "related_ratio": ("ratio without related rows", plots.CATEGORIES[2], "dash"),
    "test": ("test accuracy", plots.BLUE, "solid"),
    "train": ("train accuracy", plots.GREY, "dot"),
}
"""The title, colour and dash of each line of the picture."""
PASSES = {"train": 0.9, "ratio": LEARNT, "related_ratio": LEARNT, "test": 0.9}
"""The bound of each line, from which on it counts as passed."""

Log = Sequence[Mapping[str, Any]]


def logs(seeds: Iterable[int] = SEEDS, steps: int = STEPS, path: Path = LOGS) -> dict[str, Log]:
    """Return the log of each seed, trained now if it is not in the file."""
    sys.path.insert(0, str(ROOT / "examples"))
    loop: Any = importlib.import_module("ratio_in_a_loop")

    found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for seed in map(str, seeds):
        if seed not in found:
            found[seed] = loop.main(seed=int(seed), steps=steps)
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return found


def passed(log: Log) -> dict[str, int | None]:
    """Return the first step from which each line of a log stays at its bound or above, or None."""
    found: dict[str, int | None] = {}
    for name, bound in PASSES.items():
        below = [line["step"] for line in log if (line.get(name) or 0) < bound]
        after = [line["step"] for line in log if not below or line["step"] > below[-1]]
        found[name] = after[0] if after else None
    return found


def picture(found: Mapping[str, Log]) -> go.Figure:
    """Draw the lines of each seed in a panel of its own."""
    figure = make_subplots(
        rows=len(found), cols=1, shared_xaxes=True, vertical_spacing=0.03,
        row_titles=[f"seed {seed}" for seed in found],
    )  # fmt: skip
    for row, log in enumerate(found.values(), 1):
        for name, (title, colour, dash) in LINES.items():
            steps, values = zip(*((line["step"], line.get(name)) for line in log), strict=True)
            figure.add_scatter(
                x=steps, y=values, name=title, mode="lines+markers", line={"color": colour, "dash": dash},
                showlegend=row == 1, row=row, col=1,
            )  # fmt: skip
        for bound in (MEMORISED, LEARNT):
            figure.add_hline(y=bound, line={"color": plots.GREY, "width": 0.5}, row=row, col=1)  # pyright: ignore[reportArgumentType]
    figure.update_yaxes(range=[-0.04, 1.04], dtick=0.5)
    figure.update_xaxes(title="step", row=len(found), col=1)
    figure.update_layout(legend={"orientation": "h", "y": -0.08, "yanchor": "top"})
    return plots.styled(figure, "Ratio and accuracy while five MLPs grok", height=760)


def main() -> None:
    """Train what is missing, and draw or print."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--table", action="store_true")
    found = logs()
    if not parser.parse_args().table:
        plots.save(picture(found), PICTURE)
        return
    print(f"| seed | {' | '.join(PASSES)} |\n|---|{'---|' * len(PASSES)}")
    for seed, log in found.items():
        print(f"| {seed} | {' | '.join('never' if s is None else f'{s:,}' for s in passed(log).values())} |")


if __name__ == "__main__":
    main()

"""The attempts of `control` in a notebook."""

from __future__ import annotations

from pathlib import Path

from anchorlens.extras.control.result import Control
from anchorlens.extras.control.tables import control_table, notes, overview, plan_table, summary
from anchorlens.show.templating import view
from anchorlens.views import html

TEMPLATE = Path(__file__).parent / "templates/control.html"


@html.register
def control_html(control: Control) -> str:
    """Render every attempt and the original run, or the plan of attempts, without JavaScript."""
    outcomes = {one.outcome for one in control.attempts}
    is_plan = "planned" in outcomes and outcomes <= {"planned", "skipped"}
    return view(
        TEMPLATE,
        overview=overview(control),
        summary="" if is_plan else summary(control),
        table=(plan_table if is_plan else control_table)(control).shortened(120),
        notes=[] if is_plan else list(notes(control)),
    )

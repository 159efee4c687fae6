"""The attempts of `control` in sentences and tables, in the terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from anchorlens.extras.control.result import Attempt, Control, PhaseAnswers
from anchorlens.show import FittedTable, Table, TableCell, Terminal, dotted, number, view
from anchorlens.texts import safe_text
from anchorlens.views import html

NOT_ENDED = "-"


def overview(control: Control) -> str:
    """Describe the run, its phase, and the time budget."""
    budget = f"{control.minutes:.1f} of {control.budget:g} minutes"
    return f"{safe_text(control.path)}: {control.before.phase.label}; {budget}"


def control_table(control: Control) -> Table:
    """Tabulate the original run and every started attempt, with emphasis on the best attempt."""
    best = control.best_attempt if control.best is not None else None
    begun = [one for one in control.attempts if one.outcome not in ("skipped", "planned")]
    rows = [("original run", "", *_measured(control.before), NOT_ENDED, ""), *map(_row, begun)]
    chose = _what_chose(control)
    accuracies = ("train", "ID", "OOD", f"{chose} (selection)")
    columns = ("intervention", "started from", "phase", *accuracies, "minutes")
    asked = "the half not used for selection" if control.halves else "the selection data, so it is too high"
    title = f"before and after; {chose} is measured on {asked}"
    return Table(columns, rows, title, range(3, 8), [False, *(one is best for one in begun)])


def _measured(answers: PhaseAnswers) -> tuple[TableCell | str, ...]:
    values = (number(value, ".3f") for value in (answers.train, answers.id, answers.ood))
    return (dotted(answers.phase), *values)


def _name(attempt: Attempt) -> tuple[TableCell, str]:
    """Name the attempt and the weights from which it starts."""
    return TableCell(attempt.name, code=True), "initialisation" if attempt.anew else "final weights"


def _row(attempt: Attempt) -> tuple[TableCell | str, ...]:
    if attempt.answers is None or attempt.chosen_by is None:
        return (*_name(attempt), attempt.outcome, *[NOT_ENDED] * 5)
    minutes = NOT_ENDED if attempt.minutes is None else number(attempt.minutes, ".1f")
    chose = attempt.chosen_by.id if attempt.chosen_by.ood is None else attempt.chosen_by.ood
    return (*_name(attempt), *_measured(attempt.answers), number(chose, ".3f"), minutes)


def _what_chose(control: Control) -> str:
    """Name the accuracy by which the best attempt is chosen: OOD, or ID for a task without OOD."""
    return "ID" if control.before.ood is None else "OOD"


def plan_table(control: Control) -> Table:
    """Tabulate every attempt with its reason, in the order of the plan."""
    rows = [
        (
            *_name(one),
            TableCell(one.changes, code=True),
            f"{one.steps:,}",
            "none" if one.estimate is None else number(one.estimate, ".1f"),
            f"{one.note}. {one.why}" if one.note else one.why,
        )
        for one in control.attempts
    ]
    columns = ("intervention", "starts from", "changes", "steps", "minutes", "reason")
    return Table(columns, rows, "plan; nothing is trained. Attempts in order", (3, 4))


def summary(control: Control) -> str:
    """State which attempt helped, or that no attempt helped."""
    best, goal = control.best_attempt, control.goal_in_words
    if best is None or best.answers is None:
        return f"No attempt was finished within {control.budget:g} minutes."
    if not control.helped:
        return (
            f"No intervention helped: none of {len(control.tried)} {_reaches(goal)}. The best was "
            f"{best.name}: {best.answers.phase.label}."
        )
    said = f"{best.name} helped: {control.before.phase.label} became {best.answers.phase.label}"
    if _reached(best) < control.goal:
        said = (
            f"{best.name} {_reaches(goal)} on the selection half only, not on the other half, so there is "
            f"no evidence that it helped"
        )
    return f"{said}. Its run is in {safe_text(best.out)}."


def notes(control: Control) -> Iterator[str]:
    """Yield the comparison with retraining, the attempts not tried, and the limits of the measurement."""
    baseline = next((one for one in control.attempts if one.baseline), None)
    if baseline is not None and control.tried:
        yield _beside(control, baseline)
    untried = [one for one in control.attempts if one.chosen_by is None and one.note]
    for note in dict.fromkeys(one.note for one in untried):
        yield f"{', '.join(one.name for one in untried if one.note == note)}: {safe_text(note, 600)}."
    for one in control.tried:
        if one.note:
            yield f"{one.name}: {safe_text(one.note, 600)}"
    if not control.tried:
        return
    if control.halves:
        yield (
            "The best was selected on one half of the OOD test inputs and is reported on the other half. "
            "Both halves hold out the same pairs, so the numbers do not show whether the model composes "
            "anything else."
        )
    else:
        yield (
            "The test inputs of this task cannot be split: the best was selected on the reported inputs, "
            f"so its {_what_chose(control)} is biased upwards."
        )


def _beside(control: Control, baseline: Attempt) -> str:
    """Compare the cheaper attempts with retraining."""
    anew, minutes = f"Retraining from scratch ({safe_text(baseline.changes)})", baseline.minutes
    if baseline.answers is None or minutes is None:
        about = "" if baseline.estimate is None else f"; it takes about {baseline.estimate:.2g} minutes"
        return f"{anew} was not finished{about}."
    got = f"{anew} ended in {baseline.answers.phase.label}, in {minutes:.1f} minutes"
    in_less = [one for one in control.tried if one.minutes is not None and one.minutes < minutes]
    cheaper = [one.name for one in in_less if _reached(one) >= _reached(baseline)]
    if not cheaper:
        return f"{got}; no cheaper attempt did as well."
    return f"{got}; {', '.join(cheaper)} did as well in less time."


def _reached(attempt: Attempt) -> int:
    """Return the stage that an attempt reached; 0 for no stage."""
    return attempt.answers.stage if attempt.answers else 0


def _reaches(goal: str) -> str:
    return f"is in {goal}" if goal.startswith("Phase") else goal


def print_control(control: Control) -> None:
    """Print the successful attempts, every attempt, the original run, and how to read the results."""
    console = Terminal()
    console.print(overview(control))
    console.print(summary(control), style="bold")
    console.print(FittedTable(control_table(control)), *notes(control), sep="\n")


def print_plan_of_control(control: Control) -> None:
    """Print the plan of attempts."""
    Terminal().print(overview(control), FittedTable(plan_table(control)), sep="\n")


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

"""The terminal output of the evaluation of one model, and of the cost of a training."""

from __future__ import annotations

from pathlib import Path

from anchorlens.files.checkpoint import Checkpoint
from anchorlens.show.tables import Table, accuracy_table, pair_grid
from anchorlens.show.terminal.console import FittedTable, Terminal, print_json
from anchorlens.show.words import megabytes
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.training.plan import Plan
from anchorlens.training.progress import duration

SCHEMA_VERSION = 1
"""The version of the JSON objects. The version increases by one when a key changes its meaning or is
removed."""


def print_behaviour(
    path: Path, checkpoint: Checkpoint | None, task: Task, behaviour: Evaluation, as_json: bool
) -> None:
    """Print the task, the accuracies with their meanings, the accuracy on each pair, and the phase.

    Args:
        path: the path of the checkpoint.
        checkpoint: the checkpoint that was evaluated, or None for a model without a checkpoint.
        task: the task on which the model was evaluated.
        behaviour: the evaluation of the model.
        as_json: whether to print one JSON object on one line instead of tables.
    """
    if as_json:
        about = {"path": str(path), "step": getattr(checkpoint, "step", None)}
        for name in ("model_config", "train_config"):
            part = getattr(checkpoint, name, None)
            about[name] = None if part is None else part.to_dict()
        about["task"] = task.to_dict()
        about |= {name: dict(getattr(checkpoint, name, {})) for name in ("metrics", "versions")}
        print_json({"schema_version": SCHEMA_VERSION, "subject": about, "behaviour": behaviour.to_dict()})
        return
    console = Terminal()
    notes = [f"note: {caveat}" for caveat in behaviour.caveats]
    console.print(task.describe(), FittedTable(accuracy_table(behaviour)), *notes, sep="\n")
    if (pairs := pair_grid(behaviour)) is not None:
        console.print(FittedTable(pairs))
    for line in behaviour.in_words():
        console.print(line)
    phase = behaviour.phase
    console.print(f"{phase.label if phase.is_named else 'undecided'}: {phase.reason}", style="bold")


def print_plan(plan: Plan, as_json: bool) -> None:
    """Print the cost of training."""
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, "plan": plan.to_dict()})
        return
    cost = plan.cost
    parts = (
        f"weights and optimizer {megabytes(cost.state_bytes)}, data {megabytes(cost.data_bytes)}, "
        f"activations {megabytes(cost.activation_bytes)}"
    )
    a_step, time = "not measured: not enough memory", "unknown"
    if plan.seconds_per_update is not None and plan.seconds is not None:
        a_step, time = f"{1e3 * plan.seconds_per_update:.1f} ms each, measured", duration(plan.seconds)
    memory = f"{megabytes(plan.memory_bytes)} of {megabytes(plan.available_bytes)} free"
    flops = plan.n_models * plan.steps * cost.flops
    rows = [
        ("models", f"{plan.n_models}", f"{plan.at_once} at a time"),
        ("parameters", f"{cost.parameters:,}", "each"),
        ("memory", memory, parts),
        ("steps", f"{plan.steps:,}", a_step),
        ("FLOPs of matrix products", f"{flops:.2e}", f"{cost.flops:.2e} a step and model"),
        ("time", time, "with the evaluations, at the speed measured now"),
        *((name, "during training", words) for name, words in plan.on_the_way.items()),
    ]
    title = f"plan; nothing is trained. Estimated cost on {plan.device}"
    Terminal().print(FittedTable(Table(("quantity", "amount", "details"), rows, title)))

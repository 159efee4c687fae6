"""`anchorlens classify` and `anchorlens demo`: assign phases to models, with reasons."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorlens.cli import shared
from anchorlens.cli.inputs import TrainingData, check_config, opened_input, unreadable_message
from anchorlens.configuration import check_number
from anchorlens.files.writing import PAGES, check_can_write, check_summary
from anchorlens.models.devices import choose_device, is_out_of_memory
from anchorlens.texts import titles
from anchorlens.training.progress import COMMAND_LINE_SECONDS

if TYPE_CHECKING:
    from anchorlens.verdict import Verdict

_UNREADABLE = (ValueError, OSError, MemoryError, RuntimeError)
"""The exceptions for a checkpoint that cannot be read or measured."""


@shared.one_line_errors
def classify_command(
    checkpoints: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Checkpoints to classify: .pt or .safetensors files, such as the ckpt.pt of a nanoGPT, or "
            "folders of a run, of the papers' released code or of a Hugging Face GPT-2. A bare state dict "
            "needs --config.",
            readable=False,  # an unreadable checkpoint must not stop the others
        ),
    ] = None,
    config: shared.ConfigOfBare = None,
    model: shared.OwnModel = None,
    train_data: shared.TrainData = None,
    held_out: Annotated[
        Path | None,
        shared.file_option(
            "Data of the form of --train-data that the model was not trained on, for its accuracy on them."
        ),
    ] = None,
    data: shared.TaskFiles = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per checkpoint, each on its own line.")
    ] = False,
    report: Annotated[
        Path | None,
        shared.path_option("Write one HTML page about all checkpoints. The page works offline."),
    ] = None,
    summary: Annotated[
        Path | None,
        shared.path_option(
            "Write one A4 page per checkpoint to a .pdf file, or of one checkpoint to .svg or .png (extra "
            "`export`)."
        ),
    ] = None,
    own: shared.OwnProbes = None,
    tasks: shared.OwnTasks = None,
    device: shared.Device = "auto",
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 4 if the behavioural verdict is undecided.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Leave out the costly probes, which may change the phase."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print how each printed reading changes the odds of the phases.")
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Seed of the noise in the test inputs, and of the costly probes.")
    ] = 0,
) -> None:
    """Assign a phase to a model by its behaviour and by its internals.

    A model in Phase 1 memorises, a model in Phase 2 generalises in distribution, and a model in Phase 3
    composes the rules. For any other task, or training data without a task, the verdict is "memorised" or
    "learnt a rule". If a checkpoint is unreadable, the command classifies the other checkpoints and exits
    with code 3.

    Examples:
        anchorlens classify runs/a --report report.html
        anchorlens classify runs/a/ckpt.pt --json
    """
    if not checkpoints and model is None:
        raise ValueError("classify must get a checkpoint or --model, got neither. Give a checkpoint")
    checkpoints = checkpoints or [Path(model or "")]
    inputs = (*checkpoints, config, train_data, held_out, *(own or ()), *(data or ()))
    if report is not None:
        check_can_write(report, "--report", PAGES, inputs)
    if summary is not None:
        check_summary(summary, "--summary", len(checkpoints), inputs)
    check_config(config)
    check_number("--seed", seed, minimum=0, integer=True)
    if own and report is None:
        raise ValueError(
            "--probes must be given together with --report, got --probes alone. Add --report out.html"
        )
    choose_device(device)
    from anchorlens import show, views
    from anchorlens.files.training_data import read_training_data
    from anchorlens.probes import REPORT_PROBES, with_own

    probes = with_own(own or [], REPORT_PROBES)
    from anchorlens.show.terminal import verdict as printing
    from anchorlens.show.terminal.console import print_json
    from anchorlens.verdict import classify

    verdicts, unreadable = [], 0
    training = TrainingData(train_data, model)
    held = None if held_out is None else read_training_data(held_out, floats=model is not None)

    for path, title in zip(checkpoints, titles(checkpoints), strict=True):
        try:
            given = opened_input(path, config, device, data, model)
        except _UNREADABLE as error:
            unreadable += 1
            _refuse(path, error, as_json)
            continue
        training_set = training.of(given, given.named_task)
        if path is checkpoints[-1] and not unreadable:
            training.check_use()
        costly = "" if quick else "; the costly probes take a minute or two"
        measuring = f"{title}: measuring the model{costly}"
        try:
            with shared.said_when_slow(measuring):
                verdict = classify(given, training_set=training_set, held_out=held, seed=seed, quick=quick)
        except _UNREADABLE as error:
            unreadable += 1
            _refuse(path, error, as_json)
            continue
        verdicts.append(_titled(verdict, title))
        if as_json:
            print_json(verdicts[-1].to_dict())
    if verdicts and not as_json:
        printing.print_verdicts(verdicts, verbose, as_one=len(checkpoints) == 1)
    if verdicts and report is not None:
        show.write_report(verdicts, report, probes=probes)
        shared.say(f"the report is in {report}")
    if verdicts and summary is not None:
        views.summary(verdicts, summary)
        shared.say(f"the summary is in {summary}")
    if unreadable:
        raise typer.Exit(shared.EXIT_CHECKPOINT)
    if strict and any(not verdict.finding.is_named for verdict in verdicts):
        raise typer.Exit(shared.EXIT_UNDECIDED)


@shared.one_line_errors
def demo_command(
    train: Annotated[
        bool,
        typer.Option(
            "--train",
            help="Train the four models instead of using the shipped models. Training takes several minutes.",
        ),
    ] = False,
    out: Annotated[Path, shared.path_option("Folder for the report and for trained models.")] = Path(
        "runs/demo"
    ),
) -> None:
    """Classify four shipped models from all three phases.

    Print the verdicts, and write a report with every picture.

    Examples:
        anchorlens demo
        anchorlens demo --train --out runs/four
    """
    out.mkdir(parents=True, exist_ok=True)
    page = check_can_write(out / "report.html", "the page", PAGES)
    first = f"training four small models in {out}, then " if train else ""
    shared.say(
        f"{first}classifying four small checkpoints of Phases 1, 2, 2 with commutativity and 3, and writing "
        f"a report about them to {page}; this takes {'minutes' if train else 'about a minute'}"
    )
    from anchorlens.training.checkpoints import MODELS, shipped, trained

    paths = trained(out, COMMAND_LINE_SECONDS) if train else shipped()
    from anchorlens.probes import REPORT_PROBES, with_own
    from anchorlens.show import write_report
    from anchorlens.show.terminal import verdict as printing
    from anchorlens.verdict import classify

    verdicts = []
    for number, (name, path, title) in enumerate(zip(MODELS, paths, titles(paths), strict=True), start=1):
        shared.say(f"{number} of {len(paths)}: {name}")
        verdicts.append(_titled(classify(path, device="auto", quick=True), title))
    printing.print_verdicts(verdicts)
    shared.say("writing the report: every probe runs on each of them")
    write_report(verdicts, page, probes=with_own([], REPORT_PROBES))
    shared.say(f"the report is in {page}")


def _refuse(path: Path, error: Exception, as_json: bool) -> None:
    """Say why a checkpoint cannot be read or measured; raise an error that is none of these."""
    if isinstance(error, RuntimeError) and not is_out_of_memory(error):
        raise error
    message = f"{path}: {shared.MEMORY}" if is_out_of_memory(error) else unreadable_message(path, error)
    shared.complain(message)
    if as_json:
        from anchorlens.show.terminal.verdict import print_unreadable_json

        print_unreadable_json(str(path), message)


def _titled(verdict: Verdict, title: str) -> Verdict:
    """Give the verdict a title that distinguishes this verdict from the others."""
    return dataclasses.replace(verdict, subject=dataclasses.replace(verdict.subject, name=title))

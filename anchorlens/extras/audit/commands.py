"""`anchorlens audit`: find the mappings of a dataset that break the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from anchorlens.cli import AsJson, Device, Plot, draw_and_print, one_line_errors, path_option
from anchorlens.files import PICTURES, check_can_write
from anchorlens.models import ModelConfig, choose_device
from anchorlens.recipes import TrainConfig
from anchorlens.tasks import task_or_default
from anchorlens.texts import safe_text
from anchorlens.training import COMMAND_LINE_SECONDS


@one_line_errors
def audit_command(
    dataset: Annotated[
        Path | None,
        typer.Argument(
            help="A .csv, .tsv or .jsonl file with the columns key, a1, a2, ..., target and optionally "
            "violates, or a .toml file with the table `task`. Default: the papers' task, whose mappings are "
            "all correct.",
            readable=False,
        ),
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(help="Initialisation rate of the models. Default: 0.8 (small weights).")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of optimiser steps. Default: 1000.")] = None,
    n_samples: Annotated[
        int | None, typer.Option(help="Number of training sequences to draw from the dataset.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of models to train, one for each seed from 0 on.")] = 3,
    fit: Annotated[
        float | None,
        typer.Option(help="Smallest target probability at which a mapping counts as fit. Default: 0.5."),
    ] = None,
    top: Annotated[
        int,
        typer.Option(help="Number of mappings to list, starting with the mapping that is fit last.", min=0),
    ] = 20,
    out: Annotated[Path | None, path_option("Folder for audit.json, mappings.csv and audit.html.")] = None,
    plot: Plot = None,
    device: Device = "auto",
    workers: Annotated[int | None, typer.Option(help="Number of processes. Default: one per core.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find wrong mappings in a dataset.

    A model with small initial weights learns the rule first and the exceptions last. A mapping that the
    models fit late probably breaks the rule or is noise. If the dataset states which mappings are
    wrong, the audit compares the ranking with these labels.

    Examples:
        anchorlens audit noisy.csv --out audits/a
        anchorlens audit noisy.csv --seeds 5 --top 50 --plot audit.html
    """
    from anchorlens.extras.audit import audit, mappings_of, open_dataset
    from anchorlens.extras.audit.run import FIT, GAMMA, STEPS
    from anchorlens.extras.audit.views import print_audit

    choose_device(device)
    if plot is not None:
        check_can_write(plot, "--plot", PICTURES, (dataset,))
    try:
        the_papers: Any = task_or_default()
        mappings = mappings_of(the_papers) if dataset is None else open_dataset(dataset)
    except OSError as error:
        raise ValueError(
            f"{safe_text(dataset)}: {error.strerror}. Give a .csv, .tsv, .jsonl or .toml file"
        ) from None
    recipe = {"steps": STEPS, "device": device}
    recipe |= {n: value for n, value in (("steps", steps), ("n_samples", n_samples)) if value is not None}
    result = audit(
        mappings,
        model_config=ModelConfig.for_task(mappings.task, gamma=GAMMA if gamma is None else gamma),
        train_config=TrainConfig.from_dict(recipe),
        seeds=range(seeds),
        fit=FIT if fit is None else fit,
        out=out,
        workers=workers,
        progress=COMMAND_LINE_SECONDS,
    )
    draw_and_print(result, as_json, plot, lambda found: print_audit(found, top=top))

"""`anchorlens sweep`, `status` and `diagram`: many runs over a grid, how far they are, maps of them."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorlens.cli.errors import EXIT_FAILED, fail, one_line_errors, say
from anchorlens.cli.field_options import with_field_options
from anchorlens.cli.inputs import parts_of_start, read_toml
from anchorlens.cli.shared_options import AsJson, OwnTasks, file_option, path_option
from anchorlens.files.writing import PAGES, check_can_write
from anchorlens.safe import safe_repr, safe_text
from anchorlens.sweep.grids import ALIASES, axis_values, grid
from anchorlens.training.progress import COMMAND_LINE_SECONDS

if TYPE_CHECKING:
    from anchorlens.sweep.cells import SweepResult


@functools.partial(with_field_options, axes=True, short=ALIASES)
@one_line_errors
def sweep_command(
    preset: Annotated[
        str | None, typer.Option(help="What the cells are where no axis says otherwise; quick if left out.")
    ] = None,
    config: Annotated[
        Path | None,
        file_option("TOML file: an optional preset, tables task, model, train, and a table sweep of axes."),
    ] = None,
    out: Annotated[
        Path | None, path_option("Folder of the sweep; what is in it is not trained again.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="serial; local (all cores or GPUs); slurm; tls://HOST:PORT, tcp://... or a scheduler file "
            "of a Dask cluster. Left out: local where Dask is installed (extra \\[cluster]), else serial."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes of local (one per core or GPU if left out), jobs of slurm.")
    ] = None,
    tls_ca_file: Annotated[
        Path | None, path_option("Certificate (PEM) that vouches for a tls:// cluster.")
    ] = None,
    tls_cert: Annotated[Path | None, path_option("Your certificate for that cluster.")] = None,
    tls_key: Annotated[Path | None, path_option("The key of your certificate.")] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Train cells again that failed before.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Train nothing; print the cells and what they would take.")
    ] = False,
    tasks: OwnTasks = None,
    **fields: Any,
) -> None:
    """Train every combination of the values given; the same command again continues.

    A field takes one value, several (--weight-decay 0,0.01,1), a range with both ends (--gamma 0.3:0.8:0.05),
    or integers up to but without the end (--seed 0:3 is 0, 1, 2). A flag beats the TOML file, which beats the
    preset. A cell's folder appears when it is trained and measured; killing anything loses at most the cells
    under way.
    """
    from anchorlens.runs.presets import preset_parts
    from anchorlens.runs.run_config import merged

    if out is None and not dry_run:
        raise ValueError("--out is missing: name the folder of the sweep, for example --out sweeps/a")
    file: Any = {} if config is None else read_toml(config)
    named, axes = file.pop("preset", None), file.pop("sweep", {})
    if not isinstance(axes, dict):
        raise ValueError(f"{config}: sweep must be a table of axes, got {safe_repr(axes)}")
    axes |= {name: value for name, value in fields.items() if value is not None}
    if preset is None and named is None and "start" in axes:
        base = parts_of_start(axis_values("start", axes["start"])[0])
    else:
        base = preset_parts(preset or named or "quick")
    runs = grid(merged(base, file), axes)
    security = _security(tls_ca_file, tls_cert, tls_key)
    from anchorlens.show.terminal import sweep as printing

    if out is None or dry_run:
        printing.print_plan_of_sweep(runs, out)
        return
    from anchorlens.sweep.engines import EngineError
    from anchorlens.sweep.run import sweep

    print(printing.overview(runs), file=sys.stderr, flush=True)
    options: Any = {"engine": engine, "workers": workers, "security": security}
    options["progress"] = COMMAND_LINE_SECONDS
    try:
        result = sweep(runs, out, retry_failed=retry_failed, **options)
    except EngineError as error:
        fail(str(error), EXIT_FAILED)
    printing.print_sweep(result)
    for status in ("failed", "damaged"):
        if n := result.counts.get(status):
            verb = "are" if status == "damaged" else "have"
            fail(f"{n} of {len(result)} cells {verb} {status}; anchorlens status {out} says why", EXIT_FAILED)


def _security(ca_file: Path | None, cert: Path | None, key: Path | None) -> Any:
    """The TLS files as Dask takes them, for every role; None where none is given."""
    files = {"--tls-ca-file": ca_file, "--tls-cert": cert, "--tls-key": key}
    missing = [name for name, path in files.items() if path is None]
    if len(missing) == len(files):
        return None
    if ca_file is None or cert is None or key is None:
        raise ValueError(f"{', '.join(files)} go together; {' and '.join(missing)} is missing")
    try:
        from anchorlens.sweep.clusters import security_of
    except ImportError:
        raise ValueError("TLS files are for Dask clusters: pip install 'anchorlens[cluster]'") from None
    return security_of(ca_file, cert, key)


Folder = Annotated[Path, typer.Argument(help="The folder of a sweep.", readable=False)]


@one_line_errors
def status_command(
    out: Folder,
    cells: Annotated[bool, typer.Option("--cells", help="Print a row for every cell.")] = False,
    as_json: AsJson = False,
    tasks: OwnTasks = None,
) -> None:
    """Say how far a sweep is and what became of its cells, also while it is being trained."""
    from anchorlens.show.terminal import sweep as printing

    result = _opened(out)
    printing.print_sweep_json(result) if as_json else printing.print_sweep(result, cells=cells)


@one_line_errors
def diagram_command(
    sweep: Folder,
    out: Annotated[
        Path | None, path_option("The page; diagram.html in the sweep's folder if left out.")
    ] = None,
    x: Annotated[str | None, typer.Option(help="The field across; gamma, if it varies.")] = None,
    y: Annotated[str | None, typer.Option(help="The field upwards; weight_decay, if it varies.")] = None,
    table: Annotated[
        Path | None, path_option("Write every cell with all its numbers too: .csv or .parquet.")
    ] = None,
    reports: Annotated[
        bool, typer.Option("--reports", help="Write the full report of every cell too (seconds and MB each).")
    ] = False,
    tasks: OwnTasks = None,
) -> None:
    """Draw the maps of a sweep: one self-contained page, on which a cell opens its report."""
    from anchorlens.files.tables import TABLES
    from anchorlens.show.diagram.page import write_diagram
    from anchorlens.sweep.table import write_table

    page = out or sweep / "diagram.html"
    if table is not None:
        check_can_write(table, "--table", TABLES)
    if out is not None:
        check_can_write(out, "--out", PAGES)
    result = _opened(sweep)
    check_can_write(page, "--out", PAGES)
    write_diagram(result, page, x=x, y=y, reports=reports, progress=COMMAND_LINE_SECONDS)
    say(f"the diagram is in {page}")
    if table is not None:
        write_table(result.cells, table)
        say(f"{len(result)} cells are in {table}")


def _opened(folder: Path) -> SweepResult:
    """The sweep in a folder; one that cannot be read is a usage error."""
    from anchorlens.sweep import open_sweep

    try:
        return open_sweep(folder)
    except OSError as error:
        cause = f"{safe_text(error.filename or folder)}: {safe_text(error.strerror or error)}"
        raise ValueError(f"{cause}; give the folder of a sweep") from None

"""The command line: `anchorlens train`, `evaluate`, `probe`, `classify` and `demo`.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 internal error or a run that
failed, 2 usage, 3 unreadable or unsafe checkpoint, 4 undecided (`classify --strict`), 130 interrupted.
Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import functools
import inspect
import json
import tomllib
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from anchorlens.configuration import field_docs

if TYPE_CHECKING:
    from anchorlens.behaviour import Behaviour
    from anchorlens.checkpoint import Checkpoint

EXIT_FAILED, EXIT_USAGE, EXIT_CHECKPOINT, EXIT_UNDECIDED = 1, 2, 3, 4

app = typer.Typer(
    help="Did a transformer learn the rules, or memorise the answers?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line."""
    app()


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"anchorlens: {message}", err=True)
    raise typer.Exit(code)


def _one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors that are the caller's or the disk's into one line and an exit code."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            _fail("interrupted; a run with --out continues with --resume", 130)
        except ValueError as error:
            code = EXIT_CHECKPOINT if type(error).__name__ == "CheckpointError" else EXIT_USAGE
            _fail(str(error), code)
        except OSError as error:
            _fail(f"{error.filename or 'file'}: {error.strerror or error}", EXIT_FAILED)

    return wrapped


def _show(path: Path, checkpoint: Checkpoint, behaviour: Behaviour, as_json: bool) -> None:
    from anchorlens.printing import print_json, print_tables

    if as_json:
        print_json(path, checkpoint, behaviour)
    else:
        print_tables(checkpoint, behaviour)


# -- train: one option for every field of the three configurations ---------------------------------


def _options() -> list[inspect.Parameter]:
    """A command line option for every field of AnchorTask, ModelConfig and TrainConfig."""
    from anchorlens.presets import PART_CLASSES

    parameters = []
    for part, cls in PART_CLASSES.items():
        hints = typing.get_type_hints(cls)
        docs = field_docs(cls)
        for name, field in cls.__dataclass_fields__.items():
            kind = _option_type(hints[name])
            text = docs[name] + (" As JSON." if kind is str and hints[name] is not str else "")
            default = field.default
            if isinstance(default, int | float | str) and not isinstance(default, bool):
                text += f" Default {default}."
            option = typer.Option(help=text, rich_help_panel=f"{part} ({cls.__name__})", show_default=False)
            annotation = Annotated[kind | None, option]
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            )
    return parameters


def _option_type(hint: Any) -> Any:
    """The type of an option: the field's own where the command line has it, else text (JSON)."""
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
    if typing.get_origin(hint) is Literal:
        return hint
    if len(kinds) == 1 and (kinds[0] in (int, float, str, bool) or typing.get_origin(kinds[0]) is Literal):
        return kinds[0]
    return str


def _read_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, with JSON read where a field is no plain value."""
    from anchorlens.presets import PART_CLASSES

    hints = {n: h for cls in PART_CLASSES.values() for n, h in typing.get_type_hints(cls).items()}
    given = {}
    for name, value in fields.items():
        if value is None:
            continue
        if isinstance(value, str) and _option_type(hints[name]) is str and hints[name] is not str:
            try:
                value = json.loads(value)
            except ValueError as error:
                flag = name.replace("_", "-")
                raise ValueError(f"--{flag} must be JSON, got {value!r} ({error})") from None
        given[name] = value
    return given


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a TOML file: {error}") from None


def _train(
    preset: Annotated[
        str | None,
        typer.Option(
            help="quick (default), paper-2l1h, paper-gpt2, phase1, phase2, phase2-commutative or phase3."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file: an optional preset, and tables task, model, train.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run: log and checkpoints.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out, or begin it there.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Train nothing; print parameters, bytes, steps, FLOPs and the time."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    **fields: Any,
) -> None:
    """Train a HookedTransformer on a two-anchor task, save it and measure it.

    A flag beats the TOML file, which beats the preset.
    """
    from anchorlens.presets import RunConfig, merged, preset_parts, sorted_by_part

    if out is None and not dry_run:
        raise ValueError("--out is missing: name the folder of the run, for example --out runs/g0.7")
    changes: Any = {} if config is None else _read_toml(config)
    named = changes.pop("preset", None)
    changes = merged(changes, sorted_by_part(_read_fields(fields)))
    stored = None
    if resume and out is not None:
        from anchorlens.training.folder import stored_run

        stored = stored_run(out)
    if stored is not None and preset is None and named is None:
        base = stored.to_dict()  # a flag changes that field alone; train says whether it may
    else:
        base = preset_parts(preset or named or "quick")
    run = RunConfig.from_dict(merged(base, changes))
    if out is None or dry_run:
        from anchorlens.printing import print_plan
        from anchorlens.training.plan import plan

        print_plan(plan([run]), as_json)
        return
    from anchorlens.training.result import TrainingDiverged
    from anchorlens.training.run import train

    try:
        result = train(*run, out=out, resume=resume)
    except TrainingDiverged as error:
        _fail(str(error), EXIT_FAILED)
    path = out / "ckpt.pt"
    typer.echo(f"{result.status} at step {result.checkpoint.step}; the model is in {path}", err=True)
    _show(path, result.checkpoint, result.behaviour, as_json)


def _install_train() -> None:
    own = [p for p in inspect.signature(_train, eval_str=True).parameters.values() if p.name != "fields"]
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    command = _one_line_errors(_train)
    parameters = [*own, *_options()]
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    del command.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    app.command("train")(command)


# -- evaluate ---------------------------------------------------------------------------------------


@_one_line_errors
def _evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint file, .pt or .safetensors.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")] = False,
    n_noise: Annotated[int, typer.Option(help="Noise draws for every (pair, key, position).")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Measure what a checkpoint answers, and name its phase by definition."""
    from anchorlens.checkpoint import load_checkpoint

    loaded = load_checkpoint(checkpoint)
    from anchorlens.behaviour import evaluate
    from anchorlens.training.numerics import choose_device

    behaviour = evaluate(
        loaded.last_position_model(choose_device(device)),
        loaded.task,
        training_set=loaded.training_set(),
        n_noise=n_noise,
        seed=seed,
    )
    _show(checkpoint, loaded, behaviour, as_json)


# -- probe ------------------------------------------------------------------------------------------


@_one_line_errors
def _probe(
    name: Annotated[str | None, typer.Argument(help="A probe's name; --list prints them.")] = None,
    checkpoint: Annotated[Path | None, typer.Argument(help="A checkpoint file, .pt or .safetensors.")] = None,
    list_probes: Annotated[
        bool, typer.Option("--list", help="Print the probes and what they measure.")
    ] = False,
    options: Annotated[
        str, typer.Option(help='Options of the probe as JSON, {"layer": 1} for example.')
    ] = "{}",
    as_json: Annotated[bool, typer.Option("--json", help="Print numbers and raw values as JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write the picture: .html, .png, .svg or .pdf.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Measure one thing inside a checkpoint's model."""
    if list_probes:
        from anchorlens.probes import PROBES

        for probe in PROBES:
            typer.echo(f"{probe.__name__:20s} {(probe.__doc__ or '').splitlines()[0]}")
        return
    if name is None or checkpoint is None:
        raise ValueError("name a probe and a checkpoint, or ask for --list")
    try:
        chosen = json.loads(options)
    except ValueError:
        chosen = None
    if not isinstance(chosen, dict):
        raise ValueError(f'--options must be a JSON object such as {{"layer": 1}}, got {options!r}')
    from anchorlens import figures, probes
    from anchorlens.checkpoint import load_checkpoint

    probe = probes.probe_named(name)
    loaded = load_checkpoint(checkpoint)
    result = probes.apply_to_checkpoint(probe, loaded, device=device, **chosen)
    if plot is not None:
        figures.save(result.plot(), plot)
        typer.echo(f"the picture is in {plot}", err=True)
    typer.echo(json.dumps(result.to_dict(), allow_nan=False) if as_json else repr(result))


# -- classify, demo ---------------------------------------------------------------------------------


@_one_line_errors
def _classify(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(
            help="Checkpoints: .pt or .safetensors, the folder of a run, of the released code or of a "
            "Hugging Face GPT-2, or a bare state dict with --config."
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(help="What bare state dicts are: TOML or JSON.", exists=True, dir_okay=False),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each checkpoint, a line each.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="Write one self-contained HTML page about all of them.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 4 where a phase is undecided.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
) -> None:
    """Say which phase a checkpoint is in, by its answers and by its inside, and why.

    1 memorises, 2 generalises in distribution, 3 composes rules. One that cannot be read does not stop the
    others; the exit code is then 3.
    """
    if report is not None and not report.parent.is_dir():
        raise ValueError(
            f"--report must be in a folder that exists, got {report}; make {report.parent} first"
        )
    from anchorlens.training.numerics import choose_device

    choose_device(device)
    from anchorlens.verdict import classify, printing

    verdicts, unreadable = [], 0
    for path in checkpoints:
        try:
            verdict = classify(path, config=config, device=device, seed=seed)
        except (ValueError, OSError) as error:
            unreadable += 1
            typer.echo(f"anchorlens: {error}", err=True)
            if as_json:
                printing.print_unreadable_json(str(path), str(error))
            continue
        verdicts.append(verdict)
        if as_json:
            printing.print_verdict_json(verdict)
    if verdicts and not as_json:
        printing.print_verdicts(verdicts) if len(checkpoints) > 1 else printing.print_verdict(verdicts[0])
    if verdicts and report is not None:
        from anchorlens.report import write_report

        write_report(verdicts, report)
        typer.echo(f"the report is in {report}", err=True)
    if unreadable:
        raise typer.Exit(EXIT_CHECKPOINT)
    if strict and any(verdict.phase is None for verdict in verdicts):
        raise typer.Exit(EXIT_UNDECIDED)


@_one_line_errors
def _demo(
    train: Annotated[
        bool, typer.Option("--train", help="Train the four models first (minutes), instead of shipped ones.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the report, and the runs.")] = Path("runs/demo"),
) -> None:
    """Classify four small checkpoints, one of each phase, and write the report about them."""
    from anchorlens.demo import shipped, trained

    out.mkdir(parents=True, exist_ok=True)
    paths = trained(out) if train else shipped()
    _classify.__wrapped__(paths, report=out / "report.html")  # pyright: ignore[reportFunctionMemberAccess]


_install_train()
app.command("evaluate")(_evaluate)
app.command("probe")(_probe)
app.command("classify")(_classify)
app.command("demo")(_demo)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from importlib import metadata

        typer.echo(metadata.version("anchorlens"))
        raise typer.Exit()

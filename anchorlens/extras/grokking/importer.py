"""Runs of modular arithmetic from other software: a run in one file, a folder of step files, bare weights.

`layouts` finds the content of a file and makes a HookedTransformer of its weights, and `readings` finds the
reading of the file that the weights confirm.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anchorlens.extras.grokking import layouts
from anchorlens.extras.grokking.layouts import Run, hooked
from anchorlens.extras.grokking.operations import SIGNS
from anchorlens.extras.grokking.readings import ASKED, LAST, Claims, FileReading, confirmed, readings_of
from anchorlens.extras.grokking.task import ModularTask
from anchorlens.extras.shared.weights import ASSUMED
from anchorlens.files import (
    Checkpoint,
    LoadedModel,
    Settings,
    Source,
    Trajectory,
    few_notes,
    newest_whole,
    read_source,
)
from anchorlens.models import fingerprint, repeated
from anchorlens.safe import CheckpointError, read_tensors, reading
from anchorlens.tasks import FIT_THRESHOLD, TokenBatch
from anchorlens.texts import safe_text

KIND = "run of modular arithmetic"

_OPERATION = ("operation", "fn_name", "op", "operator", "task", "task_name", "fn", "group")
_SHORT = {**{name[:3]: name for name in SIGNS}, **{sign: name for name, sign in SIGNS.items()}}
"""A map from the beginnings and the signs of operations to the operations."""
_ACTIVATION = ("act_fn", "act_type", "activation", "activation_fn", "activation_function", "nonlinearity")
_ACTIVATIONS = ("relu", "gelu", "gelu_new")
_VARIANTS = {None: "plain", "LN": "gpt2", "LNPre": "gpt2"}
"""A map from normalization_type to the variant with these norms; LNPre is LN whose weights are folded."""
_WHOLE = {"d_model", "n_layers", "n_ctx", "act_fn", "normalization_type"}
"""The fields of every HookedTransformerConfig, or of the arguments that it was made of."""
_MOST_NAMED = 500


def file_in(folder: Path, config: Settings) -> Path | None:
    """Return the file of the last step in a folder with file names such as `step_100.pt` and `200.pth`."""
    return newest_whole([*layouts.step_files(folder).values()])


def recognises(content: Mapping[str, Any]) -> bool:
    """Check whether a file contains a run of modular arithmetic with TransformerLens' parameter names."""
    run = layouts.run_in(content)
    return run is not None and run.is_modular


def read(source: Source) -> LoadedModel:
    """Read a run as its last weights confirm it, and return its trajectory.

    Raises:
        CheckpointError: If a configuration next to the file cannot be read, or does not describe the weights.
        ValueError: If no HookedTransformer computes the function of the network, the weights confirm no
            reading of the file, or the trained pairs do not fit p.
    """
    run = layouts.run_in(source.content)
    assert run is not None
    path = next((one.path for one in (source.config, source.beside) if one is not None), source.file)
    given = {} if source.config is None else dict(source.config.values)
    fields, table = _stated_task(source, given.pop("task", None)), given.pop("model", {})
    table = table if isinstance(table, dict) else {}  # rep_theory's is the name of a class
    beside = Settings(path, {}) if run.config or source.beside is None else source.beside
    config = run.config or beside.values
    settings, dropped = Settings.of_weights(path, {**config, **given})
    run = run._replace(config=settings.values, said={**run.said, **config, **given, **table})
    moduli = [fields["modulus"]] if "modulus" in fields else _moduli(run)
    task = ModularTask.from_dict({"modulus": min(moduli), "tokens": "a b", **fields})
    networks = _networks(replace(source, task=task, beside=None), run, Settings(path, table))
    named, operation = _operation(run.said)
    operation = fields.get("operation", operation)
    claims = Claims(run.said, fields, moduli, run.sizes, operation, named, run.train_accuracy)
    best, also = confirmed([*readings_of(networks, claims)], claims)
    found, task = best.found, best.task
    of = "all" if best.pairs is None else "its"
    of += f" {len(best.targets):,} {'' if best.pairs is None else 'trained '}pairs"
    chosen = ", ".join(best.unstated) or f"operation {task.operation}"
    said = f"{chosen}: its last weights answer {best.accuracy:.4f} of {of} right under it{also}"
    notes, facts = (*found.notes, *beside.notes, *dropped, *_notes(run, best)), (said,)
    if best.accuracy < FIT_THRESHOLD:
        notes, facts = (said, *notes), ()
    if found.checkpoint is None:
        return replace(found, task=task, notes=notes, facts=facts)
    step = run.along[-1][0] if LAST in best.unstated else run.step
    if step is None and source.path.is_dir():
        step = next(step for step, file in layouts.step_files(source.path).items() if file == source.file)
    data = None
    if best.pairs is not None:
        kept = best.targets >= 0
        tokens = task.sequences(best.pairs[kept]).tokens
        data = TokenBatch(tokens, torch.from_numpy(best.targets[kept]))
    checkpoint = replace(found.checkpoint, task=task, step=step, training_data=data)
    entries, left_out = _entries(source.path, source.file, run, checkpoint)
    tables = {step: table.values() for step, _, table in run.along if step in entries}
    again = [*repeated({step: fingerprint(own) for step, own in tables.items()})]
    trajectory = Trajectory(entries)
    trajectory.steps_are_known = (run.steps_are_given or source.path.is_dir()) and not again
    notes = (*notes, *left_out, *again)
    return LoadedModel(checkpoint, task, notes, trajectory=trajectory, log=run.log, facts=facts)


def _stated_task(source: Source, given: object) -> dict[str, Any]:
    """Return the fields of the task that the caller states."""
    own = {} if source.task is None else source.task.to_dict()
    stated = given if isinstance(given, dict) else own
    if stated.get("kind", "modular") != "modular":
        raise ValueError(f"the kind of the task must be 'modular', got {stated['kind']!r}. Omit the task.")
    return {name: value for name, value in stated.items() if name != "kind"}


def _operation(said: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the name of the operation in a file, and the operation that it means, or None."""
    named = next((value.strip() for name in _OPERATION if isinstance(value := said.get(name), str)), None)
    name = str(named).lower()
    return named, name if name in ASKED else _SHORT.get(name if len(name) == 1 else name[:3])


def _moduli(run: Run) -> list[int]:
    """Return the modulus that the file states, or else the moduli that the sizes of the weights allow."""
    (n_tokens, n_positions), n_answers = run.sizes, run.weights["unembed.W_U"].shape[-1]
    most = min(n_tokens // (2 if run.said.get("diff_vocab") else 1), n_answers)
    name, stated = layouts.modulus_field(run.said) or ("modulus", None)
    likely = (min(most, n_tokens - n_positions + 2), n_answers - (n_answers == n_tokens))
    found = [p for p in dict.fromkeys(likely if stated is None else [stated]) if 2 <= p <= most]
    found = [p for p in found if n_answers in (n_tokens, p + 1) or n_answers != 2 * p - 1]
    if not found:
        raise ValueError(
            f"{name} must be at most {most} for {n_tokens} tokens and {n_answers} outputs (2p - 1 outputs "
            f"are sums without a modulus), got {stated}. Give the configuration of this run, or in "
            '--config a table [task] with kind = "modular" and modulus'
        )
    return found


def _networks(source: Source, run: Run, table: Settings) -> Iterator[tuple[LoadedModel, tuple[str, ...]]]:
    """Yield the networks as which the weights of the file may be read, the likeliest first."""
    said, is_whole = run.said, run.config.keys() >= _WHOLE
    named = next((said[name] for name in _ACTIVATION if isinstance(said.get(name), str)), None)
    norm = said.get("normalization_type", "LN" if any(".ln1." in name for name in run.weights) else None)
    assumed = [name for name in sorted(ASSUMED) if name not in {**run.config, **table.values}]
    notes = [f"not given, and assumed as TransformerLens does: {', '.join(assumed)}"]
    last = next((one for *_, one in reversed(run.along) if not _damage(one, run.weights)), run.weights)
    own = [(run.weights, ())] if layouts.is_same(last, run.weights) else [(run.weights, ()), (last, (LAST,))]
    activations = _ACTIVATIONS if named is None else [named.rpartition(".")[2].lower()]
    for (weights, chosen), activation in itertools.product(own, activations):
        values: dict[str, Any] = {"act_fn": activation}
        if is_whole or norm not in _VARIANTS:
            values = {**ASSUMED, **values, "normalization_type": norm, **run.config, **table.values}
        else:
            values = {"model": {"variant": _VARIANTS[norm], **values, **table.values}}
        settings = replace(table, values=values)
        found = read_source(replace(source, content=hooked(weights, said), config=settings))
        if is_whole and assumed:
            found = replace(found, notes=(*found.notes, *notes))
        yield found, chosen if named else (*chosen, f"act_fn {activation}")


def _notes(run: Run, best: FileReading) -> Iterator[str]:
    """Yield a note on each peculiarity, and one on the data of the file that are not used."""
    rate = run.said.get("attn_coeff", 1)
    if best.pairs is None:
        yield "its training pairs are not given: the pairs of the task's own split are assumed"
    elif n := int((best.targets < 0).sum()):
        yield f"{n:,} of its trained pairs divide by 0 and have no answer: they are left out"
    if best.labels is not None:
        yield f"{best.labels} are the targets of its trained pairs"
    if run.along and not run.steps_are_given:
        last = run.along[-1][0]
        yield f"the steps of its checkpoints are not given: evenly spaced steps up to {last:,} are assumed"
    if rate != 1:
        yield (
            f"the constant part of its attention (attn_coeff {rate:.3g}) is read as heads that attend "
            "evenly, which is exact at the last position"
        )
    if left := sorted(run.unused - {layouts.split_name(run.said), best.labels}):
        yield f"in the file and not used: {safe_text(', '.join(left), _MOST_NAMED)}"


def _entries(
    path: Path, last_file: Path, run: Run, checkpoint: Checkpoint
) -> tuple[dict[int, Callable[[], Checkpoint]], list[str]]:
    """Return the function that makes the checkpoint of each step, and notes on omitted entries."""
    entries: dict[int, Callable[[], Checkpoint]] = {}
    notes = []

    def at(step: int, weights: Mapping[str, Tensor]) -> Checkpoint:
        with reading(path):
            found = hooked(weights, run.said)
        here = {name: found[name].to(last.dtype).contiguous() for name, last in checkpoint.weights.items()}
        return replace(checkpoint, weights=here, step=step)

    def of_file(step: int, file: Path) -> Checkpoint:
        with reading(file):
            content = layouts.run_in(read_tensors(file).values)
            weights = {} if content is None else content.weights
            if problem := _damage(weights, run.weights):
                raise CheckpointError(file, problem)
            return at(step, weights)

    for step, name, table in run.along:
        if problem := _damage(table, run.weights):
            notes.append(f"{name} (step {step:,}) is left out: {problem}")
        else:
            entries[step] = partial(at, step, table)
    if path.is_dir():
        files = layouts.step_files(path)
        entries |= {step: partial(of_file, step, file) for step, file in files.items()}
        later = itertools.dropwhile(lambda one: one != last_file, files.values())
        notes += [f"{file.name} is left out: it is cut off" for file in itertools.islice(later, 1, None)]
    elif entries and checkpoint.step is not None:
        entries.setdefault(checkpoint.step, lambda: checkpoint)
    return entries, few_notes(notes)


def _damage(weights: object, last: Mapping[str, Tensor]) -> str | None:
    """Explain why an entry does not hold weights like the last weights; `None` if it does."""
    if not isinstance(weights, Mapping):
        return f"it must be a state dict, got {type(weights).__name__}"
    for name, tensor in last.items():
        found = weights.get(name)
        if not isinstance(found, Tensor) or (found.shape, found.dtype) != (tensor.shape, tensor.dtype):
            got = f"{list(found.shape)} of {found.dtype}" if isinstance(found, Tensor) else "none"
            return f"{name} must have shape {list(tensor.shape)} of {tensor.dtype}, got {got}"
    return None

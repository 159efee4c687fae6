"""Runs of modular arithmetic from other software: a run in one file, a folder of step files, bare weights.

`layouts` finds the content of a file, and `networks` makes a HookedTransformer of its weights. No file states
its operation reliably, so the operation is inferred from the answers of its last weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from anchorlens.extras.grokking import layouts
from anchorlens.extras.grokking.layouts import Run, hooked
from anchorlens.extras.grokking.operations import OPERATIONS, SIGNS, answers
from anchorlens.extras.grokking.task import ModularTask
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
from anchorlens.tasks import FEWEST_TRAINED, Evaluator

if TYPE_CHECKING:
    from jaxtyping import Int

KIND = "run of modular arithmetic"

_ASKED = tuple(name for name in OPERATIONS if name not in ("table", "random"))
_NAMES_IN_CONFIGS = {**{sign: name for name, sign in SIGNS.items()}, **{name: name for name in _ASKED}}
"""A map from the names of operations in configurations to the operations."""
_LEAST = 0.95
"""The least accuracy from which the weights confirm an operation."""
_ACTIVATION = ("act_fn", "act_type", "activation", "activation_fn", "nonlinearity")
_DEFAULTS: dict[str, Any] = {
    **{"positional_embedding_type": "standard", "attention_dir": "causal", "eps": 1e-5},
    **{"use_attn_scale": True, "use_local_attn": False},
    **{"parallel_attn_mlp": False, "scale_attn_by_inverse_layer_idx": False},
}
"""The values of a HookedTransformerConfig that is made without these arguments."""


def file_in(folder: Path, config: Settings) -> Path | None:
    """Return the file of the last step in a folder with file names such as `step_100.pt` and `200.pth`."""
    return newest_whole([*layouts.step_files(folder).values()])


def recognises(content: Mapping[str, Any]) -> bool:
    """Check whether a file contains a run of modular arithmetic with TransformerLens' parameter names."""
    run = layouts.run_in(content)
    return run is not None and run.is_modular


def read(source: Source) -> LoadedModel:
    """Read a run, infer the operation from its last weights, and return its trajectory.

    Raises:
        CheckpointError: If a configuration next to the file cannot be read, or does not describe the weights.
        ValueError: If no HookedTransformer computes the function of the network, or no operation is found.
            `p` and the trained pairs must fit the weights.
    """
    run = layouts.run_in(source.content)
    assert run is not None
    given_config, table, path = _configuration(source, run)
    settings, dropped = Settings.of_weights(path, given_config)
    config = settings.values
    weights = hooked(run.weights, config)
    given = source.named_task
    if given is not None and not isinstance(given, ModularTask):
        raise ValueError(f"the kind of the task must be 'modular', got {given.kind!r}. Omit the task.")
    task = given or _without_operation(weights, config)
    if {"d_model", "n_layers", "n_ctx"} <= config.keys():  # a HookedTransformerConfig
        fields = {**config, **table}
        if {"act_fn", "normalization_type"} <= fields.keys():  # or the arguments that it was made of
            fields = _DEFAULTS | fields
    else:
        activation = next((config[name] for name in _ACTIVATION if name in config), "relu")
        fields = {"model": {"variant": "plain", "act_fn": str(activation).lower(), **table}}
    found = read_source(
        replace(source, content=weights, config=Settings(path, fields), task=task, beside=None)
    )
    notes, split = [*found.notes, *dropped], layouts.split_in(run.content, task.modulus)
    if assumed := fields.keys() & _DEFAULTS.keys() - {*config, *table}:
        notes.append(f"not given, and assumed as TransformerLens does: {', '.join(sorted(assumed))}")
    if not {*_ACTIVATION} & {*config, *table}:
        notes.append("its activation is not given: act_fn relu is assumed")
    if run.along and not run.has_steps:
        last = run.along[-1][0]
        notes.append(
            f"the steps of its checkpoints are not given: evenly spaced steps up to {last:,} are assumed"
        )
    if config.get("attn_coeff", 1) != 1:
        notes.append(
            f"the constant part of its attention (attn_coeff {config['attn_coeff']:.3g}) is read as heads "
            "that attend evenly, which is exact at the last position"
        )
    facts = ()
    if given is None:
        operation, share, said = _operation(_answered(found, task), task.modulus, split, config)
        task = replace(task, operation=operation)
        facts = (said,) if share >= _LEAST else ()
        notes += [] if facts else [said]
    if split is None:
        notes.append("its training pairs are not given: the pairs of the task's own split are assumed")
    if found.checkpoint is None:
        return replace(found, task=task, notes=tuple(notes), facts=facts)
    data = None if split is None else task.sequences(np.array([n for n in split if task.answers[n] >= 0]))
    checkpoint = replace(found.checkpoint, task=task, step=run.step, training_data=data)
    entries, left_out = _entries(source.path, source.file, run, config, checkpoint)
    tables = {step: table.values() for step, _, table in run.along if step in entries}
    whole = (*notes, *left_out, *repeated({step: fingerprint(own) for step, own in tables.items()}))
    return LoadedModel(checkpoint, task, whole, trajectory=Trajectory(entries), log=run.log, facts=facts)


def _configuration(source: Source, run: Run) -> tuple[Mapping[str, Any], Mapping[str, Any], Path]:
    """Return the settings of file, JSON and caller; the caller's table `model`; a path for errors."""
    config, path = run.config, source.file
    if not config and source.beside is not None:
        config, path = source.beside.values, source.beside.path
    if source.config is None:
        return config, {}, path
    given = dict(source.config.values)
    table = given.pop("model", {})
    table = table if isinstance(table, dict) else {}  # rep_theory's is the name of a class
    given.pop("task", None)
    return {**config, **given}, table, source.config.path


def _without_operation(weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> ModularTask:
    """Return the task that weights of these sizes can have, without its operation."""
    n_tokens, n_positions = len(weights["embed.W_E"]), len(weights["pos_embed.W_pos"])
    tokens: Any = ("a b", "a b =", "a op b =")[n_positions - 2]
    n_numbers = n_tokens - (n_positions - 2)
    if config.get("diff_vocab"):  # of pizza: the second number has tokens of its own
        tokens, n_numbers = tokens.replace("b", "B"), n_numbers // 2
    name, claimed = layouts.modulus_field(config) or ("p", n_numbers)
    if claimed != n_numbers:
        raise ValueError(
            f"{name} must be {n_numbers} for weights with {n_tokens} tokens and the input `{tokens}`, got "
            f"{claimed}. Give the configuration of this run."
        )
    return ModularTask(modulus=n_numbers, tokens=tokens)


def _answered(found: LoadedModel, task: ModularTask) -> Int[np.ndarray, " pair"]:
    """[p * p] Compute the answer of the last weights for each pair."""
    model = found.model if found.checkpoint is None else found.checkpoint.fast_model()
    return Evaluator(model, task, 4096).answers(task.sequences(np.arange(task.modulus**2)).tokens)


def _operation(
    answered: Int[np.ndarray, " pair"], p: int, split: list[int] | None, config: Mapping[str, Any]
) -> tuple[Any, float, str]:
    """Find the operation for which the answers are correct, the fraction of correct answers, and a sentence.

    Raises:
        ValueError: If no operation fits, and the configuration names none.
    """
    pairs = np.arange(p * p) if split is None else np.unique(split)
    of = f"of {'all' if split is None else 'its'} {len(pairs):,} {'' if split is None else 'trained '}pairs"
    shares = {name: _share(name, answered, p, pairs) for name in _ASKED}
    first, second, *_ = sorted(shares, key=lambda name: -shares[name])
    names = (_NAMES_IN_CONFIGS.get(str(config.get(key))) for key in ("fn_name", "operation", "op"))
    named = next(filter(None, names), None)
    is_open = named is None and (len(pairs) < FEWEST_TRAINED or not shares[second] < _LEAST <= shares[first])
    if is_open or (named is not None and shares[named] < _LEAST <= shares[first]):
        raise ValueError(
            f"one operation (the configuration: {named}) must fit the weights on {FEWEST_TRAINED} pairs "
            f"with an accuracy of at least {_LEAST}, got {first} {shares[first]:.4f} and {second} "
            f'{shares[second]:.4f} {of}. In --config, give [task] with its operation ("table" with its table)'
        )
    first = named or first
    said = f"operation {first}: its last weights answer {shares[first]:.4f} {of} right under it"
    return first, shares[first], said


def _share(
    operation: str, answered: Int[np.ndarray, " pair"], p: int, pairs: Int[np.ndarray, " some"]
) -> float:
    """Compute the fraction of pairs that are answered correctly; 0 for an operation not defined for p."""
    try:
        right = answers(operation, p)[pairs]
    except ValueError:
        return 0.0
    return float((answered[pairs] == right)[right >= 0].mean()) if (right >= 0).any() else 0.0


def _entries(
    path: Path, last_file: Path, run: Run, config: Mapping[str, Any], checkpoint: Checkpoint
) -> tuple[dict[int, Callable[[], Checkpoint]], list[str]]:
    """Return the function that makes the checkpoint of each step, and notes on omitted entries."""
    entries: dict[int, Callable[[], Checkpoint]] = {}
    notes = []

    def at(step: int, weights: Mapping[str, Tensor]) -> Checkpoint:
        with reading(path):
            found = hooked(weights, config)
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

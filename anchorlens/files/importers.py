"""Opening a checkpoint: our own format is read here, and every other format by an installed importer.

A package names an importer by an entry point of the group `anchorlens.importers`. An importer is a module
with `KIND`, `file_in`, `recognises` and `read` (docs/extending.md).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any

from torch import Tensor

from anchorlens.configuration import as_path, checked_arguments
from anchorlens.files import container
from anchorlens.files.checkpoint import from_contents
from anchorlens.files.loaded_model import LoadedModel
from anchorlens.files.settings import BLOBS, ModelConfiguration, Settings, settings_beside
from anchorlens.files.wrapped import unwrapped
from anchorlens.plugins import fault_of, installed, is_own, leave_out
from anchorlens.safe import CheckpointError, check_inside, ordinary_file, read_tensors, reading
from anchorlens.tasks.shared.base import Task
from anchorlens.texts import safe_repr

__all__ = ["LoadedModel", "open_checkpoint"]


@dataclass(frozen=True)
class Source:
    """A weights file with its configuration and task."""

    path: Path
    """The path that was given: the file, or the folder that holds it."""
    file: Path
    """The weights file, which errors name."""
    content: Mapping[str, Any]
    """The content of the file from the safe reader: names, plain values and tensors."""
    config: Settings | None
    """The configuration that the caller gave, or None."""
    task: Task | None = None
    """The task that the caller gave, used if neither the file nor the configuration names one."""
    beside: Settings | None = None
    """The settings in a JSON file in the folder of the weights file, or None."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The state dict of the file, or an empty dict."""
        return state_dict(self.content)

    @property
    def named_task(self) -> Task | None:
        """The task that the configuration names, or else the task that the caller gave."""
        return (None if self.config is None else self.config.task()) or self.task


def state_dict(content: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the named tensors of a file's content, or the named tensors under the key `state_dict`.

    The result is empty if neither table contains only named tensors.
    """
    for one in (content, content.get("state_dict")):
        if isinstance(one, dict) and all(
            isinstance(n, str) and isinstance(t, Tensor) for n, t in one.items()
        ):
            return one
    return {}


@checked_arguments()
def open_checkpoint(
    path: str | os.PathLike[str],
    *,
    config: ModelConfiguration | None = None,
    task: Task | None = None,
) -> LoadedModel:
    """Open a checkpoint of any supported format without running code from the file.

    Args:
        path: the path of a checkpoint. The path may be a checkpoint or run of anchorlens, or a folder or
            model file of the papers' released code. The path may also be a folder or weights file of a
            Hugging Face GPT-2, a nanoGPT's `ckpt.pt`, or a HookedTransformer's state dict. A state dict may
            be under a key of a dict, such as `model`. The names of its tensors may have the prefix of a
            wrapper, such as `_orig_mod.`.
        config: a TOML or JSON file, or its content as a dict. A bare state dict needs a `config`: the tables
            `task` and `model` (with `variant` and `act_fn`) of `anchorlens train --config`, a ModelConfig, or
            the model's whole HookedTransformerConfig. For a Hugging Face GPT-2 or a nanoGPT, `config` may
            give the table `task`. anchorlens takes missing shapes from the weights.
        task: the task that the model was trained on, if neither the file nor `config` names it. Default: the
            papers' two-anchor task.

    Returns:
        A `LoadedModel`: the checkpoint with its file, SHA-256, format and notes.

    Raises:
        CheckpointError: If the file cannot be read safely and completely.
        CheckpointError: If the format is unknown, or `ModelConfig` lacks the architecture. The message is one
            line with the file and the cause.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from anchorlens import AnchorTask, ModelConfig
        >>> from anchorlens.models.gamma import initial_weights
        >>> folder = Path(tempfile.mkdtemp())
        >>> torch.save(initial_weights(ModelConfig(n_layers=3), seed=0), folder / "theirs.pt")
        >>> tables = "model = {variant = 'gpt2', act_fn = 'gelu', gamma = 0.5}"
        >>> _ = (folder / "theirs.toml").write_text(tables)
        >>> opened = open_checkpoint(folder / "theirs.pt", config=folder / "theirs.toml")
        >>> opened.kind, opened.checkpoint
        ('HookedTransformer state dict', Checkpoint(gpt2, 3 layers, gamma 0.5))

    Source: the formats of TransformerLens, Hugging Face and the papers' released code.
    """
    opened = open_model(as_path("path", path), config=config, task=task)
    if opened.checkpoint is None:
        raise CheckpointError(
            opened.file,
            f"the file must be a Checkpoint, got another model: {opened.why}. Give this path and its "
            "config to classify, evaluate or a probe",
        )
    return opened


def open_model(
    path: Path, *, config: ModelConfiguration | None = None, task: Task | None = None
) -> LoadedModel:
    """Open a checkpoint, as `open_checkpoint` does, or any other HookedTransformer with a configuration.

    Raises:
        CheckpointError: In the same cases as `open_checkpoint`.
    """
    settings = None if config is None else Settings.of(config)
    with reading(path):
        if _may_be_of_the_hub(path):
            raise CheckpointError(
                path,
                "cannot be read: No such file or directory. Load a model of the Hugging Face hub with "
                f"TransformerLens first: HookedTransformer.from_pretrained({safe_repr(str(path))})",
            )
        file = _weights_file(path) if path.is_dir() else path
        content, sha256 = read_tensors(file)
        beside = None if container.is_ours(content) else settings_beside(file)
        found = read_source(Source(path, file, content, settings, task, beside))
    return replace(found, path=path, file=file, sha256=sha256)


def read_source(source: Source) -> LoadedModel:
    """Read the content of a weights file with the importer of its format.

    An importer may call this function with content that it has converted to another format.

    Raises:
        CheckpointError: If the content has no known format, or its weights cannot be read.
    """
    with reading(source.file):
        problem = "its weights cannot be read"
        if container.is_ours(source.content):
            with reading(source.file, problem):
                return _read_own(source)
        for importer in installed_importers():
            content, notes = _recognised(importer, source)
            if content is not None:
                with reading(source.file, problem):
                    one = replace(source, content=content)
                    if (found := _ask(importer, "read", LoadedModel, one)) is not None:
                        return replace(found, kind=importer.KIND or found.kind, notes=(*notes, *found.notes))
        raise CheckpointError(source.file, "its weights are those of no model that can be read")


def _recognised(importer: ModuleType, source: Source) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """Return the content of a file as an importer recognises it, with notes, or None.

    An importer sees the content as it is, and then without wrappers, with the settings beside the file under
    `config`.
    """
    recognises = functools.partial(_ask, importer, "recognises", object)
    if recognises(source.content):
        return source.content, ()
    beside = source.beside
    given = {**({} if beside is None else {"config": beside.values}), **source.content}
    content, notes = unwrapped(given, recognises)
    if beside is not None and content.get("config") is beside.values:
        notes = (*notes, *beside.notes)
    return (None if content is given else content), notes


def _read_own(source: Source) -> LoadedModel:
    checkpoint, notes = from_contents(source.file, source.content), []
    if source.path.is_dir() and source.file.parent != source.path:
        notes.append(f"the run has not ended: this is its checkpoint of step {checkpoint.step}")
    if source.config is not None:
        notes.append(f"{source.config.path} was not needed: the checkpoint has its own configuration")
    return LoadedModel(checkpoint, checkpoint.task, tuple(notes), kind="anchorlens")


_MEMBERS = ("KIND", "file_in", "recognises", "read")


def _ask(importer: ModuleType, member: str, kind: type | UnionType, *given: object) -> Any:
    """Call a function of an importer; None, with a warning, if the importer of another package fails."""
    try:
        found = getattr(importer, member)(*given)
        if not isinstance(found, kind):
            raise TypeError(f"{member} returned {safe_repr(found)}")
    except (Exception, SystemExit) as error:
        is_refusal = member == "read" and isinstance(error, ValueError)
        if is_refusal or not is_own(importer.read):
            raise
        leave_out(fault_of(installed_importers()[importer], error))
        return None
    return found


@functools.cache
def installed_importers() -> dict[ModuleType, str]:
    """Load the importers of installed packages with their origins, those of anchorlens last.

    An importer that cannot be loaded, or lacks a member, is left out with a warning.
    """

    def check(importer: ModuleType) -> None:
        if missing := [name for name in _MEMBERS if not hasattr(importer, name)]:
            raise ValueError(
                f"an importer must be a module with {', '.join(_MEMBERS)}, got one without {missing[0]}"
            )

    found = installed("anchorlens.importers", "importer", check=check)
    return dict(sorted(found, key=lambda pair: not is_own(pair[0].read)))


_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
"""The possible names of a model on the Hugging Face hub, which a path can also have."""
_NAMED_IN_A_FOLDER = (
    "config.json",
    "ckpt.pt",
    "checkpoints",
    "model",
    "model.safetensors",
    "pytorch_model.bin",
)
_WEIGHTS = (".pt", ".pth", ".safetensors", ".bin", ".ckpt")


def _may_be_of_the_hub(path: Path) -> bool:
    """Check whether a missing path looks like the name of a model on the Hugging Face hub."""
    if not _HUB_NAME.fullmatch(str(path)) or path.suffix in _WEIGHTS or path.exists():
        return False
    return path.parent == Path() or not path.parent.exists()


def _weights_file(folder: Path) -> Path:
    """Find the weights file of a folder, whose config.json names the format."""
    for name in _NAMED_IN_A_FOLDER:
        check_inside(folder, folder / name, BLOBS)
    has_config = (folder / "config.json").is_file()
    config = Settings.read(folder / "config.json") if has_config else Settings(folder / "config.json", {})
    if config.values.get("format") == "anchorlens run":
        file = _last_checkpoint(folder)
    else:
        found = (_ask(one, "file_in", Path | None, folder, config) for one in installed_importers())
        file = next(filter(None, found), None)
    if file is not None:
        check_inside(folder, file, BLOBS)
        return file
    problem = "config.json was not found in this folder; give the path of one model's file or folder in it"
    if has_config:
        problem = (
            "config.json must belong to a run or model that can be read, got another configuration. Give the "
            "path of the weights file"
        )
    raise CheckpointError(folder, problem)


def _last_checkpoint(run: Path) -> Path:
    """Find the last checkpoint of a run.

    Raises:
        CheckpointError: If the run has no checkpoint yet.
    """
    if (run / "ckpt.pt").exists():
        return run / "ckpt.pt"
    trajectory = sorted((run / "checkpoints").glob("step_*.pt"))
    if not trajectory:
        raise CheckpointError(
            run, "the run must have a checkpoint, got none yet. Wait for the first checkpoint"
        )
    return newest_whole(trajectory) or trajectory[-1]


def newest_whole(files: Sequence[Path]) -> Path | None:
    """Return the last of these .pt files that is not cut off, or the last file if all are; None of none."""
    for file in reversed(files):
        with contextlib.suppress(OSError, ValueError), ordinary_file(file) as (data, _):
            if zipfile.is_zipfile(data):
                return file
    return next(reversed(files), None)

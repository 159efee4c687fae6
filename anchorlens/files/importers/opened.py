"""`open_checkpoint` reads a checkpoint of any kind from a path."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlens.configuration import as_path, checked_arguments, documented
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.importers.registry import IMPORTERS, Importer, installed_importers
from anchorlens.files.importers.settings import BLOBS, ModelConfiguration, Settings
from anchorlens.files.importers.source import ImportedModel, Source, Trajectory
from anchorlens.files.importers.wrappers import unknown, unwrapped
from anchorlens.safe import CheckpointError, check_inside, read_tensors, reading
from anchorlens.tasks.shared.base import Task
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer


@documented
@dataclass(frozen=True, eq=False)
class Opened:
    """A checkpoint and its source."""

    checkpoint: Checkpoint
    """The weights, model and task, for every file format."""
    path: Path
    """The path that was given: a file or a folder."""
    file: Path
    """The file that holds the weights."""
    sha256: str
    """The SHA-256 of that file, 64 hexadecimal digits."""
    kind: str
    """The recognised format of the file."""
    notes: tuple[str, ...] = ()
    """The remarks for the user, one line each."""
    trajectory: Trajectory = field(default_factory=Trajectory)
    """The checkpoints of an imported run with several, by step; `along` takes this mapping. Each
    checkpoint is read on demand, and a damaged checkpoint then raises CheckpointError."""
    log: tuple[Mapping[str, Any], ...] = ()
    """The losses and accuracies along an imported run, by `step`, if its folder has them."""

    def __repr__(self) -> str:
        return f"Opened({self.kind}: {self.checkpoint!r} from {self.file})"


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """A HookedTransformer without a checkpoint, and its source."""

    model: HookedTransformer
    """The model on the CPU, in evaluation mode."""
    task: Task | None
    """The task that the model was trained on, if the file or the caller names it."""
    path: Path
    """The path that was given: a file or a folder."""
    file: Path
    """The file that holds the weights."""
    sha256: str
    """The SHA-256 of that file, 64 hexadecimal digits."""
    kind: str
    """The recognised format of the file."""
    notes: tuple[str, ...]
    """The remarks for the user, one line each."""
    why: str
    """The reason why the model is not a checkpoint."""


@checked_arguments()
def open_checkpoint(
    path: str | os.PathLike[str],
    *,
    config: ModelConfiguration | None = None,
    task: Task | None = None,
) -> Opened:
    """Open a checkpoint of any supported format without running code from the file.

    Args:
        path: the path of a checkpoint. The path may be a checkpoint or run of anchorlens, or a folder or
            model file of the papers' released code. The path may also be a folder or weights file of a
            Hugging Face GPT-2, a nanoGPT's `ckpt.pt`, or a HookedTransformer's state dict. A state dict may
            be under a key of a dict, such as `model`. The names of its tensors may have the prefix of a
            wrapper, such as `_orig_mod.`.
        config: a TOML or JSON file, or its content as a dict. A bare state dict needs a `config`: the tables
            `task` and `model` of `anchorlens train --config`, a ModelConfig, or the model's
            HookedTransformerConfig. For a Hugging Face GPT-2 or a nanoGPT, `config` may give the table
            `task`. anchorlens takes missing shapes from the weights, and assumes other missing values with a
            note.
        task: the task that the model was trained on, if neither the file nor `config` names it. Default: the
            papers' two-anchor task.

    Returns:
        The checkpoint with its file, SHA-256, format and notes.

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
        >>> _ = (folder / "theirs.toml").write_text("model.gamma = 0.5")
        >>> opened = open_checkpoint(folder / "theirs.pt", config=folder / "theirs.toml")
        >>> opened.kind, opened.checkpoint
        ('HookedTransformer state dict', Checkpoint(gpt2, 3 layers, gamma 0.5))

    Source: the formats of TransformerLens, Hugging Face and the papers' released code.
    """
    opened = open_model(as_path("path", path), config=config, task=task)
    if isinstance(opened, OpenedModel):
        raise CheckpointError(
            opened.file,
            f"the file must be a Checkpoint, got another model: {opened.why}. Give this path and its "
            "config to classify, evaluate or a probe",
        )
    return opened


def open_model(
    path: Path, *, config: ModelConfiguration | None = None, task: Task | None = None
) -> Opened | OpenedModel:
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
        with _whole(file), reading(file):
            notes: tuple[str, ...] = ()
            importer = _recognising(installed_importers(), content)
            if importer is None:
                content, notes = unwrapped(content, _is_known)
                importer = _recognising(IMPORTERS, content)
            if importer is None:
                raise CheckpointError(file, unknown(content))
            with reading(file, "its weights cannot be read"):
                found = importer.read(Source(path, file, content, settings, task))
    notes = (*notes, *found.notes)
    if isinstance(found, ImportedModel):
        return OpenedModel(found.model, found.task, path, file, sha256, importer.KIND, notes, found.why)
    read = (found.trajectory, found.log)
    return Opened(found.checkpoint, path, file, sha256, importer.KIND, notes, *read)


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
_SHARD = re.compile(r"-\d{5}-of-(?!00001)\d{5}\b")
"""The part of a name that marks one of several weights files: `model-00001-of-00003.safetensors`."""
_OF_A_TRAINER = re.compile(r"(optimizer|scheduler|scaler|rng_state\w*|training_args)\.\w+")
_MOST_LISTED = 1000


@contextlib.contextmanager
def _whole(file: Path) -> Iterator[None]:
    """Explain an error of weights that are split over several files."""
    try:
        yield
    except CheckpointError:
        if not _SHARD.search(file.name):
            raise
        way = "save them in one: model.save_pretrained(folder, max_shard_size='1000GB')"
        raise CheckpointError(file, f"it is one of several files of weights; {way}") from None


def _recognising(importers: tuple[Importer, ...], content: Mapping[str, Any]) -> Importer | None:
    return next((importer for importer in importers if importer.recognises(content)), None)


def _is_known(content: Mapping[str, Any]) -> bool:
    return _recognising(IMPORTERS, content) is not None


def _may_be_of_the_hub(path: Path) -> bool:
    """Check whether a missing path looks like the name of a model on the Hugging Face hub."""
    if not _HUB_NAME.fullmatch(str(path)) or path.suffix in _WEIGHTS or path.exists():
        return False
    return path.parent == Path() or not path.parent.exists()


def _readable_in(folder: Path) -> list[str]:
    """List the subfolders with a config.json and the weights files in a folder."""
    with os.scandir(folder) as found:
        entries = [Path(entry) for entry in itertools.islice(found, _MOST_LISTED)]
    return sorted(
        entry.name
        for entry in entries
        if (entry / "config.json").is_file()
        or (entry.suffix in _WEIGHTS and not _OF_A_TRAINER.fullmatch(entry.name))
    )


def _weights_file(folder: Path) -> Path:
    """Find the weights file of a folder, whose config.json names the format."""
    for name in _NAMED_IN_A_FOLDER:
        check_inside(folder, folder / name, BLOBS)
    has_config = (folder / "config.json").is_file()
    config = Settings.read(folder / "config.json") if has_config else Settings(folder / "config.json", {})
    for importer in (*installed_importers(), *(IMPORTERS if has_config else ())):
        file = importer.file_in(folder, config)
        if file is not None:
            check_inside(folder, file, BLOBS)
            return file
    if not has_config:
        inside = ", ".join(safe_repr(name) for name in _readable_in(folder)[:3])
        raise CheckpointError(
            folder,
            "config.json was not found in this folder; give the path of one model's file or folder in "
            f"it{inside and f', such as {inside}'}",
        )
    raise CheckpointError(
        folder,
        "config.json must belong to an anchorlens run, the papers' released code or a Hugging Face "
        "GPT-2, got another configuration. Give the path of the weights file",
    )

"""Checkpoints: one file holds the weights and everything needed to interpret them."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anchorlens import configuration
from anchorlens.configuration import article, as_path, check_kind, check_number, checked_arguments
from anchorlens.engine import architecture
from anchorlens.files import container
from anchorlens.models.annotations import HookedTransformer
from anchorlens.recipes.train_config import TrainConfig, checkpoint_in, read_start
from anchorlens.safe import CheckpointError, read_tensors, reading
from anchorlens.tasks.registry import read_stored_task, task_or_default
from anchorlens.tasks.shared.base import Batch, Task
from anchorlens.tasks.shared.data_checks import Overlap
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.evaluator import check_memory
from anchorlens.tasks.shared.task_errors import evaluated, task_errors
from anchorlens.texts import LONGEST, safe_repr, safe_text
from anchorlens.views import html

FORMAT = "anchorlens checkpoint"
FORMAT_VERSION = 1
_MOST_STEPS = 10**12


def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that the results depend on."""
    names = ("anchorlens", "torch", "transformer-lens", "numpy")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}


@configuration.frozen_dataclass(eq=False)
class Checkpoint:
    """The weights of a model at one training step, with the configurations of the model, task and training.

    Example:
        >>> from anchorlens import build_model, preset
        >>> task, config, _ = preset("quick", gamma=0.5)
        >>> checkpoint = Checkpoint.from_model(build_model(config), config, task)
        >>> checkpoint
        Checkpoint(gpt2, 2 layers, gamma 0.5)
        >>> checkpoint.build_model().cfg.n_layers
        2
    """

    model_config: Any
    """The architecture and initialisation: a `ModelConfig`, or an instance of the task's `model_class`."""
    task: Any
    """The `Task` that the model was trained on."""
    weights: Mapping[str, Tensor]
    """The weights: HookedTransformer's parameter name -> tensor on the CPU."""
    train_config: TrainConfig | None = None
    """The configuration of the training; None for a model that anchorlens did not train."""
    step: int | None = None
    """The number of optimizer steps taken; None if it is not known."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """The measured loss, accuracies and status at that step; JSON-ready."""
    versions: Mapping[str, str] = field(default_factory=library_versions)
    """The versions of the libraries that made the checkpoint."""
    overlap: Overlap | None = None
    """The number of training sequences with held-out questions, for an imported model whose configuration
    gives it; None if it is not known."""
    training_data: Any = None
    """The training sequences of an imported model whose file gives them; they are not stored."""

    @classmethod
    def from_model(
        cls,
        model: HookedTransformer,
        model_config: object,
        task: Task,
        *,
        train_config: TrainConfig | None = None,
        step: int | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Make a checkpoint with a copy of a model's current parameters.

        Raises:
            ValueError: If the parameters do not fit `model_config`, or the model is too small for `task`.
        """
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be a HookedTransformer, got {type(model).__name__}. Give the model")
        task = task_or_default(task)
        check_kind("model_config", model_config, task.model_class, f"{task.model_class.__name__}()")
        weights = {name: one.detach().to("cpu", copy=True) for name, one in model.named_parameters()}
        checkpoint = cls(model_config, task, weights, train_config, step, dict(metrics or {}))
        check_whole(checkpoint)
        return checkpoint

    def build_model(self, device: str | torch.device = "cpu") -> HookedTransformer:
        """Build the HookedTransformer with these weights, in evaluation mode.

        Args:
            device: the device of the model.
        """
        return architecture(self.model_config).build(self.model_config, self.weights, device)

    def initial_model(
        self, device: str | torch.device = "cpu", *, start: str | os.PathLike[str] | None = None
    ) -> HookedTransformer:
        """Build the HookedTransformer that this run started from, in evaluation mode.

        The initial weights are drawn again from the seed. If the run started from a checkpoint, the initial
        weights are read from `start`.

        Args:
            device: the device of the model.
            start: the checkpoint that the run started from. anchorlens never opens a path that a checkpoint
                stores, because another person may have written the checkpoint.

        Raises:
            ValueError: If the checkpoint has no train config.
            ValueError: If the run started from a checkpoint, and `start` is missing or is another checkpoint.
        """
        if self.train_config is None:
            raise ValueError(
                "the checkpoint must contain its training configuration to draw the initial model, got "
                "none. Give the initial model itself"
            )
        train = self.train_config
        if train.start is not None or train.start_sha256 is not None:
            if start is None:
                raise ValueError(
                    f"start must be the checkpoint that this run started from ({safe_text(train.start)}), "
                    "got none. Give this checkpoint: initial_model(start=...). For a probe, give the "
                    "initial model: initial=..., or --initial"
                )
            return _starting_point(as_path("start", start), train.start_sha256).build_model(device)
        if start is not None:
            raise ValueError(
                "start must be None for a run whose weights were drawn from its seed, got a checkpoint. "
                "Omit start"
            )
        made = architecture(self.model_config)
        dtype = next(iter(self.weights.values())).dtype
        weights = made.initial_weights(self.model_config, train.seed, dtype)
        return made.build(self.model_config, weights, device)

    def last_position_model(self, device: str | torch.device = "cpu") -> Any:
        """Return these weights as a function from tokens [batch, pos] to logits [batch, 1, d_vocab].

        The logits equal the logits of a HookedTransformer at the last position. The function is faster than a
        HookedTransformer and does not import the class HookedTransformer.

        Args:
            device: the device of the computation.
        """
        return self.fast_model(device).at_end(1)

    def fast_model(self, device: str | torch.device = "cpu") -> Any:
        """Return these weights as a function from tokens [batch, pos] to logits [batch, pos, d_vocab].

        The logits equal the logits of a HookedTransformer. The function is faster than a HookedTransformer
        and does not import the class HookedTransformer.

        Args:
            device: the device of the computation.
        """
        made = architecture(self.model_config)
        return made.function(self.model_config, made.merged(made.row(self.weights).to(device).unsqueeze(0)))

    def evaluate(self, *, device: str | torch.device = "cpu", **options: object) -> Evaluation:
        """Evaluate these weights on their task, with the training data of their run.

        Args:
            device: the device of the computation.
            **options: the options of the task's `evaluate`, such as `seed`.
        """
        options = {"training_set": self.lazy_training_set(), **options}
        found = evaluated(self.task, self.fast_model(device), **options)
        known = found.overlap is not None and found.overlap.there_is_some
        return found if known or self.overlap is None else replace(found, overlap=self.overlap)

    @property
    def knows_training_set(self) -> bool:
        """Whether the training sequences are known."""
        return self.train_config is not None or self.training_data is not None

    def training_set(self) -> Any:
        """Return the training sequences, or None if the sequences are not known.

        The sequences of a run with a train config are drawn again from the seed.
        """
        if self.train_config is None:
            return self.training_data
        return training_set(self.task, self.train_config)

    def lazy_training_set(self) -> Batch | None:
        """Return the training sequences, or None if the sequences are not known.

        The sequences are drawn on demand if the task supports this, because `evaluate` uses only some
        sequences.
        """
        if self.train_config is None:
            return self.training_data
        with task_errors(self.task):
            return self.task.lazy_training_set(self.train_config.n_samples, self.train_config.seed)

    @property
    def overview(self) -> str:
        """A summary of the checkpoint in one line."""
        whence = origin(self.model_config.gamma, self.train_config, self.step)
        return " · ".join([self.model_config.overview, *whence])

    _repr_html_ = html

    def __repr__(self) -> str:
        step = "" if self.step is None else f", step {self.step}"
        return f"Checkpoint({self.model_config.short_name}{step})"


def origin(gamma: float | None, train: TrainConfig | None, step: int | None) -> list[str]:
    """Return the known values of gamma, seed, start and step as texts."""
    drawn = [] if gamma is None else [f"gamma {gamma:g}"]
    drawn += [] if train is None else [f"seed {train.seed}"]
    drawn += [] if train is None or train.start is None else [f"from {safe_text(train.start)}"]
    steps = [] if step is None else [f"step {step:,}"]
    return [words for words in (", ".join(drawn), *steps) if words]


def starting_point(config: TrainConfig) -> Checkpoint | None:
    """Load the checkpoint that a run starts from, or return None if the initial weights are random.

    This function opens the file that `config` names. The argument `config` must therefore come from the user.

    Raises:
        ValueError: If the file is missing, or has changed since the run was configured.
        CheckpointError: If the file cannot be read.
    """
    if config.start_sha256 is None:
        return None
    if config.start is None:
        raise ValueError(
            "start must be the checkpoint whose SHA-256 is start_sha256, got none. Give start, or omit "
            "start_sha256"
        )
    return _starting_point(Path(config.start), config.start_sha256)


def _starting_point(start: Path, sha256: str | None) -> Checkpoint:
    path = checkpoint_in(start)
    content = read_start(path)
    if content.sha256 != sha256:
        raise ValueError(
            f"start must be the file with SHA-256 {safe_text(sha256)[:16]}..., got {safe_text(path)} with "
            "other contents. Give the original file, or set start_sha256 to None for another start"
        )
    return from_contents(path, content.values)


def training_set(task: Task, config: TrainConfig) -> Any:
    """Draw the training sequences of a run from the task, the seed and the number of sequences."""
    with task_errors(task):
        return task.training_set(config.n_samples, config.seed)


@checked_arguments()
def save_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write a checkpoint as one file, atomically.

    Args:
        path: the path of the file. The suffix, `.pt` or `.safetensors`, determines the format.
        checkpoint: a Checkpoint, or an object with an attribute `checkpoint`, such as the result of `train`.

    Raises:
        ValueError: If no checkpoint is given, or the suffix is not supported.
        ValueError: If the weights do not fit the configuration, or the metrics cannot be written as JSON.
        OSError: If the file cannot be written. A failed write does not change an existing file.

    Example:
        >>> import tempfile, pathlib
        >>> from anchorlens import build_model, preset
        >>> task, config, _ = preset("quick", gamma=0.5)
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "ckpt.safetensors"
        >>> save_checkpoint(path, Checkpoint.from_model(build_model(config), config, task))
        >>> load_checkpoint(path)
        Checkpoint(gpt2, 2 layers, gamma 0.5)
    """
    path = as_path("path", path)
    checkpoint = getattr(checkpoint, "checkpoint", checkpoint)
    if not isinstance(checkpoint, Checkpoint):
        raise ValueError(
            f"checkpoint must be a Checkpoint, got {article(type(checkpoint).__name__)}. Make a Checkpoint "
            "with Checkpoint.from_model(model, model_config, task)"
        )
    check_whole(checkpoint)
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "model": checkpoint.model_config.to_dict(),
        "task": checkpoint.task.to_dict(),
        "train": None if checkpoint.train_config is None else checkpoint.train_config.to_dict(),
        "step": checkpoint.step,
        "metrics": dict(checkpoint.metrics),
        "versions": dict(checkpoint.versions),
        **({} if checkpoint.overlap is None else {"overlap": checkpoint.overlap.to_dict()}),
    }
    container.write(path, header, checkpoint.weights)


@checked_arguments()
def load_checkpoint(path: str | os.PathLike[str], *, any_cost: bool = False) -> Checkpoint:
    """Read a checkpoint without executing code from the file, and verify its checksum.

    Args:
        path: a file that `save_checkpoint` wrote, or the folder of a run. The function reads the last
            checkpoint of the run.
        any_cost: whether to read the file even if the model needs far more memory than the size of
            the file suggests. Use this option only for files that you trust.

    Returns:
        The checkpoint, with its weights on the CPU. `.build_model()` makes the HookedTransformer.

    Raises:
        CheckpointError: If the file is missing, truncated, damaged, unsafe or too costly.
        CheckpointError: If the file has another format or a later version of the format. The message is one
            line with the file and the cause.
    """
    path = as_path("path", path)
    with reading(path):
        file = checkpoint_in(path)
    if file != path and not file.exists():
        raise CheckpointError(
            path, "the folder must hold ckpt.pt, got none. Use open_checkpoint for folders of other formats"
        )
    return from_contents(file, read_tensors(file).values, any_cost=any_cost)


def from_contents(
    path: str | os.PathLike[str], content: Mapping[str, Any], *, any_cost: bool = False
) -> Checkpoint:
    """Build the checkpoint from file contents that `read_tensors` returned.

    Raises:
        CheckpointError: In the same cases as `load_checkpoint`.
    """
    header, weights = container.unpack(path, content)
    container.check_format(path, header, FORMAT, FORMAT_VERSION)
    with reading(path, "its configuration makes no sense"):
        _check_header(header)
        task = read_stored_task(header["task"], without_places=True)
        config = task.model_class.from_dict(header["model"])
        train = None if header["train"] is None else TrainConfig.from_dict(header["train"])
        parts = {name: header[name] for name in ("step", "metrics", "versions")}
        overlap = Overlap.from_dict(header["overlap"]) if "overlap" in header else None
        checkpoint = Checkpoint(config, task, weights, train, **parts, overlap=overlap)
        config.check_task(task)
    problem = _mismatch(weights, config)
    if problem:
        raise CheckpointError(path, f"its weights must fit its configuration, got a mismatch: {problem}")
    if not any_cost:
        with reading(path):
            check_memory(config, task, train.n_samples if train else 0, weights.values())
    return checkpoint


_TABLES = ("model", "task", "train", "metrics", "versions")


def _check_header(header: Mapping[str, Any]) -> None:
    """Check that the parts of a checkpoint's header have the right types.

    Raises:
        KeyError: If a part is missing.
        ValueError: If a part has another type.
    """
    for name in _TABLES:
        if not isinstance(header[name], dict) and not (name == "train" and header[name] is None):
            raise ValueError(f"{name} must be a table, got {safe_repr(header[name])}. Use another copy")
    check_number("step", header["step"], minimum=0, maximum=_MOST_STEPS, integer=True, optional=True)
    for name, version in header["versions"].items():
        if not isinstance(version, str) or len(version) > LONGEST:
            raise ValueError(
                f"the version of {safe_repr(name)} must be a text of at most {LONGEST} characters, got "
                f"{safe_repr(version)}. Use another copy of the file"
            )


def check_whole(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that `load_checkpoint` would refuse.

    Raises:
        ValueError: If the weights do not fit the configuration, or the model is too small for its task.
    """
    checkpoint.model_config.check_task(checkpoint.task)
    problem = _mismatch(checkpoint.weights, checkpoint.model_config)
    if problem:
        raise ValueError(
            f"the model must fit its configuration, got a mismatch: {problem}. Give the configuration of "
            "this model"
        )


def _mismatch(weights: Mapping[str, Tensor], config: Any) -> str | None:
    """Say why `weights` are not the parameters of `config`; None if they are."""
    shapes = architecture(config).shapes
    for name, shape in shapes.items():
        if name not in weights:
            return f"{name} is missing"
        if tuple(weights[name].shape) != shape:
            return f"{name} must have shape {list(shape)}, got {list(weights[name].shape)}"
    dtype = weights[next(iter(shapes))].dtype
    for name, weight in weights.items():
        if name not in shapes:
            return f"{safe_repr(name)} is not a parameter of {config.overview}"
        if weight.dtype != dtype or dtype not in (torch.float32, torch.float64):
            return f"{name} must be float32 or float64 like the others, got {weight.dtype}"
    return None

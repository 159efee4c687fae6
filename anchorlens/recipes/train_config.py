"""TrainConfig: data, optimiser, schedule and bookkeeping of one run, and its starting checkpoint."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, Self

from anchorlens.configuration import Config, frozen_dataclass, number
from anchorlens.models.config import PARTS
from anchorlens.recipes.interventions import CHANGES, checked_schedule, in_words, read_changes, read_schedule
from anchorlens.safe import CheckpointError, Contents, check_inside, read_tensors
from anchorlens.texts import safe_repr

DURATIONS = (("steps", "epochs"), ("warmup_steps", "warmup_epochs"))
"""Pairs of fields for the same duration in two units; only one of each pair can be given."""

SCHEDULED = ("lr", "weight_decay")
"""Fields that are a number, or a number that changes in windows (`recipes/interventions.py`)."""
DECAYS = tuple(f"weight_decay_{part}" for part in PARTS)
"""Fields for the weight decay of one part of the weights."""

_MOST_SAMPLES = 100_000_000
_MOST_STEPS = 1_000_000_000
_FRACTION = {"minimum": 0, "maximum": 1}
_BETA = {"minimum": 0, "maximum": 0.999999}
_STEPS = 1500
_WARMUP_STEPS = 100


@frozen_dataclass()
class TrainConfig(Config):
    """The recipe of a run: data, optimiser, weight decay, clipping, learning rate schedule, and logging.

    The default values are the values of the `quick` preset. A duration is in steps or in epochs, but not in
    both. An epoch is n_samples // batch_size steps over a fresh permutation of the training set.

    Raises:
        ValueError: If a value is invalid. The message gives the rule and the value.

    Source: the training recipe of arXiv 2405.05409 and 2501.08537.
    """

    seed: int = number(0, minimum=0)
    """Seed of the initial weights, the training data, their order and the noise. Weights, data, order and
    noise have independent random streams."""
    n_samples: int = number(100_000, minimum=1, maximum=_MOST_SAMPLES)
    """Number of training sequences, which are drawn once."""
    batch_size: int = number(512, minimum=1, limit=_MOST_SAMPLES)
    """Number of sequences in each optimiser step."""
    steps: int | None = number(None, minimum=1, limit=_MOST_STEPS)
    """Number of optimiser steps. Default: the steps of `epochs`, or 1500 steps if `epochs` is unset."""
    epochs: int | None = number(None, minimum=1, limit=_MOST_STEPS)
    """Number of passes over the training set, as an alternative to `steps`."""
    lr: float | str = number(1e-3, above=0, limit=1e100)
    """Peak learning rate. The learning rate can change in windows of the run. For example,
    `0.001 0.25:0.5=0.002` sets the learning rate to 0.002 in the second quarter of the run."""
    lr_start_factor: float = number(0.0, **_FRACTION)
    """Learning rate before the warm-up, as a fraction of the peak."""
    lr_end_factor: float = number(0.05, **_FRACTION)
    """Learning rate at the last step, as a fraction of the peak."""
    lr_decay: Literal["cosine", "linear"] = "cosine"
    """Shape of the learning rate decay after the warm-up, either half a cosine or a straight line."""
    warmup_steps: int | None = number(None, minimum=0, limit=_MOST_STEPS)
    """Number of steps of linear warm-up. Default: the steps of `warmup_epochs`, or 100 steps if
    `warmup_epochs` is unset. A run shorter than its warm-up never reaches the peak learning rate."""
    warmup_epochs: int | None = number(None, minimum=0, limit=_MOST_STEPS)
    """Number of epochs of linear warm-up, as an alternative to `warmup_steps`."""
    weight_decay: float | str = number(0.01, minimum=0, limit=1e100)
    """Weight decay of every parameter. Weight decay is decoupled from the gradient unless the optimiser is
    adam. The weight decay can change in windows of the run. For example, `0.01 0.25:0.5=1.0` sets the weight
    decay to 1.0 in the second quarter of the run. The text `0 0.5:1=1.0..0.1` lowers the weight decay from
    1.0 to 0.1 in the second half of the run."""
    weight_decay_embedding: float | str | None = number(None, minimum=0, limit=1e100)
    """Weight decay of W_E, W_pos and W_U. Default: weight_decay."""
    weight_decay_qk: float | str | None = number(None, minimum=0, limit=1e100)
    """Weight decay of W_Q and W_K. Default: weight_decay."""
    weight_decay_vo: float | str | None = number(None, minimum=0, limit=1e100)
    """Weight decay of W_V and W_O. Default: weight_decay."""
    weight_decay_mlp: float | str | None = number(None, minimum=0, limit=1e100)
    """Weight decay of W_in and W_out. Default: weight_decay."""
    start: str | None = field(default=None, compare=False)
    """An anchorlens checkpoint that supplies the initial weights. The folder of a run stands for the last
    checkpoint of the run. The recipe stores the absolute path. Optimiser moments start at zero, and the
    schedule starts at its beginning. Default: initial weights that the seed determines."""
    start_sha256: str | None = None
    """SHA-256 of the file `start`, as 64 hexadecimal digits. A new run stores the SHA-256. Remove the SHA-256
    if you change `start`. A stored recipe must hold the SHA-256."""
    rescale: str | None = None
    """Multiply weight matrices by a factor before an update. For example, `all=0.5@0` halves all matrices
    before update 0, and `qk=2@300 mlp=0.5@300` rescales two parts before update 300. The parts are embedding,
    qk, vo, mlp and all. The factor does not change the optimiser moments."""
    weight_noise: str | None = None
    """Add Gaussian noise to weight matrices before an update. With `W_Q=0.5@300`, the standard deviation of
    the noise is half the root mean square of the matrix's entries. The seed determines the noise."""
    penalty: str | None = None
    """Add a penalty to the loss. For example, `nuclear:qk=0.001` adds 0.001 times the sum of the nuclear
    norms of every head's W_Q and W_K. With `stable_rank:W_Q=0.01@0.25:0.5`, the run penalises the stable rank
    of W_Q in its second quarter."""
    max_rank: str | None = None
    """Largest rank of weight matrices. With `W_Q=2@0:0.5`, every W_Q becomes the nearest matrix of rank 2
    (truncated SVD) after each update in the first half of the run."""
    freeze: str | None = None
    """Parameters to freeze. For example, `W_Q` freezes W_Q, and `qk@0.5:1` freezes W_Q and W_K only in the
    second half of the run. The name `biases` stands for all biases."""
    optimizer: Literal["adamw", "adam", "muon"] = "adamw"
    """Optimiser of the run. The optimiser adamw decouples weight decay from the gradient, and adam adds
    weight decay to the gradient (plain L2). The optimiser muon updates the matrices of qk, vo and mlp by
    their orthogonalised momentum. Other parameters follow adamw."""
    beta1: float = number(0.9, **_BETA)
    """Adam's first beta, and Muon's momentum."""
    beta2: float = number(0.999, **_BETA)
    """Adam's second beta."""
    eps: float = number(1e-8, above=0, limit=1e100)
    """Adam's epsilon."""
    clip_norm: float = number(1.0, minimum=0)
    """Largest global norm of the gradient. Gradients with a larger norm are scaled down to this norm. With 0,
    gradients are not clipped."""
    early_stop_evaluations: int | None = number(None, minimum=1, limit=_MOST_STEPS)
    """Number of consecutive evaluations after which training stops, if no accuracy changes by more than 0.01
    and the training accuracy is at least 0.99. Default: no early stopping."""
    stop_at_loss: float | None = number(None, above=0)
    """Loss at which training stops, in nats. Training stops when the mean loss of the last five log lines is
    at most `stop_at_loss`. Default: no stop."""
    device: str = "auto"
    """Device to train on: auto (CUDA if available), cpu, cuda or cuda:N."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of weights and arithmetic."""
    matmul: Literal["float32", "tf32", "bf16"] = "float32"
    """Precision of the matrix products of a float32 run. The precision tf32 needs CUDA, and bf16 rounds
    operands and results to bfloat16. The precisions tf32 and bf16 are faster than float32 on hardware that
    supports them, but less precise."""
    threads: int | None = number(None, minimum=1, maximum=1024)
    """Number of CPU threads in training. Default: torch's own choice, or 1 thread if several runs train in
    parallel. Results are bit-equal only for the same number of threads."""
    log_every: int = number(10, minimum=1, limit=_MOST_STEPS)
    """Number of steps between log lines."""
    eval_every: int = number(100, minimum=1, limit=_MOST_STEPS)
    """Number of steps between evaluations."""
    n_checkpoints: int = number(10, minimum=0, limit=10_000)
    """Number of log-spaced checkpoints from step 1 to the last step, in addition to step 0. With 0, the run
    stores only its final checkpoint."""
    state_every_seconds: float = number(30.0, minimum=0, limit=1e9)
    """Number of seconds between saves of the state from which a run resumes. With 0, the run saves the state
    at every step."""

    def __post_init__(self) -> None:
        """Check every field, and the fields together."""
        super().__post_init__()
        if self.start is not None and self.start_sha256 is None:
            object.__setattr__(self, "start_sha256", sha256_of(checkpoint_in(self.start)))
            object.__setattr__(self, "start", os.path.abspath(self.start))  # valid from any current folder
        if self.start_sha256 is not None and not re.fullmatch("[0-9a-f]{64}", self.start_sha256):
            raise ValueError(
                f"start_sha256 must be 64 hexadecimal digits, got {safe_repr(self.start_sha256)}. Remove it"
            )
        if self.batch_size > self.n_samples:
            raise ValueError(
                f"batch_size must be at most n_samples ({self.n_samples}), got {self.batch_size}. Use a "
                "smaller batch or more samples"
            )
        for steps, epochs in DURATIONS:
            n_epochs = getattr(self, epochs)
            if n_epochs is None:
                continue
            if getattr(self, steps) is not None:
                raise ValueError(
                    f"{steps} and {epochs} must not both be given, since they set the same duration, got "
                    f"both. Omit {steps} or {epochs}"
                )
            if (n_steps := n_epochs * self.steps_per_epoch) > _MOST_STEPS:
                raise ValueError(
                    f"{epochs} must be at most {_MOST_STEPS:,} steps, got {n_steps:,}. Use fewer epochs"
                )
        if self.dtype == "float64" and self.matmul != "float32":
            raise ValueError(
                f"dtype must be 'float32' for matmul {self.matmul!r}, got 'float64'. Omit matmul"
            )
        self._read_interventions()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a stored recipe, without opening the files that its fields name.

        Raises:
            ValueError: If a field is unknown, or a value is invalid.
            ValueError: If `start` is given without `start_sha256`.
        """
        if values.get("start") is not None and values.get("start_sha256") is None:
            raise ValueError(
                "a stored recipe must hold the start_sha256 of its start, got none. Make the recipe with "
                "TrainConfig(start=...) or train --from, which add start_sha256"
            )
        return super().from_dict(values)

    @property
    def on_the_way(self) -> dict[str, str]:
        """A map from fields to the changes that they make during training, in words.

        >>> TrainConfig(steps=100, rescale="all=0.5@50").on_the_way
        {'rescale': 'all times 0.5 before update 50'}
        """
        names = (*SCHEDULED, *DECAYS, *CHANGES)
        words = {name: in_words(name, getattr(self, name), self.total_steps) for name in names}
        start = {"start": f"weights of {self.start}, optimizer moments of zero"} if self.start else {}
        return {**start, **{name: text for name, text in words.items() if text is not None}}

    def without_interventions(self) -> TrainConfig:
        """Return the recipe with constant base values for schedules, and without interventions or `start`."""
        bases = {
            name: read_schedule(value).base
            for name in (*SCHEDULED, *DECAYS)
            if isinstance(value := getattr(self, name), str)
        }
        return replace(self, **bases, **dict.fromkeys((*CHANGES, "start", "start_sha256")))

    def _read_interventions(self) -> None:
        """Check schedules and interventions, and store them in their normal form."""
        fields, total = type(self).__dataclass_fields__, self.total_steps
        for name in (*SCHEDULED, *DECAYS):
            value = getattr(self, name)
            if isinstance(value, str):
                default = self.weight_decay if name in DECAYS else fields[name].default
                default = None if isinstance(default, str) else default
                value = checked_schedule(name, value, default, total, **fields[name].metadata)
                object.__setattr__(self, name, value)
        for name in CHANGES:
            if (text := getattr(self, name)) is not None:
                object.__setattr__(self, name, " ".join(map(str, read_changes(name, text, total))))

    @property
    def steps_per_epoch(self) -> int:
        """The number of optimiser steps per epoch, without an incomplete last batch."""
        return self.n_samples // self.batch_size

    @property
    def total_steps(self) -> int:
        """The number of optimiser steps of the run."""
        return self._in_steps(self.steps, self.epochs, _STEPS)

    @property
    def total_warmup_steps(self) -> int:
        """The number of optimiser steps of the warm-up."""
        return self._in_steps(self.warmup_steps, self.warmup_epochs, _WARMUP_STEPS)

    def _in_steps(self, steps: int | None, epochs: int | None, default: int) -> int:
        if epochs is not None:
            return epochs * self.steps_per_epoch
        return default if steps is None else steps


def checkpoint_in(path: str | os.PathLike[str]) -> Path:
    """Return the path of a checkpoint file, or of the file `ckpt.pt` in the folder of a run.

    Raises:
        ValueError: If a link leads out of the folder.
    """
    if not os.path.isdir(path):
        return Path(path)
    check_inside(path, Path(path, "ckpt.pt"))
    return Path(path, "ckpt.pt")


def read_start(path: Path) -> Contents:
    """Return the contents and the SHA-256 of the checkpoint that a run starts from.

    Raises:
        ValueError: If the file does not exist, or is not a checkpoint.
    """
    try:
        return read_tensors(path)
    except CheckpointError as error:
        raise ValueError(
            f"start must be a checkpoint or the folder of a run that has ended, got an error: {error}"
        ) from None


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a checkpoint, as 64 hexadecimal digits.

    The function reads a file again only if the file has changed.

    Raises:
        ValueError: If the file does not exist, or is not a checkpoint.
    """
    try:
        status = path.stat()
    except (OSError, ValueError):
        return read_start(path).sha256  # says why
    return _sha256(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=256)
def _sha256(path: Path, changed: int, size: int) -> str:
    return read_start(path).sha256

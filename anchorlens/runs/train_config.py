"""TrainConfig: data, optimizer, schedule and bookkeeping of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anchorlens.configuration import Config, check_choice, check_number, documented, make_plain
from anchorlens.foreign import shown

_MOST_SAMPLES = 100_000_000
_MOST_STEPS = 1_000_000_000
_MOST_CHECKPOINTS = 10_000
_LARGEST_RATE = 1e100
_LONGEST_WAIT = 1e9
_STEPS = 1500
_WARMUP_STEPS = 100


@documented
@dataclass(frozen=True)
class TrainConfig(Config):
    """The recipe: AdamW with decoupled weight decay on every parameter, clipping, warm-up, cosine.

    The defaults are the `quick` preset. Durations are in steps or in epochs, never both; an epoch is
    n_samples // batch_size steps over a fresh permutation of the training set.

    Raises:
        ValueError: any value that makes no recipe, with what was expected and what came.

    Source: the training recipe of arXiv 2405.05409 and 2501.08537.
    """

    seed: int = 0
    """Seed of initial weights, training data, their order and evaluation noise (independent streams)."""
    n_samples: int = 100_000
    """Training sequences, drawn once."""
    batch_size: int = 512
    """Sequences per step."""
    steps: int | None = None
    """Optimizer steps; unset for epochs, or 1500 when both are unset."""
    epochs: int | None = None
    """Passes over the training set, instead of steps."""
    lr: float = 1e-3
    """Peak learning rate."""
    lr_start_factor: float = 0.0
    """Learning rate before warm-up, as a fraction of the peak."""
    lr_end_factor: float = 0.05
    """Learning rate after the cosine, as a fraction of the peak."""
    warmup_steps: int | None = None
    """Steps of linear warm-up; unset for warmup_epochs, or 100 when both are unset. A run shorter than
    its warm-up never reaches the peak."""
    warmup_epochs: int | None = None
    """Epochs of linear warm-up, instead of warmup_steps."""
    weight_decay: float = 0.01
    """AdamW's decoupled weight decay, on every parameter."""
    beta1: float = 0.9
    """AdamW's first beta."""
    beta2: float = 0.999
    """AdamW's second beta."""
    eps: float = 1e-8
    """AdamW's epsilon."""
    clip_norm: float = 1.0
    """Largest global gradient norm; 0 for no clipping."""
    early_stop_evaluations: int | None = None
    """Stop when the training data are fit (train accuracy >= .99) and no accuracy has moved by more
    than .01 over so many evaluations in a row; unset to train to the end."""
    stop_at_loss: float | None = None
    """Stop at the first log line at which the mean loss of the last five of them, in nats, is no larger;
    unset to train to the end."""
    device: str = "auto"
    """auto (CUDA where there is one), cpu, cuda or cuda:N."""
    dtype: Literal["float32", "float64"] = "float32"
    """Of weights and arithmetic."""
    matmul: Literal["float32", "tf32", "bf16"] = "float32"
    """Precision of a float32 run's matrix products: float32; or, where the hardware has them faster and
    other digits are welcome, tf32 (CUDA alone) or bf16 (operands and results rounded to bfloat16)."""
    threads: int | None = None
    """CPU threads while training; unset for torch's own choice, or 1 where several runs are trained side by
    side. Bits repeat for one thread count."""
    log_every: int = 10
    """Steps between log lines."""
    eval_every: int = 100
    """Steps between evaluations."""
    n_checkpoints: int = 10
    """Checkpoints of the trajectory, log-spaced from step 1 to the last, and step 0; 0 for none."""
    state_every_seconds: float = 30.0
    """Seconds between saves of the state that --resume continues from; 0 for every step."""

    def __post_init__(self) -> None:
        """Check every field."""
        make_plain(self)
        check_number("seed", self.seed, minimum=0, integer=True)
        check_number("n_samples", self.n_samples, minimum=1, maximum=_MOST_SAMPLES, integer=True)
        for name, minimum, limit in (
            ("batch_size", 1, _MOST_SAMPLES),
            ("log_every", 1, _MOST_STEPS),
            ("eval_every", 1, _MOST_STEPS),
            ("n_checkpoints", 0, _MOST_CHECKPOINTS),
        ):
            check_number(name, getattr(self, name), minimum=minimum, limit=limit, integer=True)
        if self.batch_size > self.n_samples:
            raise ValueError(
                f"batch_size must be <= n_samples ({self.n_samples}), got {self.batch_size}; "
                "take a smaller batch or more samples"
            )
        self._check_duration("steps", "epochs", minimum=1)
        self._check_duration("warmup_steps", "warmup_epochs", minimum=0)
        if self.early_stop_evaluations is not None:
            patience = self.early_stop_evaluations
            check_number("early_stop_evaluations", patience, minimum=1, limit=_MOST_STEPS, integer=True)
        if self.stop_at_loss is not None:
            check_number("stop_at_loss", self.stop_at_loss, above=0)
        if self.threads is not None:
            check_number("threads", self.threads, minimum=1, maximum=1024, integer=True)
        check_number("lr", self.lr, above=0, limit=_LARGEST_RATE)
        check_number("lr_start_factor", self.lr_start_factor, minimum=0, maximum=1)
        check_number("lr_end_factor", self.lr_end_factor, minimum=0, maximum=1)
        check_number("weight_decay", self.weight_decay, minimum=0, limit=_LARGEST_RATE)
        check_number("eps", self.eps, above=0, limit=_LARGEST_RATE)
        check_number("state_every_seconds", self.state_every_seconds, minimum=0, limit=_LONGEST_WAIT)
        for name in ("beta1", "beta2"):
            check_number(name, getattr(self, name), minimum=0, maximum=0.999999)
        check_number("clip_norm", self.clip_norm, minimum=0)
        check_choice("dtype", self.dtype, ("float32", "float64"))
        check_choice("matmul", self.matmul, ("float32", "tf32", "bf16"))
        if self.dtype == "float64" and self.matmul != "float32":
            raise ValueError(
                f"matmul {self.matmul!r} goes with dtype 'float32', got 'float64'; leave matmul out"
            )
        if not isinstance(self.device, str):
            raise ValueError(
                f"device must be a name such as 'auto', 'cpu' or 'cuda:0', got {shown(self.device)}"
            )

    def _check_duration(self, steps: str, epochs: str, *, minimum: int) -> None:
        given = [name for name in (steps, epochs) if getattr(self, name) is not None]
        if len(given) == 2:
            raise ValueError(f"{steps} and {epochs} are the same thing in two units; give one of them")
        for name in given:
            check_number(name, getattr(self, name), minimum=minimum, limit=_MOST_STEPS, integer=True)
        if epochs in given and (n_steps := getattr(self, epochs) * self.steps_per_epoch) > _MOST_STEPS:
            raise ValueError(f"{epochs} are {n_steps:,} steps, more than {_MOST_STEPS:,}; take fewer")

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in the training set; the rest of a permutation is left out of its epoch."""
        return self.n_samples // self.batch_size

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self._in_steps(self.steps, self.epochs, _STEPS)

    @property
    def total_warmup_steps(self) -> int:
        """Optimizer steps of the warm-up."""
        return self._in_steps(self.warmup_steps, self.warmup_epochs, _WARMUP_STEPS)

    def _in_steps(self, steps: int | None, epochs: int | None, default: int) -> int:
        if epochs is not None:
            return epochs * self.steps_per_epoch
        return default if steps is None else steps

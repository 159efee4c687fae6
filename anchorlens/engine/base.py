"""What every engine shares: K models updated in lockstep, from step to step + 1, and their exact state.

Every member has its own weights, data, order of the data, gamma, learning rate, weight decay and
clipping; all members share shapes and the number of steps. A member whose loss or gradient is not finite
keeps its weights from before that update and is not updated again. On CUDA the whole update is one captured
graph, where engine and recipe allow it, and the host waits for the device only to report.
"""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from anchorlens.engine.interventions import Interventions
from anchorlens.engine.layout import architecture
from anchorlens.engine.optimizers import MOMENTS, StackedOptimizer
from anchorlens.recipes.schedule import epoch_order, learning_rate

if TYPE_CHECKING:
    from jaxtyping import Float

    from anchorlens.recipes.run_config import RunConfig
    from anchorlens.tasks.shared.base import Batch

_CAPTURING = threading.Lock()
"""Held while a graph is captured: CUDA captures one graph at a time in a process, across all threads."""
_SHARED_TRAIN = ("n_samples", "batch_size", "dtype", "matmul")


@functools.cache
def _stream_to_capture_on(device: torch.device) -> torch.cuda.Stream:
    """Return the one stream of a GPU; cuBLAS keeps memory for every used stream, 64 MiB on an H200."""
    with torch.cuda.device(device):
        return torch.cuda.Stream()


class Update(NamedTuple):
    """The loss, learning rate and gradient norm of the last update of one model in a stack."""

    loss: float
    """Loss on the batch before the update: mean cross-entropy at scored positions (nats), or the task's
    own."""
    lr: float
    """Learning rate of the update."""
    grad_norm: float
    """Global gradient norm before clipping."""
    failed_at: int | None
    """The step whose update was skipped because the loss or the gradient was not finite, or None."""


def stack_key(run: RunConfig) -> tuple[object, ...]:
    """Return the settings that the runs of a stack share: shapes, batches, precision and number of steps."""
    train = run.train_config
    shared = tuple(getattr(train, name) for name in _SHARED_TRAIN)
    return (*run.model_config.shape.items(), run.task.kind, run.task.seq_len, *shared, train.total_steps)


class Engine(ABC):
    """A trainer of one or more models (members) that updates all models at once.

    The step determines the batches, their order and the learning rates. The step, the parameters and the
    optimiser's moments are therefore the complete state.
    """

    captures = True
    """Whether the update may be captured as a CUDA graph: no Python in it depends on the step, and it never
    waits for the device."""

    def __init__(
        self,
        runs: Sequence[RunConfig],
        data: Sequence[Batch],
        device: torch.device,
        initial: Sequence[Mapping[str, Tensor] | None] | None = None,
    ) -> None:
        """Draw the initial weights; step 0.

        Args:
            runs: one for each member, equal in `stack_key`.
            data: the training set of each member; members may share one.
            device: the device that holds weights and training sets.
            initial: the weights that each member starts with, by name; None to draw them.

        Raises:
            ValueError: If there are no runs, or runs have different shapes.
        """
        if not runs or any(stack_key(run) != stack_key(runs[0]) for run in runs):
            raise ValueError(
                "the runs of a stack must be of equal shape and duration, got no run or different runs. "
                "Train different runs separately"
            )
        self.runs = tuple(runs)
        self.device = device
        self.step = 0
        self.layout = architecture(runs[0].model_config)
        self._train = runs[0].train_config
        dtype = getattr(torch, self._train.dtype)
        weights = [
            self.layout.row(
                self.layout.initial_weights(run.model_config, run.train_config.seed, dtype)
                if own is None
                else {name: weight.to(dtype) for name, weight in own.items()}
            )
            for run, own in zip(runs, initial or [None] * len(runs), strict=True)
        ]
        self._rows = torch.stack(weights).to(device)  # [member, parameter]
        self._merged = self.layout.merged(self._rows)
        self.leaves = list(self._merged.values())
        for leaf in self.leaves:
            leaf.requires_grad_()
        self._optimizer = StackedOptimizer(self._rows, [run.train_config for run in runs], self.layout)
        self._interventions = Interventions(runs, self.layout)
        sets = list({id(batch): batch for batch in data}.values())
        starts = {id(batch): k * len(sets[0]) for k, batch in enumerate(sets)}
        self._starts = [starts[id(batch)] for batch in data]
        self._place_data(sets)
        self._make_cursors()
        self._graph: torch.cuda.CUDAGraph | None = None

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self.runs)

    # -- what an engine is -----------------------------------------------------------------------------

    @abstractmethod
    def _place_data(self, sets: Sequence[Any]) -> None:
        """Concatenate the distinct training sets, all of one length, on the device."""

    @abstractmethod
    def _loss(self, rows: Tensor) -> Float[Tensor, " member"]:
        """Return each member's loss on its batch; `rows` [member, batch] are indices into the placed data."""

    # -- what is on the device -----------------------------------------------------------------------

    def _make_cursors(self) -> None:
        """Make the tensors from which an update reads its step and batch, and to which it writes results."""
        n_members = len(self)
        batch, per_epoch = self._train.batch_size, self._train.steps_per_epoch
        device, dtype = self.device, self._rows.dtype
        self._epoch = -1
        taken_on = device if self.captures else torch.device("cpu")  # where batches are taken
        self._order = torch.zeros(n_members, per_epoch, batch, dtype=torch.int64, device=taken_on)
        self._within = torch.zeros(1, dtype=torch.int64, device=device)  # batch of the epoch
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._active = torch.ones(n_members, dtype=torch.bool, device=device)
        self._losses, self._norms = torch.zeros(2, n_members, dtype=dtype, device=device)
        self._failed_at = torch.full((n_members,), -1, dtype=torch.int64, device=device)

    # -- updates -------------------------------------------------------------------------------------

    def advance(self, stop: int) -> list[Update]:
        """Make the updates up to step `stop` and report the last update of each model."""
        per_epoch = self._train.steps_per_epoch
        while self.step < stop:
            epoch, within = divmod(self.step, per_epoch)
            if epoch != self._epoch:
                self._begin_epoch(epoch)
            self._within.fill_(within)
            self._step.fill_(self.step)
            self._interventions.before_update(self.step, self._rows, self._active)
            n_updates = min(self._interventions.next_after(self.step, stop) - self.step, per_epoch - within)
            for _ in range(n_updates):
                self._update_once()
                self.step += 1
        return self._report()

    def stop(self, member: int) -> None:
        """Exclude a model of the stack from further updates."""
        self._active[member] = False

    def first_loss(self) -> Tensor:
        """Return the sum of all models' losses on their first batches, from which the cost is estimated."""
        return self._loss(self._order[:, 0]).sum()

    def _update_once(self) -> None:
        # an SVD cannot be captured in a graph, nor a window of steps
        if self.device.type != "cuda" or not self.captures or self._interventions.in_windows:
            self._update()
            return
        if self._graph is None:
            self._capture()
        assert self._graph is not None
        self._graph.replay()

    def _capture(self) -> None:
        """Capture the update as a CUDA graph; the warm-up updates that CUDA requires change nothing."""
        cursors = (self._active, self._within, self._step, self._losses, self._norms, self._failed_at)
        kept = [cursor.clone() for cursor in cursors]
        self._active.fill_(False)
        with _CAPTURING, torch.cuda.device(self.device):
            side = _stream_to_capture_on(self.device)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self._update()
                    self._within.copy_(kept[1])
                    self._step.copy_(kept[2])
            torch.cuda.current_stream().wait_stream(side)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=side, capture_error_mode="thread_local"):
                self._update()
        for cursor, value in zip(cursors, kept, strict=True):
            cursor.copy_(value)

    def _update(self) -> None:
        """Update every active member once, without waiting for the device."""
        if self.captures:
            rows = self._order.index_select(1, self._within).squeeze(1)  # [member, batch]
        else:
            rows = self._order[:, self.step % self._train.steps_per_epoch]
        loss = self._loss(rows)
        whole = self._interventions.penalised(loss, self._merged, self.step)
        grads = torch.autograd.grad(whole.sum(), self.leaves)
        flat = torch.cat([grad.flatten(1) for grad in grads], dim=1)  # [member, parameter]
        norm = torch.linalg.vector_norm(flat, dim=1)
        self._apply(flat, loss.detach(), norm)
        self._within += 1
        self._step += 1

    def _apply(self, grads: Tensor, loss: Tensor, norm: Tensor) -> None:
        """Update the members that are active and finite; store losses, norms and failures."""
        finite = loss.isfinite() & norm.isfinite()
        taken = self._active & finite
        with self._interventions.around_update(self.step, self._rows.detach(), taken):
            self._optimizer.step(grads, norm, taken, self._within)
        self._losses.copy_(torch.where(self._active, loss, self._losses))
        self._norms.copy_(torch.where(self._active, norm, self._norms))
        failed = self._active & ~finite
        self._failed_at.copy_(torch.where(failed, self._step, self._failed_at))
        self._active &= finite

    def _begin_epoch(self, epoch: int) -> None:
        n_used = self._train.steps_per_epoch * self._train.batch_size
        orders = {}
        on_gpu = self._order.is_cuda
        placed = torch.empty(self._order.shape, dtype=torch.int64, device="cpu", pin_memory=on_gpu)
        for k, (run, start) in enumerate(zip(self.runs, self._starts, strict=True)):
            seed = run.train_config.seed
            if seed not in orders:
                orders[seed] = torch.from_numpy(epoch_order(run.train_config, epoch)[:n_used])
            torch.add(orders[seed], start, out=placed[k].view(-1))
        self._order.copy_(placed, non_blocking=on_gpu)
        self._optimizer.begin_epoch(epoch * self._train.steps_per_epoch)
        self._epoch = epoch

    def _report(self) -> list[Update]:
        """Return the last update of each member; only this method waits for the device."""
        losses, norms = self._losses.tolist(), self._norms.tolist()
        failed = self._failed_at.tolist()
        lrs = [learning_rate(run.train_config, max(0, self.step - 1)) for run in self.runs]
        return [
            Update(loss, lr, norm, None if step < 0 else step)
            for loss, norm, lr, step in zip(losses, norms, lrs, failed, strict=True)
        ]

    # -- what comes out ------------------------------------------------------------------------------

    def weights(self, member: int) -> dict[str, Tensor]:
        """Return a copy of one model's current parameters by name, on the CPU."""
        return self.layout.weights(self._rows[member].detach().cpu())

    def snapshot(self) -> Float[Tensor, "member parameter"]:
        """Return a copy of all weights, [member, parameter]. `layout.weights` reads a row of the copy."""
        return self._rows.detach().clone()

    def weight_norms(self) -> list[float]:
        """Return the global L2 norm of each model's parameters.

        The norm is NaN or infinite if a parameter is NaN or infinite.
        """
        return torch.linalg.vector_norm(self._rows.detach(), dim=1, dtype=torch.float64).tolist()

    def model(self, member: int) -> Any:
        """Return one model as a function, which for a transformer maps tokens to logits at all positions.

        The function reads the current weights in place, so later updates change its results.
        """
        rows = self._rows[member : member + 1].detach()
        return self.layout.function(self.runs[member].model_config, self.layout.merged(rows))

    def state(self, member: int) -> dict[str, Tensor]:
        """Return copies of one model's weights and moments on the CPU, from which training can resume."""
        tensors = {f"weight.{name}": weight for name, weight in self.weights(member).items()}
        for moment, row in self._optimizer.moments(member).items():
            copies = self.layout.weights(row.cpu()).items()  # one copy from the device for all parameters
            tensors |= {f"{moment}.{name}": copy for name, copy in copies if name not in self.layout.frozen}
        return tensors

    def restore(self, step: int, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Continue from the states that `state` returned for each model after `step` updates.

        Raises:
            ValueError: If the tensors do not fit these models, or `step` is out of range.
        """
        trained = self.layout.views(self._rows)
        expected = {f"weight.{name}": shape for name, shape in self.layout.shapes.items()}
        expected |= {f"{m}.{name}": tuple(v.shape[1:]) for m in MOMENTS for name, v in trained.items()}
        for k, tensors in enumerate(states):
            found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
            dtypes = {tensor.dtype for tensor in tensors.values()}
            fits = found == expected and dtypes == {self._rows.dtype} and len(states) == len(self)
            if not fits or not 0 < step <= self._train.total_steps:
                raise ValueError(
                    "the saved state must belong to this model, got the state of another model. Start the "
                    "run again in another folder"
                )
            parts = (_strip(tensors, kind) for kind in ("weight", *MOMENTS))
            weights, *moments = (self.layout.row(part).to(self.device) for part in parts)
            with torch.no_grad():
                self._rows[k].copy_(weights)
            self._optimizer.restore(k, step, dict(zip(MOMENTS, moments, strict=True)))
        self.step = step
        self._make_cursors()
        self._graph = None


def _strip(tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{kind}."): t for name, t in tensors.items() if name.startswith(f"{kind}.")}

"""The optimizer of every member of a stack: clipping, learning rates and moments, and their exact state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from anchorlens.engine.interventions import part_of_parameters
from anchorlens.engine.layout import FlatLayout
from anchorlens.models.config import PARTS
from anchorlens.recipes.schedule import learning_rate, weight_decay
from anchorlens.recipes.train_config import DECAYS, TrainConfig

if TYPE_CHECKING:
    from jaxtyping import Float, Int

MOMENTS = ("exp_avg", "exp_avg_sq")
"""The optimizer state besides the step, by torch's names; Muon's momentum is AdamW's first moment."""
ORTHOGONALISED = ("qk", "vo", "mlp")
"""Parts whose matrices Muon updates; AdamW updates all other parameters."""
_QUINTIC, _ITERATIONS = (3.4445, -4.7750, 2.0315), 5
"""Coefficients and number of Newton-Schulz iterations (Jordan 2024)."""
_AS_ADAMW = 0.2
"""Approximate root mean square of an AdamW update (Liu et al., arXiv 2502.16982). Muon's updates are scaled
to it, so that one learning rate serves both."""


class StackedOptimizer:
    """An AdamW, Adam or Muon optimiser that updates each row of a matrix of weights.

    On CUDA, the learning rates of an epoch are on the device, so that a CUDA graph can capture a step. The
    class calls torch's fused functional optimiser. An optimiser object would import torch's compiler, and the
    import takes 2 s. The functional optimiser takes one weight decay for all weights. This class itself
    decays the weights before the update in three cases:

    - The parts of the weights have different weight decays.
    - The weight decay is scheduled, and a CUDA graph would capture its value as a constant.
    - The optimiser is Muon.
    """

    def __init__(
        self, rows: Float[Tensor, "member parameter"], recipes: Sequence[TrainConfig], layout: FlatLayout
    ) -> None:
        """Begin with zero moments for these weights, which `step` changes in place.

        Args:
            rows: the weights.
            recipes: the recipe of each member.
            layout: the layout of a member's parameters in its row.
        """
        self._rows, self._recipes = rows.detach(), recipes
        self._captured = rows.is_cuda
        self._moments = [{name: torch.zeros_like(row) for name in MOMENTS} for row in self._rows]
        self._steps = [torch.zeros((), dtype=torch.float32, device=rows.device) for _ in recipes]
        clip = [train.clip_norm or torch.inf for train in recipes]
        self._clip = torch.tensor(clip, dtype=rows.dtype, device=rows.device)
        self._began = 0
        shape = (recipes[0].steps_per_epoch if self._captured else 0, len(recipes))
        self._lrs = torch.zeros(shape, dtype=torch.float32, device=rows.device)  # [step of the epoch, member]
        self._decayed_here = [
            any(getattr(r, name) is not None for name in DECAYS)
            or (self._captured and isinstance(r.weight_decay, str))
            or r.optimizer == "muon"
            for r in recipes
        ]
        self._decays = rows.new_zeros(0)  # [step of the epoch, member, part], where a graph reads them
        self._part_of = None
        if any(self._decayed_here):
            self._part_of = part_of_parameters(layout, PARTS).to(rows.device)
        self._layout, parts = layout, layout.parts()
        self._matrices = [name for name, part in parts.items() if part in ORTHOGONALISED]

    def begin_epoch(self, step: int) -> None:
        """Prepare the learning rates of the epoch that begins at `step`, without waiting for the device."""
        self._began = step
        if self._captured:
            lrs = [[learning_rate(r, step + k) for r in self._recipes] for k in range(len(self._lrs))]
            placed = torch.tensor(lrs, dtype=torch.float32, device="cpu", pin_memory=True)
            self._lrs.copy_(placed, non_blocking=True)
            if any(self._decayed_here):
                decays = [[_decays(r, step + k) for r in self._recipes] for k in range(len(self._lrs))]
                placed = torch.tensor(decays, dtype=self._rows.dtype, device="cpu", pin_memory=True)
                self._decays = self._decays if len(self._decays) else placed.to(self._rows.device)
                self._decays.copy_(placed, non_blocking=True)

    @torch.no_grad()
    def step(
        self,
        grads: Float[Tensor, "member parameter"],
        norms: Float[Tensor, " member"],
        taken: Tensor,
        within: Int[Tensor, 1],
    ) -> None:
        """Clip the gradients in place and update the models in `taken`, without waiting for the device.

        Args:
            grads: the gradients of each model's loss.
            norms: the global gradient norm of each model.
            taken: the models to update, bool [member].
            within: the number of earlier updates in the current epoch.
        """
        skipped = (~taken).float()
        grads *= (self._clip / (norms + 1e-6)).clamp(max=1).unsqueeze(1)  # as torch's clip_grad_norm_
        lrs = self._lrs.index_select(0, within).squeeze(0) if self._captured else None
        for k, train in enumerate(self._recipes):
            step = self._began + (0 if self._captured else int(within))
            lr = learning_rate(train, step) if lrs is None else lrs[k]
            decay = weight_decay(train, step)
            if self._decayed_here[k]:
                decays = self._decays.index_select(0, within)[0, k] if self._captured else None
                decays = self._rows.new_tensor(_decays(train, step)) if decays is None else decays
                self._decay(k, lr, decays, taken[k], grads[k])
                decay = 0.0
            before = self._rows[k].clone() if train.optimizer == "muon" else None
            (adam if train.optimizer == "adam" else adamw)(
                [self._rows[k]],
                [grads[k]],
                [self._moments[k]["exp_avg"]],
                [self._moments[k]["exp_avg_sq"]],
                [],
                [self._steps[k]],
                fused=True,
                capturable=self._captured,
                found_inf=skipped[k],  # 1 skips the update, as with torch's GradScaler
                amsgrad=False,
                beta1=float(train.beta1),
                beta2=float(train.beta2),
                lr=lr,
                weight_decay=decay,
                eps=train.eps,
                maximize=False,
            )
            if before is not None:
                self._orthogonalise(k, before, grads[k], lr, taken[k])

    def _orthogonalise(
        self, member: int, before: Tensor, grads: Tensor, lr: float | Tensor, taken: Tensor
    ) -> None:
        """Replace AdamW's update of a member's matrices by Muon's, starting from `before`.

        Muon's momentum, with beta1, is the same mean of gradients as AdamW's first moment, which is used.
        """
        momentum = self._moments[member]["exp_avg"]
        rows = (self._rows[member], before, grads, momentum)
        views = [self._layout.views(row.unsqueeze(0)) for row in rows]
        for name in self._matrices:
            target, start, gradient, mean = (view[name][0] for view in views)
            direction = as_matrix(name, gradient.lerp(mean, self._recipes[member].beta1))
            scale = _AS_ADAMW * max(direction.shape) ** 0.5
            step = -lr * scale * orthogonal(direction)
            target.copy_(start + torch.where(taken, as_weight(name, step, target), 0.0))

    def _decay(
        self,
        member: int,
        lr: float | Tensor,
        decays: Float[Tensor, " part"],
        taken: Tensor,
        grads: Float[Tensor, " parameter"],
    ) -> None:
        """Decay the weights of a member, each part by its own factor, if the member is updated.

        The decay is decoupled; for Adam it is added to the gradient.
        """
        assert self._part_of is not None
        if self._recipes[member].optimizer == "adam":
            grads += decays[self._part_of] * self._rows[member]
            return
        factors = torch.where(taken, 1 - lr * decays, 1.0)  # [part]
        self._rows[member].mul_(factors.to(self._rows.dtype)[self._part_of])

    def moments(self, member: int) -> dict[str, Float[Tensor, " parameter"]]:
        """Return the optimiser's moments of one model by name. All moments are zero before the first step."""
        return dict(self._moments[member])

    def restore(self, member: int, step: int, moments: Mapping[str, Tensor]) -> None:
        """Continue from the moments of one model after `step` updates."""
        self._steps[member].fill_(step)
        for name, moment in moments.items():
            self._moments[member][name].copy_(moment)


def _decays(train: TrainConfig, step: int) -> list[float]:
    """Return the weight decay of parameters in no part, then of each part, at the update from `step`."""
    return [weight_decay(train, step, part) for part in (None, *PARTS)]


def orthogonal(matrix: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """Approximate U V^T of a matrix U S V^T by Newton-Schulz iterations.

    The singular values of the result are between about 0.7 and 1.2.

    Source: Muon (Jordan et al. 2024).
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    a, b, c = _QUINTIC
    for _ in range(_ITERATIONS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def as_matrix(name: str, weight: Tensor) -> Float[Tensor, "m n"]:
    """Return a weight of HookedTransformer as one matrix, with the heads concatenated."""
    if weight.dim() < 3:
        return weight
    return weight.flatten(0, 1) if name.endswith("W_O") else weight.movedim(0, 1).flatten(1)


def as_weight(name: str, matrix: Float[Tensor, "m n"], like: Tensor) -> Tensor:
    """Invert `as_matrix`."""
    if like.dim() < 3:
        return matrix
    heads = like.shape[0]
    if name.endswith("W_O"):
        return matrix.unflatten(0, (heads, -1))
    return matrix.unflatten(1, (heads, -1)).movedim(1, 0)

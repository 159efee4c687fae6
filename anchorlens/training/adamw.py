"""AdamW for every member of a stack: clipping, learning rates and moments, and their exact state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anchorlens.training.schedule import learning_rate

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from anchorlens.runs.train_config import TrainConfig

MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's state beside the step, by torch's names."""


class StackedAdamW:
    """torch's fused AdamW on each row of a matrix of weights, with the recipe of that row.

    On CUDA the learning rates lie on the device, so that a step can be captured in a graph.
    """

    def __init__(self, rows: Float[Tensor, "member parameter"], recipes: Sequence[TrainConfig]) -> None:
        """Moments of zero for these weights, which `step` changes in place."""
        self._rows, self._recipes = rows.detach(), recipes
        self._captured = rows.is_cuda
        self._optimizers = [self._optimizer(*each) for each in zip(self._rows, recipes, strict=True)]
        clip = [train.clip_norm or torch.inf for train in recipes]
        self._clip = torch.tensor(clip, dtype=rows.dtype, device=rows.device)
        if self._captured:
            schedule = [[learning_rate(r, step) for r in recipes] for step in range(recipes[0].total_steps)]
            self._lrs = torch.tensor(schedule, dtype=torch.float32, device=rows.device)  # [step, member]

    def _optimizer(self, row: Tensor, train: TrainConfig) -> torch.optim.AdamW:
        row.grad = torch.zeros_like(row)
        return torch.optim.AdamW(
            [row],
            lr=torch.tensor(train.lr, device=row.device) if self._captured else train.lr,
            betas=(float(train.beta1), float(train.beta2)),
            eps=train.eps,
            weight_decay=train.weight_decay,
            fused=True,
            capturable=self._captured,
        )

    def step(
        self,
        grads: Float[Tensor, "member parameter"],
        norms: Float[Tensor, " member"],
        taken: Tensor,
        step: Int[Tensor, 1],
    ) -> None:
        """Clip the gradients, in place, and update the members that take part, without a wait for the device.

        Args:
            grads: of each member's loss.
            norms: their global norms.
            taken: bool [member]; the others stay as they are, whatever their gradients.
            step: updates made before this one.
        """
        skipped = (~taken).float()
        grads *= (self._clip / (norms + 1e-6)).clamp(max=1).unsqueeze(1)  # as torch's clip_grad_norm_
        lrs = self._lrs.index_select(0, step).squeeze(0) if self._captured else None
        for k, optimizer in enumerate(self._optimizers):
            (group,) = optimizer.param_groups
            (row,) = group["params"]
            row.grad = grads[k]
            if lrs is None:
                group["lr"] = learning_rate(self._recipes[k], int(step))
            else:
                group["lr"].copy_(lrs[k])
            optimizer.found_inf = skipped[k]  # pyright: ignore - as torch's GradScaler has it do nothing
            optimizer.step()

    def moments(self, member: int) -> dict[str, Float[Tensor, " parameter"]]:
        """The moments of a member by their names; zeros before its first step."""
        optimizer = self._optimizers[member]
        (row,) = optimizer.param_groups[0]["params"]
        saved = optimizer.state.get(row, {})
        return {name: saved.get(name, torch.zeros_like(row)) for name in MOMENTS}

    def restore(self, member: int, step: int, moments: Mapping[str, Tensor]) -> None:
        """Go on from the moments of a member after `step` updates."""
        device = self._rows.device if self._captured else "cpu"
        saved = {**moments, "step": torch.tensor(float(step), device=device)}
        optimizer = self._optimizers[member]
        optimizer.load_state_dict({**optimizer.state_dict(), "state": {0: saved}})

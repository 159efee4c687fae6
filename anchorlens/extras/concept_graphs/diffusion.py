"""DDPM: add noise to images, and remove it with a network that predicts the noise.

Source: Ho et al., arXiv 2006.11239, as in the released code of arXiv 2501.08537: a linear schedule beta_0 to
beta_T, the noise of steps 1..T, and samples with standard deviation sqrt(beta_t). The library diffusers has a
`DDPMScheduler` for the steps 0..T-1. We do not use it, because we need T + 1 betas and only two formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.configuration import frozen_dataclass
from anchorlens.tasks import on_device

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

PUBLISHED_STEPS = 500
"""The number of steps of the released code, by which `Schedule` scales its betas."""


@frozen_dataclass()
class Schedule:
    """The schedule of noise over the steps of diffusion.

    With fewer steps than the published 500, each step adds more noise. The total noise therefore stays about
    the same.

    Example:
        >>> schedule = Schedule(500)
        >>> [round(float(schedule.betas[t]), 6) for t in (0, 250, 500)]
        [0.0001, 0.01005, 0.02]
        >>> round(float(Schedule(500).signal[500]), 3), round(float(Schedule(100).signal[100]), 3)
        (0.006, 0.005)
    """

    n_steps: int
    """The number of steps T, >= 1."""
    first: float = 1e-4
    """The beta_0 of 500 steps."""
    last: float = 0.02
    """The beta_T of 500 steps."""

    @cached_property
    def betas(self) -> Float[np.ndarray, " n_steps+1"]:
        """The variance of the noise that each step adds, for the steps 0..T."""
        betas = np.linspace(self.first, self.last, self.n_steps + 1) * (PUBLISHED_STEPS / self.n_steps)
        return np.minimum(betas, 0.999)

    @cached_property
    def signal(self) -> Float[np.ndarray, " n_steps+1"]:
        """After each step, the fraction of the variance that is due to the image (alpha_bar)."""
        return np.cumprod(1 - self.betas)

    def noisy(
        self,
        pixels: Float[Tensor, "image channel y x"],
        steps: Int[np.ndarray, " image"],
        noise: Float[Tensor, "image channel y x"],
    ) -> Float[Tensor, "image channel y x"]:
        """Return noisy images after the given steps: sqrt(alpha_bar) pixels + sqrt(1 - alpha_bar) noise."""
        import torch

        kept = torch.as_tensor(self.signal[steps], dtype=pixels.dtype, device="cpu").view(-1, 1, 1, 1)
        kept = on_device(kept, pixels.device)
        return kept.sqrt() * pixels + (1 - kept).sqrt() * noise

    def sample(
        self,
        noise_in: Callable[[Tensor, int], Tensor],
        start: Float[Tensor, "image channel y x"],
        draws: Iterable[Tensor],
    ) -> Float[Tensor, "image channel y x"]:
        """Draw images from noise by ancestral sampling through every step.

        Args:
            noise_in: the function that predicts the noise in the images after step t. The arguments are these
                images and t.
            start: noise of variance 1, used as the images after step T.
            draws: noise of the shape of `start`, for each step except the last.
        """
        x, others = start, iter(draws)
        for t in range(self.n_steps, 0, -1):
            beta, kept = float(self.betas[t]), float(self.signal[t])
            x = (x - beta / (1 - kept) ** 0.5 * noise_in(x, t)) / (1 - beta) ** 0.5
            if t > 1:
                x = x + beta**0.5 * next(others)
        return x

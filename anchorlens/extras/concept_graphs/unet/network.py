"""The conditional U-Net of arXiv 2501.08537, figure 6: two scales, BatchNorm, a condition at each scale.

F is n_feat, s is the side of an image, and (a, b) is the concatenation of a and b along the channels:

| module   | what it does                                                                      |
|----------|-----------------------------------------------------------------------------------|
| first    | residual block, channels -> F: twice 3x3 convolution, BatchNorm, GELU; the sum    |
| down1    | block F -> F, max pooling: s / 2                                                  |
| down2    | block F -> 2F, max pooling: s / 4                                                 |
| to_vec   | mean over what is left, GELU: 2F numbers                                          |
| up0      | transposed convolution to s / 4, GroupNorm (8 groups), ReLU                       |
| up1      | of (condition * up0 + time, down2): transposed convolution to s / 2, two blocks   |
| up2      | of (condition * up1 + time, down1): the same to s                                 |
| out      | of (up2, first): 3x3 convolution, GroupNorm, ReLU, 3x3 convolution to channels    |

At each scale, each concept (shape, size, colour) has an MLP of two layers with GELU; the condition is the sum
of their outputs. The time has a separate MLP at each scale.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from anchorlens.extras.concept_graphs.unet.config import UNetConfig

N_GROUPS = 8
"""The number of groups of each GroupNorm."""


class UNet(nn.Module):
    """A network that predicts the noise in an image from the noisy image, the time and the conditions."""

    def __init__(self, config: UNetConfig) -> None:
        """Make the modules, without drawing their weights."""
        super().__init__()
        self.config = config
        channels, width = config.n_channels, config.n_feat
        self.first = ResidualBlock(channels, width)
        self.down1 = nn.Sequential(_block(width, width), nn.MaxPool2d(2))
        self.down2 = nn.Sequential(_block(width, 2 * width), nn.MaxPool2d(2))
        left = config.input_side // 4
        self.to_vec = nn.Sequential(nn.AvgPool2d(left), nn.GELU())
        self.up0 = nn.Sequential(
            nn.ConvTranspose2d(2 * width, 2 * width, left, left), nn.GroupNorm(N_GROUPS, 2 * width), nn.ReLU()
        )
        self.up1 = _up(4 * width, width)
        self.up2 = _up(2 * width, width)
        self.out = nn.Sequential(
            nn.Conv2d(2 * width, width, 3, padding=1),
            nn.GroupNorm(N_GROUPS, width),
            nn.ReLU(),
            nn.Conv2d(width, channels, 3, padding=1),
        )
        scales = (2 * width, width)
        self.time = nn.ModuleList(_mlp(1, size) for size in scales)
        self.concepts = nn.ModuleList(
            nn.ModuleDict({name: _mlp(n, size) for name, n in config.conditions.items()}) for size in scales
        )

    def forward(
        self,
        pixels: Float[Tensor, "image channel y x"],
        time: Float[Tensor, " image"],
        conditions: Float[Tensor, "image condition"],
    ) -> Float[Tensor, "image channel y x"]:
        """Predict the noise in each image.

        Args:
            pixels: the noisy images.
            time: the times t / T, 0..1.
            conditions: the shape, size and colour of each image, concatenated.
        """
        first = self.first(pixels)
        down1 = self.down1(first)
        down2 = self.down2(down1)
        image = self.up0(self.to_vec(down2))
        sizes = self.config.conditions
        own = dict(zip(sizes, conditions.split(list(sizes.values()), dim=1), strict=True))
        for scale, (up, skip) in enumerate(((self.up1, down2), (self.up2, down1))):
            told = self._condition(scale, own)[:, :, None, None]
            when = self.time[scale](time.unsqueeze(1))[:, :, None, None]
            image = up(torch.cat([told * image + when, skip], dim=1))
        return self.out(torch.cat([image, first], dim=1))

    def updated_bn(self, batches: Iterable[tuple[Tensor, Tensor, Tensor]]) -> UNet:
        """Return the network with the BatchNorm statistics of the inputs in `batches`.

        Args:
            batches: the noisy images, times and conditions. Use enough images for a good estimate.

        Returns:
            A copy in evaluation mode, or the network itself if its BatchNorm statistics are already set.
        """
        if any(int(norm.num_batches_tracked or 0) for norm in _norms(self)):
            return self
        model = copy.deepcopy(self).train()
        for norm in _norms(model):
            norm.momentum = None  # the mean over all batches, with equal weights
        like = next(model.parameters())
        with torch.no_grad():
            for inputs in batches:
                model(*(value.to(like) for value in inputs))
        return model.eval()

    def weight_matrices(self) -> dict[str, Float[Tensor, "row column"]]:
        """Return a map from parameter names to matrices of all convolutions and linear layers.

        The rows of a matrix are inputs. A matrix describes one application of the kernel. The matrix of a
        convolution is [channels in * kernel, channels out]. The matrix of a transposed convolution is
        [channels in, channels out * kernel]. The method omits layers with one input or one output, because
        the matrices of these layers always have rank 1.
        """
        matrices = {}
        for name, module in self.named_modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                matrices[f"{name}.weight"] = rearrange(module.weight, "out ... -> (...) out")
            elif isinstance(module, nn.ConvTranspose2d):
                matrices[f"{name}.weight"] = rearrange(module.weight, "into ... -> into (...)")
        return {
            name: matrix.detach().to(torch.promote_types(matrix.dtype, torch.float32))
            for name, matrix in matrices.items()
            if min(matrix.shape) > 1
        }

    def _condition(self, scale: int, own: Mapping[str, Tensor]) -> Tensor:
        every = self.concepts[scale]
        assert isinstance(every, nn.ModuleDict)
        return torch.stack([every[name](value) for name, value in own.items()]).sum(dim=0)


class ResidualBlock(nn.Module):
    """A block that adds the output of its first half to the output of its second half."""

    def __init__(self, n_in: int, n_out: int) -> None:
        """Make a block from `n_in` to `n_out` channels."""
        super().__init__()
        self.half1 = nn.Sequential(*_convolved(n_in, n_out))
        self.half2 = nn.Sequential(*_convolved(n_out, n_out))

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the sum of the outputs of the two halves."""
        half = self.half1(pixels)
        return half + self.half2(half)


def _norms(model: UNet) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def _convolved(n_in: int, n_out: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.GELU()


def _block(n_in: int, n_out: int) -> nn.Sequential:
    """Return layers that apply a 3x3 convolution, BatchNorm and GELU twice."""
    return nn.Sequential(*_convolved(n_in, n_out), *_convolved(n_out, n_out))


def _up(n_in: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(nn.ConvTranspose2d(n_in, n_out, 2, 2), _block(n_out, n_out), _block(n_out, n_out))


def _mlp(n_in: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(n_in, n_out), nn.GELU(), nn.Linear(n_out, n_out))

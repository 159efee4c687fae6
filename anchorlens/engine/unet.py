"""What a UNetConfig stands for: how its parameters start, lie in memory, and what they compute."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from anchorlens.engine.flat_layout import FlatLayout, Parameters
from anchorlens.models.gamma import initial_generator
from anchorlens.models.unet.config import UNetConfig
from anchorlens.models.unet.network import UNet

if TYPE_CHECKING:
    from jaxtyping import Float

    Inputs = tuple[Tensor, Tensor, Tensor]

PYTORCHS = 0.5
"""The gamma of PyTorch's own initialisation of these layers."""


class UNetArchitecture(FlatLayout):
    """A U-Net's parameters, in the memory of a stack, and its forward pass.

    What BatchNorm knows of its inputs is no parameter. While training it goes by the batch; whoever asks a
    trained network updates it on training images first (`UNet.updated_bn`). So the weights are all
    there is to store and to resume from.
    """

    def __init__(self, config: UNetConfig) -> None:
        """Lay out every parameter."""
        shapes = {name: tuple(value.shape) for name, value in _blank(config).named_parameters()}
        super().__init__(shapes)

    def initial_weights(self, config: UNetConfig, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """Every parameter as it starts: U(-b, b), b = fan_in^-gamma, weights and biases; norms 1 and 0."""
        generator = initial_generator(seed)
        weights = {
            name: torch.full(shape, float(name.endswith("weight")), dtype=dtype, device="cpu")
            for name, shape in self.shapes.items()
        }
        for name, bound in bounds(config).items():
            for part in ("weight", "bias"):
                weights[f"{name}.{part}"].uniform_(-bound, bound, generator=generator)
        return weights

    def function(self, config: UNetConfig, parameters: Parameters) -> UNetFunction:
        """One member as a function of noisy images, times and conditions."""
        return UNetFunction(config, {name: value[0] for name, value in parameters.items()})

    def build(self, config: UNetConfig, weights: Mapping[str, Tensor], device: str | torch.device) -> UNet:
        """The module with these weights, in evaluation mode; its BatchNorms are not updated yet."""
        model = UNet(config).to(next(iter(weights.values())).dtype)
        model.load_state_dict(dict(weights), strict=False)  # all but what BatchNorm counts
        return model.to(device).eval()


class UNetFunction:
    """A U-Net as a function of its parameters, with BatchNorm by the batch."""

    def __init__(self, config: UNetConfig, parameters: Mapping[str, Tensor]) -> None:
        """Take the parameters of one network; they are not copied."""
        self.config, self._parameters = config, parameters
        self._dtype = next(iter(parameters.values())).dtype
        self.device = next(iter(parameters.values())).device

    def __call__(
        self,
        pixels: Float[Tensor, "image channel y x"],
        time: Float[Tensor, " image"],
        conditions: Float[Tensor, "image condition"],
    ) -> Float[Tensor, "image channel y x"]:
        """The noise in each image, as `UNet.forward`."""
        module = _blank(self.config)
        counts = {}
        for name, value in module.named_buffers():
            dtype = self._dtype if value.is_floating_point() else value.dtype
            counts[name] = torch.zeros(value.shape, device=self.device, dtype=dtype)
        inputs = [value.to(self.device, self._dtype) for value in (pixels, time, conditions)]
        return functional_call(module, {**self._parameters, **counts}, tuple(inputs))

    def updated_bn(self, batches: Iterable[Inputs]) -> UNet:
        """The network with BatchNorm updated on these inputs, as `UNet.updated_bn`."""
        model = UNet(self.config).to(self.device, self._dtype)
        model.load_state_dict(dict(self._parameters), strict=False)
        return model.updated_bn(batches)


@functools.lru_cache(maxsize=8)
def _blank(config: UNetConfig) -> UNet:
    """The modules without memory of their own, in training mode."""
    with torch.device("meta"):
        return UNet(config)


def bounds(config: UNetConfig) -> dict[str, float]:
    """Convolution, transposed convolution or linear layer -> the b of U(-b, b), in the order of drawing.

    The fan-in is PyTorch's: of a transposed convolution its output channels times the kernel.
    """
    factors = {}
    for name, module in _blank(config).named_modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            inside = name.startswith(("time.", "concepts.")) and name.endswith(".2")
            gamma = config.gamma if config.gamma_scope == "all" or inside else PYTORCHS
            factors[name] = float(module.weight[0].numel()) ** -gamma
    return factors

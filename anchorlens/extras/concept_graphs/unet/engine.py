"""The initialisation, memory layout and forward pass of the U-Net that a UNetConfig describes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from anchorlens.engine import FlatLayout, Parameters
from anchorlens.extras.concept_graphs.unet.config import UNetConfig
from anchorlens.extras.concept_graphs.unet.network import UNet
from anchorlens.models import initial_generator

PYTORCHS = 0.5
"""The gamma of PyTorch's default initialisation of these layers."""


class UNetArchitecture(FlatLayout):
    """The memory layout of the parameters of stacked U-Nets, and the forward pass of a U-Net.

    BatchNorm's running statistics are not parameters. Training uses the statistics of the batch. Before an
    evaluation, `UNet.updated_bn` computes the statistics on training images. A checkpoint therefore contains
    only the weights.
    """

    def __init__(self, config: UNetConfig) -> None:
        """Lay out every parameter."""
        shapes = {name: tuple(value.shape) for name, value in _blank(config).named_parameters()}
        super().__init__(shapes)

    def initial_weights(self, config: UNetConfig, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """Draw initial parameters from U(-b, b) with b = fan_in^-gamma.

        Norms start with scale 1 and shift 0.
        """
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
        """Return one network of a stack as a function from noisy images, times and conditions to noise."""
        return UNetFunction(config, {name: value[0] for name, value in parameters.items()})

    def build(self, config: UNetConfig, weights: Mapping[str, Tensor], device: str | torch.device) -> UNet:
        """Build the module with these weights in evaluation mode, with initial BatchNorm statistics."""
        model = UNet(config).to(next(iter(weights.values())).dtype)
        model.load_state_dict(dict(weights), strict=False)  # all but BatchNorm's statistics
        return model.to(device).eval()


class UNetFunction:
    """A function that applies a U-Net with given parameters and the batch's BatchNorm statistics."""

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
        """Predict the noise in each image, as `UNet.forward`."""
        module = _blank(self.config)
        counts = {}
        for name, value in module.named_buffers():
            dtype = self._dtype if value.is_floating_point() else value.dtype
            counts[name] = torch.zeros(value.shape, device=self.device, dtype=dtype)
        inputs = [value.to(self.device, self._dtype) for value in (pixels, time, conditions)]
        return functional_call(module, {**self._parameters, **counts}, tuple(inputs))

    def updated_bn(self, batches: Iterable[tuple[Tensor, Tensor, Tensor]]) -> UNet:
        """Return the network as a UNet with the BatchNorm statistics of the inputs in `batches`."""
        model = UNet(self.config).to(self.device, self._dtype)
        model.load_state_dict(dict(self._parameters), strict=False)
        return model.updated_bn(batches)


@functools.lru_cache(maxsize=8)
def _blank(config: UNetConfig) -> UNet:
    """Build the modules on torch's `meta` device, without memory, in training mode."""
    with torch.device("meta"):
        return UNet(config)


def bounds(config: UNetConfig) -> dict[str, float]:
    """Compute the bound b of U(-b, b) for each convolution or linear layer, in the order of drawing.

    The fan-in follows PyTorch. For a transposed convolution, the fan-in is the number of output channels
    times the kernel size.
    """
    factors = {}
    for name, module in _blank(config).named_modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            inside = name.startswith(("time.", "concepts.")) and name.endswith(".2")
            gamma = config.gamma if config.gamma_scope == "all" or inside else PYTORCHS
            factors[name] = float(module.weight[0].numel()) ** -gamma
    return factors

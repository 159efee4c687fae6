"""UNetConfig: the size and initialisation of a conditional U-Net."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from anchorlens.configuration import Config, frozen_dataclass, number
from anchorlens.models import GAMMA_RANGE


@frozen_dataclass()
class UNetConfig(Config):
    """The size and initialisation of a conditional U-Net.

    With the defaults, training takes minutes on a CPU.

    Raises:
        ValueError: If a value is invalid.

    Source: arXiv 2501.08537, figure 6, and its released code (64 pixels, n_feat 256).
    """

    kind: ClassVar[str] = "unet"
    conditions: ClassVar[dict[str, int]] = {"shape": 2, "size": 1, "colour": 3}
    """A map from each concept to the number of values that encode it."""

    input_side: int = number(32, minimum=8, maximum=128)
    """The width and height of an image in pixels, a multiple of 4."""
    n_channels: int = number(3, minimum=1, maximum=64)
    """The number of channels of an image."""
    n_feat: int = number(16, minimum=8, maximum=4096)
    """The number of channels at the finer scale, a multiple of 8. The coarser scale has twice as many
    channels."""
    gamma: float = number(0.5, **GAMMA_RANGE)
    """The initialisation rate (larger values make smaller initial weights). Weights and biases are drawn from
    U(-b, b) with b = fan_in^-gamma. PyTorch's default is 0.5."""
    gamma_scope: Literal["all", "second_layers"] = "all"
    """The weights to which gamma applies. With `all`, gamma applies to every convolution, transposed
    convolution and MLP. With `second_layers`, gamma applies to the second layer of each MLP, and the other
    weights have gamma 0.5. A first layer with one input (size or time) has b = 1 at any gamma. With `all`,
    the relative strength of these first layers therefore changes with gamma."""

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        for name, factor in (("input_side", 4), ("n_feat", 8)):
            if getattr(self, name) % factor:
                raise ValueError(
                    f"{name} must be a multiple of {factor}, got {getattr(self, name)}. Use another number"
                )

    @classmethod
    def for_task(cls, task: Any, **fields: object) -> UNetConfig:
        """Make a config for the images of `task`, with the values in `fields`."""
        return cls.from_dict({"input_side": task.image_side, **fields})

    def check_task(self, task: Any) -> None:
        """Check that the network fits the images of `task`.

        Raises:
            ValueError: If the network is for images of another size or another number of channels.
        """
        for name, size in (("input_side", task.image_side), ("n_channels", task.n_channels)):
            if getattr(self, name) != size:
                raise ValueError(
                    f"{name} must be {size} as in the task's images, got {getattr(self, name)}. Correct it"
                )

    @property
    def short_name(self) -> str:
        """A short description of the network, with n_feat and gamma."""
        return f"U-Net, n_feat {self.n_feat}, gamma {self.gamma}"

    @property
    def overview(self) -> str:
        """A one-line description of the network, with the image size and n_feat."""
        return f"U-Net, {self.input_side} x {self.input_side} pixels, n_feat {self.n_feat}"

    @property
    def shape(self) -> dict[str, Any]:
        """The fields that all networks of a stack must share: all fields except the initialisation."""
        return {name: value for name, value in self.to_dict().items() if not name.startswith("gamma")}

    @property
    def input_bytes(self) -> int:
        """The peak memory of an image's float32 activations in a forward pass without gradients, in bytes."""
        return 4 * 8 * self.n_feat * self.input_side**2

    @property
    def activations(self) -> int:
        """The approximate number of activations per value of an image in an update."""
        return 20 * self.n_feat

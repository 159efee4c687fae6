"""UNetConfig: size and initialisation of a conditional U-Net."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from anchorlens.configuration import Config, documented, number
from anchorlens.models.config import GAMMA_RANGE


@documented
@dataclass(frozen=True)
class UNetConfig(Config):
    """Size and initialisation of a conditional U-Net; the defaults train on a CPU in minutes.

    Raises:
        ValueError: an invalid value.

    Source: arXiv 2501.08537, figure 6, and its released code (64 pixels, n_feat 256).
    """

    kind: ClassVar[str] = "unet"
    conditions: ClassVar[dict[str, int]] = {"shape": 2, "size": 1, "colour": 3}
    """Concept -> how many numbers encode it."""

    input_side: int = number(32, minimum=8, maximum=128)
    """Width and height of an image in pixels, a multiple of 4."""
    n_channels: int = number(3, minimum=1, maximum=64)
    """Channels of an image."""
    n_feat: int = number(16, minimum=8, maximum=4096)
    """Channels at the finer scale, a multiple of 8. The coarser scale has twice as many."""
    gamma: float = number(0.5, **GAMMA_RANGE)
    """Initialization rate: weights and biases are U(-b, b) with b = fan_in^-gamma. PyTorch's default is
    .5."""
    gamma_scope: Literal["all", "second_layers"] = "all"
    """Which weights gamma is for. `all`: every convolution, transposed convolution and MLP. `second_layers`:
    the second layer of each MLP; the others have gamma .5. A first layer with one input (size, time) has b =
    1 at any gamma, so with `all` its strength relative to the others changes with gamma."""

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        for name, factor in (("input_side", 4), ("n_feat", 8)):
            if getattr(self, name) % factor:
                raise ValueError(f"{name} must be a multiple of {factor}, got {getattr(self, name)}")

    @classmethod
    def for_task(cls, task: Any, **fields: object) -> UNetConfig:
        """A config for the images of `task`, unless `fields` says otherwise."""
        return cls.from_dict({"input_side": task.image_side, **fields})

    def check_task(self, task: Any) -> None:
        """Check that it takes the images of `task`.

        Raises:
            ValueError: they are of another size, or have another number of channels.
        """
        if self.input_side != task.image_side:
            raise ValueError(
                f"the task's images have a side of {task.image_side} pixels, but the network takes "
                f"{self.input_side}; set image_side and input_side to the same value"
            )
        if self.n_channels != task.n_channels:
            raise ValueError(
                f"the task's images have {task.n_channels} channels, but the network takes "
                f"{self.n_channels}; leave n_channels out"
            )

    @property
    def what(self) -> str:
        """The architecture, for error messages."""
        return f"a U-Net for {self.input_side} pixels with n_feat {self.n_feat}"

    @property
    def short_name(self) -> str:
        """Sizes and gamma."""
        return f"U-Net, n_feat {self.n_feat}, gamma {self.gamma}"

    @property
    def overview(self) -> str:
        """Sizes in a line."""
        return f"U-Net, {self.input_side} x {self.input_side} pixels, n_feat {self.n_feat}"

    @property
    def shape(self) -> dict[str, Any]:
        """The fields that networks trained in one stack share: all but those of the initialisation."""
        return {name: value for name, value in self.to_dict().items() if not name.startswith("gamma")}

    @property
    def input_bytes(self) -> int:
        """Most bytes of activations that a forward pass without gradients holds of an image, in float32."""
        return 4 * 8 * self.n_feat * self.input_side**2

    @property
    def input_operations(self) -> float:
        """Approximate operations of a forward pass of one image (n_feat 256, 64 pixels: 5.7e10 counted)."""
        return 220.0 * (self.n_feat * self.input_side) ** 2

    @property
    def activations(self) -> int:
        """Approximate activations per number of an image in an update; tells large networks from small."""
        return 20 * self.n_feat

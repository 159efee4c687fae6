"""ConceptGraphsTask: draw a shape of some size and colour; half of the combinations are never trained."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from anchorlens.configuration import check_number, frozen_dataclass, number
from anchorlens.extras.concept_graphs import images
from anchorlens.extras.concept_graphs.diffusion import Schedule
from anchorlens.extras.concept_graphs.images import N_CHANNELS, TRAINED, TUPLES, UNSEEN, Images
from anchorlens.extras.concept_graphs.presets import PRESETS
from anchorlens.extras.concept_graphs.scoring import METRICS, classifier, scored
from anchorlens.extras.concept_graphs.unet.config import UNetConfig
from anchorlens.randomness import generator
from anchorlens.tasks import Evaluation, Metric, TaskConfig, on_device
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

N_SAMPLES, QUICKLY = 64, 8
"""The numbers of samples of each tuple that `evaluate` draws by default, and that `measure` draws."""
_BN_BATCHES, _BN_BATCH = 16, 128
"""The number of batches on which BatchNorm is updated, and of images in each."""
_AT_ONCE = 256
"""The number of samples drawn at a time by a model of unknown size."""
_WHITE = 1.0


@frozen_dataclass()
class ConceptGraphsTask(TaskConfig):
    """The Concept Graphs task, in which a diffusion model draws a shape of a given size and colour.

    The digits of a tuple have the paper's order: shape (0 circle, 1 triangle), size (0 large, 1 small),
    colour (0 red, 1 blue). The tuples 000, 100, 001 and 111 are trained, and 010, 011, 101 and 110 are
    unseen. In trained tuples, "small" occurs only with a triangle. A model that links "small" to "triangle"
    draws a small circle as a triangle. The released code has the order shape, colour, size. In this order,
    the trained tuples are 000, 100, 010 and 111.

    A training example is an image with its conditions. Every update adds new noise of a random diffusion
    step. The loss is the mean squared error of the predicted noise. The task does not measure an accuracy on
    held-out images of trained tuples, so its models do not have a phase.

    Raises:
        ValueError: If a value is invalid.

    Example:
        >>> task = ConceptGraphsTask(image_side=24)
        >>> images = task.training_set(8, seed=0)
        >>> images.pixels.shape, images.conditions.shape
        (torch.Size([8, 3, 24, 24]), torch.Size([8, 6]))

    Source: arXiv 2501.08537, figure 6, and its released code. The concepts come from arXiv 2406.19370.
    """

    kind: ClassVar[str] = "concept_graphs"
    presets = PRESETS
    model_class: ClassVar[type[UNetConfig]] = UNetConfig
    metrics: ClassVar[tuple[Metric, ...]] = METRICS
    d_vocab = 0
    n_channels: ClassVar[int] = N_CHANNELS

    image_side: int = number(32, minimum=8, maximum=128)
    """The width and height of an image in pixels, a multiple of 4. Below 20 pixels, the rule that classifies
    shapes by their covered pixels cannot distinguish some small triangles from circles."""
    n_diffusion_steps: int = number(100, minimum=10, maximum=1000)
    """The number of diffusion steps from an image to noise, called T (500 in the released code)."""
    shift: float = number(0.0, minimum=0, maximum=0.3)
    """The largest shift of a shape's centre, as a fraction of half the image's side. Each coordinate of a
    centre is drawn uniformly from -shift to shift. The published setting is a shift of 0."""
    centred: bool = True
    """Whether pixel values range from -1 to 1, instead of from 0 to 1. The network learns faster with the
    range -1 to 1 than with the range 0 to 1. The published setting is the range from 0 to 1."""

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        if self.image_side % 4:
            raise ValueError(f"image_side must be a multiple of 4, got {self.image_side}. Use another size")

    @classmethod
    def architecture(cls, config: UNetConfig) -> Any:
        """Return the memory layout, initialisation and forward pass of the task's U-Net."""
        from anchorlens.extras.concept_graphs.unet.engine import UNetArchitecture  # with torch

        return UNetArchitecture(config)

    @property
    def seq_len(self) -> int:
        """The number of values in an example: the pixel values and the conditions."""
        return N_CHANNELS * self.image_side**2 + images.N_CONDITIONS

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of noise over the steps of diffusion."""
        return Schedule(self.n_diffusion_steps)

    # -- training --------------------------------------------------------------------------------------

    def training_set(self, n: int, seed: int) -> Images:
        """Draw `n` images of the trained tuples, in equal parts.

        Raises:
            ValueError: If `n` is less than the number of trained tuples, or the classifier cannot distinguish
                the concepts in these images.
        """
        if n < len(TRAINED):
            raise ValueError(
                f"n_samples must be at least {len(TRAINED)}, one image of each trained tuple, got {n}. Use "
                "more samples"
            )
        classifier(self.image_side, self.shift)  # to fail early, as they are scored by it
        return self._images(n, generator(seed, "data"))

    def _images(self, n: int, rng: np.random.Generator) -> Images:
        return images.draw([TRAINED[k % len(TRAINED)] for k in range(n)], self.image_side, rng, self.shift)

    def checked_training_set(self, training_set: object) -> Images:
        """Check that the training data are images of this task's size, and return the images.

        Raises:
            ValueError: If the data are not images, or the images do not have this task's size.
        """
        shape = (N_CHANNELS, self.image_side, self.image_side)
        if isinstance(training_set, Images) and tuple(training_set.pixels.shape[1:]) == shape:
            return training_set
        got = list(training_set.pixels.shape) if isinstance(training_set, Images) else type(training_set)
        raise ValueError(
            f"the training data must be Images [image, {', '.join(map(str, shape))}], got {safe_repr(got)}. "
            "Give the result of training_set of this task"
        )

    def loss(self, model: Any, batch: Images, generator: np.random.Generator) -> Tensor:
        """Compute the mean squared error of the predicted noise.

        Args:
            model: the model that predicts the noise from noisy images, times 0..1 and conditions.
            batch: the images with their conditions.
            generator: the generator that draws a step 1..T for each image, and the noise.
        """
        import torch

        *inputs, noise = self._noisy(batch, generator)
        predicted = model(*inputs)
        return torch.nn.functional.mse_loss(predicted, noise.to(predicted))

    def _noisy(self, batch: Images, generator: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw noisy images, times, conditions, and the noise."""
        import torch

        pixels = 2 * batch.pixels - 1 if self.centred else batch.pixels
        steps = generator.integers(1, self.n_diffusion_steps + 1, len(batch))
        drawn = torch.from_numpy(generator.standard_normal(pixels.shape, dtype=np.float32))
        times = torch.as_tensor(steps / self.n_diffusion_steps, dtype=torch.float32, device="cpu")
        noise, times = (on_device(tensor, pixels.device) for tensor in (drawn, times))
        return self.schedule.noisy(pixels, steps, noise), times, batch.conditions, noise

    # -- sampling --------------------------------------------------------------------------------------

    def ready(self, model: Any, seed: int = 0) -> Any:
        """Prepare a network for sampling: set BatchNorm's statistics on noisy images of trained tuples.

        Args:
            model: a function of parameters (`Checkpoint.fast_model`), or a UNet whose BatchNorm statistics
                are not set (`Checkpoint.build_model`). The method returns any other model unchanged.
            seed: the seed of the images and their noise.
        """
        if not hasattr(model, "updated_bn"):
            return model
        rngs = (generator(seed, "evaluation", 3, k) for k in range(_BN_BATCHES))
        return model.updated_bn(self._noisy(self._images(_BN_BATCH, rng), rng)[:3] for rng in rngs)

    def samples(
        self, model: object, tuples: Sequence[str] = TUPLES, n: int = N_SAMPLES, seed: int = 0
    ) -> dict[str, Float[np.ndarray, "sample 3 y x"]]:
        """Draw samples by ancestral sampling, under the conditions of each tuple without jitter.

        Args:
            model: the model that `ready` returns.
            tuples: the tuples to draw, in the paper's order of concepts.
            n: the number of samples of each tuple.
            seed: the seed of the noise. The noise is the same for every tuple.

        Returns:
            A map from each tuple to its images, with values from 0 to 1.

        Raises:
            ValueError: If a tuple is unknown, or `n` is less than 1.
        """
        from anchorlens.models import BATCH_BYTES

        check_number("n", n, minimum=1, limit=10_000, integer=True)
        conditions = {name: images.nominal(name) for name in tuples}
        size = getattr(getattr(model, "config", None), "input_bytes", BATCH_BYTES // _AT_ONCE)
        at_once = max(1, int(BATCH_BYTES // size))
        parts = [slice(first, min(n, first + at_once)) for first in range(0, n, at_once)]
        return {
            name: np.concatenate([self._drawn(model, told, n, rows, seed) for rows in parts])
            for name, told in conditions.items()
        }

    def _drawn(
        self, model: Any, told: Float[np.ndarray, " 6"], n: int, rows: slice, seed: int
    ) -> Float[np.ndarray, "image 3 y x"]:
        """Draw some of the `n` samples of one tuple."""
        import torch

        own = next(model.parameters(), None) if isinstance(model, torch.nn.Module) else None
        like = torch.empty(0, device="cpu") if own is None else own
        shape = (n, N_CHANNELS, self.image_side, self.image_side)

        def noise(step: int) -> Tensor:
            rng = generator(seed, "evaluation", 4, step)
            return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)[rows]).to(like)

        def noise_in(pixels: Tensor, step: int) -> Tensor:
            times = like.new_full((len(pixels),), step / self.n_diffusion_steps)
            return model(pixels, times, like.new_tensor(told).expand(len(pixels), -1))

        steps = range(self.n_diffusion_steps, 1, -1)
        with torch.inference_mode():
            start = noise(self.n_diffusion_steps + 1)
            pixels = self.schedule.sample(noise_in, start, (noise(step) for step in steps))
        pixels = (pixels + 1) / 2 if self.centred else pixels
        return pixels.clamp(0, 1).float().cpu().numpy()

    # -- measuring -------------------------------------------------------------------------------------

    def evaluate(
        self,
        model: object,
        *,
        training_set: object = None,
        seed: int = 0,
        n_samples: int = N_SAMPLES,
        quick: bool = False,
    ) -> Evaluation:
        """Measure the drawn shapes, sizes and colours by a linear classifier and by a rule on masks.

        A classifier assigns a class to any image. Two further metrics therefore check whether samples of
        small circles show a shape. `present` is the fraction of the small circles' samples whose covered area
        is large enough for a shape. `circles` is the fraction of the small circles' samples that show a shape
        and that both classification rules classify as a circle.

        Args:
            model: the model, as for `ready`.
            training_set: training data that are checked but not used, because every sample is new.
            seed: the seed of the noise.
            n_samples: the number of samples of each tuple.
            quick: whether to draw only 8 samples of each tuple.

        Raises:
            ValueError: If an option is invalid, or the model is for images of another size. The classifier
                must be able to distinguish the concepts in this task's images.
        """
        n_samples = QUICKLY if quick else n_samples
        check_number("n_samples", n_samples, minimum=1, limit=10_000, integer=True)
        if training_set is not None:
            self.checked_training_set(training_set)
        config = getattr(model, "config", None)
        if isinstance(config, UNetConfig):
            config.check_task(self)
        drawn = self.samples(self.ready(model, seed), n=n_samples, seed=seed)
        finite = all(bool(np.isfinite(samples).all()) for samples in drawn.values())
        drawn = {name: np.nan_to_num(samples, nan=_WHITE) for name, samples in drawn.items()}
        measures, pictures = scored(drawn, classifier(self.image_side, self.shift))
        options = {"n_samples": n_samples, "task": self.describe().split("\n")[0]}
        return self.evaluation(measures, finite=finite, seed=seed, options=options, figure_specs=pictures)

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Return the number of images that the network processes, counting a sample once per step."""
        n_bn_batches = _BN_BATCHES * _BN_BATCH
        return len(TUPLES) * (QUICKLY if quickly else N_SAMPLES) * self.n_diffusion_steps + n_bn_batches

    def bytes_to_ask(self, n_train: int) -> int:
        """Estimate the memory of the training images, the samples and the classifier's images, in bytes."""
        return 4 * self.seq_len * (n_train + 4 * len(TUPLES) * N_SAMPLES + 15_000)

    @property
    def held_out(self) -> str:
        """The tuples that training never shows, in words."""
        return ", ".join(map(images.in_words, UNSEEN))

    def describe(self) -> str:
        """Describe the trained and the held-out tuples in words."""
        return (
            f"Concept Graphs: draw a shape, size and colour in {self.image_side} x {self.image_side} "
            f"pixels, by diffusion in {self.n_diffusion_steps} steps.\n"
            f"Trained: {', '.join(map(images.in_words, TRAINED))}.\n"
            f"Never trained: {self.held_out}."
        )

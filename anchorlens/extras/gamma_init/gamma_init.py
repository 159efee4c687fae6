"""`gamma_init_` draws the weights of any torch model with std = fan_in^-gamma; `gamma_table` shows them."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

import torch
from torch import nn

from anchorlens.configuration import check_choice, check_number, checked_arguments, exactly, frozen_dataclass
from anchorlens.extras.gamma_init.parameters import Matrix, Parameters, check_memory, parameters_of
from anchorlens.extras.gamma_init.starts import PLAIN
from anchorlens.models import GAMMA_RANGE, PARTS, ModelConfig, draw, initial_generator
from anchorlens.records import Record
from anchorlens.views import html

T = TypeVar("T", bound=nn.Module)
Distribution = Literal["normal", "uniform"]


@checked_arguments()
def gamma_init_(
    model: T,
    gamma: float,
    *,
    gamma_embedding: float | None = None,
    gamma_qk: float | None = None,
    gamma_vo: float | None = None,
    gamma_mlp: float | None = None,
    gamma_experts: Sequence[float] | None = None,
    distribution: Distribution = "normal",
    scale_residual_writers: bool = False,
    fan_in: Mapping[str, int | None] | None = None,
    seed: int = 0,
) -> T:
    """Draw the weights of your own model from scratch, in place, with std = fan_in^-gamma.

    A larger gamma makes smaller weights. The model is a HookedTransformer or a plain torch GPT. Plain torch
    GPTs are Hugging Face's GPT-2, a nanoGPT, and any model made of the modules in the table of
    `anchorlens.extras.gamma_init.parameters`. The fan-in of a matrix is the number of inputs that each of its
    outputs sums, and d_model for embeddings. The fan-in is n_heads * d_head for W_O, d_mlp for W_out, and
    d_model for every other matrix of a transformer. The fan-in d_model also applies to embeddings, to heads
    that share keys and values, and to the input matrices of gated MLPs and experts. A tied matrix is drawn
    once, with fan-in d_model both as embedding and as unembedding. All biases and the padding row of an
    embedding become 0. LayerNorms and RMSNorms get weight 1 and bias 0. Initialisation settings in the
    model's own configuration are ignored.

    A parameter whose start is not a draw keeps its values, and `gamma_table` gives the reason. Such a
    parameter is frozen, or marked with `_no_reinit`, or a single number such as a gain or a gate. In a torch
    module whose other matrices look like draws, the values decide too, and a warning names the parameters: a
    matrix of zeros or of one value, a table of sines, or a bias far outside torch's start while all other
    biases are within it. To draw such a parameter, give its fan-in.

    A forward pass of a copy, on inputs that are made up, shows which Linear is the head, and which fan-in the
    error for an unknown parameter advises. The model itself is not run.

    A HookedTransformer with the shape of a `gpt2` or `postnorm` ModelConfig gets the weights of `build_model`
    with this gamma and seed. The weights are equal bit for bit, after rounding if the model has half
    precision. Random values are drawn on the CPU, so every device and every process gets the same values. The
    global random state is not read and not changed. Device, dtype, `requires_grad`, training mode and weight
    tying do not change.

    Args:
        model: a HookedTransformer or a torch module. The model may be compiled or in a DataParallel.
        gamma: the initialisation rate, -10..10.
        gamma_embedding: the gamma of the embeddings and the unembedding. Default: `gamma`.
        gamma_qk: the gamma of queries and keys. Default: `gamma`. A matrix that holds queries, keys and
            values is drawn in two parts if the order of its rows is known
            (`anchorlens.extras.gamma_init.fused`).
        gamma_vo: the gamma of W_V and W_O. Default: `gamma`.
        gamma_mlp: the gamma of the MLPs, and of a mixture's router. Default: `gamma`.
        gamma_experts: the gamma of each expert in a HookedTransformer's mixture. Default: `gamma_mlp`.
        distribution: `normal` for N(0, std = fan_in^-gamma), or `uniform` for U(-fan_in^-gamma,
            fan_in^-gamma).
        scale_residual_writers: whether to divide the matrices that write to the residual stream by sqrt(2
            n_layers), as GPT-2 does. These matrices are W_O and W_out, or both c_proj matrices of GPT-2.
        fan_in: a map from the name or pattern of a parameter to its fan-in, for parameters without a known
            fan-in. `None` keeps the parameter unchanged, as in `{"pos_emb": 128, "*.router.weight": None}`.
        seed: the seed of the weights, an integer >= 0.

    Returns:
        The given model.

    Raises:
        ValueError: If an argument is invalid. The model must be a torch module other than a
            TransformerBridge. The weights must have memory (no meta device), and must not be quantised or
            sharded. The fan-in of each parameter must be known from its module or from `fan_in`. The part of
            each parameter must be known if the parts have different gammas. An error leaves all weights
            unchanged.

    Example:
        >>> from torch import nn
        >>> mlp = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
        >>> mlp = gamma_init_(mlp, gamma=0.5)
        >>> round(mlp[0].weight.std().item() * 64**0.5, 1), round(mlp[2].weight.std().item() * 256**0.5, 1)
        (1.0, 1.0)

    Source: The initialisation rate is from arXiv 2405.05409 and 2501.08537. The separate rates of the parts
    follow the code of arXiv 2501.08537.
    """
    gamma = exactly(gamma, float)
    check_number("gamma", gamma, **GAMMA_RANGE)
    generator = initial_generator(seed)
    gammas = {"gamma": gamma, "gamma_embedding": gamma_embedding, "gamma_qk": gamma_qk}
    gammas |= {"gamma_vo": gamma_vo, "gamma_mlp": gamma_mlp}
    parameters = parameters_of(model, fan_in)
    starts = _starts(parameters, gammas, gamma_experts, distribution, scale_residual_writers)
    check_memory(parameters)
    tied = [one.names for one in parameters.matrices if one.part != "embedding" and len(one.names) > 1]
    if tied:
        note = f"{' and '.join(tied[0][:2])} are one matrix: tied blocks are drawn once"
        warnings.warn(note, stacklevel=3)
    if own := {name: why for name, why in parameters.kept.items() if why not in PLAIN}:
        note = f"{_listed(own)}: kept as they are. Give the fan-in of a name to draw it"
        warnings.warn(note, stacklevel=3)
    with torch.no_grad():
        for _, parameter, value in parameters.constants:
            parameter.fill_(value)
        for start in starts:
            values = start.matrix.values
            precise = torch.float64 if values.dtype == torch.float64 else torch.float32
            weights = torch.empty(values.shape, dtype=precise, device="cpu")
            draw(weights, start.scale, distribution, generator)
            values.copy_(weights)
            if start.matrix.zero_row is not None:
                values[start.matrix.zero_row].zero_()
    return model


@frozen_dataclass()
class GammaRow(Record):
    """A weight matrix of a model, with its fan-in, the std of its initialisation, and its present std."""

    name: str
    """The name of the parameter; `[q, k]` and `[v]` are parts of a matrix of queries, keys and values."""
    tied: tuple[str, ...]
    """The other names of the parameter, if it is tied."""
    shape: tuple[int, ...]
    """The shape of the stored matrix."""
    part: str | None
    """The part (embedding, qk, vo or mlp), or `None` if the model does not define the part."""
    fan_in: int
    """The number of inputs that each output sums, which is d_model for an embedding."""
    std: float | None
    """The std of the initialisation, which is fan_in^-gamma for a normal distribution, or `None` without a
    gamma."""
    measured_std: float | None
    """The std of the present weights, or `None` if the weights have no memory or are not finite."""
    measured_gamma: float | None
    """The gamma that gives the measured std: -log(std) / log(fan_in) for a normal distribution. `None` if the
    std is 0 or the fan-in is 1."""

    def texts(self) -> tuple[str, ...]:
        """Return the text for each column of `GammaTable.columns`."""
        stds = ("none" if std is None else f"{std:.3g}" for std in (self.std, self.measured_std))
        gamma = "none" if self.measured_gamma is None else f"{self.measured_gamma:.3f}"
        shape = " x ".join(map(str, self.shape))
        return " = ".join((self.name, *self.tied)), shape, self.part or "none", str(self.fan_in), *stds, gamma


@frozen_dataclass(eq=False, repr=False)
class GammaTable(Record):
    """A table of a model's initialisation by `gamma_init_` and of its present weights."""

    columns: ClassVar[tuple[str, ...]] = ("name", "shape", "part", "fan-in", "std", "measured", "gamma")
    """The columns of the table; the last is the gamma of the measured std."""
    model: str
    """The class of the model."""
    gamma: float | None
    """The requested initialisation rate, or `None` without a request."""
    rows: tuple[GammaRow, ...]
    """The rows, one for each weight matrix, in the order of drawing; pandas.DataFrame(table.rows) has a
    column for each field."""
    zeros: tuple[str, ...]
    """The parameters that start at 0: biases, and the weights of norms that multiply by 1 + weight."""
    ones: tuple[str, ...]
    """The parameters that start at 1: the weights of norms."""
    kept: tuple[str, ...]
    """The parameters that are kept unchanged."""
    reasons: tuple[str, ...]
    """The reason for each kept parameter."""

    def headline(self) -> str:
        """State the number of matrices, their present gammas, and their std relative to the requested std."""
        found = [row.measured_gamma for row in self.rows if row.measured_gamma is not None]
        parts = [f"{len(self.rows)} weight matri{'x' if len(self.rows) == 1 else 'ces'}"]
        if found:
            parts.append(f"measured gamma {_range(found)}")
        ratios = [row.measured_std / row.std for row in self.rows if row.std and row.measured_std is not None]
        if ratios:
            asked = "the gamma of each part" if self.gamma is None else f"gamma {self.gamma:g}"
            parts.append(f"std {_range(ratios)} times the std of {asked}")
        return "; ".join(parts)

    def __repr__(self) -> str:
        return f"GammaTable({self.model}: {self.headline()})"

    def __str__(self) -> str:
        texts = [self.columns, *(row.texts() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        lines = ("  ".join(f"{text:{w}}" for text, w in zip(row, widths, strict=True)) for row in texts)
        return "\n".join([*map(str.rstrip, lines), self.others()])

    def others(self) -> str:
        """Count the parameters that are not weight matrices, and give the reasons of those kept unchanged."""
        n_zeros, n_ones, n_kept = map(len, (self.zeros, self.ones, self.kept))
        reasons = dict(zip(self.kept, self.reasons, strict=True))
        kept = f"{n_kept}: {_listed(reasons)}" if reasons else f"{n_kept}"
        return f"other parameters at 0: {n_zeros}; at 1: {n_ones}; left as they are: {kept}"

    _repr_html_ = html


@checked_arguments()
def gamma_table(
    model: nn.Module,
    gamma: float | None = None,
    *,
    gamma_embedding: float | None = None,
    gamma_qk: float | None = None,
    gamma_vo: float | None = None,
    gamma_mlp: float | None = None,
    gamma_experts: Sequence[float] | None = None,
    distribution: Distribution = "normal",
    scale_residual_writers: bool = False,
    fan_in: Mapping[str, int | None] | None = None,
) -> GammaTable:
    """Report the effect of `gamma_init_` with these arguments, and the present size of a model's weights.

    A report before `gamma_init_` shows the planned initialisation. After `gamma_init_`, the columns `std` and
    `measured` agree up to the relative sampling error, 1 / sqrt(2 n) for n weights. For a trained model, the
    measured gamma shows the size of the trained weights. The model does not change, and may be on the meta
    device.

    Args:
        model: the model, as for `gamma_init_`.
        gamma: the initialisation rate, -10..10. Default: only measure the present weights.
        gamma_embedding: the gamma of the embeddings. The gammas of parts have the defaults of `gamma_init_`.
        gamma_qk: the gamma of queries and keys.
        gamma_vo: the gamma of W_V and W_O.
        gamma_mlp: the gamma of the MLPs.
        gamma_experts: the gamma of each expert of a mixture.
        distribution: `normal` or `uniform`. For `uniform`, the measured gamma uses the half-width of the
            distribution. The half-width is sqrt(3) times the std.
        scale_residual_writers: whether matrices that write to the residual stream are divided by sqrt(2
            n_layers). The measured gamma then ignores this division.
        fan_in: a map of fan-ins that the modules do not define, as for `gamma_init_`.

    Returns:
        A row for each weight matrix, and the names of the parameters that start at 0, start at 1, or stay
        unchanged.

    Raises:
        ValueError: For the same reasons as `gamma_init_`, except that the weights may be on the meta device.

    Example:
        >>> from torch import nn
        >>> model = gamma_init_(nn.Sequential(nn.Embedding(50, 64), nn.Linear(64, 256)), gamma=0.5)
        >>> print(gamma_table(model, gamma=0.5))
        name      shape     part       fan-in  std    measured  gamma
        0.weight  50 x 64   embedding  64      0.125  0.127     0.496
        1.weight  256 x 64  embedding  64      0.125  0.126     0.498
        other parameters at 0: 1; at 1: 0; left as they are: 0

    Source: The initialisation rate is from arXiv 2405.05409 and 2501.08537.
    """
    parameters = parameters_of(model, fan_in)
    gammas = {"gamma": gamma, "gamma_embedding": gamma_embedding, "gamma_qk": gamma_qk}
    gammas |= {"gamma_vo": gamma_vo, "gamma_mlp": gamma_mlp}
    starts = _starts(parameters, gammas, gamma_experts, distribution, scale_residual_writers)
    rows = tuple(_row(start, distribution) for start in starts)
    zeros, ones = (tuple(name for name, _, start in parameters.constants if start == n) for n in (0, 1))
    kept, reasons = tuple(parameters.kept), tuple(parameters.kept.values())
    return GammaTable(parameters.model, exactly(gamma, float), rows, zeros, ones, kept, reasons)


@dataclass(frozen=True, eq=False)
class _Start:
    """The initialisation of one matrix."""

    matrix: Matrix
    gamma: float | None
    """The gamma of the matrix; `None` if no gamma was given."""
    divisor: float
    """The divisor: sqrt(2 n_layers) for a scaled matrix that writes to the residual stream, else 1."""

    @property
    def scale(self) -> float:
        """The std (normal) or the half-width (uniform) of the distribution, or NaN without a gamma."""
        return math.nan if self.gamma is None else float(self.matrix.fan_in) ** -self.gamma / self.divisor

    def description(self) -> str:
        """Describe the initialisation."""
        return f"fan-in {self.matrix.fan_in}, gamma {self.gamma}, divided by {self.divisor:.3g}"


def _starts(
    parameters: Parameters,
    gammas: Mapping[str, float | None],
    gamma_experts: Sequence[float] | None,
    distribution: Distribution,
    scale_residual_writers: bool,
) -> list[_Start]:
    """Return the initialisation of each matrix, in the order of drawing.

    Raises:
        ValueError: If an option is out of range, a needed part is unknown, or two matrices in the same memory
            have different fan-ins.
    """
    check_choice("distribution", distribution, ("normal", "uniform"))
    n_experts = max((m.expert + 1 for m in parameters.matrices if m.expert is not None), default=None)
    if gamma_experts is not None and n_experts is None:
        raise ValueError(
            "gamma_experts must be unset unless the model is a HookedTransformer with a mixture of experts, "
            f"got a {parameters.model} without a mixture. Omit gamma_experts"
        )
    fields = {"num_experts": n_experts, "scale_residual_writers": scale_residual_writers}
    if gamma_experts is not None:
        fields["gamma_experts"] = " ".join(map(str, gamma_experts))
    config = ModelConfig.from_dict({**gammas, **fields})
    by_part = [f"gamma_{part}" for part in PARTS if gammas[f"gamma_{part}"] not in (None, config.gamma)]
    by_part += ["scale_residual_writers"] * config.scales_residual_writers
    starts = []
    for matrix in parameters.matrices:
        if matrix.part is None and by_part:
            raise ValueError(
                f"every matrix must be in a known part of the model for {by_part[0]}, got {matrix.label} "
                f"{list(matrix.values.shape)} in an unknown part. Omit {by_part[0]}, or call gamma_init_ "
                "for each module of the model with a separate gamma"
            )
        gamma = config.gamma if matrix.part is None else getattr(config, f"gamma_{matrix.part}")
        if gamma_experts is not None and matrix.expert is not None:
            gamma = config.gamma_of("mlp", matrix.expert)
        gamma = config.gamma if gamma is None else gamma
        divided = matrix.writes and config.scales_residual_writers
        starts.append(_Start(matrix, gamma, math.sqrt(parameters.n_writers) if divided else 1.0))
    _check_shared_memory(starts)
    return starts


def _check_shared_memory(starts: Sequence[_Start]) -> None:
    """Check that matrices in the same memory have one initialisation, since the later overwrites the earlier.

    Raises:
        ValueError: If their initialisations differ.
    """
    spans = []
    for start in starts:
        values = start.matrix.values
        first = values.data_ptr()  # 0 where there is no memory
        if first and start.matrix.within is None:
            steps = zip(values.shape, values.stride(), strict=True)
            last = first + sum((size - 1) * stride for size, stride in steps) * values.element_size()
            spans.append((str(values.device), first, last, start))
    spans.sort(key=lambda span: span[:3])
    for (device, _, last, start), (other, first, _, following) in itertools.pairwise(spans):
        if device == other and first <= last and start.description() != following.description():
            raise ValueError(
                f"matrices in the same memory must have the same initialisation, got {start.matrix.label} "
                f"({start.description()}) and {following.matrix.label} ({following.description()}). Choose "
                f"one fan-in, for example fan_in={{{following.matrix.label!r}: {start.matrix.fan_in}}}, and "
                "one gamma without scale_residual_writers"
            )


def _row(start: _Start, distribution: Distribution) -> GammaRow:
    matrix, values = start.matrix, start.matrix.values.detach()
    widths = math.sqrt(3) if distribution == "uniform" else 1.0  # half-width of a uniform over its std
    std = math.nan if values.is_meta else float(values.double().std(correction=0))
    measured_gamma = math.nan
    if std > 0 and matrix.fan_in > 1:
        measured_gamma = -math.log(std * widths * start.divisor) / math.log(matrix.fan_in)
    about = (matrix.label, matrix.names[1:], tuple(values.shape), matrix.part, matrix.fan_in)
    return GammaRow(*about, _finite(start.scale / widths), _finite(std), _finite(measured_gamma))


def _listed(reasons: Mapping[str, str]) -> str:
    """List the first few names, each with its reason."""
    return ", ".join([f"{name} ({why})" for name, why in reasons.items()][:5]) + ", ..." * (len(reasons) > 5)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _range(values: Sequence[float]) -> str:
    """Format the smallest and the largest of some numbers, or one number if they are equal.

    >>> _range([0.701, 0.699]), _range([0.5, 0.71])
    ('0.70', '0.50 to 0.71')
    """
    first, last = f"{min(values):.2f}", f"{max(values):.2f}"
    return first if first == last else f"{first} to {last}"

"""`ModelConfig`: the shape, variant and initialisation of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from anchorlens.configuration import Config, check_number, frozen_dataclass, number
from anchorlens.texts import safe_repr

Variant = Literal["gpt2", "postnorm", "released", "plain"]
VARIANTS: tuple[Variant, ...] = ("gpt2", "postnorm", "released", "plain")

Part = Literal["embedding", "qk", "vo", "mlp"]
PARTS: tuple[Part, ...] = ("embedding", "qk", "vo", "mlp")

_SIZE = {"minimum": 1, "limit": 1_000_000}
GAMMA_RANGE: Mapping[str, Any] = {"minimum": -10, "maximum": 10}
_MOST_PARAMETERS = 10**12
_MOST_EXPERTS = 64


def sizes(config: Any) -> str:
    """Return the sizes of a ModelConfig or a HookedTransformer's `cfg`, in words.

    >>> sizes(ModelConfig())
    '2 layers, 1 head, d_model 128'
    """
    counts = (("layer", config.n_layers), ("head", config.n_heads))
    words = [*(f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts), f"d_model {config.d_model}"]
    if (n_experts := getattr(config, "num_experts", None)) is not None:
        words += [f"top {config.experts_per_token or 1} of {n_experts} experts"]
    return ", ".join(words)


@frozen_dataclass()
class ModelConfig(Config):
    """The shape, variant and initialisation of a HookedTransformer.

    The defaults are the values of the `quick` preset. The variants follow the block equations of the papers:

    - `gpt2` has LayerNorm before each sublayer, a final LayerNorm, GELU and biases.
    - `postnorm` computes LN(x + attn) and LN(x + mlp). `postnorm` has ReLU and no final LayerNorm. The only
      biases of `postnorm` are in the LayerNorms and the unembedding.
    - `released` has LayerNorm on the query input, before the MLP and at the end. In `released`, keys and
      values read the raw residual stream. `released` has exact GELU and biases.
    - `plain` adds attn and then mlp to x without any LayerNorm. `plain` has ReLU and biases.

    With `num_experts`, the MLP of every block is TransformerLens' mixture of experts. A router selects
    experts. Each expert computes (act(x W_gate) * (x W_in)) W_out, and has the width d_mlp and no biases. The
    router sends a token to the experts with the largest softmax weights. The MLP multiplies the output of
    each chosen expert by the softmax weight of the expert. The weights are not renormalised (`norm_topk_prob`
    is false), because the renormalised weight of a single chosen expert would be constant and have no
    gradient.

    Raises:
        ValueError: If a value is invalid. The message gives the rule and the value.

    Source: arXiv 2405.05409 and 2501.08537 (`postnorm`, `gpt2`), the authors' released code (`released`),
    arXiv 2301.05217 (`plain`, the network of modular addition).
    """

    variant: Variant = "gpt2"
    """Variant of the architecture."""
    n_layers: int = number(2, minimum=1, maximum=10_000)
    """Number of transformer blocks."""
    n_heads: int = number(1, **_SIZE)
    """Number of attention heads in a block."""
    d_model: int = number(128, **_SIZE)
    """Width of the residual stream."""
    d_head: int = number(64, **_SIZE)
    """Width of a head."""
    d_mlp: int = number(256, **_SIZE)
    """Number of neurons in an MLP's hidden layer."""
    d_vocab: int = number(201, minimum=1, limit=100_000_000)
    """Vocabulary size of the inputs (201 in the released code). Answers share this vocabulary unless
    d_vocab_out is set."""
    d_vocab_out: int | None = number(None, minimum=1, limit=100_000_000)
    """Vocabulary size of the answers. Default: d_vocab."""
    n_ctx: int = number(9, **_SIZE)
    """Length of the longest sequence, in tokens."""
    act_fn: Literal["gelu", "gelu_new", "relu"] | None = None
    """Activation function of the MLPs. The function gelu is exact, and gelu_new is the tanh approximation in
    GPT-2. Default: the activation function of the variant."""
    gamma: float | None = number(0.7, **GAMMA_RANGE)
    """Initialisation rate (larger values make smaller initial weights). The standard deviation of the weights
    is d_in^-gamma. If gamma is not known (None), you can measure the model but not redraw its weights."""
    gamma_embedding: float | None = number(None, **GAMMA_RANGE)
    """Gamma of the token embedding, the position embedding and the unembedding. Default: gamma."""
    gamma_qk: float | None = number(None, **GAMMA_RANGE)
    """Gamma of W_Q and W_K. Default: gamma."""
    gamma_vo: float | None = number(None, **GAMMA_RANGE)
    """Gamma of W_V and W_O. Default: gamma."""
    gamma_mlp: float | None = number(None, **GAMMA_RANGE)
    """Gamma of W_in, W_out and the router of a mixture of experts. Default: gamma."""
    num_experts: int | None = number(None, minimum=2, maximum=_MOST_EXPERTS)
    """Number of experts in each block of a mixture of experts. Default: an ordinary MLP."""
    experts_per_token: int | None = number(None, minimum=1, maximum=2)
    """Number of experts per token, 1 or 2. Default: 1."""
    gamma_experts: str | None = None
    """Gammas of the experts, separated by spaces, such as 0.3 0.9 for two experts. Default: gamma_mlp."""
    init_distribution: Literal["normal", "uniform"] = "normal"
    """Distribution of the initial weights. With normal, the weights have mean 0 and standard deviation
    d_in^-gamma. With uniform, the weights range from -d_in^-gamma to +d_in^-gamma."""
    scale_residual_writers: bool | None = None
    """Whether to divide W_O and W_out by sqrt(2 n_layers). Default: yes for the variant `released`, and
    no for the other variants."""

    def __post_init__(self) -> None:
        """Check every field, and the sizes together."""
        if isinstance(self.gamma_experts, list | tuple):  # as JSON and TOML may have it
            object.__setattr__(self, "gamma_experts", " ".join(map(str, self.gamma_experts)))
        super().__post_init__()
        self._check_experts()
        if self.d_vocab_out == self.d_vocab:
            object.__setattr__(self, "d_vocab_out", None)
        mlp = 2 * self.d_mlp if self.num_experts is None else self.num_experts * (3 * self.d_mlp + 1)
        a_layer = self.d_model * (4 * self.n_heads * self.d_head + mlp)
        n_parameters = self.n_layers * a_layer + (self.d_vocab + self.n_answers) * self.d_model
        if n_parameters > _MOST_PARAMETERS:
            raise ValueError(
                f"the model must have at most {_MOST_PARAMETERS:,} parameters, got {n_parameters:,}. Use "
                "smaller sizes"
            )

    def _check_experts(self) -> None:
        """Check the fields of a mixture together, and write gamma_experts in a standard form."""
        if self.num_experts is None:
            for name in ("experts_per_token", "gamma_experts"):
                if (value := getattr(self, name)) is not None:
                    raise ValueError(
                        f"{name} must be None without num_experts, got {safe_repr(value)}. Set num_experts"
                    )
        elif self.gamma_experts is not None:
            gammas = _read_gammas(self.gamma_experts)
            if len(gammas) != self.num_experts:
                raise ValueError(
                    f"gamma_experts must be {self.num_experts} numbers separated by spaces, one for each "
                    f"expert, got {safe_repr(self.gamma_experts)}. Give {self.num_experts} numbers"
                )
            object.__setattr__(self, "gamma_experts", " ".join(f"{gamma:.15g}" for gamma in gammas))

    @property
    def n_answers(self) -> int:
        """The size of the vocabulary of answers, equal to the number of columns of W_U."""
        return self.d_vocab_out or self.d_vocab

    @property
    def n_active(self) -> int:
        """The number of experts that receive a token in a mixture of experts."""
        return self.experts_per_token or 1

    @property
    def short_name(self) -> str:
        """The variant, the number of layers and, if they are set, the number of experts and gamma."""
        gamma = "" if self.gamma is None else f", gamma {self.gamma}"
        experts = "" if self.num_experts is None else f", {self.num_experts} experts"
        return f"{self.variant}, {self.n_layers} layer{'s' if self.n_layers > 1 else ''}{experts}{gamma}"

    @property
    def overview(self) -> str:
        """The variant and the sizes on one line."""
        return f"{self.variant}, {sizes(self)}"

    @property
    def shape(self) -> dict[str, Any]:
        """The fields except the initialisation.

        Models that are trained together in a stack must share these fields.
        """
        initial = ("gamma", "init_distribution", "scale_residual_writers")
        own = {name: value for name, value in self.to_dict().items() if not name.startswith(initial)}
        routing = {} if self.num_experts is None else {"experts_per_token": self.n_active}
        return own | {"act_fn": self.activation} | routing

    @property
    def activations(self) -> int:
        """The approximate number of activations per token in an update."""
        return self.n_layers * (self.d_model + self.hidden_width + self.n_heads * self.d_head)

    @property
    def hidden_width(self) -> int:
        """The number of MLP neurons in a block, including the neurons of all experts."""
        return self.d_mlp * (self.num_experts or 1)

    @property
    def activation(self) -> str:
        """The activation function of the MLP. Default: `relu` for `postnorm` and `plain`, else `gelu`."""
        return self.act_fn or ("relu" if self.variant in ("postnorm", "plain") else "gelu")

    @property
    def scales_residual_writers(self) -> bool:
        """Whether the initial W_O and W_out are divided by sqrt(2 n_layers)."""
        own = self.scale_residual_writers
        return self.variant == "released" if own is None else own

    @classmethod
    def for_task(cls, task: Any, **fields: object) -> ModelConfig:
        """Make a config whose vocabulary and context fit `task`, unless `fields` gives other sizes.

        >>> from anchorlens import preset
        >>> ModelConfig.for_task(preset("quick", key_max=400).task, gamma=0.5).d_vocab
        411
        """
        defaults = {"d_vocab": max(cls.d_vocab, task.d_vocab), "n_ctx": max(cls.n_ctx, task.seq_len)}
        return cls.from_dict({**defaults, **fields})

    def check_task(self, task: Any) -> None:
        """Check that the model can read `task`.

        Raises:
            ValueError: If the vocabulary or the context is too small.
        """
        for name, have, need in (
            ("d_vocab", self.d_vocab, task.d_vocab),
            ("d_vocab_out", self.n_answers, task.d_vocab_out),
            ("n_ctx", self.n_ctx, task.seq_len),
        ):
            if have < need:
                raise ValueError(
                    f"{name} must be at least {need} for the task, got {have}. Set {name} to {need}, or use "
                    "ModelConfig.for_task(task)"
                )

    def gamma_of(self, part: Part, expert: int | None = None) -> float:
        """Return the initialisation rate of a part, or of one expert in the part.

        The default is `gamma`.

        Raises:
            ValueError: If the rate is not known.
        """
        if expert is not None and self.gamma_experts is not None:
            return _read_gammas(self.gamma_experts)[expert]
        own = getattr(self, f"gamma_{part}")
        gamma = self.gamma if own is None else own
        if gamma is None:
            raise ValueError(f"gamma must be set before weights are drawn, got None for {part}. Set gamma")
        return gamma


def _read_gammas(text: str) -> list[float]:
    """Parse the gamma of each expert; the list is empty if the text is not numbers separated by spaces.

    Raises:
        ValueError: If a number is out of range.
    """
    try:
        gammas = [float(item) for item in text.split()[: _MOST_EXPERTS + 1]]
    except ValueError:
        gammas = []
    for gamma in gammas:
        check_number("a gamma of gamma_experts", gamma, **GAMMA_RANGE)
    return gammas

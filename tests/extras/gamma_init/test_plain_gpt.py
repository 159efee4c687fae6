"""`gamma_init_` and `gamma_table` on models that know nothing of TransformerLens."""

import json
import math
import re

import numpy as np
import pytest
import torch
from known_models import as_bridge, only_on_3, user_built
from scipy.stats import ks_2samp
from test_examples import example
from torch import nn

from anchorlens import GammaTable, ModelConfig, build_model, gamma_init_, gamma_table, open_checkpoint

WIDTH, VOCAB, CONTEXT = 128, 110, 12
PARTS = {"gamma_embedding": 0.3, "gamma_qk": 0.4, "gamma_vo": 0.6, "gamma_mlp": 0.9}
STDS = {  # fan-in^-gamma by hand: width 128, MLP of 512
    "wte": 128**-0.3,
    "wpe": 128**-0.3,
    "c_attn[q, k]": 128**-0.4,
    "c_attn[v]": 128**-0.6,
    "attn.c_proj": 128**-0.6,
    "c_fc": 128**-0.9,
    "mlp.c_proj": 512**-0.9,
}


def nano_gpt(**fields):
    return example("your_own_gpt").GPT(VOCAB, CONTEXT, **fields)


def gpt2(**fields):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_head": 4, "n_embd": WIDTH, "vocab_size": VOCAB, "n_positions": CONTEXT}
    return GPT2LMHeadModel(GPT2Config(**sizes | {"bos_token_id": None, "eos_token_id": None} | fields))


GPTS = {"nanoGPT": nano_gpt, "with biases": lambda: nano_gpt(bias=True), "Hugging Face": gpt2}


def bits(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def has_std(weight, std):
    """Within five errors of a sample's std, std / sqrt(2 n), and its mean, std / sqrt(n)."""
    close = abs(weight.std().item() - std) < 5 * std / math.sqrt(2 * weight.numel())
    return close and abs(weight.mean().item()) < 5 * std / math.sqrt(weight.numel())


def thirds(name, parameter):
    """The two parts of c_attn, whichever way it is stored."""
    if "c_attn" not in name:
        return {name.removesuffix(".weight"): parameter}
    q, k, v = parameter.chunk(3, dim=parameter.shape.index(3 * WIDTH))
    return {"c_attn[q, k]": torch.stack((q, k)), "c_attn[v]": v}


@pytest.mark.parametrize("gpt", GPTS.values(), ids=GPTS)
def test_every_matrix_has_the_std_of_its_fan_in_and_part(gpt):
    model = gpt()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    assert gamma_init_(model, 0.5, **PARTS) is model
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            norm = ".ln_" in name and name.endswith("weight")
            assert (parameter == float(norm)).all(), name
            continue
        for part, weight in thirds(name, parameter.detach()).items():
            (std,) = [std for known, std in STDS.items() if part.endswith(known)]
            assert has_std(weight, std), name
            assert not has_std(weight, 1.2 * std)  # it can fail


@pytest.mark.parametrize("gpt", GPTS.values(), ids=GPTS)
def test_a_conv1d_has_its_inputs_first_and_a_linear_its_outputs(gpt):
    """GPT-2's c_fc is stored as [128, 512] and its c_proj as [512, 128], nanoGPT's the other way round."""
    mlp = gamma_init_(gpt(), 1.0).transformer.h[0].mlp
    assert has_std(mlp.c_fc.weight.detach(), 1 / 128) and has_std(mlp.c_proj.weight.detach(), 1 / 512)
    assert mlp.c_fc.weight.shape == ((128, 512) if gpt is gpt2 else (512, 128))


@pytest.mark.parametrize("gpt", GPTS.values(), ids=GPTS)
def test_what_is_tied_is_drawn_once_and_stays_tied(gpt):
    model = gamma_init_(gpt(), 0.5)
    assert model.lm_head.weight is model.transformer.wte.weight
    assert has_std(model.lm_head.weight.detach(), 128**-0.5)
    (row,) = [row for row in gamma_table(model).rows if "lm_head.weight" in (row.name, *row.tied)]
    assert (row.tied, row.part, row.fan_in) == (("lm_head.weight",), "embedding", 128)
    untied = nano_gpt()
    untied.lm_head.weight = nn.Parameter(torch.empty(VOCAB, WIDTH))
    gamma_init_(untied, 0.5, gamma_embedding=0.3)
    assert not torch.equal(untied.lm_head.weight, untied.transformer.wte.weight)
    assert has_std(untied.lm_head.weight.detach(), 128**-0.3)


def test_residual_writers_are_divided_by_the_root_of_their_number():
    """Two layers have four of them, so their std is half of what it was."""
    for model in (gpt2(), nano_gpt(), user_built(n_layers=2)):
        plain, scaled = (bits(gamma_init_(model, 0.5, scale_residual_writers=yes)) for yes in (False, True))
        halved = {name for name in plain if not torch.equal(plain[name], scaled[name])}
        assert halved == {name for name in plain if re.search(r"c_proj.weight|W_O|W_out", name)}
        assert all(torch.allclose(scaled[name], plain[name] / 2) for name in halved)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """GPT-2 drawn as it is -> the weights of the HookedTransformer that it is converted to."""

    def convert(model):
        folder = tmp_path_factory.mktemp("gpt2")
        model.save_pretrained(folder)
        return dict(open_checkpoint(folder).checkpoint.weights)

    return convert


def differ(a, b):
    """Names of the matrices whose numbers are not of one distribution: Kolmogorov and Smirnov, p < 1e-6."""
    matrices = [name for name in a if a[name].std() > 0]
    samples = {name: (a[name].flatten().numpy(), b[name].flatten().numpy()) for name in matrices}
    return {name for name, pair in samples.items() if ks_2samp(*pair).pvalue < 1e-6}


def test_a_gpt2_starts_as_the_hooked_transformer_does_that_it_is_converted_to(converted):
    model = gpt2()
    drawn = converted(gamma_init_(model, 0.5, **PARTS))
    config = ModelConfig(
        n_heads=4, d_model=WIDTH, d_head=32, d_mlp=512, d_vocab=VOCAB, n_ctx=CONTEXT, gamma=0.5, **PARTS
    )
    hooked = bits(build_model(config, seed=1))
    assert drawn.keys() == hooked.keys()
    assert differ(drawn, hooked) == set()
    constant = [name for name in hooked if hooked[name].dim() == 1 or ".b_" in name]
    assert len(constant) == 23 and all(torch.equal(drawn[name], hooked[name]) for name in constant)
    # negative control: queries and keys alone are wrong where all three have one gamma
    wrong = differ(converted(gamma_init_(model, 0.5, **PARTS | {"gamma_qk": 0.6})), hooked)
    assert wrong == {f"blocks.{layer}.attn.W_{x}" for layer in (0, 1) for x in "QK"}


class TestTheSameEverywhere:
    def test_the_seed_is_everything_and_global_randomness_stays(self):
        state = torch.get_rng_state()
        models = [nano_gpt() for _ in range(3)]
        torch.set_rng_state(state)
        first, again, other = (
            bits(gamma_init_(model, 0.5, seed=seed)) for model, seed in zip(models, (4, 4, 5), strict=True)
        )
        assert same(first, again) and not same(first, other)
        assert torch.equal(torch.get_rng_state(), state)

    @pytest.mark.parametrize("gamma", ["0.5", torch.tensor(0.5), np.float32(0.5)], ids=type)
    def test_a_gamma_may_be_written_in_other_ways(self, gamma):
        state = torch.get_rng_state()
        one = nano_gpt()
        torch.set_rng_state(state)
        other = nano_gpt()
        assert same(bits(gamma_init_(one, gamma)), bits(gamma_init_(other, 0.5)))
        assert gamma_table(one, gamma).gamma == 0.5

    def test_two_gammas_are_the_same_numbers_at_another_scale(self):
        small, large = (bits(gamma_init_(nano_gpt(), gamma)) for gamma in (0.8, 0.3))
        name = "transformer.wte.weight"
        assert torch.allclose(small[name] * 128**0.5, large[name])

    @pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile], ids=["DataParallel", "compiled"])
    def test_a_wrapped_model_is_drawn_as_it_is_inside(self, wrap):
        for model in (nano_gpt(), build_model(ModelConfig(d_model=16, d_head=8, d_mlp=16))):
            alone, wrapped = bits(gamma_init_(model, 0.5, seed=3)), wrap(model)
            gamma_init_(model, 0.5, seed=4)
            assert gamma_init_(wrapped, 0.5, seed=3) is wrapped and same(bits(model), alone)
            assert gamma_table(wrapped).rows == gamma_table(model).rows

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_the_same_numbers_rounded(self, dtype):
        single, half = (gamma_init_(nano_gpt().to(each), 0.5) for each in (torch.float32, dtype))
        assert same(bits(half), {name: weight.to(dtype) for name, weight in bits(single).items()})

    @pytest.mark.gpu
    def test_a_gpu_gets_the_same_bits(self):
        on_cpu, on_gpu = (gamma_init_(nano_gpt(bias=True).to(device), 0.5) for device in ("cpu", "cuda"))
        assert same(bits(on_cpu), {name: weight.cpu() for name, weight in bits(on_gpu).items()})
        assert gamma_table(on_gpu).rows[0].fan_in == WIDTH

    def test_a_step_of_training_goes_on_from_it(self):
        model = nano_gpt().eval()
        frozen = model.transformer.wpe.weight.requires_grad_(False)
        before = frozen.clone()
        gamma_init_(model, 0.5)
        assert not model.training and not frozen.requires_grad and torch.equal(frozen, before)
        gamma_init_(model, 0.5, fan_in={"*.wpe.weight": 128})
        assert not frozen.requires_grad and has_std(frozen, 128**-0.5)
        model(torch.arange(CONTEXT)[None]).sum().backward()
        assert model.lm_head.weight.grad is not None


class Own(nn.Module):
    """A module that nothing is known of."""

    def __init__(self, *shape):
        super().__init__()
        self.table = nn.Parameter(torch.full(shape, 7.0))


class OwnNorm(nn.Module):
    """As Llama's: multiplies by the weight, or as Gemma's by 1 + weight."""

    def __init__(self, width, added):
        super().__init__()
        self.added, self.weight = added, nn.Parameter(torch.full((width,), 7.0))

    def forward(self, x):
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * (self.added + self.weight)


class Scale(OwnNorm):
    """Multiplies, and is no norm."""

    def forward(self, x):
        return x * self.weight


class TestModules:
    def test_fan_ins_by_hand(self):
        fan_ins = {
            "weight": [
                (nn.Embedding(50, 64), 64),
                (nn.EmbeddingBag(50, 64), 64),
                (nn.Linear(64, 20), 64),
                (nn.Conv1d(6, 12, 5), 30),  # 6 channels of 5
                (nn.Conv1d(6, 12, 5, groups=3), 10),  # 2 channels of 5
                (nn.Conv2d(3, 8, (2, 5)), 30),
            ],
            "weight_ih_l0": [(nn.LSTM(20, 8), 20), (nn.GRU(20, 8), 20), (nn.RNN(20, 8), 20)],
            "weight_hh_l0": [(nn.LSTM(20, 8), 8)],
            "weight_ih": [(nn.LSTMCell(20, 8), 20)],
            "k_proj_weight": [(nn.MultiheadAttention(32, 4, kdim=20, vdim=12), 20)],
            "v_proj_weight": [(nn.MultiheadAttention(32, 4, kdim=20, vdim=12), 12)],
            "in_proj_weight[q, k]": [(nn.MultiheadAttention(32, 4), 32)],
            "out_proj.weight": [(nn.MultiheadAttention(32, 4), 32)],
        }
        for name, cases in fan_ins.items():
            for module, fan_in in cases:
                found = {row.name: row.fan_in for row in gamma_table(module).rows}
                assert found[name] == fan_in, module

    def test_torchs_own_attention_is_drawn_in_two_parts(self):
        layer = nn.TransformerEncoderLayer(64, 4, 256)
        gamma_init_(layer, 0.5, **PARTS)
        in_proj = layer.self_attn.in_proj_weight.detach()
        assert has_std(in_proj[:128], 64**-0.4) and has_std(in_proj[128:], 64**-0.6)
        assert has_std(layer.self_attn.out_proj.weight.detach(), 64**-0.6)
        assert has_std(layer.linear1.weight.detach(), 64**-0.9)
        assert has_std(layer.linear2.weight.detach(), 256**-0.9)
        assert (layer.self_attn.in_proj_bias == 0).all() and (layer.norm1.weight == 1).all()

    @pytest.mark.parametrize("added", [0, 1])
    def test_a_norm_of_ones_own_starts_where_it_gives_size_1(self, added):
        norm, calls = OwnNorm(16, added), []
        norm.register_forward_hook(lambda *_: calls.append(1))
        before = norm.weight
        gamma_init_(norm, 0.5)
        assert norm.weight is before and (norm.weight == 1 - added).all() and calls == []
        x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
        assert torch.allclose(norm(x).square().mean(-1), torch.ones(5), atol=1e-4)

    def test_what_only_multiplies_is_no_norm(self):
        with pytest.raises(ValueError, match=r"got weight \[16\] of a Scale"):
            gamma_init_(Scale(16, 0), 0.5)

    def test_a_row_of_padding_stays_0(self):
        embedding = gamma_init_(nn.Embedding(50, 64, padding_idx=3), 0.5)
        assert (embedding.weight[3] == 0).all() and (embedding.weight != 0).all(1).sum() == 49

    @pytest.mark.parametrize("name", ["Llama", "Gemma", "Qwen3"])
    def test_other_gpts_of_hugging_face(self, name):
        import transformers

        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
        ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
        config = getattr(transformers, f"{name}Config")(**sizes, **heads, **ends)
        model = gamma_init_(getattr(transformers, f"{name}ForCausalLM")(config), 0.5, **PARTS)
        layer = model.model.layers[0]
        assert has_std(layer.self_attn.k_proj.weight.detach(), 32**-0.4)
        assert has_std(layer.mlp.down_proj.weight.detach(), 48**-0.9)
        assert (model.model.norm.weight == (0 if name == "Gemma" else 1)).all()


class TestFanInOfOnesOwn:
    def test_a_number_draws_and_none_leaves(self):
        model = nn.ModuleDict({f"{i}": Own(30, 40) for i in range(3)})
        gamma_init_(model, 0.5, fan_in={"*.table": 40, "1.table": None})
        assert (model["1"].table == 7).all()
        assert all(has_std(model[i].table.detach(), 40**-0.5) for i in "02")
        assert gamma_table(model, fan_in={"*": None}).kept == ("0.table", "1.table", "2.table")

    def test_it_goes_before_what_is_known(self):
        model = gamma_init_(nn.Linear(64, 64), 0.5, fan_in={"weight": 16, "bias": 100})
        assert has_std(model.weight.detach(), 0.25) and has_std(model.bias.detach(), 0.1)

    @only_on_3
    def test_it_lets_a_hooked_transformer_be_drawn_that_has_more(self):
        model = user_built(use_attention_sinks=True)
        before = bits(model)
        gamma_init_(model, 0.5, fan_in={"*.sinks": None})
        kept = {name for name, weight in bits(model).items() if torch.equal(weight, before[name])}
        assert kept == {f"blocks.{layer}.attn.sinks" for layer in range(3)}

    def test_a_module_of_ones_own_in_a_hooked_transformer(self):
        model = user_built()
        expected = bits(gamma_init_(user_built(), 0.5))
        model.blocks[2].own = nn.Linear(64, 64)
        gamma_init_(model, 0.5)
        assert has_std(model.blocks[2].own.weight.detach(), 64**-0.5)
        assert same({name: weight for name, weight in bits(model).items() if ".own." not in name}, expected)


def tied_to_its_transpose():
    model = nn.Sequential(nn.Linear(8, 20, bias=False), nn.Linear(20, 8, bias=False))
    model[1].weight.data = model[0].weight.data.T
    return model


def tied_with_two_fan_ins():
    """[20, 8]: a Linear has 8 inputs, a Conv1D 20."""
    from transformers.pytorch_utils import Conv1D

    model = nn.Sequential(nn.Linear(8, 20, bias=False), Conv1D(8, 20))
    model[1].weight = model[0].weight
    return model


def two_parts_in_one_memory():
    model = nn.ModuleDict({name: nn.Linear(8, 8, bias=False) for name in ("q_proj", "up_proj")})
    model["up_proj"].weight = nn.Parameter(model["q_proj"].weight.data)
    return model


def wrapping_other_tensors():
    """As a sharded DTensor does, and torchao's quantised tensors."""
    from torch.testing._internal.two_tensor import TwoTensor

    model = nn.Linear(8, 8)
    model.weight = nn.Parameter(TwoTensor(torch.zeros(8, 8), torch.zeros(8, 8)))
    return model


def quantised():
    model = nn.Sequential(nn.Linear(8, 8))
    model[0].weight = nn.Parameter(torch.zeros(8, 8, dtype=torch.int8), requires_grad=False)
    return model


REFUSED = {
    "no model": (
        lambda: None,
        {},
        "model must be a HookedTransformer or a plain torch module, got a NoneType",
    ),
    "a class": (
        lambda: nn.Linear,
        {},
        "model must be a HookedTransformer or a plain torch module, got a type",
    ),
    "no parameters": (nn.GELU, {}, "model must have parameters, got a GELU without parameters"),
    "a matrix without a module": (
        lambda: nn.ModuleDict({"h": nn.ModuleList([Own(9, 32)])}),
        {},
        "got h.0.table [9, 32] of a Own, whose inputs no forward pass shows. Map its name in fan_in to",
    ),
    "a transposed convolution": (lambda: nn.ConvTranspose1d(4, 8, 3), {}, "got weight [4, 8, 3] of a Conv"),
    "a lazy module": (lambda: nn.LazyLinear(8), {}, "got weight of a lazy module. Run a batch first"),
    "integers": (quantised, {}, "got 0.weight of torch.int8. Draw its weights before it is quantised"),
    "half a byte": (
        lambda: nn.Linear(8, 8).to(torch.float8_e4m3fn),
        {},
        "got weight of torch.float8_e4m3fn. Draw its weights before",
    ),
    "sharded": (wrapping_other_tensors, {}, "got weight of torch.float32 (TwoTensor, torch.strided). Draw"),
    "sparse": (
        lambda: nn.ParameterList([nn.Parameter(torch.zeros(2, 2).to_sparse(), requires_grad=False)]),
        {},
        "got 0 of torch.float32 (Tensor, torch.sparse_coo). Draw",
    ),
    "no memory": (
        lambda: nn.Linear(8, 8, device="meta"),
        {},
        "must have its own writable memory, got weight, which is on the meta device. Call model.to_empty(",
    ),
    "tied, two fan-ins": (
        tied_with_two_fan_ins,
        {},
        "tied matrices must have one fan-in, got 8 and 20 for 0.weight and 1.weight. Choose one",
    ),
    "one memory, two fan-ins": (
        tied_to_its_transpose,
        {},
        "must have the same initialisation, got 0.weight (fan-in 8, gamma 0.5, divided by 1) and 1.weight "
        "(fan-in 20, gamma",
    ),
    "one memory, two gammas": (
        two_parts_in_one_memory,
        {"gamma_qk": 0.8},
        "must have the same initialisation, got q_proj.weight (fan-in 8, gamma 0.8, divided by 1) and "
        "up_proj.weight (fan-in 8, gamma 0.5",
    ),
    "a part that is not known": (
        lambda: nn.Sequential(nn.Linear(8, 8)),
        {"gamma_qk": 0.3},
        "every matrix must be in a known part of the model for gamma_qk, got 0.weight [8, 8] in an unknown "
        "part. Omit",
    ),
    "writers that are not known": (
        lambda: nn.Sequential(nn.Linear(8, 8)),
        {"scale_residual_writers": True},
        "must be in a known part of the model for scale_residual_writers, got",
    ),
    "experts of a plain model": (
        nano_gpt,
        {"gamma_experts": [0.3, 0.5]},
        "with a mixture of experts, got a GPT without a mixture. Omit gamma_experts",
    ),
    "a fan-in of nothing": (
        nano_gpt,
        {"fan_in": {"lm_haed.weight": 5}},
        "fan_in must name parameters of the model, got 'lm_haed.weight'. Did you mean 'lm_head.weight'?",
    ),
    "a fan-in that is none": (
        nano_gpt,
        {"fan_in": {"lm_head.weight": 0}},
        "the fan-in of lm_head.weight must be an integer >= 1, got 0",
    ),
    "no dict": (nano_gpt, {"fan_in": 5}, "fan_in must be a dict of names and numbers, got 5"),
    "gamma": (nano_gpt, {"gamma": 11}, "gamma must be a finite number >= -10 and <= 10, got 11"),
    "distribution": (nano_gpt, {"distribution": "cauchy"}, "distribution must be one of normal, uniform"),
    "seed": (nano_gpt, {"seed": -1}, "seed must be an integer >= 0, got -1"),
}


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(("make", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_one_sentence_and_draws_nothing(make, options, message):
    model = make()
    drawn = isinstance(model, nn.Module) and not isinstance(model, nn.LazyLinear)
    before = bits(model) if drawn else {}
    with pytest.raises(ValueError) as error:
        gamma_init_(model, **{"gamma": 0.5} | options)
    assert message in str(error.value) and "\n" not in str(error.value)
    for name, parameter in model.named_parameters() if drawn else ():
        assert parameter.is_meta or parameter.is_sparse or torch.equal(parameter, before[name])


def test_torchs_quantised_modules_are_refused():
    model = nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 8))
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # without the backend of quantised products it cannot be built
        patch.setattr(nn.Linear, "__module__", "torch.ao.nn.quantized.dynamic.modules.linear")
        with pytest.raises(ValueError, match="must not be quantised, got 1"):
            gamma_init_(model, 0.5)


def test_a_bridge_is_refused():
    bridge = as_bridge(build_model(ModelConfig(d_model=16, d_head=8, d_mlp=16)))
    with pytest.raises(ValueError, match="got a TransformerBridge"):
        gamma_init_(bridge, 0.5)


class TestTable:
    @pytest.fixture
    def model(self):
        return gamma_init_(nano_gpt(bias=True), 0.7, gamma_qk=0.4)

    def test_says_what_was_drawn(self, model):
        before = bits(model)
        table = gamma_table(model, 0.7, gamma_qk=0.4)
        rows = {row.name: row for row in table.rows}
        row = rows["transformer.h.1.attn.c_attn.weight[q, k]"]
        assert (row.shape, row.part, row.fan_in, row.std) == ((256, 128), "qk", 128, 128**-0.4)
        weights = model.transformer.h[1].attn.c_attn.weight[:256].detach().double()
        assert row.measured_std == pytest.approx(weights.std(correction=0).item())
        assert row.measured_gamma == pytest.approx(-math.log(row.measured_std) / math.log(128))
        assert len(rows) == 12 and same(bits(model), before)
        assert len(table.ones) == 5 and len(table.zeros) == 13 and table.kept == ()
        every = {row.name.partition("[")[0] for row in table.rows} | {*table.ones, *table.zeros}
        assert every == set(before)

    def test_in_a_line_and_printed(self, model):
        table = gamma_table(model, 0.7, gamma_qk=0.4)
        assert re.fullmatch(
            r"GammaTable\(GPT: 12 weight matrices; measured gamma 0.40 to 0.70; "
            r"std (0.99 to 1.01|1.00) times the std of gamma 0.7\)",
            repr(table),
        )
        head, *rows, rest = str(table).splitlines()
        assert head.split() == ["name", "shape", "part", "fan-in", "std", "measured", "gamma"]
        assert len(rows) == 12 and len({row.index(" x ") > 0 for row in rows}) == 1
        assert rest == "other parameters at 0: 13; at 1: 5; left as they are: 0"
        assert repr(gamma_table(nn.Linear(8, 1, device="meta"))) == "GammaTable(Linear: 1 weight matrix)"

    def test_travels_as_json_and_becomes_a_data_frame(self, model):
        import pandas

        table = gamma_table(model, 0.7)
        again = GammaTable.from_dict(json.loads(json.dumps(table.to_dict())))
        assert again.rows == table.rows and repr(again) == repr(table)
        frame = pandas.DataFrame(table.rows)
        assert frame.shape == (12, 8) and (frame.fan_in == [row.fan_in for row in table.rows]).all()

    @pytest.mark.parametrize("distribution", ["normal", "uniform"])
    def test_measures_the_gamma_that_was_drawn(self, distribution):
        options = {"distribution": distribution, "scale_residual_writers": True}
        for model in (nano_gpt(), user_built(d_model=128)):
            for row in gamma_table(gamma_init_(model, 0.6, **options), 0.6, **options).rows:
                error = 5 / math.sqrt(2 * math.prod(row.shape)) / math.log(row.fan_in)
                assert abs(row.measured_gamma - 0.6) < error, row.name
                assert row.measured_std == pytest.approx(row.std, rel=error * math.log(row.fan_in))

    def test_before_it_is_drawn(self):
        """nanoGPT's and GPT-2's own std of .02 is gamma .806 at width 128: -log(.02) / log(128)."""
        rows = {row.name: row for row in gamma_table(gpt2(), 0.5).rows}
        row = rows["transformer.h.0.mlp.c_fc.weight"]
        assert row.std == 128**-0.5 and row.measured_gamma == pytest.approx(0.806, abs=0.01)

    def test_without_numbers(self):
        (row,) = gamma_table(nn.Linear(64, 9, bias=False, device="meta"), 0.5).rows
        assert (row.std, row.measured_std, row.measured_gamma) == (0.125, None, None)
        model = nn.Linear(1, 9, bias=False)
        (row,) = gamma_table(model).rows
        assert row.std is None and row.measured_std > 0 and row.measured_gamma is None
        nn.init.constant_(model.weight, math.nan)
        (row,) = gamma_table(model).rows
        assert row.measured_std is None and json.dumps(gamma_table(model).to_dict())

    def test_of_a_hooked_transformer_is_the_table_of_its_config(self):
        from anchorlens.models.gamma import init_table

        config = ModelConfig(gamma=0.5, gamma_mlp=0.8, num_experts=2, gamma_experts="0.3 0.9")
        table = gamma_table(build_model(config), 0.5, gamma_mlp=0.8, gamma_experts=[0.3, 0.9])
        expected = init_table(config)
        assert [(row.name, row.part, row.fan_in, row.std) for row in table.rows] == [
            (name, weight.part, weight.d_in, weight.scale) for name, weight in expected.items()
        ]
        ratios = np.array([row.measured_std / row.std for row in table.rows])
        assert abs(ratios - 1).max() < 0.1

    def test_refuses_what_gamma_init_refuses(self):
        with pytest.raises(ValueError, match=r"got table \[9, 32\] of a Own"):
            gamma_table(Own(9, 32))
        with pytest.raises(ValueError, match="gamma must be a finite number"):
            gamma_table(nano_gpt(), math.nan)

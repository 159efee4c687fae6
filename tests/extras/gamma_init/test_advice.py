"""Every piece of advice of `gamma_init_` followed to the letter, and the starts that are not draws."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from anchorlens import gamma_init_, gamma_table

D, HEADS, HIDDEN, VOCAB = 32, 4, 128, 50
GAMMA = 0.7


def matrix(*shape):
    return nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape))))


class Net(nn.Module):
    """Tokens, an inner module with a residual connection, and a head called `fc_out`."""

    def __init__(self, inner):
        super().__init__()
        self.embed, self.inner, self.fc_out = nn.Embedding(VOCAB, D), inner, nn.Linear(D, VOCAB)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.fc_out(x + self.inner(x))


class Bare(nn.Module):
    """Parameters without modules, and a function of them."""

    def __init__(self, run, **parameters):
        super().__init__()
        self.run = run
        for name, parameter in parameters.items():
            setattr(self, name, parameter)

    def forward(self, x):
        return self.run(self, x)


def einsums(m, x):
    q = torch.einsum("bpm,hmd->bphd", x, m.W_Q)
    return torch.einsum("bphd, hdm", q, m.W_O)


def summed_heads(m, x):
    return (x.unsqueeze(1) @ m.W_V @ m.W_O).sum(dim=1)


def experts(m, x):
    hidden = torch.einsum("bpm,emf->bpef", x, m.up).relu()
    return torch.einsum("bpef,efm,bpe->bpm", hidden, m.down, torch.softmax(x @ m.router.T, -1))


def bare_gpt(m, tokens):
    x = m.W_E(tokens)
    return torch.relu(x @ m.W_in + m.b_in) @ m.W_out @ m.W_U


HEAD = (HEADS, D, D // HEADS)
ARCHITECTURES = {
    "x @ W": (
        Net(
            Bare(
                lambda m, x: torch.relu(x @ m.W_in) @ m.W_out, W_in=matrix(D, HIDDEN), W_out=matrix(HIDDEN, D)
            )
        ),
        {"inner.W_in": D, "inner.W_out": HIDDEN},
    ),
    "stacked heads": (
        Net(Bare(einsums, W_Q=matrix(*HEAD), W_O=matrix(HEADS, D // HEADS, D))),
        {"inner.W_Q": D, "inner.W_O": D},
    ),
    "heads summed after their products": (
        Net(Bare(summed_heads, W_V=matrix(HEADS, D, 6), W_O=matrix(HEADS, 6, D))),
        {"inner.W_V": D, "inner.W_O": HEADS * 6},
    ),
    "experts": (
        Net(Bare(experts, up=matrix(3, D, HIDDEN), down=matrix(3, HIDDEN, D), router=matrix(3, D))),
        {"inner.up": D, "inner.router": D},  # `down` is checked by hand below
    ),
    "F.linear": (
        Net(
            Bare(
                lambda m, x: F.linear(F.linear(x, m.up).relu(), m.down),
                up=matrix(HIDDEN, D),
                down=matrix(D, HIDDEN),
            )
        ),
        {"inner.up": D, "inner.down": HIDDEN},
    ),
    "transposed": (
        Net(
            Bare(
                lambda m, x: torch.matmul(x, m.up.T) @ m.down.mT, up=matrix(HIDDEN, D), down=matrix(D, HIDDEN)
            )
        ),
        {"inner.up": D, "inner.down": HIDDEN},
    ),
    "blocks of one name": (
        Net(
            nn.Sequential(
                *(Bare(lambda m, x: x @ m.weight, weight=matrix(*shape)) for shape in ((D, 9), (9, D))),
                nn.LayerNorm(D),
            )
        ),
        {"inner.0.weight": D, "inner.1.weight": 9},
    ),
    "an embedding alone is a module": (
        Bare(
            bare_gpt,
            W_E=nn.Embedding(VOCAB, D),
            W_in=matrix(D, HIDDEN),
            W_out=matrix(HIDDEN, D),
            b_in=nn.Parameter(torch.zeros(HIDDEN)),
            W_U=matrix(D, VOCAB),
        ),
        {"W_E.weight": D, "W_in": D, "W_out": HIDDEN, "W_U": D},
    ),
    "numbers as inputs": (
        Bare(
            lambda m, x: torch.relu(x @ m.first) @ m.second,
            first=matrix(17, HIDDEN),
            second=matrix(HIDDEN, 10),
        ),
        {"first": 17, "second": HIDDEN},
    ),
    "recurrent": (
        nn.ModuleDict({"cells": nn.LSTM(D, 40), "head": nn.Linear(40, VOCAB)}),
        {"cells.weight_ih_l0": D, "cells.weight_hh_l0": 40, "head.weight": 40},
    ),
    "an encoder of torch": (
        Net(
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(D, 4, HIDDEN, batch_first=True), 2, enable_nested_tensor=False
            )
        ),
        {"inner.layers.0.linear1.weight": D, "inner.layers.1.linear2.weight": HIDDEN, "fc_out.weight": D},
    ),
}


def follow(model, **options):
    """Do what the errors of `gamma_init_` say, to the letter, and return it."""
    given = {}
    for _ in range(12):
        try:
            gamma_init_(model, GAMMA, fan_in=given, **options)
        except ValueError as error:
            ((name, number),) = re.findall(r"fan_in=\{'([^']+)': (\d+|None)\}", str(error))
            given[name] = None if number == "None" else int(number)
        else:
            return given
    raise AssertionError(given)


def off(weight, std):
    """The difference from a std, in errors of the sample's std."""
    return abs(weight.std().item() / std - 1) * math.sqrt(2 * weight.numel())


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_advice_followed_to_the_letter_gives_the_std_of_each_fan_in(name):
    model, fan_ins = ARCHITECTURES[name]
    follow(model)
    parameters = dict(model.named_parameters())
    for parameter, fan_in in fan_ins.items():
        assert off(parameters[parameter].detach(), fan_in**-GAMMA) < 5, parameter
        assert off(parameters[parameter].detach(), (2 * fan_in) ** -GAMMA) > 5  # it can fail


def test_the_inputs_of_all_experts_count_if_one_product_sums_them():
    model = ARCHITECTURES["experts"][0]
    assert follow(model)["inner.down"] == 3 * HIDDEN


def test_heads_that_are_taken_one_by_one_get_no_number():
    def one_by_one(m, x):
        return sum(x @ m.W_V[head] @ m.W_O[head] for head in range(HEADS))

    model = Net(Bare(one_by_one, W_V=matrix(*HEAD), W_O=matrix(HEADS, D // HEADS, D)))
    with pytest.raises(ValueError, match=r"inner\.W_V .*no forward pass shows") as error:
        gamma_init_(model, GAMMA)
    assert "fan_in={" not in str(error.value)


def test_the_head_is_known_by_its_place_and_not_by_its_name():
    model, _ = ARCHITECTURES["an encoder of torch"]
    gamma_init_(model, 0.5, gamma_mlp=1.2, gamma_embedding=0.3, scale_residual_writers=True)
    assert off(model.fc_out.weight.detach(), D**-0.3) < 5
    assert off(model.inner.layers[0].linear2.weight.detach(), HIDDEN**-1.2 / 2) < 5  # four writers
    row = next(row for row in gamma_table(model).rows if row.name == "fc_out.weight")
    assert row.part == "embedding"
    model.forward = None  # no forward pass: nothing tells a head from an MLP
    with pytest.raises(ValueError, match=r"got fc_out\.weight .*unknown part"):
        gamma_init_(model, 0.5, gamma_mlp=1.2)


def test_nothing_of_the_module_changes_when_a_copy_of_it_is_run():
    model, seen = Net(nn.BatchNorm1d(4)).train(), []
    model.inner.register_forward_hook(lambda *_: seen.append(1))
    before, state = {name: one.clone() for name, one in model.state_dict().items()}, torch.get_rng_state()
    gamma_table(model)
    assert seen == [] and model.training and torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


class Norm(nn.Module):
    """A ScaleNorm: one gain for the whole vector, started at sqrt(d)."""

    def __init__(self):
        super().__init__()
        self.g = nn.Parameter(torch.full((1,), D**0.5))

    def forward(self, x):
        return self.g * F.normalize(x, dim=-1)


def sines(n, d):
    angles = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Starts(nn.Module):
    """One parameter of each kind whose start is not a draw."""

    def __init__(self):
        super().__init__()
        self.positions = nn.Embedding.from_pretrained(sines(20, D))
        self.learned = nn.Embedding.from_pretrained(sines(20, D), freeze=False)
        self.norm, self.gate = Norm(), nn.Parameter(torch.tensor(0.0))
        self.down, self.up = nn.Linear(D, 4, bias=False), nn.Linear(4, D, bias=False)
        self.steps, self.marked = nn.Linear(4, D), nn.Linear(D, D)
        self.identity, self.rates = nn.Linear(D, D), nn.Parameter(torch.arange(1.0, 9).log().repeat(D, 1))
        self.scale, self.prompt = nn.Parameter(torch.full((D,), 1e-4)), nn.Parameter(torch.zeros(1, 5, D))
        self.last = nn.LayerNorm(D)
        self.register_buffer("mask", torch.ones(3))
        nn.init.zeros_(self.up.weight), nn.init.eye_(self.identity.weight), nn.init.zeros_(self.last.weight)
        nn.init.constant_(self.steps.bias, -4.6)
        self.marked.bias._no_reinit = True


KEPT = {
    "positions.weight": "frozen",
    "learned.weight": "a table of sines and cosines",
    "norm.g": "a single number",
    "gate": "a single number",
    "up.weight": "all its rows are equal",
    "steps.bias": "a bias with a start of its own",
    "marked.bias": "marked with _no_reinit",
    "identity.weight": "each of its rows has a single value",
    "rates": "all its rows are equal",
    "scale": "a vector of one value",
    "prompt": "all its rows are equal",
    "last.weight": "a vector of one value",
}


def test_what_is_no_draw_is_kept_and_listed_with_its_reason():
    model = Starts()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    with pytest.warns(UserWarning, match="kept as they are") as caught:
        gamma_init_(model, GAMMA)
    table = gamma_table(model)
    assert dict(zip(table.kept, table.reasons, strict=True)) == KEPT
    assert re.search(r"left as they are: 12: .*positions\.weight \(frozen\).*, \.\.\.$", str(table))
    same = {name for name, one in model.state_dict().items() if torch.equal(one, before[name])}
    assert same == {*KEPT, "mask", "last.bias"}
    (said,) = caught
    assert "up.weight (all its rows are equal)" in str(said.message) and "norm.g" not in str(said.message)
    assert (
        off(model.down.weight.detach(), D**-GAMMA) < 5
        and not model.marked.weight.eq(before["marked.weight"]).any()
    )


def test_a_fan_in_draws_what_would_be_kept():
    model = Starts()
    with pytest.warns(UserWarning, match="kept as they are"):
        gamma_init_(model, GAMMA, fan_in={"positions.weight": D, "up.weight": 4})
    assert off(model.positions.weight, D**-GAMMA) < 5 and off(model.up.weight.detach(), 4**-GAMMA) < 5


@pytest.mark.parametrize("fill", [0.0, math.nan, 1e-40])
def test_memory_that_nobody_filled_is_no_reason(fill):
    model = nn.Sequential(nn.Embedding(20, D), nn.Linear(D, D), nn.Linear(D, 20))
    nn.init.constant_(model[0].weight, fill)
    nn.init.zeros_(model[1].weight), nn.init.normal_(model[2].weight, std=1e-30 if fill else 0.0)
    gamma_init_(model, GAMMA)
    assert all(off(layer.weight.detach(), D**-GAMMA) < 5 for layer in model)


def test_the_biases_of_a_trained_model_start_at_0_again():
    model = nn.Sequential(nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D))
    for layer, mean in zip(model, (0.3, -2.0, 0.1), strict=True):
        nn.init.normal_(layer.bias, mean, 0.3)
    gamma_init_(model, GAMMA)
    assert all((layer.bias == 0).all() for layer in model)

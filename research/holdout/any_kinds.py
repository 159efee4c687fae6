"""The kinds of the study of any torch module: data, module and recipe for each place of a kind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from torch import nn

from holdout import overlaps
from holdout.any_networks import (
    AttentionAlone,
    Encoder,
    OneHot,
    Recurrent,
    convolution,
    enlarged,
    perceptron,
)

PLACES = 12
RANDOM, FEW = (0, 4, 6, 10), (2, 8)
"""The places of a kind with random labels, and with few rows of a rule; the others have many rows."""
MOST_FRESH = 800
_MOST_SHARED = 1440
"""Rows of data whose rows share their content; a multiple of 4, 6 and 16."""
_STOPS = (0.05, 0.01, 0.002)


class Prepared(NamedTuple):
    """A run before its training."""

    task: str
    x: np.ndarray
    y: np.ndarray
    """Training data: tokens or numbers, and classes [row] or [row, pos] with -100 unscored."""
    new_x: np.ndarray
    new_y: np.ndarray
    module: Callable[[], nn.Module]
    lr: float = 3e-3
    weight_decay: float = 0.0
    n_updates: int = 1500
    stop: float = 0.01
    """The training loss, in nats, at which a run that memorises ends."""
    beyond: float | None = None
    """A run that learns ends after this many times the updates in which it learnt; None: at `stop`."""


def _drawn(
    random: np.random.Generator,
    place: int,
    x: np.ndarray,
    y: np.ndarray,
    n: int,
    n_random: int,
    n_classes: int,
    task: str,
    module: Callable[[], nn.Module],
    **recipe: float,
) -> Prepared:
    """Split rows into training and fresh ones; with random labels at some places, and few rows at others.

    Args:
        random: the generator of a run.
        place: the place of the run in its kind.
        x: the inputs [row, ...], which are distinct.
        y: the classes [row].
        n: the number of training rows of a run that learns.
        n_random: the number of training rows with random labels.
        n_classes: the number of random labels.
        task: the words for the task.
        module: makes the module.
        **recipe: the fields of `Prepared` for a run that learns.
    """
    order = random.permutation(len(x))
    x, y = x[order], y[order]
    if place in RANDOM:
        n, task = n_random, f"{n_classes} random labels"
        y = random.integers(0, n_classes, len(y))
    if place % 2 == 0:
        recipe = {"lr": recipe.get("lr", 3e-3), "stop": _STOPS[place // 2 % 3], "n_updates": 3000}
    else:
        recipe = {"beyond": (1.0, 1.5, 2.0)[place // 2 % 3]} | recipe
    cut = slice(n, n + MOST_FRESH)
    return Prepared(task, x[:n], y[:n], x[cut], y[cut], module, **recipe)  # type: ignore[arg-type]


def _product(n: int, length: int = 2) -> np.ndarray:
    return np.array(list(itertools.product(range(n), repeat=length)))


def _width(place: int) -> int:
    return (64, 128, 16, 256, 32, 128, 256, 64, 128, 256, 128, 64)[place]


def _fraction(place: int) -> float:
    """The trained proportion of a table."""
    return (0.5, 0.8, 0.35, 0.7, 0.9, 0.9, 0.7, 0.8, 0.2, 0.75, 0.6, 0.85)[place]


def _table(
    random: np.random.Generator, place: int, table: np.ndarray, task: str, **recipe: float
) -> Prepared:
    """An MLP on the pairs of a table [row, column] of classes."""
    n, pairs = len(table), _product(len(table))
    rows = int(_fraction(place) * len(pairs))
    width = _width(place)
    recipe = {"lr": 0.01, "weight_decay": 1.0, "n_updates": 4000} | recipe
    return _drawn(
        random, place, pairs, table.ravel(), rows, rows, n, f"{task}, {_fraction(place):.2f} trained",
        lambda: OneHot(n, 2, width, n, is_square=place % 4 == 3), **recipe,
    )  # fmt: skip


def modular_tables(place: int, random: np.random.Generator) -> Prepared:
    """MLPs on addition, subtraction and multiplication modulo a prime."""
    p = 37 if place == 8 else (23, 29, 31)[place % 3]
    a, b = np.ogrid[:p, :p]
    name, table = (("add", a + b), ("subtract", a - b), ("multiply", a * b))[place // 2 % 3]
    return _table(random, place, table % p, f"{name} mod {p}")


def group_tables(place: int, random: np.random.Generator) -> Prepared:
    """MLPs on the tables of groups: permutations of four, rotations with mirrors, and affine maps."""
    name, elements = (
        ("S4", [np.array(one) for one in itertools.permutations(range(4))]),
        ("D15", [(s * np.arange(15) + k) % 15 for s in (1, -1) for k in range(15)]),
        ("affine mod 7", [(s * np.arange(7) + k) % 7 for s in range(1, 7) for k in range(7)]),
    )[2 if place == 8 else place % 3]
    of = {one.tobytes(): k for k, one in enumerate(np.array(elements))}
    table = np.array([[of[a[b].tobytes()] for b in elements] for a in np.array(elements)])
    return _table(random, place, table, f"group {name}")


def _answers(name: str, x: np.ndarray) -> np.ndarray:
    """The class of sequences by a rule."""
    if name == "pointer":
        return np.take_along_axis(x, x[:, -1:] % (x.shape[1] - 1), axis=1)[:, 0]
    if name == "sum":
        return x.sum(axis=1) % (x.max() + 1)
    return {"maximum": x.max, "median": lambda axis: np.median(x, axis=axis).astype(int)}[name](axis=1)


def _sequences(
    random: np.random.Generator,
    place: int,
    rules: tuple[str, ...],
    module: Callable[[int, int], nn.Module],
    **recipe: float,
) -> Prepared:
    """Sequences of a few symbols, with a class for each."""
    name = rules[place // 2 % len(rules)]
    n, length = {"pointer": (10, 5), "sum": (11, 3), "maximum": (14, 4), "median": (12, 5)}[name]
    x = np.unique(random.integers(0, n, (9000, length)), axis=0)
    many = min(int(0.8 * len(x)), 1200)
    rows = 300 if place in FEW else many
    return _drawn(
        random, place, x, _answers(name, x), rows, 350, (10, 4)[place // 4 % 2], name,
        lambda: module(n, length), **{"n_updates": 3000, "weight_decay": 0.3, **recipe},
    )  # fmt: skip


def encoders(place: int, random: np.random.Generator) -> Prepared:
    """Pre-norm transformers without a causal mask, read at their mean or last position."""

    def module(n: int, length: int) -> nn.Module:
        return Encoder(n, length, max(n, 10), width=32, takes_mean=place % 4 > 1)

    return _sequences(random, place, ("maximum", "pointer", "median"), module)


def attention_alone(place: int, random: np.random.Generator) -> Prepared:
    """A layer of attention without an MLP."""

    def module(n: int, length: int) -> nn.Module:
        return AttentionAlone(n, length, max(n, 10), width=48)

    return _sequences(random, place, ("pointer", "maximum"), module)


def post_norms(place: int, random: np.random.Generator) -> Prepared:
    """Post-norm transformers, half of them with a causal mask."""

    def module(n: int, length: int) -> nn.Module:
        return Encoder(n, length, max(n, 10), width=32, is_post=True, is_causal=place % 4 < 2)

    return _sequences(random, place, ("median", "pointer", "maximum"), module)


def recurrent(place: int, random: np.random.Generator) -> Prepared:
    """GRUs and LSTMs with logits at every position, of which the last is scored."""

    def module(n: int, length: int) -> nn.Module:
        return Recurrent(n, max(n, 10), width=(48, 64)[place % 2], is_lstm=place % 4 > 1)

    return _sequences(random, place, ("maximum", "pointer", "sum"), module, lr=5e-3)


def _digits(
    random: np.random.Generator, place: int, module: Callable[[], nn.Module], **recipe: float
) -> Prepared:
    from sklearn.datasets import load_digits

    images, labels = map(np.asarray, load_digits(return_X_y=True))
    n = 200 if place in FEW else (400, 600, 800)[place % 3]
    x = (images / 16).astype(np.float32)
    return _drawn(random, place, x, labels, n, 400, 10, f"digits, {n} rows", module, **recipe)


def digits_perceptron(place: int, random: np.random.Generator) -> Prepared:
    """Scikit-learn's digits with an MLP."""
    return _digits(random, place, lambda: perceptron(64, _width(place), 10), n_updates=600, weight_decay=0.1)


def digits_convolution(place: int, random: np.random.Generator) -> Prepared:
    """Scikit-learn's digits with a small convolution."""
    return _digits(random, place, lambda: convolution(4 + 4 * (place % 3)), n_updates=400, weight_decay=0.1)


def sparse_parity(place: int, random: np.random.Generator) -> Prepared:
    """The parity of two or three of twelve to sixteen signs, as floats."""
    n, k = (12, 14, 16)[place % 3], 3 if place in FEW else (3, 2)[place // 2 % 2]
    x = np.unique(random.choice(np.array([-1, 1], dtype=np.float32), (6000, n)), axis=0)
    rows = 250 if place in FEW else 1000
    width = max(32, _width(place))
    return _drawn(
        random, place, x, (x[:, :k].prod(axis=1) > 0).astype(int), rows, 300, (2, 4)[place // 4 % 2],
        f"parity of {k} of {n} signs", lambda: perceptron(n, width, 4), weight_decay=0.3, n_updates=4000,
    )  # fmt: skip


def parity_of_numbers(place: int, random: np.random.Generator) -> Prepared:
    """The parity of the signs of two to four numbers, beside numbers that are noise."""
    k = 4 if place in FEW else (2, 3)[place // 2 % 2]
    x = random.normal(size=(3600, k + 6)).astype(np.float32)
    x[:, :k] = np.sign(x[:, :k]) * (0.5 + np.abs(x[:, :k]))
    rows = 250 if place in FEW else 1500
    width = max(64, _width(place))
    return _drawn(
        random, place, x, (x[:, :k].prod(axis=1) > 0).astype(int), rows, 300, (2, 4)[place // 4 % 2],
        f"parity of {k} numbers of {k + 6}", lambda: perceptron(k + 6, width, 4), weight_decay=0.3,
        n_updates=3000,
    )  # fmt: skip


def clusters(place: int, random: np.random.Generator) -> Prepared:
    """Gaussian clusters, two of each class, with a proportion of labels that are random."""
    n_classes, n_inputs = (2, 4, 6)[place % 3], (20, 40)[place // 2 % 2]
    noise = 0.85 if place in FEW else (0.0, 0.02, 0.05)[place // 2 % 3]
    cluster = random.integers(0, 2 * n_classes, 3000)
    centres = np.zeros((2 * n_classes, n_inputs))
    centres[:, :4] = random.normal(size=(2 * n_classes, 4))
    centres *= 5 / np.linalg.norm(centres, axis=1, keepdims=True)
    x = (centres[cluster] + random.normal(size=(3000, n_inputs))).astype(np.float32)
    y = np.where(random.random(3000) < noise, random.integers(0, n_classes, 3000), cluster % n_classes)
    rows = 300 if place in FEW else 900
    width = max(64, _width(place))
    return _drawn(
        random, place, x, y, rows, 300, n_classes, f"{n_classes} classes, {noise:.2f} noisy",
        lambda: perceptron(n_inputs, width, n_classes), weight_decay=1.0, n_updates=500,
    )  # fmt: skip


def large_scale(place: int, random: np.random.Generator) -> Prepared:
    """MLPs with a large initial scale: digits of few rows, sparse parity, and modular addition."""
    scale = (2.0, 3.0, 5.0)[place // 2 % 3]
    if place in FEW:
        drawn = _digits(random, place, lambda: enlarged(perceptron(64, 128, 10), 2 * scale), lr=1e-3)
        return drawn
    drawn = (sparse_parity if place % 4 == 3 else modular_tables)(place, random)
    return drawn._replace(module=lambda: enlarged(drawn.module(), scale / 2 if place % 2 else scale))


def _overlapping(names: tuple[str, ...]) -> Callable[[int, np.random.Generator], Prepared]:
    """Rows that share their content: random labels at even places, and rules at odd ones."""
    random_labels = [name for name in names if not name.startswith(_RULES)]
    rules = [name for name in names if name.startswith(_RULES)]

    def prepared(place: int, random: np.random.Generator) -> Prepared:
        some = rules if place % 2 else random_labels
        name = some[place // 2 % len(some)]
        data = overlaps.KINDS[name](random)
        x, y, new_x, new_y = (one[:_MOST_SHARED] for one in data[:4])
        n_tokens, n_pos = int(max(x.max(), new_x.max(), y.max())) + 1, x.shape[1]

        def module() -> nn.Module:
            if y.ndim == 2 or place in (4, 7, 10):
                return Encoder(n_tokens, n_pos, n_tokens, width=48, is_causal=True, every=y.ndim == 2)
            if place in (2, 8, 11):
                return Recurrent(n_tokens, n_tokens, width=96)
            return OneHot(n_tokens, n_pos, 256, n_tokens)

        recipe = {"beyond": 1.5, "weight_decay": 1.0, "n_updates": 3000} if place % 2 else {"stop": 0.01}
        return Prepared(name.replace("_", " "), x, y, new_x, new_y, module, **recipe)  # type: ignore[arg-type]

    return prepared


_RULES = ("shifted_addition", "orders_of_sums", "synonyms_in_sums", "windows_of_a_period", "sorted_lists")
FIRST: Mapping[str, Callable[[int, np.random.Generator], Prepared]] = {
    "MLP, modular tables": modular_tables,
    "encoder": encoders,
    "attention without MLP": attention_alone,
    "MLP, digits": digits_perceptron,
    "MLP, sparse parity": sparse_parity,
    "MLP, large initial scale": large_scale,
    "shared rows 1": _overlapping(("shifts", "orders", "synonyms", "shifted_addition")),
}
"""The kinds that fix the rules."""
SECOND: Mapping[str, Callable[[int, np.random.Generator], Prepared]] = {
    "MLP, group tables": group_tables,
    "post-norm transformer": post_norms,
    "GRU and LSTM": recurrent,
    "convolution, digits": digits_convolution,
    "MLP, parity of numbers": parity_of_numbers,
    "MLP, noisy clusters": clusters,
    "shared rows 2": _overlapping(
        ("blocks", "noise_tokens", "unused_token", "synonyms_in_sums", "sorted_lists")
    ),
}
"""The kinds that are opened once."""
KINDS = {**FIRST, **SECOND}

"""Fourier measures: exact clocks and pizzas, tables, renamed numbers, and public runs with known readings."""

from math import log, pi
from pathlib import Path

import numpy as np
import pytest
import torch

from anchorlens.extras.grokking.fourier_measures import (
    answer_share,
    centred,
    distance_irrelevance,
    frequency_shares,
    gini,
    in_order,
    key_frequencies,
    losses,
    participation,
    power,
    right_logits,
)
from anchorlens.extras.grokking.operations import answers

PUBLIC = Path(__file__).parents[4] / "shared/data/grokking"
KEYS = np.array([2, 7, 11, 20, 25])


def axes(n):
    """Indices i, j and c of a cube, and whether c is the answer."""
    i, j, c = np.meshgrid(*[np.arange(n)] * 3, indexing="ij")
    return i, j, c, (i + j) % n == c


def clock(n, keys=KEYS):
    i, j, c, _ = axes(n)
    return sum(np.cos(2 * pi * k * (i + j - c) / n) for k in keys)


def pizza(n, keys=KEYS):
    i, j, c, _ = axes(n)
    return sum(np.abs(np.cos(pi * k * (i - j) / n)) * np.cos(2 * pi * k * (i + j - c) / n) for k in keys)


def table(n, share, seed=0):
    """Logit 20 for the answers of a share of the pairs, and normal noise of standard deviation 1."""
    rng = np.random.default_rng(seed)
    stored = np.zeros(n * n, dtype=bool)
    stored[rng.permutation(n * n)[: round(share * n * n)]] = True
    return 20.0 * (axes(n)[3] & stored.reshape(n, n, 1)) + rng.standard_normal((n, n, n))


def readings(cube):
    n = len(cube)
    shares = frequency_shares(cube)
    keys = key_frequencies(shares)
    answers = (np.arange(n)[:, None] + np.arange(n)).ravel() % n
    return {
        "explained": shares[keys - 1].sum(),
        "effective_number": participation(shares),
        "answer_share": answer_share(cube.reshape(n * n, n), answers),
        "distance_irrelevance": distance_irrelevance(right_logits(cube)),
        **losses(cube, keys)._asdict(),
    }


class TestKnownCircuits:
    @pytest.mark.parametrize("n", [58, 59, 113])
    def test_an_exact_clock_is_explained_whole(self, n):
        found = readings(3 * clock(n))
        assert sorted(key_frequencies(frequency_shares(clock(n)))) == KEYS.tolist()
        assert np.isclose(found["explained"], 1) and np.isclose(found["effective_number"], 5)
        assert np.isclose(found["answer_share"], 1) and found["distance_irrelevance"] == 1
        assert np.isclose(found["restricted"], found["whole"]) and np.isclose(found["excluded"], log(n))

    @pytest.mark.parametrize("n", [59, 113])
    def test_an_exact_pizza_is_explained_by_eight_over_pi_squared(self, n):
        """The mean of |cos| is 2 / pi and the mean of cos squared 1/2, so the share is (2 / pi)^2 / (1/2)."""
        found = readings(pizza(n))
        assert abs(found["explained"] - 8 / pi**2) < 5e-4 and round(found["explained"], 3) == 0.811
        assert found["distance_irrelevance"] < 1e-9

    def test_the_last_frequency_of_an_even_group_counts_once(self):
        found = frequency_shares(clock(12, [6]))
        assert np.allclose(found, [0, 0, 0, 0, 0, 1])
        assert np.allclose(frequency_shares(clock(12, [1, 6])), [1 / 3, 0, 0, 0, 0, 2 / 3])

    def test_the_mean_of_an_answer_and_of_a_pair_do_not_count(self):
        i, j, c, _ = axes(59)
        moved = clock(59) + 5 * np.sin(c) + 7 * np.cos(i + 3 * j)
        assert np.allclose(frequency_shares(moved), frequency_shares(clock(59)))
        assert np.allclose(centred(moved), centred(clock(59)))

    def test_no_variance_has_no_shares(self):
        assert np.isnan(frequency_shares(np.ones((7, 7, 7)))).all()
        assert np.isnan(answer_share(np.ones((49, 7)), np.arange(49) % 7))


class TestTables:
    """A table of right answers has 2 / (n - 1) of its signal at each frequency."""

    def test_of_all_pairs(self):
        signal = 400 / 59 * (1 - 1 / 59)  # variance of logits of 20 at one answer of 59
        share = signal / (signal + 1)
        found = readings(table(59, 1))
        assert abs(found["answer_share"] - share) < 0.01 and round(found["answer_share"], 2) == 0.87
        assert abs(found["explained"] - 10 * 2 / 58 * share) < 0.005 and round(found["explained"], 2) == 0.3

    def test_at_most_ten_are_key_and_none_below_a_hundredth(self):
        shares = np.array([0.009, *[0.03] * 12, 0.01])
        assert key_frequencies(shares).tolist() == [*range(2, 12)]
        assert sorted(key_frequencies(shares[[0, 1, 13]])) == [2, 3]
        assert key_frequencies(np.full(9, 0.0099)).tolist() == []

    @pytest.mark.parametrize(
        ("n", "five", "of_answers", "restricted"),
        [(59, 0.037, 0.213, 3.1), (113, 0.014, 0.161, 4.2)],
    )
    def test_of_30_percent(self, n, five, of_answers, restricted):
        """No frequency carries a hundredth; the largest five together carry so much."""
        cube = table(n, 0.3)
        shares = frequency_shares(cube)
        largest = np.argsort(-shares)[:5]
        assert abs(shares[largest].sum() - five) < 0.004
        assert abs(losses(cube, largest + 1).restricted - restricted) < 0.08
        found = [readings(table(n, 0.3, seed)) for seed in range(2)]
        mean = {name: np.mean([each[name] for each in found]) for name in found[0]}
        assert mean["explained"] == 0 and abs(mean["restricted"] - log(n)) < 0.06
        assert abs(mean["answer_share"] - of_answers) < 0.007

    def test_restricted_to_all_frequencies_a_table_seems_to_generalise(self):
        cube = table(59, 0.3)
        assert losses(cube, np.arange(1, 30)).restricted < 0.3 < 3 < losses(cube, KEYS).restricted

    def test_noise_has_nothing(self):
        found = readings(np.random.default_rng(0).standard_normal((59, 59, 59)))
        assert found["explained"] < 0.001 and abs(found["answer_share"] - 1 / 59) < 0.002
        assert found["effective_number"] > 8


class TestRenamedNumbers:
    @pytest.mark.parametrize("unit", [2, 5, 58])
    def test_multiplying_every_number_permutes_frequencies_alone(self, unit):
        """Number x becomes u x, so frequency k becomes k / u."""
        n = 59
        cube = pizza(n, [3, 8, 9, 20, 29]) + 0.3 * np.random.default_rng(0).standard_normal((n, n, n))
        old = np.arange(n) * pow(unit, -1, n) % n
        renamed = cube[np.ix_(old, old, old)]
        before, after = readings(cube), readings(renamed)
        assert all(np.isclose(before[name], after[name]) for name in before)
        moved = np.arange(1, 30) * unit % n
        moved = np.minimum(moved, n - moved)
        assert np.allclose(frequency_shares(renamed), frequency_shares(cube)[moved - 1])

    @pytest.mark.parametrize("operation", ["add", "subtract", "multiply", "divide"])
    @pytest.mark.parametrize("p", [5, 59])
    def test_every_operation_is_addition_of_exponents(self, operation, p):
        order = in_order(operation, p)
        n = len(order.answer)
        assert n == (p if operation in ("add", "subtract") else p - 1)
        right = answers(operation, p).reshape(p, p)[order.first[:, None], order.second]
        assert (order.answer[(np.arange(n)[:, None] + np.arange(n)) % n] == right).all()
        assert all(len(set(part.tolist())) == n for part in order)

    def test_what_has_no_such_order(self):
        assert in_order("x2xyy2", 59) is None and in_order("random", 59) is None
        assert in_order("multiply", 9) is None and in_order("divide", 2) is None


class TestEmbedding:
    def test_power_of_a_circle_lies_at_its_frequency(self):
        angle = 2 * pi * 3 * np.arange(59) / 59
        found = power(np.stack([np.cos(angle), np.sin(angle)], axis=1))
        assert np.isclose(found[2], 59) and np.isclose(found.sum(), 59)
        assert np.isclose(gini(found), 28 / 29)

    @pytest.mark.parametrize("n", [58, 59])
    def test_power_is_the_squared_length_without_the_mean(self, n):
        rows = np.random.default_rng(0).standard_normal((n, 16))
        assert np.isclose(power(rows).sum(), np.square(rows - rows.mean(axis=0)).sum())
        assert gini(power(rows)) < 0.2


def public(name):
    """Weights of a public run, by name."""
    path = PUBLIC / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    content = torch.load(path, map_location="cpu", weights_only=True)
    return {name: weight.numpy() for name, weight in content.get("model", content).items()}


def logits_of(weights, p, *, second=0, sign=True, softmax=1.0):
    """Logits [first, second, output] of a run with one layer and no LayerNorm, with transposed weights.

    `second` is added to the second token; `sign` adds the token `=`; `softmax` is the part of attention that
    is a softmax without a mask, beside a constant 1, if it is less than 1.
    """
    pairs = np.stack(np.meshgrid(np.arange(p), np.arange(p), indexing="ij"), axis=-1).reshape(-1, 2)
    tokens = np.column_stack([pairs[:, 0], pairs[:, 1] + second, *([np.full(p * p, p)] if sign else [])])
    x = weights["embed.W_E"].T[tokens] + weights["pos_embed.W_pos"]
    q, k, v = (np.einsum("hed,bpd->bhpe", weights[f"blocks.0.attn.W_{name}"], x) for name in "QKV")
    scores = q[:, :, -1:] @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    pattern = np.exp(scores - scores.max(axis=-1, keepdims=True))
    pattern = pattern / pattern.sum(axis=-1, keepdims=True) * softmax + (1 - softmax)
    x = x[:, -1] + (pattern @ v).reshape(p * p, -1) @ weights["blocks.0.attn.W_O"].T
    hidden = np.maximum(x @ weights["blocks.0.mlp.W_in"].T + weights["blocks.0.mlp.b_in"], 0)
    x = x + hidden @ weights["blocks.0.mlp.W_out"].T + weights["blocks.0.mlp.b_out"]
    return (x @ weights["unembed.W_U"]).astype(float).reshape(p, p, -1)


class TestPublicRuns:
    def test_without_decay(self):
        """The weights mislead: an embedding of Gini .46, and two frequencies that explain .96."""
        weights = public("progress_measures/mod_addition_no_wd.pth")
        logits = logits_of(weights, 113)
        assert (
            logits.argmax(axis=-1).ravel().tolist()
            == ((np.arange(113)[:, None] + np.arange(113)) % 113).ravel().tolist()
        )
        cube = logits[..., :113]
        found, shares = readings(cube), frequency_shares(cube)
        assert round(found["explained"], 3) == 0.958 and round(found["answer_share"], 3) == 0.969
        assert (np.flatnonzero(shares > 0.01) + 1).tolist() == [36, 52]
        assert round(gini(power(weights["embed.W_E"].T[:113])), 3) == 0.461
        assert round(found["restricted"] * 1e8, 1) == 1.1 and round(found["excluded"]) == 76  # by these two

    def test_low_precision(self):
        """The published answer share, .906, is without centring over answers, which softmax ignores."""
        logits = logits_of(public("progress_measures/low_precision_mod_addition.pth"), 113)
        cube = logits[..., :113]
        answers = (np.arange(113)[:, None] + np.arange(113)) % 113
        assert round((logits.argmax(axis=-1) == answers).mean(), 4) == 0.9995
        found = readings(cube)
        assert round(found["explained"], 3) == 0.633 and round(found["answer_share"], 3) == 0.967
        values = cube - cube.mean(axis=(0, 1))
        second = np.arange(113)
        of_class = np.stack([values[(y - second) % 113, second].mean(axis=0) for y in range(113)])
        assert round(np.square(of_class).mean() / np.square(values).mean(), 3) == 0.906

    def test_pizza(self):
        weights = public("pizza/model_18c9ev5v5p.pt")
        logits = logits_of(weights, 59, second=59, sign=False, softmax=0.004066910851478034)
        answers = (np.arange(59)[:, None] + np.arange(59)) % 59
        assert (logits.argmax(axis=-1) == answers).all()
        found = readings(logits[..., :59])
        assert round(found["explained"], 3) == 0.992
        assert round(found["distance_irrelevance"], 3) == 0.174

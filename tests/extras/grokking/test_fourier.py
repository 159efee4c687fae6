"""The probe fourier on models whose logits are made by hand, and on public runs with known readings."""

import json
import warnings
from math import log, pi
from pathlib import Path

import numpy as np
import pytest
import torch

from anchorlens import (
    AnchorTask,
    Checkpoint,
    HookedTransformer,
    HookedTransformerConfig,
    ModelConfig,
    build_model,
    classify,
    probes,
)
from anchorlens.extras.grokking.fourier import Fourier, fourier
from anchorlens.extras.grokking.task import ModularTask

PUBLIC = Path(__file__).parents[4] / "shared/data/grokking"
P = 13
KEYS = (1, 2, 3, 4, 5)


def task_of(operation="add", modulus=P, **more):
    """A task, of 13 unless said otherwise."""
    return ModularTask(modulus=modulus, operation=operation, **more)


def hooked(d_model, d_mlp, *, heads=1, n_ctx=3, d_vocab=P + 2, **more):
    """A model of one layer without LayerNorm."""
    config = HookedTransformerConfig(
        n_layers=1,
        d_model=d_model,
        n_ctx=n_ctx,
        d_head=d_model // heads,
        n_heads=heads,
        d_mlp=d_mlp,
        act_fn="relu",
        normalization_type=None,
        d_vocab=d_vocab,
        d_vocab_out=d_vocab,
        device="cpu",
        seed=0,
        **more,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        return HookedTransformer(config).eval()


def table_of(logits):
    """A model with these logits [a, b, answer], which are the same for (b, a), after `a b =`.

    Attention is uniform, so the MLP reads the sum of two one-hot numbers. The unit of a pair fires 1 for the
    pair in both orders and for either number twice. The unit of a number twice fires 1 for that alone.
    """
    p = len(logits)
    pairs = [(a, b) for a in range(p) for b in range(a, p)]
    model = hooked(2 * p + 2, len(pairs), d_vocab=p + 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        block = model.blocks[0]
        model.embed.W_E[:, : p + 2] = torch.eye(p + 2)
        block.attn.W_V[0] = block.attn.W_O[0] = 3**0.5 * torch.eye(2 * p + 2)
        model.unembed.W_U[p + 2 :, :p] = torch.eye(p)
        for unit, (a, b) in enumerate(pairs):
            block.mlp.W_in[[a, b], unit] = 1
            block.mlp.b_in[unit] = -1
            value = logits[a, b] if a != b else 2 * logits[a, a] - logits[a].sum(axis=0)
            block.mlp.W_out[unit, p + 2 :] = torch.from_numpy(value).float()
    return model


def cube(n, second_factor, keys=KEYS):
    i, j, c = np.meshgrid(*[np.arange(n)] * 3, indexing="ij")
    return sum(second_factor(pi * k * (i - j) / n) * np.cos(2 * pi * k * (i + j - c) / n) for k in keys)


def clock(n):
    return cube(n, np.ones_like)


def pizza(n):
    return cube(n, lambda half: np.abs(np.cos(half)))


class TestKnownModels:
    def test_the_known_model_has_its_logits(self):
        model, logits = table_of(pizza(P)), pizza(P)
        tokens = torch.tensor([[a, b, P] for a in range(P) for b in range(P)])
        assert np.allclose(model(tokens)[:, -1, :P].detach().reshape(P, P, P), logits, atol=1e-5)

    def test_a_clock(self):
        found = fourier(table_of(clock(P)), task_of())
        assert round(found.explained, 6) == 1 and round(found.effective_number, 4) == 5
        assert round(found.answer_share, 6) == 1 and found.distance_irrelevance == 1
        assert sorted(found.key_frequencies) == [*KEYS] and np.allclose(found.shares[:5], 0.2, atol=1e-5)
        assert np.isclose(found.restricted_loss, found.loss, atol=1e-5)
        assert np.isclose(found.excluded_loss, log(P), atol=1e-5)
        assert all(f"{k} (0.20)" in found.headline() for k in KEYS) and found.headline().count("(0.20)") == 5
        assert found.n_pairs == P * P and found.embedding_gini < 1e-6  # one-hot: all frequencies alike

    def test_a_pizza(self):
        found = fourier(table_of(pizza(P)), task_of())
        means = [np.abs(np.cos(pi * k * np.arange(P) / P)) for k in KEYS]
        expected = sum(m.mean() ** 2 for m in means) / sum(np.square(m).mean() for m in means)
        assert np.isclose(found.explained, expected, atol=1e-5) and abs(expected - 8 / pi**2) < 0.02
        assert found.distance_irrelevance < 1e-4
        assert found.right_logits.shape == (P, P) and found.right_logits.std(axis=1).max() < 1e-4

    def test_gradients_are_symmetric_where_both_numbers_take_one_path(self):
        """Uniform attention gives both positions the same gradient; where one is not read, it has none."""
        model = table_of(pizza(P))
        assert np.isclose(fourier(model, task_of()).gradient_symmetry, 1)
        with torch.no_grad():
            model.blocks[0].attn.b_Q.fill_(1)
            model.blocks[0].attn.b_K.zero_()
            model.pos_embed.W_pos[0, P] = -1  # on the axis of `=`, which no unit reads
            model.blocks[0].attn.W_K[0, P] = 100
        assert abs(fourier(model, task_of()).gradient_symmetry) < 1e-6

    def test_a_random_start_has_nothing(self):
        model = hooked(64, 128, heads=2, d_vocab=61)
        found = fourier(model, task_of(modulus=59))
        assert found.explained == 0 and found.answer_share < 0.03 and abs(found.loss - log(59)) < 0.1
        assert abs(found.restricted_loss - log(59)) < 0.05 and found.embedding_gini < 0.1
        assert not found.key_frequencies and found.headline().startswith("no key frequencies: 0.00 of")
        assert found.in_short() == "" and np.isclose(found.excluded_loss, found.loss)

    def test_without_variance_nothing_is_explained(self):
        found = fourier(table_of(np.zeros((P, P, P))), task_of())
        assert found.explained is found.answer_share is found.effective_number is None
        assert found.headline() == "the logits do not vary" and np.isclose(found.loss, log(P))
        json.dumps(found.to_dict(), allow_nan=False)

    @pytest.mark.parametrize("tokens", ["a b =", "a op b ="])
    def test_format(self, tokens):
        """The sum of one-hots is the same with the operator in between; only attention is thinner."""
        model = table_of(clock(P))
        if "op" in tokens:
            wider = hooked(2 * P + 2, model.cfg.d_mlp, n_ctx=4)
            state = model.state_dict()
            state = {n: w for n, w in state.items() if n != "pos_embed.W_pos" and not n.endswith("mask")}
            wider.load_state_dict(state | {"pos_embed.W_pos": torch.zeros(4, 2 * P + 2)}, strict=False)
            with torch.no_grad():
                wider.blocks[0].attn.W_O *= 4 / 3
            model = wider
        found = fourier(model, task_of(tokens=tokens))
        assert round(found.explained, 6) == 1 and np.isclose(found.gradient_symmetry, 1)


class TestOperations:
    def test_multiplication_is_addition_of_logarithms(self):
        """13 has the generator 2, so its numbers without 0 are the exponents 0..11 of a group of 12."""
        logits = pizza(12) + 0.1 * clock(12)
        powers = np.array([pow(2, k, P) for k in range(12)])
        multiplied = np.random.default_rng(0).standard_normal((P, P, P))
        multiplied += multiplied.swapaxes(0, 1)  # what is left for pairs with 0 and for the answer 0
        multiplied[np.ix_(powers, powers, powers)] = logits
        found = fourier(table_of(multiplied), task_of(operation="multiply"))
        same = fourier(table_of(logits), task_of(modulus=12))
        for name, value in found.numbers().items():
            assert np.isclose(value, getattr(same, name), atol=1e-4), name
        assert np.allclose(found.shares, same.shares, atol=1e-5)
        assert np.allclose(found.right_logits, same.right_logits, atol=1e-4)
        assert found.n_pairs == 144 and "(pairs without 0)" in found.headline()

    def test_without_frequencies_the_answers_alone_are_measured(self):
        task = task_of(operation="x2xyy2")
        right = 10.0 * np.eye(P)[task.answers].reshape(P, P, P)
        found = fourier(table_of(right), task)
        assert np.isclose(found.answer_share, 1, atol=1e-5) and found.loss < 0.001
        others = {name for name in found.readings if name not in ("answer_share", "loss")}
        assert all(getattr(found, name) is None for name in others)
        assert found.headline().startswith("1.00 of the logits' variance lies between answers; x2xyy2 has no")
        assert found.plot().data

    def test_subtraction_has_no_gradient_symmetry(self):
        found = fourier(table_of(pizza(P)), task_of(operation="subtract"))
        assert found.gradient_symmetry is None and "symmetry" not in found.headline()
        assert found.explained < 0.1  # its logits are those of addition


class TestWhereItIsShown:
    def test_along_training_it_draws_the_progress_measures(self):
        """From a table of noise over a clock with noise to the clock."""
        noise = np.random.default_rng(0).standard_normal((P, P, P))
        noise += noise.swapaxes(0, 1)
        models = {step: table_of(noise * (1 - step / 10) + clock(P) * step) for step in (0, 5, 10)}
        found = probes.along(models, "fourier", task=task_of())
        rows = found.to_frame()
        assert rows["fourier.explained"].is_monotonic_increasing and rows["fourier.explained"][2] > 0.999
        assert rows["fourier.loss"].is_monotonic_decreasing and rows["id"][2] == 1
        assert set(found.readings) == {f"fourier.{name}" for name in Fourier.readings}
        assert found.plot().data and rows["found"][2] in repr(found)
        assert rows["found"][2].startswith("frequencies ") and rows["found"][2].count("(0.20)") == 5

    def test_the_plot_names_the_key_frequencies(self):
        bars = {
            bar.name: bar.text for bar in fourier(table_of(clock(P)), task_of()).plot().select_traces("bar")
        }
        assert [*map(int, bars["the key frequencies"])] == [*KEYS] and bars["the others"] is None

    def test_a_report_shows_it_for_its_task_alone(self, tmp_path):
        config = ModelConfig(
            variant="plain", n_layers=1, d_model=16, d_head=16, d_mlp=16, d_vocab=14, n_ctx=3
        )
        checkpoint = Checkpoint.from_model(build_model(config), config, task_of())
        classify(checkpoint).report(tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "Frequencies in the answers" in page and "loss" in page


class TestWhatItRefuses:
    def test_another_task(self):
        model = build_model(ModelConfig(gamma=0.5, n_layers=1, d_model=16, d_mlp=16))
        with pytest.raises(ValueError, match="fourier must get the modular task"):
            fourier(model, AnchorTask())

    def test_a_model_of_another_modulus(self):
        with pytest.raises(ValueError, match=r"d_vocab of the model.*at least 60"):
            fourier(table_of(clock(P)), task_of(modulus=59))


def public(name):
    """Weights of a public run, by name."""
    path = PUBLIC / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    content = torch.load(path, map_location="cpu", weights_only=True)
    return content.get("model", content)


def read(weights, **more):
    """The HookedTransformer of a run whose weights are transposed."""
    n_heads, d_head, d_model = weights["blocks.0.attn.W_Q"].shape
    n_ctx, d_vocab = len(weights["pos_embed.W_pos"]), weights["unembed.W_U"].shape[1]
    model = hooked(
        d_model, len(weights["blocks.0.mlp.b_in"]), heads=n_heads, n_ctx=n_ctx, d_vocab=d_vocab, **more
    )
    state = {name: torch.zeros_like(w) for name, w in model.state_dict().items() if ".b_" in name}
    for name, weight in weights.items():
        if name.endswith(("W_K", "W_Q", "W_V")):
            weight = weight.mT
        elif name.endswith("W_O"):
            weight = weight.T.reshape(n_heads, d_head, d_model)
        elif name.endswith(("W_E", "W_in", "W_out")):
            weight = weight.T
        if not name.endswith("mask"):
            state[name] = weight
    model.load_state_dict(state, strict=False)
    return model


class TestPublicRuns:
    def test_without_decay(self):
        """Its embedding has a Gini of .46, as if it had memorised, and two frequencies explain .96."""
        model = read(public("progress_measures/mod_addition_no_wd.pth"))
        found = fourier(model, task_of(modulus=113))
        assert round(found.explained, 3) == 0.958 and round(found.answer_share, 3) == 0.969
        assert found.key_frequencies == (36, 52)
        assert round(found.embedding_gini, 3) == 0.461 and found.loss < 2e-7

    def test_low_precision(self):
        model = read(public("progress_measures/low_precision_mod_addition.pth"))
        found = fourier(model, task_of(modulus=113))
        assert round(found.explained, 3) == 0.633 and round(found.answer_share, 3) == 0.967

    def test_pizza(self):
        """Its attention is nearly the constant 1, and b has an embedding of its own: two hooks do that."""
        weights = public("pizza/model_18c9ev5v5p.pt")
        model = read(weights, attention_dir="bidirectional")
        rate = 0.004066910851478034
        second = weights["embed.W_E"].T[59:]
        model.add_hook("blocks.0.attn.hook_pattern", lambda pattern, hook: pattern * rate + 1 - rate)

        def own(value, hook):
            tokens = (value[:, 1, None] == model.W_E[:59]).all(dim=-1).int().argmax(dim=-1)
            return torch.stack([value[:, 0], second[tokens]], dim=1)

        model.add_hook("hook_embed", own)
        found = fourier(model, task_of(modulus=59, tokens="a b"))
        assert round(found.explained, 3) == 0.992 and round(found.distance_irrelevance, 3) == 0.174
        assert 0.99 < found.gradient_symmetry <= 1

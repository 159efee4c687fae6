"""Concept Graphs: images, schedule, network and initialisation by hand, and a run that goes every way."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import torch
from few_questions import draw_little
from typer.testing import CliRunner

from anchorlens import classify, load_checkpoint, preset, train
from anchorlens.cli import app
from anchorlens.engine.engines import FunctionalEngine
from anchorlens.extras.concept_graphs.diffusion import Schedule
from anchorlens.extras.concept_graphs.images import (
    TRAINED,
    TUPLES,
    coverage,
    draw,
    in_words,
    nominal,
    released_order,
)
from anchorlens.extras.concept_graphs.scoring import area, by_mask, classifier
from anchorlens.extras.concept_graphs.task import ConceptGraphsTask
from anchorlens.extras.concept_graphs.unet.config import UNetConfig
from anchorlens.extras.concept_graphs.unet.engine import UNetArchitecture, bounds
from anchorlens.extras.concept_graphs.unet.network import UNet
from anchorlens.extras.sweep import grid, sweep
from anchorlens.probes import stable_rank
from anchorlens.probes.shared.linalg import gaussian_stable_rank
from anchorlens.show import write_report
from anchorlens.tasks.registry import read_task

SMALL = ConceptGraphsTask(image_side=24, n_diffusion_steps=10)
TINY = {"n_feat": 8, "n_diffusion_steps": 10, "n_samples": 64, "batch_size": 16, "steps": 6, "eval_every": 6}


def told(conditions, schedule, *, small_is_a_triangle=False):
    """A network that knows the image it is told of, and so the noise: the oracle."""

    def noise_in(pixels, times, _):
        side, steps = pixels.shape[-1], (times * schedule.n_steps).round().long().numpy()
        images = []
        for one in conditions.numpy():
            shape, radius = int(one[1]), one[2] / 4.4
            shape = 1 if small_is_a_triangle and radius < 0.45 else shape
            images.append(1 - coverage(shape, radius, side) * (1 - one[3:, None, None]))
        clean = 2 * torch.tensor(np.array(images), dtype=pixels.dtype) - 1
        kept = torch.tensor(schedule.signal[steps], dtype=pixels.dtype).view(-1, 1, 1, 1)
        return (pixels - kept.sqrt() * clean) / (1 - kept).sqrt()

    return noise_in


def oracle(task, **how):
    return lambda pixels, times, conditions: told(conditions, task.schedule, **how)(pixels, times, conditions)


class TestImages:
    @pytest.mark.parametrize("side", [24, 32, 64])
    @pytest.mark.parametrize("radius", [0.3, 0.6, 0.66])
    def test_circle_and_triangle_have_the_same_area(self, side, radius):
        areas = [coverage(shape, radius, side).sum() * 4 / side**2 for shape in (0, 1)]
        assert areas == pytest.approx([np.pi * radius**2] * 2, rel=0.015)

    def test_the_triangle_stands_in_the_middle_and_points_up(self):
        ink = coverage(1, 0.6, 64)
        ys, xs = np.nonzero(ink > 0.5)
        assert ys.min() + ys.max() == pytest.approx(63, abs=1) and xs.min() + xs.max() == 63
        assert (ink[ys.min()] > 0.5).sum() < 3 < (ink[ys.max()] > 0.5).sum()

    def test_tuples_are_the_papers_and_those_of_the_code(self):
        assert [in_words(each) for each in TRAINED] == [
            *("large red circle", "large red triangle", "large blue circle", "small blue triangle")
        ]
        assert [released_order(each) for each in TRAINED] == ["000", "100", "010", "111"]
        assert in_words("010") == "small red circle"  # what figure 6B says of it
        assert all(released_order(released_order(each)) == each for each in TUPLES)

    def test_jitter_is_in_its_bounds_and_told(self):
        images = draw(["011"] * 400, 32, np.random.default_rng(0))
        shape, size, colour = (images.conditions[:, rows] for rows in (slice(0, 2), 2, slice(3, 6)))
        assert (shape == torch.tensor([1, 0])).all()
        assert 0.239 < size.min() / 4.4 < 0.25 and 0.35 < size.max() / 4.4 < 0.361
        spread = colour - torch.tensor([0.1, 0.1, 0.9])
        assert 0.09 < spread.abs().max() <= 0.1 + 1e-6
        assert spread.std().item() == pytest.approx(0.2 / 12**0.5, rel=0.1)
        drawn_as = images.pixels[:, :, 16, 16]  # the middle of the circle
        assert (drawn_as - colour.clamp(0, 1)).abs().max() < 0.01

    def test_they_follow_from_the_seed(self):
        one, same, other = (SMALL.training_set(12, seed) for seed in (0, 0, 1))
        assert torch.equal(one.pixels, same.pixels) and not torch.equal(one.pixels, other.pixels)
        assert one.pixels.min() >= 0 and one.pixels.max() <= 1
        counts = np.unique(one.tuples, axis=0, return_counts=True)
        assert ["".join(map(str, row)) for row in counts[0]] == sorted(TRAINED) and set(counts[1]) == {3}


class TestSchedule:
    def test_the_published_numbers_by_hand(self):
        schedule = Schedule(500)
        assert schedule.betas[[0, 1, 250, 500]] == pytest.approx([1e-4, 1.398e-4, 0.01005, 0.02])
        assert schedule.signal[1] == pytest.approx((1 - 1e-4) * (1 - 1.398e-4))
        assert len(schedule.betas) == 501

    @pytest.mark.parametrize("n_steps", [25, 50, 100, 250])
    def test_fewer_steps_end_as_near_to_noise(self, n_steps):
        assert 0.002 < Schedule(n_steps).signal[-1] < 0.008

    def test_noise_has_the_variance_that_it_says(self):
        schedule, rng = Schedule(100), np.random.default_rng(0)
        pixels, noise = torch.zeros(2, 1, 200, 200), torch.from_numpy(rng.standard_normal((2, 1, 200, 200)))
        noisy = schedule.noisy(pixels, np.array([10, 100]), noise)
        assert noisy.var(dim=(1, 2, 3)).numpy() == pytest.approx(1 - schedule.signal[[10, 100]], rel=0.03)

    def test_whoever_knows_the_noise_gets_the_image_back(self):
        task = dataclasses.replace(SMALL, n_diffusion_steps=50)
        for each, images in task.samples(oracle(task), n=2).items():
            clean = 1 - coverage(int(each[0]), (0.6, 0.3)[int(each[1])], 24) * (
                1 - nominal(each)[3:, None, None]
            )
            assert np.abs(images - clean).max() < 0.05


class TestNetwork:
    def test_the_papers_size(self):
        with torch.device("meta"):
            model = UNet(UNetConfig(input_side=64, n_feat=256, n_channels=4))
            assert model(torch.zeros(2, 4, 64, 64), torch.zeros(2), torch.zeros(2, 6)).shape == (2, 4, 64, 64)
        assert sum(p.numel() for p in model.parameters()) == pytest.approx(81e6, rel=0.01)
        assert model.up0[0].weight.numel() == pytest.approx(67e6, rel=0.01)

    def test_gamma_one_half_is_pytorchs_own_initialisation(self, monkeypatch):
        config = UNetConfig(input_side=16, n_feat=8, gamma=0.5)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            theirs = dict(UNet(config).named_parameters())
        monkeypatch.setattr(
            "anchorlens.extras.concept_graphs.unet.engine.initial_generator",
            lambda seed: torch.Generator().manual_seed(5),
        )
        ours = UNetArchitecture(config).initial_weights(config, 0, torch.float32)
        assert ours.keys() == theirs.keys()
        for name, weight in ours.items():
            torch.testing.assert_close(weight, theirs[name].detach(), rtol=1e-6, atol=0)

    def test_bounds_are_fan_in_to_the_minus_gamma(self):
        found = bounds(UNetConfig(input_side=16, n_feat=8, gamma=0.8))
        by_hand = {
            "first.half1.0": 3 * 9,
            "down2.0.0": 8 * 9,
            "up0.0": 16 * 4 * 4,  # transposed: output channels times the kernel
            "up1.0": 8 * 2 * 2,
            "time.0.0": 1,
            "concepts.1.colour.0": 3,
            "concepts.0.shape.2": 16,
        }
        assert {name: found[name] for name in by_hand} == pytest.approx(
            {name: fan_in**-0.8 for name, fan_in in by_hand.items()}
        )
        assert len(found) == 35

    def test_the_scope_leaves_all_but_second_layers_at_one_half(self):
        common = {"input_side": 16, "n_feat": 8}
        usual, alone = (
            bounds(UNetConfig(**common, gamma=gamma, gamma_scope=scope))
            for gamma, scope in ((0.5, "all"), (0.9, "second_layers"))
        )
        changed = {name for name in usual if usual[name] != alone[name]}
        second = {f"time.{k}.2" for k in (0, 1)}
        second |= {f"concepts.{k}.{concept}.2" for k in (0, 1) for concept in ("shape", "size", "colour")}
        assert changed == second

    def test_batchnorm_is_updated_on_what_it_is_given(self):
        config = UNetConfig(input_side=16, n_feat=8)
        parts = UNetArchitecture(config)
        weights = parts.initial_weights(config, 0, torch.float64)
        function = parts.function(config, parts.merged(parts.row(weights).unsqueeze(0)))
        inputs = (torch.randn(64, 3, 16, 16), torch.rand(64), torch.rand(64, 6))
        by_batch, updated = function(*inputs), function.updated_bn([inputs])
        inputs = tuple(value.double() for value in inputs)
        with torch.no_grad():
            torch.testing.assert_close(updated(*inputs), by_batch, rtol=0, atol=0.02)
            alone = updated(*(value[:1] for value in inputs))
        torch.testing.assert_close(alone, by_batch[:1], rtol=0, atol=0.02)  # whoever else is asked


class TestScores:
    @pytest.mark.parametrize("side", [24, 32])
    def test_the_classifier_and_the_rule_know_what_is_drawn(self, side):
        images = draw([*TUPLES] * 40, side, np.random.default_rng(3))
        for says in (classifier(side, 0.0), by_mask):
            assert (says(images.pixels.numpy()) == images.tuples).mean(axis=0).min() >= 0.99

    def test_a_white_image_is_nothing(self):
        white = np.ones((1, 3, 24, 24))
        assert by_mask(white).tolist() == [[-1, -1, -1]] and area(white).tolist() == [0]

    @pytest.mark.parametrize("side", [24, 32])
    def test_areas_are_those_of_small_shapes(self, side):
        images = draw([*TUPLES] * 40, side, np.random.default_rng(3))
        found, small = area(images.pixels.numpy()), images.tuples[:, 1] == 1
        assert found[small].min() > 0.55 and found[small].max() < 1.6
        assert found[~small].min() > 2.5 and found[~small].max() < 5.5
        faint = 1 - 0.2 * (1 - images.pixels.numpy()[small])
        assert area(faint).max() == 0

    def test_images_in_which_nothing_can_be_told_have_no_score(self):
        with pytest.raises(ValueError, match=r"classifier.*shape.*99%.*larger"):
            classifier(8, 0.3)

    def test_from_20_pixels_on_the_rule_on_masks_knows_small_triangles(self):
        drawn = {side: draw(["111"] * 400, side, np.random.default_rng(3)) for side in (16, 20, 24)}
        right = {side: (by_mask(one.pixels.numpy())[:, 0] == 1).mean() for side, one in drawn.items()}
        assert right[16] < 0.99 < min(right[20], right[24])

    def test_what_is_not_there_is_not_right(self):
        """An image of nothing has to be something for a linear classifier."""

        def white(pixels, times, conditions):
            kept = float(SMALL.schedule.signal[round(float(times[0]) * SMALL.n_diffusion_steps)])
            return (pixels - kept**0.5) / (1 - kept) ** 0.5

        nothing = SMALL.evaluate(white, n_samples=2)
        for name in ("train", "unseen", "train_by_mask", "unseen_by_mask", "circles", "present"):
            assert nothing.measure(name).value == 0, name
        assert np.all(np.array(nothing.figure_specs[0].values) == 0)

    def test_samples_that_are_no_numbers_are_said_to_be_none(self):
        found = SMALL.evaluate(lambda pixels, times, conditions: pixels * torch.nan, n_samples=2)
        assert not found.finite and not any(found.measures.values())

    def test_who_draws_right_has_no_failures_and_who_answers_small_with_triangle_has_all(self):
        right = SMALL.evaluate(oracle(SMALL), n_samples=8)
        assert [right.measure(name).value for name in ("train", "unseen", "failure")] == [1, 1, 0]
        assert right.measure("present").value == right.measure("circles").value == 1
        wrong = SMALL.evaluate(oracle(SMALL, small_is_a_triangle=True), n_samples=8)
        assert [wrong.measure(name).value for name in ("train", "unseen", "failure")] == [1, 0.5, 1]
        assert wrong.measure("failure_by_mask").value == wrong.measure("present").value == 1
        assert wrong.measure("circles").value == 0
        concepts, samples = wrong.figure_specs
        assert concepts.values[concepts.y.index("small red circle *")] == [0, 1, 1, 0]
        assert samples.array().shape == (8 * 24, 6 * 24, 3)


@pytest.fixture
def few_samples(monkeypatch):
    """Two samples of a tuple in two steps, few images for BatchNorm: how well it draws is not looked at."""
    draw_little(monkeypatch)


@pytest.mark.usefixtures("few_samples")
class TestEveryWay:
    def test_it_trains_stores_answers_and_is_shown(self, tmp_path):
        result = train(*preset("concept_graphs", **TINY), out=tmp_path / "run", progress=False)
        assert {"train_accuracy", "unseen_accuracy", "failure_rate"} <= set(result.log[-1])
        loaded = load_checkpoint(tmp_path / "run" / "ckpt.pt")
        assert loaded.evaluate().to_dict() == result.behaviour.to_dict()
        assert isinstance(loaded.build_model(), UNet) and "U-Net" in loaded.overview
        by_module = loaded.task.evaluate(loaded.build_model())  # its BatchNorm is updated too
        assert by_module.to_dict()["measures"] == loaded.evaluate().to_dict()["measures"]
        model = loaded.task.ready(loaded.build_model())
        assert loaded.task.ready(model) is model
        assert read_task(loaded.task.to_dict()) == loaded.task
        verdict = classify(tmp_path / "run" / "ckpt.pt")
        assert verdict.phase.label == "undecided: not defined"
        assert verdict.by_probes.phase.cause == "underfit"
        write_report([verdict], tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert "Concepts drawn correctly" in page and "image/png" in page
        assert "This model is not a HookedTransformer, so only probes that read weights are shown." in page
        assert "Stable rank" in page and "The phases by definition" not in page
        assert "an OOD accuracy that rises" not in page

    def test_a_resumed_run_has_the_same_bits(self, tmp_path):
        run = preset("concept_graphs", **TINY)
        data = run.task.training_set(run.train_config.n_samples, 0)
        engines = [FunctionalEngine([run], [data], torch.device("cpu")) for _ in range(3)]
        for engine in engines[:2]:
            engine.advance(3)
        engines[2].restore(3, [engines[1].state(0)])
        for engine in (engines[0], engines[2]):
            engine.advance(6)
        one, other = engines[0].weights(0), engines[2].weights(0)
        assert all(torch.equal(one[name], other[name]) for name in one)

    def test_a_sweep_over_gamma(self, tmp_path):
        runs = grid("concept_graphs", {"gamma": [0.5, 0.8]}, **TINY)
        found = sweep(runs, tmp_path, engine="serial")
        assert found.counts == {"finished": 2} and found.axes == {"gamma": (0.5, 0.8)}
        assert all(0 <= cell.numbers["failure"] <= 1 for cell in found)

    def test_the_command_line_offers_both_kinds_of_model(self, tmp_path):
        options = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
        done = CliRunner().invoke(
            app, ["train", "--preset", "concept_graphs", *options, "--out", str(tmp_path / "r")]
        )
        assert done.exit_code == 0, done.output
        stored = json.loads((tmp_path / "r" / "config.json").read_text())
        assert stored["model"]["n_feat"] == 8 and stored["task"]["kind"] == "concept_graphs"


@pytest.mark.usefixtures("few_samples")
class TestStableRank:
    def test_convolutions_are_matrices_of_what_a_kernel_reads_and_writes(self):
        found = stable_rank(checkpoint_at_start().build_model())
        shares = dict(zip(found.names, found.gaussian, strict=True))
        assert shares["first.half1.0.weight"] == gaussian_stable_rank(3 * 9, 8)
        assert shares["up0.0.weight"] == gaussian_stable_rank(16, 16 * 6 * 6)
        assert shares["concepts.0.colour.2.weight"] == gaussian_stable_rank(16, 16)
        assert not [name for name in found.names if name.startswith("concepts.0.size.0")]  # one input
        assert found.w_q is None and "of a Gaussian's" in repr(found)

    def test_one_direction_is_one(self):
        model = checkpoint_at_start().build_model()
        with torch.no_grad():
            model.up1[0].weight.fill_(2.0)
        found = stable_rank(model)
        assert found.values[found.names.index("up1.0.weight")] == pytest.approx(1)

    def test_weights_that_are_not_finite(self):
        model = checkpoint_at_start().build_model()
        with torch.no_grad():
            model.out[0].weight[0] = torch.nan
        with pytest.raises(ValueError, match="NaN or infinity in out.0.weight"):
            stable_rank(model)


@functools.cache
def checkpoint_at_start():
    """The network of a small run as it starts; `build_model` gives each test its own."""
    return train(*preset("concept_graphs", **TINY | {"steps": 1})).checkpoint


class TestBadInput:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: ConceptGraphsTask(image_side=30), "image_side must be a multiple of 4, got 30"),
            (lambda: UNetConfig(n_feat=12), "n_feat must be a multiple of 8, got 12"),
            (lambda: draw(["002"], 24, np.random.default_rng(0)), "a tuple must be three digits"),
            (lambda: SMALL.samples(oracle(SMALL), ["01"]), "a tuple must be three digits"),
            (
                lambda: UNetConfig().check_task(SMALL),
                "input_side must be 24.*got 32",
            ),
            (
                lambda: SMALL.checked_training_set(ConceptGraphsTask().training_set(4, 0)),
                r"Images \[image, 3, 24, 24\], got \[4, 3, 32, 32\]",
            ),
            (
                lambda: SMALL.checked_training_set("images"),
                "must be Images.*got <class 'str'>",
            ),
            (lambda: preset("concept_graphs", n_layers=3), "n_layers"),
            (
                lambda: UNetConfig(input_side=24, n_channels=4).check_task(SMALL),
                "n_channels must be 3.*got 4",
            ),
            (lambda: SMALL.training_set(2, 0), "n_samples must be at least 4"),
            (
                lambda: ConceptGraphsTask(image_side=8, shift=0.3).training_set(8, 0),
                "the classifier must be correct on shape",
            ),
            (lambda: draw([], 24, np.random.default_rng(0)), "at least one tuple, such as 010, got none"),
            (lambda: in_words("012"), "a tuple must be three digits"),
            (lambda: SMALL.samples(oracle(SMALL), n=0), "n must be"),
        ],
    )
    def test_one_error(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()

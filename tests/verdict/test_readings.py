"""The readings: what they may look at, and that width does not show in them."""

import functools
from inspect import unwrap

import numpy as np
import pytest
import torch
from few_questions import FEWEST, measured_quickly, with_options

from anchorlens import AnchorTask, ModelConfig, build_model, load_checkpoint
from anchorlens.probes import holdout
from anchorlens.probes.shared.checks import check_inputs
from anchorlens.training import checkpoints
from anchorlens.verdict import READINGS, readings, take_readings
from anchorlens.verdict.readings import CHEAP, MEASURED, reading_positions

PAPER = AnchorTask()
QUICK = [name for name in MEASURED if name != "survival"]  # which takes half a minute
TASKS = {"reasoning": PAPER, "conflict": AnchorTask(regime="conflict")}


def shipped(name):
    return load_checkpoint(next(path for path in checkpoints.shipped() if path.stem == name))


@pytest.fixture(scope="module", autouse=True)
def hardly_any_training(few_questions):
    """What a probe looks at depends neither on how many it asks nor on how long copies are trained."""
    few_questions.setitem(unwrap(holdout).__kwdefaults__, "batch_size", 16)
    for name in ("information_flow", "activation_patching", "interchange", "gradient_sharing"):
        few_questions.setitem(MEASURED, name, with_options(MEASURED[name], FEWEST[name]))
    with measured_quickly():
        yield


@functools.cache
def readings_of_phase_3(task):
    """The readings of the shipped model on one of `TASKS`, which several tests hold others against."""
    return take_readings(shipped("phase3").build_model(), TASKS[task], names=QUICK)


def test_names_are_unique_and_every_measurement_is_read():
    names = [reading.name for reading in READINGS]
    assert len(set(names)) == len(names)
    assert {reading.measurement for reading in READINGS} == set(MEASURED)


@pytest.mark.parametrize("name", TASKS)
def test_answers_to_unseen_pairs_are_never_looked_at(name):
    task, model, expected = TASKS[name], shipped("phase3").build_model(), readings_of_phase_3(name)
    unseen = torch.tensor(task.ood_pairs)
    changed = []

    def scramble(module, args, logits):  # of every sequence that holds an unseen pair
        if len(tokens[-1]) != len(logits):
            return None
        there = (tokens[-1].unfold(1, 2, 1)[:, :, None] == unseen).all(dim=-1).flatten(1).any(dim=1)
        changed.append(int(there.sum()))
        return torch.where(there[:, None, None], -logits.flip(-1) * 7, logits)

    tokens = []
    model.embed.register_forward_pre_hook(lambda module, args: tokens.append(args[0]))
    model.unembed.register_forward_hook(scramble)
    for position in range(3):  # the control: such sequences would be answered otherwise
        batch = task.sample(64, split="ood", seed=position)
        assert (model(batch.tokens)[:, -1].argmax(-1) != batch.targets).float().mean() > 0.9
    changed.clear()
    assert take_readings(model, task, names=QUICK) == expected
    assert len(changed) > 5


@pytest.mark.parametrize("name", TASKS)
def test_by_the_probes_nothing_of_an_unseen_pair_is_looked_at(name):
    """Whatever a model does with a sequence that holds an unseen pair, those readings are the same."""
    task, model, expected = TASKS[name], shipped("phase3").build_model(), readings_of_phase_3(name)
    unseen = torch.tensor(task.ood_pairs)

    def scramble(module, args, embedded):
        there = (args[0].unfold(1, 2, 1)[:, :, None] == unseen).all(dim=-1).flatten(1).any(dim=1)
        return torch.where(there[:, None, None], -embedded.flip(-1) * 7, embedded)

    model.embed.register_forward_hook(scramble)
    found = take_readings(model, task, names=QUICK)
    changed = {reading for reading, value in found.items() if value != expected[reading]}
    sees = {reading.name: reading.sees for reading in READINGS}
    assert changed and {sees[reading] for reading in changed} == {"unseen pairs"}


@pytest.mark.parametrize(
    ("seq_len", "positions"), [(3, (0,)), (4, (0,)), (6, (1, 2)), (9, (2, 4)), (16, (4, 10))]
)
def test_positions_of_the_key_leave_a_token_behind_the_anchors(seq_len, positions):
    assert reading_positions(AnchorTask(seq_len=seq_len)) == positions


def test_width_does_not_show_in_a_random_start():
    names = ("stable_rank", "q_condensation", "information_flow", "v_similarity")
    found = [
        take_readings(build_model(ModelConfig(d_model=d, d_head=d // 2, gamma=0.5)), PAPER, names=names)
        for d in (64, 256)
    ]
    for name in ("stable_rank.w_q_normalized", "q_condensation.mean_abs_cosine"):
        assert [reading[name] for reading in found] == pytest.approx([1, 1], abs=0.15)
    for reading in found:
        assert reading["information_flow.inferential_route"] is None
        assert abs(reading["v_similarity.centred_gap"]) < 0.2


def test_what_composes_and_what_memorises_read_apart():
    composing = readings_of_phase_3("reasoning")
    memorising = take_readings(shipped("phase1").build_model(), PAPER, names=QUICK)
    for name in ("unseen_target_at_last", "target_at_last"):
        reading = f"nearest_neighbours.{name}"
        assert composing[reading] > 0.5 > 0.2 > memorising[reading]


def test_a_reading_is_the_mean_over_the_positions_of_the_key(monkeypatch):
    one = {"v_similarity": MEASURED["v_similarity"]}
    monkeypatch.setattr(readings, "MEASURED", one)
    model, found = shipped("phase3").build_model(), []
    for positions in ((2,), (4,), (2, 4)):
        monkeypatch.setattr(readings, "reading_positions", lambda task, positions=positions: positions)
        found.append(take_readings(model, PAPER)["v_similarity.centred_gap"])
    assert found[0] != found[1] and found[2] == pytest.approx((found[0] + found[1]) / 2)


def test_early_readings_are_the_same_without_the_costly_ones():
    whole = readings_of_phase_3("reasoning")
    early = take_readings(shipped("phase3").build_model(), PAPER, names=CHEAP)
    costly = {reading.name for reading in READINGS if MEASURED[reading.measurement].costly}
    assert costly
    assert early == {name: value for name, value in whole.items() if name not in costly}


def test_readings_of_unseen_pairs_say_so():
    assert all(reading.sees == "unseen pairs" for reading in READINGS if "unseen" in reading.field)


def test_a_model_that_a_probe_refuses_is_named():
    model = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16))
    check_inputs(model, PAPER)
    with pytest.raises(ValueError, match=r"information_flow: .*layer"):
        take_readings(model, PAPER)


class TestRelativeMargin:
    RELATIVE, MARGIN = "information_flow.relative_margin", "information_flow.margin"

    def taken(self, name, **options):
        checkpoint = shipped(name)
        return take_readings(checkpoint.build_model(), checkpoint.task, names=["information_flow"], **options)

    def test_is_the_margin_over_that_on_the_training_data(self):
        """A model that memorised has a margin on its training data alone."""
        for name, low, high in (("phase1", -9, 0), ("phase3", 0.8, 1.2)):
            checkpoint = shipped(name)
            data = checkpoint.training_set()
            assert low < self.taken(name, training_set=data)[self.RELATIVE] < high
            model, some = checkpoint.build_model(), data.take(np.arange(2000))
            with torch.no_grad():
                logits = model(some.tokens)[:, -1]
            answers = logits.gather(1, some.targets[:, None])[:, 0]
            others = logits.scatter(1, some.targets[:, None], -torch.inf).max(dim=1).values
            found = readings.training_margin(model, checkpoint.task, data)
            assert found == pytest.approx((answers - others).mean().item(), rel=0.05) and found > 0

    def test_without_training_data_only_its_sign_is_known(self):
        found = {name: self.taken(name) for name in ("phase1", "phase3")}
        assert found["phase1"][self.MARGIN] < 0 < found["phase3"][self.MARGIN]
        assert [found[name][self.RELATIVE] for name in ("phase1", "phase3")] == [0, None]

    def test_a_model_that_has_not_fit_its_data_has_none(self):
        assert readings.relative_margin(2.0, -1.0) is None and readings.relative_margin(-2.0, 0.0) is None

    def test_data_of_another_task_are_refused(self):
        with pytest.raises(ValueError, match="must have shape"):
            self.taken("phase3", training_set=(torch.zeros(3, 4, dtype=torch.long), torch.zeros(3).long()))


def test_holdout_may_refuse_a_model_and_is_then_missing():
    model = build_model(ModelConfig(gamma=0.5))  # answers nothing yet
    assert take_readings(model, PAPER, names=["holdout"]) == {"holdout.holdout_ratio": None}
    assert (
        take_readings(shipped("phase3").build_model(), PAPER, names=["holdout"])["holdout.holdout_ratio"]
        > 0.9
    )

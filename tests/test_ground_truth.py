"""Circuits that are known: compiled ones answer as their programs do, and probes read what is there."""

import importlib.util
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import anchorlens
from anchorlens import AnchorTask, CheckpointError, classify, evaluate, probes
from anchorlens.models.hooks import last_logits
from anchorlens.probes import SHIPPED, apply, needs_task
from anchorlens.probes.shared.contract import spec_of

ROOT = Path(__file__).parents[1]
KEY, FIRST, SECOND, LAST = 2, 3, 4, 8
AT = {"key": KEY, "anchor 1": FIRST, "anchor 2": SECOND, "last": LAST}
MEMORISERS = ("pair_memoriser", "table_memoriser")
THERE, NOT_THERE = 0.95, 0.05
"""Least of a reading of what is there, and most of what is not."""


@cache
def examples():
    spec = importlib.util.spec_from_file_location("compiled_circuits", ROOT / "examples/compiled_circuits.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@cache
def circuit(name):
    return examples().load(name)


NAMES = sorted(path.stem for path in (ROOT / "tests/data/compiled").glob("*.safetensors"))
ROUTES = {
    "composer": "inferential",
    "table_memoriser": "inferential",
    "composer_with_an_end": "inferential",
    "pair_memoriser": "symmetric",
    "gatherer": "gathered",
    "two_step": None,  # a route that has no name here
}
BEFORE_THE_LAST_LAYER = {
    "composer": "first_anchor",
    "table_memoriser": "first_anchor",
    "composer_with_an_end": "first_anchor",
    "pair_memoriser": "last",
    "gatherer": "second_anchor",
    "two_step": "last",
}
"""Where the first anchor is at the input of the last layer, in some form."""


def is_there(found, there):
    return found >= THERE if there else found <= NOT_THERE


def test_every_program_is_stored_and_small():
    assert sorted(ROUTES) == NAMES == sorted(examples().PROGRAMS) == examples().names()
    sizes = [path.stat().st_size for path in (ROOT / "tests/data/compiled").iterdir()]
    assert sum(sizes) < 300_000


def test_reading_them_needs_neither_tracr_nor_jax():
    circuit("composer")
    assert not {"tracr", "jax", "haiku"} & set(sys.modules)
    package = Path(anchorlens.__file__).parent.rglob("*.py")
    assert [
        path for path in package if "tracr" in path.read_text() or "import jax\n" in path.read_text()
    ] == []


@pytest.mark.parametrize("name", NAMES)
class TestEveryCircuit:
    def test_answers_every_question_as_its_program(self, name):
        model, task, about = circuit(name)
        for split in ("train", "id", "ood"):
            trials = task.trials(split)
            asked = task.sequences(trials, seed=1).tokens
            answered = last_logits(model, asked).argmax(dim=-1)
            assert torch.equal(answered, circuit(name).answers(asked)), split
            right = (answered == torch.as_tensor(task.targets(trials, kind="inferential"))).double().mean()
            assert right == (0 if split == "ood" and name in MEMORISERS else 1)
        assert about["name"] == name

    def test_information_flow_finds_the_route_and_every_edge(self, name):
        model, task, about = circuit(name)
        flow = probes.information_flow(model, task, effects="merged")
        for route in ("inferential", "symmetric", "gathered"):
            assert is_there(getattr(flow, f"{route}_route"), route == ROUTES[name]), route
        shares = flow.merged_effects / (flow.margin - flow.baseline)
        own = {(layer, AT[to], AT[source]) for layer, to, source in about["edges"]}
        for edge in np.ndindex(*shares.shape):
            assert is_there(abs(shares[edge]), edge in own), edge

    def test_activation_patching_finds_where_the_first_anchor_is(self, name):
        found = probes.activation_patching(circuit(name).model, circuit(name).task, n_sequences=3)
        for place in ("first_anchor", "second_anchor", "last"):
            assert is_there(getattr(found, f"carried_by_{place}"), place == BEFORE_THE_LAST_LAYER[name])


INTERCHANGES = {  # accuracy, unseen, equal; where
    "composer": (1, 1, 1, FIRST),
    "composer_with_an_end": (1, 1, 1, FIRST),
    "gatherer": (1, 1, 1, SECOND),
    "two_step": (1, 1, 1, LAST),
    "table_memoriser": (1, 0, 1, FIRST),  # holds key and first anchor, and no rule
}


@pytest.mark.parametrize("name", INTERCHANGES)
def test_interchange_finds_what_can_be_swapped(name):
    found = probes.interchange(circuit(name).model, circuit(name).task, n_sequences=16)
    *accuracies, position = INTERCHANGES[name]
    assert (found.accuracy, found.unseen_accuracy, found.equal_accuracy) == tuple(accuracies)
    assert found.position == position and found.elsewhere <= NOT_THERE


def test_interchange_finds_nothing_in_a_table_of_pairs():
    found = probes.interchange(
        circuit("pair_memoriser").model, circuit("pair_memoriser").task, n_sequences=100
    )
    assert found.accuracy <= NOT_THERE and found.unseen_accuracy <= NOT_THERE


def test_a_circuit_that_is_another_at_the_end_is_told_there_alone():
    one, other = (circuit(name) for name in ("composer", "composer_with_an_end"))
    for key_position, differ in ((KEY, False), (6, True)):
        carried = [
            probes.activation_patching(
                each.model, each.task, key_position=key_position, n_sequences=3
            ).carried_by_first_anchor
            for each in (one, other)
        ]
        assert is_there(carried[0], True) and is_there(carried[1], not differ)


class TestAnotherTask:
    def test_is_refused_where_the_circuit_is_loaded(self):
        with pytest.raises(ValueError, match=r"'composer' answers .*and no other"):
            examples().load("composer", AnchorTask(key_min=20, key_max=34))
        with pytest.raises(ValueError, match="must be one of .* got 'nothing'"):
            examples().load("nothing")

    @pytest.mark.parametrize("ask", [evaluate, classify])
    def test_is_refused_by_both_verdicts(self, ask):
        with pytest.raises(
            ValueError,
            match=r"d_vocab of the model.*at least 110",
        ):
            ask(circuit("composer").model, AnchorTask())

    @pytest.mark.parametrize(
        "probe",
        [
            each
            for each in SHIPPED
            if spec_of(each).task_kind is None and (needs_task(each) or spec_of(each).on_tokens)
        ],
        ids=lambda each: each.__name__,
    )
    def test_is_refused_by_every_probe_that_asks_for_it(self, probe):
        with pytest.raises(
            ValueError,
            match=r"d_vocab of the model.*at least 110",
        ):
            apply(probe, circuit("composer").model, AnchorTask())

    @pytest.mark.needs("importers")
    def test_its_file_is_no_checkpoint(self):
        with pytest.raises(CheckpointError, match="its weights are those of no model that can be read"):
            classify(ROOT / "tests/data/compiled/composer.safetensors")

"""Weights under a key, behind a prefix or inside a larger module are read as if they stood by themselves."""

import pytest
import torch
from foreign_checkpoints import TINY, write_hugging_face, write_released

from anchorlens.files.importers import open_checkpoint
from anchorlens.files.wrapped import unwrapped
from anchorlens.models.gamma import initial_weights
from anchorlens.probes import stable_rank
from anchorlens.safe import CheckpointError

WEIGHTS = initial_weights(TINY, 0)
CONFIG = {"model": {"variant": "gpt2", "act_fn": "gelu", "gamma": 0.5}}
OTHERS = {name: weight + 1 for name, weight in WEIGHTS.items()}


def behind(prefix, weights=WEIGHTS):
    return {prefix + name: weight for name, weight in weights.items()}


def opened(tmp_path, content):
    torch.save(content, tmp_path / "a.pt")
    return open_checkpoint(tmp_path / "a.pt", config=CONFIG)


def inner(prefix):
    """Names as in a model whose blocks are each wrapped."""
    return {name.replace("blocks.0.", f"blocks.0.{prefix}"): weight for name, weight in WEIGHTS.items()}


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (behind("_orig_mod."), "taken off the names of its weights: '_orig_mod.'"),
        (behind("module."), "taken off the names of its weights: 'module.'"),
        (behind("_orig_mod.module."), "taken off the names of its weights: '_orig_mod.', 'module.'"),
        (behind("module._orig_mod."), "taken off the names of its weights: '_orig_mod.', 'module.'"),
        (behind("any.thing.at.all."), "taken off the names of its weights: 'any.thing.at.all.'"),
        (inner("_orig_mod."), "taken off the names of its weights: '_orig_mod.'"),
        (inner("_fsdp_wrapped_module."), "taken off the names of its weights: '_fsdp_wrapped_module.'"),
        ({"model": behind("_orig_mod."), "iter_num": 5}, "taken off the names of its weights: '_orig_mod.'"),
        ({"state_dict": behind("model."), "epoch": 1, "callbacks": {}}, "weights: 'model.'"),
        ({"net": WEIGHTS, "loss": torch.tensor(1.0)}, None),
        ({"model_state": WEIGHTS}, None),
        ({"weights": WEIGHTS}, None),
        ({"params": WEIGHTS}, None),
        ({"checkpoint": {"model": WEIGHTS}}, None),
        ({**WEIGHTS, "step": 500, "config": {"lr": 0.1}}, None),
        ({"policy": WEIGHTS}, "its weights are those under 'policy'"),
        ({"ema": OTHERS, "model": WEIGHTS}, "its weights are those under 'model', not those under 'ema'"),
        ({"best": OTHERS, "net": WEIGHTS}, "its weights are those under 'net', not those under 'best'"),
        (
            behind("encoder.") | {"probe.weight": torch.ones(2)},
            "1 tensors whose names do not begin with 'encoder.' are ignored: 'probe.weight'",
        ),
        (
            behind("model.encoder.") | {"model.probe.weight": torch.ones(2), "loss.weight": torch.ones(2)},
            "do not begin with 'model.encoder.' are ignored: 'model.probe.weight', 'loss.weight'",
        ),
    ],
)
def test_are_read_with_a_note_of_what_was_taken_off_or_left_out(tmp_path, content, note):
    found = opened(tmp_path, content)
    assert all(torch.equal(found.checkpoint.weights[name], WEIGHTS[name]) for name in WEIGHTS)
    notes = [line for line in found.notes if "no task was given" not in line and "assumed" not in line]
    said = [line for line in notes if "weights" in line or "ignored" in line]
    assert any(note in line for line in said) if note else not said, notes


def test_a_plain_state_dict_has_no_such_note(tmp_path):
    """The negative control."""
    assert not any("taken off" in note or "ignored" in note for note in opened(tmp_path, WEIGHTS).notes)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (behind("student.") | behind("teacher."), "one model, got 2 models: 'student.', 'teacher.'"),
        ({"student": WEIGHTS, "teacher": OTHERS}, "must hold one model, got 2 models"),
        (behind("a.b.c.d.e.f."), "their names begin with 'a.b.c.d.e.f.embed.W_E'"),
        ({"embed.weight": torch.ones(2), "blocks.0.attn.q.weight": torch.ones(2)}, "of a TransformerBridge"),
        ({"model": {"blocks.0._original_component.attn.x": torch.ones(2)}}, "of a TransformerBridge"),
    ],
)
def test_what_is_not_one_model_is_named(tmp_path, content, cause):
    with pytest.raises(CheckpointError) as error:
        opened(tmp_path, content)
    assert cause in str(error.value)


def test_every_importer_reads_them(tmp_path):
    for written in (write_released(tmp_path / "a"), write_hugging_face(tmp_path / "b", "pytorch_model.bin")):
        plain = open_checkpoint(written.path)
        weights = torch.load(written.files[0])
        torch.save({"net": behind("module.", weights), "epoch": 1}, written.files[0])
        wrapped = open_checkpoint(written.path)
        assert wrapped.kind == plain.kind and "taken off the names of its weights: 'module.'" in wrapped.notes
        assert all(
            torch.equal(wrapped.checkpoint.weights[name], plain.checkpoint.weights[name])
            for name in plain.checkpoint.weights
        )


@pytest.mark.filterwarnings("ignore:.*(config|variant|taken|net):UserWarning")
def test_probes_of_a_path_read_them(tmp_path):
    torch.save(WEIGHTS, tmp_path / "a.pt")
    torch.save({"net": behind("_orig_mod.")}, tmp_path / "b.pt")
    plain, wrapped = (stable_rank(tmp_path / name, config=CONFIG) for name in ("a.pt", "b.pt"))
    assert plain.readings == wrapped.readings


def test_a_table_under_many_keys_is_looked_at_once():
    """Else a small file that names one large table again and again takes quadratic time."""
    table, asked = {f"{k}.x.y": torch.ones(1) for k in range(50)}, []
    content = {f"key{k}": {"inner": table} for k in range(100)}
    assert unwrapped(content, lambda these: asked.append(len(these["state_dict"])))[0] is content
    assert sum(asked) == 50

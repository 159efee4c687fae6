import io
import json
import struct

import pytest
import safetensors.torch
import torch

from anchorlens.files import container
from anchorlens.files.checkpoint import FORMAT, Checkpoint, load_checkpoint, save_checkpoint
from anchorlens.files.writing import atomic_write
from anchorlens.models.config import ModelConfig
from anchorlens.models.hooked import build_model
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.safe import CheckpointError
from anchorlens.tasks.two_anchor.task import AnchorTask

TINY = ModelConfig(n_layers=1, d_model=8, d_head=4, d_mlp=8, d_vocab=110, gamma=0.5)


@pytest.fixture(scope="module")
def checkpoint():
    return Checkpoint.from_model(
        build_model(TINY, seed=1),
        TINY,
        AnchorTask(regime="conflict", overrides={(1, 2): lambda x: 2 * x % 90}),
        train_config=TrainConfig(n_samples=600, steps=7),
        step=7,
        metrics={"loss": 0.25, "ood": None},
    )


@pytest.fixture(params=[".pt", ".safetensors"])
def path(request, tmp_path, checkpoint):
    path = tmp_path / f"ckpt{request.param}"
    save_checkpoint(path, checkpoint)
    return path


def same(a, b):
    return (a.model_config, a.task, a.train_config, a.step, a.metrics, a.versions) == (
        b.model_config,
        b.task,
        b.train_config,
        b.step,
        b.metrics,
        b.versions,
    ) and all(torch.equal(a.weights[name], b.weights[name]) for name in {*a.weights, *b.weights})


def test_everything_comes_back(path, checkpoint):
    loaded = load_checkpoint(path)
    assert same(loaded, checkpoint)
    tokens = AnchorTask().sample(8).tokens
    assert torch.equal(loaded.build_model()(tokens), checkpoint.build_model()(tokens))
    assert (loaded.training_set().tokens == checkpoint.training_set().tokens).all()


def test_the_two_formats_hold_the_same(tmp_path, checkpoint):
    for suffix in container.SUFFIXES:
        save_checkpoint(tmp_path / f"a{suffix}", checkpoint)
    assert same(*(load_checkpoint(tmp_path / f"a{suffix}") for suffix in container.SUFFIXES))


def test_the_format_is_told_by_content(path, checkpoint):
    other = path.with_suffix(".safetensors" if path.suffix == ".pt" else ".pt")
    path.rename(other)
    assert same(load_checkpoint(other), checkpoint)


@pytest.mark.parametrize("variant", ["gpt2", "postnorm", "released"])
def test_every_variant_and_float64_come_back(tmp_path, variant):
    config = ModelConfig(variant=variant, n_layers=2, n_heads=2, d_model=8, d_head=4, d_mlp=8)
    model = build_model(config, dtype="float64")
    save_checkpoint(tmp_path / "a.pt", Checkpoint.from_model(model, config, AnchorTask()))
    tokens = AnchorTask().sample(8).tokens
    assert torch.equal(load_checkpoint(tmp_path / "a.pt").build_model()(tokens), model(tokens))


def test_a_checkpoint_is_a_copy_of_the_moment():
    model = build_model(TINY)
    taken = Checkpoint.from_model(model, TINY, AnchorTask())
    before = taken.weights["embed.W_E"].clone()
    with torch.no_grad():
        model.embed.W_E.zero_()
    assert torch.equal(taken.weights["embed.W_E"], before)


def test_holds_weights_and_no_optimizer_or_random_state(path):
    header, tensors = container.read(path)
    assert set(tensors) == {name for name, _ in build_model(TINY).named_parameters()}
    assert set(header) == {
        "format",
        "format_version",
        "model",
        "task",
        "train",
        "step",
        "metrics",
        "versions",
    }
    assert {"anchorlens", "torch", "transformer-lens", "python", "numpy"} == set(header["versions"])


class TestWriting:
    def test_another_suffix_is_refused(self, tmp_path, checkpoint):
        with pytest.raises(ValueError, match=r"must end in .pt or .safetensors, got 'a.ckpt'"):
            save_checkpoint(tmp_path / "a.ckpt", checkpoint)
        assert not list(tmp_path.iterdir())

    def test_a_failed_write_leaves_the_old_file_and_nothing_else(self, path, checkpoint):
        before = path.read_bytes()
        broken = Checkpoint(
            checkpoint.model_config, checkpoint.task, checkpoint.weights, metrics={"loss": float("nan")}
        )
        with pytest.raises(ValueError, match="must be JSON-ready, got an error"):
            save_checkpoint(path, broken)
        assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]

    def test_a_full_disk_leaves_the_old_file_and_nothing_else(self, path):
        before = path.read_bytes()
        with pytest.raises(OSError, match="No space left"), atomic_write(path) as file:
            file.write(b"half")
            with open("/dev/full", "wb", buffering=0) as full:
                full.write(b"x")
        assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]

    def test_what_could_not_be_read_is_not_written(self, tmp_path, checkpoint):
        half = {name: weight.half() for name, weight in checkpoint.weights.items()}
        with pytest.raises(ValueError, match="must be float32 or float64"):
            save_checkpoint(tmp_path / "a.pt", Checkpoint(checkpoint.model_config, checkpoint.task, half))
        with pytest.raises(ValueError, match="d_vocab must be at least 411 for the task"):
            Checkpoint.from_model(build_model(TINY), TINY, AnchorTask(key_max=400))
        assert not list(tmp_path.iterdir())

    def test_tensors_that_share_memory(self, tmp_path, checkpoint):
        shared = {**checkpoint.weights, "ln_final.b": checkpoint.weights["blocks.0.ln1.b"]}
        save_checkpoint(
            tmp_path / "a.safetensors", Checkpoint(checkpoint.model_config, checkpoint.task, shared)
        )
        assert load_checkpoint(tmp_path / "a.safetensors").weights.keys() == checkpoint.weights.keys()

    def test_weights_of_another_shape_are_refused(self):
        with pytest.raises(
            ValueError,
            match=r"fit its configuration.*embed.W_E",
        ):
            Checkpoint.from_model(build_model(TINY), ModelConfig(d_model=16), AnchorTask())


def refused(path, cause):
    """The one line that a file gets: it names the file and the cause."""
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(path)
    line = str(error.value)
    assert line.startswith(f"{path}: ") and "\n" not in line
    assert cause in line, line


def rewrite(path, change):
    """Write the file again with a changed header and a checksum that is right."""
    header, tensors = container.read(path)
    change(header, tensors)
    container.write(path, header, tensors)


class TestBadFiles:
    def test_missing(self, tmp_path):
        refused(tmp_path / "no.pt", "cannot be read: No such file")

    def test_a_folder(self, tmp_path):
        refused(tmp_path, "the folder must hold ckpt.pt, got none")

    def test_empty(self, tmp_path):
        (tmp_path / "a.pt").touch()
        refused(tmp_path / "a.pt", "it is empty")

    def test_something_else(self, tmp_path):
        (tmp_path / "a.pt").write_text("hello, I am no checkpoint")
        refused(tmp_path / "a.pt", "not a .pt zip or a .safetensors file")

    @pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.99, 0.9999])
    def test_truncated(self, path, share):
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
        with pytest.raises(CheckpointError, match=str(path)):
            load_checkpoint(path)

    def test_a_flipped_weight_bit_is_found(self, path, checkpoint):
        data = bytearray(path.read_bytes())
        weight = checkpoint.weights["embed.W_E"].numpy().tobytes()
        data[data.find(weight) + 100] ^= 1
        path.write_bytes(data)
        refused(path, "must match its checksum")

    def test_too_new(self, path):
        rewrite(path, lambda header, tensors: header.update(format_version=99))
        refused(path, "the format version must be 1 to 1, got 99. Upgrade anchorlens")

    def test_another_of_our_formats(self, path):
        rewrite(path, lambda header, tensors: header.update(format="anchorlens training state"))
        refused(path, f"not an {FORMAT}")

    def test_a_bare_state_dict(self, tmp_path):
        torch.save(build_model(TINY).state_dict(), tmp_path / "a.pt")
        refused(tmp_path / "a.pt", "the file must have an anchorlens header")

    def test_a_foreign_safetensors_file(self, tmp_path):
        safetensors.torch.save_file({"x": torch.ones(2)}, tmp_path / "a.safetensors")
        refused(tmp_path / "a.safetensors", "the file must have an anchorlens header")

    @pytest.mark.parametrize(
        ("change", "cause"),
        [
            (lambda h, t: h["model"].update(n_layers=2), "blocks.1.attn.W_Q is missing"),
            (lambda h, t: h["model"].update(n_layers=10**8), "n_layers must be an integer"),
            (lambda h, t: h["model"].update(d_vocab=10**12), "d_vocab must be an integer"),
            (lambda h, t: h["model"].update(d_vocab=202), "embed.W_E must have shape"),
            (lambda h, t: h["task"].update(key_max=10**6), "the number of keys must be at most"),
            (lambda h, t: h["model"].update(variant="rnn"), "variant must be one of"),
            (lambda h, t: h["task"].update(key_max=10**12), "key_max must be an integer"),
            (lambda h, t: h["task"].update(anchors={"1": "x"}), "configuration makes no sense"),
            (
                lambda h, t: h["task"].update(anchors={"1": 10**30, "2": 1}),
                "anchor 1, a shift, must be an integer",
            ),
            (lambda h, t: h["task"].update(seq_len=12), "n_ctx must be at least 12 for the task"),
            (lambda h, t: h["model"].update(gamma=-1000), "gamma must be a finite number"),
            (lambda h, t: h["train"].update(n_samples=10**15), "n_samples must be an integer"),
            (lambda h, t: t.update({"\x1b[31m": torch.ones(1)}), "'\\x1b[31m' is not a parameter"),
            (lambda h, t: h["train"].update(moon=1), "TrainConfig must get a known field, got 'moon'"),
            (lambda h, t: h.pop("task"), "configuration makes no sense: 'task' is missing"),
            (lambda h, t: h.update(step="x"), "configuration makes no sense"),
            (lambda h, t: t.update(extra=torch.ones(1)), "'extra' is not a parameter of gpt2, "),
            (lambda h, t: t.pop("unembed.b_U"), "unembed.b_U is missing"),
            (
                lambda h, t: t.update({"ln_final.w": torch.ones(8, dtype=torch.int32)}),
                "ln_final.w must be float32 or float64",
            ),
        ],
    )
    def test_content_that_does_not_fit_together(self, path, change, cause):
        rewrite(path, change)
        refused(path, cause)


class TestOddContent:
    def test_tensors_that_are_not_there(self, tmp_path):
        for odd in (torch.zeros(3, device="meta"), torch.eye(3).to_sparse(), "text", torch.eye(3).T[1:]):
            torch.save({"anchorlens": "{}", "sha256": "", "tensors": {"x": odd}}, tmp_path / "a.pt")
            refused(tmp_path / "a.pt", "")

    def test_a_giant_safetensors_header(self, tmp_path):
        for length in (2**62, 90_000_000, 40):
            (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", length) + b'{"' + b" " * 100)
            refused(tmp_path / "a.safetensors", "")

    def test_deeply_nested_json(self, tmp_path):
        buffer = io.BytesIO()
        text = "[" * 100_000
        digest = container._digest(text, {})
        torch.save({"anchorlens": text, "sha256": digest, "tensors": {}}, buffer)
        (tmp_path / "a.pt").write_bytes(buffer.getvalue())
        refused(tmp_path / "a.pt", "the content must be nested at most 64 levels")

    def test_a_name_with_line_breaks_stays_on_one_line(self, tmp_path):
        text = json.dumps({"format": "x\ny\x1b[31m", "format_version": 1})
        digest = container._digest(text, {})
        torch.save({"anchorlens": text, "sha256": digest, "tensors": {}}, tmp_path / "a.pt")
        refused(tmp_path / "a.pt", r"the format must be 'anchorlens checkpoint', got 'x\ny\x1b[31m'")

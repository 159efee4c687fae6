"""Whatever lies where weights, data or a configuration should: the error says what it is and the way out."""

import argparse
import collections
import datetime
import gzip
import pathlib
import pickle
import sys
import types
import zipfile

import numpy as np
import pytest
import safetensors.torch
import torch
from foreign_checkpoints import OURS, TINY, rewritten_zip, write_bare

from anchorlens import AnchorTask, evaluate
from anchorlens.extras.audit.files import open_dataset
from anchorlens.files.importers import open_checkpoint
from anchorlens.files.settings import Settings
from anchorlens.files.training_data import read_training_data
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import initial_weights
from anchorlens.safe import CheckpointError, kind_of, read_tensors

FILES = {
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "`git lfs pull`"),
    "a page": (b"\n<!DOCTYPE html><html><body>Sign in</body></html>", "a web page (HTML); download"),
    "another page": (b"<!-- saved -->\n<HTML lang='en'>", "a web page (HTML); download"),
    "gzip": (gzip.compress(b"x" * 99), "compressed with gzip; unpack it with `gunzip`"),
    "an array": (b"\x93NUMPY\x01\0" + bytes(99), "a NumPy array without a name (.npy)"),
    "an index": (b'{"metadata": {"total_size": 9}, "weight_map": {"a": "b"}}', "weights in several files"),
}  # fmt: skip
"""Name -> the bytes of an ordinary file that is none of those asked for, and words that say what it is."""


def why_not(path, read=open_checkpoint, **options):
    """The message of a refusal without the path, one line that accuses nobody."""
    with pytest.raises(ValueError) as error:
        read(path, **options)
    line = str(error.value)
    assert line.startswith(f"{path}: ") and "\n" not in line and len(line) < 1200
    cause = line.removeprefix(f"{path}: ")
    assert "unsafe" not in cause and "damaged" not in cause, cause
    return cause


@pytest.mark.parametrize("name", FILES)
def test_every_reader_says_what_else_a_file_is(tmp_path, name):
    content, words = FILES[name]
    assert words in (kind_of(content) or "")
    is_json = content.startswith(b"{")  # which describes no model, as the importers then say
    for suffix, read in {
        ".pt": open_checkpoint,
        ".npz": read_training_data,
        ".json": Settings.of,
        ".csv": open_dataset,
        ".toml": open_dataset,
    }.items():
        path = tmp_path / f"file{suffix}"
        path.write_bytes(content)
        expected = words
        if name == "an array" and suffix == ".npz":  # training data may be a .npy file
            expected = "the targets of a .npy file must be next to it"
        assert (is_json and suffix == ".json") or expected in why_not(path, read), read


def test_plain_files_are_not_taken_for_others(tmp_path):
    """The negative control: what the readers are for has no row in the table."""
    for text in (b"", b"1,2,3\n", b"key,a1,a2,target\n1,2,3,4\n", b"[task]\nseq_len = 9\n", b"a = {b = 1}\n",
                 b"# model: ours\nmodel.gamma = 0.5\n"):  # fmt: skip
        assert kind_of(text) is None, text
    assert kind_of(b'{"d_model": 8}') == "a JSON text"
    written = write_bare(tmp_path, ".safetensors")
    assert open_checkpoint(written.path, config=written.config).checkpoint.model_config.d_model == 8


def test_packed_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/ckpt.pt", b"x" * 1000)
    assert "no data.pkl, but 'run/ckpt.pt'; unzip it" in why_not(tmp_path / "a.zip")
    np.savez(tmp_path / "a.npz", embed=np.zeros(3))
    assert "no data.pkl, but 'embed.npy'" in why_not(tmp_path / "a.npz")
    data = write_bare(tmp_path).path.read_bytes()
    packed = rewritten_zip(data, lambda name, content: (name, content), zipfile.ZIP_DEFLATED)
    (tmp_path / "again.pt").write_bytes(packed)
    assert "got a compressed zip" in why_not(tmp_path / "again.pt")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_of_pickle_that_has_one_is_read(tmp_path, protocol):
    written = write_bare(tmp_path)
    weights = torch.load(written.path)
    torch.save({"model": weights, "epoch": 3, "lr": 0.5}, written.path, pickle_protocol=protocol)
    checkpoint = open_checkpoint(written.path, config=written.config).checkpoint
    assert all(torch.equal(checkpoint.weights[name], weights[name]) for name in weights)


def test_older_formats_name_the_way_to_save_them_again(tmp_path):
    weights = initial_weights(TINY, 0)
    torch.save(weights, tmp_path / "one.pt", pickle_protocol=1)
    assert "Save the file with pickle_protocol=2" in why_not(tmp_path / "one.pt")
    torch.save(weights, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert "torch.load(path, weights_only=True)" in why_not(tmp_path / "old.pt")
    torch.save(torch.load(tmp_path / "old.pt", weights_only=True), tmp_path / "old.pt")
    (tmp_path / "a.toml").write_text(OURS)
    assert (
        open_checkpoint(tmp_path / "old.pt", config=tmp_path / "a.toml").checkpoint.model_config.n_heads == 2
    )


RECORDS = {
    "a number": (np.float64(1.5), 1.5),
    "an integer": (np.int64(-3), -3),
    "a truth": (np.bool_(True), True),
    "an array": (np.array([[1, 2], [3, 4]], dtype=">i2"), torch.tensor([[1, 2], [3, 4]], dtype=torch.int16)),
    "by columns": (np.asfortranarray([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 2], [3, 4]]).double()),
    "a number as an array": (np.array(2.5, dtype="f4"), torch.tensor(2.5)),
    "an empty array": (np.zeros((0, 3)), torch.zeros(0, 3).double()),
    "a type": (np.dtype("f4"), "f4"),
    "arguments": (argparse.Namespace(lr=1, more=argparse.Namespace(seed=2)), {"lr": 1, "more": {"seed": 2}}),
    "a device": (torch.device("cuda:0"), "cuda:0"),
    "a path": (pathlib.PurePosixPath("/out/a"), "/out/a"),
    "another path": (pathlib.PureWindowsPath("c:/out"), "c:\\out"),
    "bytes": (b"x\xff", b"x\xff"),
    "a set": ({1}, [1]),
    "a frozen set": (frozenset({1}), [1]),
    "counts": (collections.Counter("ab"), {"a": 1, "b": 1}),
    "lists": (collections.defaultdict(list, {"a": [1]}), {"a": [1]}),
    "keys": ({(3, 4): 0.5, 1.5: 2, None: 3}, {(3, 4): 0.5, 1.5: 2, None: 3}),
}
"""Name -> an object beside the weights, and the plain data that it is read as."""


def beside_weights(tmp_path, value, protocol=2):
    torch.save({"model": initial_weights(TINY, 0), "x": value}, tmp_path / "a.pt", pickle_protocol=protocol)
    return tmp_path / "a.pt"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", RECORDS)
def test_a_record_beside_the_weights_becomes_plain_data(tmp_path, name, protocol):
    value, plain = RECORDS[name]
    path = beside_weights(tmp_path, value, protocol)
    read = read_tensors(path).values["x"]
    if isinstance(plain, torch.Tensor):
        assert read.dtype == plain.dtype and torch.equal(read, plain)
    else:
        assert read == plain
    opened = open_checkpoint(path, config={"model": {"variant": "gpt2", "act_fn": "gelu", "gamma": 0.5}})
    assert opened.checkpoint.model_config.n_heads == 2


@pytest.mark.parametrize(
    "module",
    [
        "transformer_lens.HookedTransformerConfig",
        "transformer_lens.config.HookedTransformerConfig",
        "transformer_lens.config.hooked_transformer_config",
    ],
)
def test_a_configuration_of_every_version_of_transformer_lens_is_its_fields(tmp_path, module, monkeypatch):
    """Also where the installed version has no such module."""
    cls = type("HookedTransformerConfig", (), {"__module__": module})
    monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(HookedTransformerConfig=cls))
    config = cls()
    config.__dict__.update(n_layers=1, attn_scale=np.float64(2), dtype=torch.float32, device="cpu")
    for protocol in (2, 4):
        path = beside_weights(tmp_path, {"config": config}, protocol)
        assert read_tensors(path).values["x"]["config"] == {
            **{"n_layers": 1, "attn_scale": 2.0, "dtype": "torch.float32", "device": "cpu"}
        }


def test_an_array_that_is_there_twice_is_one_tensor(tmp_path):
    array = np.arange(3.0)
    first, second = read_tensors(beside_weights(tmp_path, [array, array])).values["x"]
    assert first is second and torch.equal(first, torch.arange(3).double())


OTHERS = {
    "a date": datetime.datetime(2026, 1, 1),
    "a simple namespace": types.SimpleNamespace(lr=1),
    "an array of texts": np.array(["a"]),
    "a complex number": np.complex64(1),
    "a long tuple": {(1, 2, 3, 4): 0},
    "a deep tuple": {(1, (2, 3)): 0},
    "a large integer": {2**62: 0},
    "a large integer in a tuple": {(1, 2**40): 0},
    "a set of keys": {frozenset({1}): 0},
}


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("name", OTHERS)
def test_another_record_beside_the_weights_is_no_attack(tmp_path, name, protocol):
    cause = why_not(beside_weights(tmp_path, OTHERS[name], protocol))
    assert 'torch.save(ckpt["model"], path)' in cause
    assert "--config" in cause


class OfJax:
    """An object whose pickle names jax, as that of its arrays does."""

    def __reduce__(self):
        return rebuild_jax, (1,)


def rebuild_jax(value):
    return value


rebuild_jax.__module__, rebuild_jax.__qualname__ = "jax._src.array", "_reconstruct_array"


@pytest.mark.parametrize("protocol", [2, 4])
def test_arrays_of_jax_name_the_way(tmp_path, monkeypatch, protocol):
    for name in ("jax", "jax._src", "jax._src.array"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["jax._src.array"]._reconstruct_array = rebuild_jax
    (tmp_path / "params.pkl").write_bytes(pickle.dumps({"params": OfJax()}, protocol))
    torch.save({"params": OfJax()}, tmp_path / "a.pt", pickle_protocol=protocol)
    for name in ("params.pkl", "a.pt"):
        cause = why_not(tmp_path / name)
        assert "JAX arrays" in cause and "evaluate(lambda tokens: apply(params, tokens), task)" in cause


def test_the_way_for_jax_works():
    task, logits = AnchorTask(), np.zeros((1024, 110))
    found = evaluate(lambda tokens: logits[: len(tokens)], task, n_noise=2)
    assert found.measure("train").value < 0.1


def test_a_key_is_advised_only_where_the_file_has_it(tmp_path):
    weights = initial_weights(TINY, 0)
    for content, advised in (
        ({"net": weights, "config": types.SimpleNamespace()}, 'torch.save(ckpt["net"], path)'),
        ({"config": types.SimpleNamespace(), "net": weights}, "torch.save(model.state_dict(), path)"),
        ({"model": "gpt", "config": types.SimpleNamespace()}, "torch.save(model.state_dict(), path)"),
    ):
        torch.save(content, tmp_path / "a.pt")
        assert advised in why_not(tmp_path / "a.pt")


def test_tensors_of_other_kinds(tmp_path):
    with_tag = torch.ones(2)
    with_tag.tag = 1
    for tensor, way in {
        torch.ones(2).to(torch.float8_e4m3fn): "tensor.float()",
        torch.ones(2, dtype=torch.complex64): "tensor.real.float()",
        torch.eye(2).to_sparse(): "tensor.to_dense()",
        with_tag: "tensor.detach()",
    }.items():
        torch.save({"embed.W_E": tensor}, tmp_path / "a.pt")
        assert way in why_not(tmp_path / "a.pt"), way
    integers = {name: weight.to(torch.int8) for name, weight in initial_weights(TINY, 0).items()}
    safetensors.torch.save_file(integers, tmp_path / "a.safetensors")
    cause = why_not(
        tmp_path / "a.safetensors", config={"model": {"variant": "gpt2", "act_fn": "gelu", "gamma": 0.5}}
    )
    assert "floating point numbers, got torch.int8" in cause


def test_programs_are_unsafe_and_name_the_way_out(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    for way in (
        r"torch\.save\(model\.state_dict",
        "--config",
        "--model FILE.py:build",
        "classify or evaluate",
    ):
        with pytest.raises(CheckpointError, match=f"unsafe: .*{way}"):
            open_checkpoint(tmp_path / "module.pt")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "script.pt")
    assert "a TorchScript archive" in why_not(tmp_path / "script.pt")


def test_what_is_no_table_of_weights(tmp_path):
    optimiser = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
    weights = initial_weights(TINY, 0)
    for content, words in (
        (optimiser.state_dict(), "the state of an optimiser or of its schedule"),
        (
            [weights],
            "the file must hold a dict, got list. Save the weights by name: torch.save(model.state_dict()",
        ),
        ({"state_dicts": [weights, weights]}, "it must hold named tensors, by themselves or under one of"),
        (
            {"epoch": 3, "args": {"lr": 1}},
            "by themselves or under one of state_dict, model_state_dict, model, ",
        ),
    ):
        torch.save(content, tmp_path / "a.pt")
        assert words in why_not(tmp_path / "a.pt")


def test_yaml_where_json_or_toml_is_read(tmp_path):
    for text, words in {
        "# Hydra\n\nmodel:\n  d_model: 8\n": "got a YAML text; save it as JSON: json.dump(yaml.safe_load(",
        "_wandb:\n    value: 3\n": "got a YAML text; save it as JSON: json.dump(yaml.safe_load(",
        "[[1, 2], [3, 4]]": "got a JSON list, which names no fields",
    }.items():
        (tmp_path / "a.yaml").write_text(text)
        assert words in why_not(tmp_path / "a.yaml", Settings.of)
    (tmp_path / "a.toml").write_text("model = ")  # the negative control: a slip in a TOML file is shown
    assert "the content must be valid TOML" in why_not(tmp_path / "a.toml", Settings.of)


def test_folders_and_parts_name_what_to_give(tmp_path):
    assert why_not(tmp_path).endswith("give the path of one model's file or folder in it")
    assert "Is a directory; name a file in it" in why_not(tmp_path, read_training_data)
    weights = {"transformer.h.1.mlp.c_fc.weight": torch.ones(2)}
    for name, words in {
        "model-00002-of-00003.safetensors": "one of several files of weights; save them in one",
        "model-00001-of-00001.safetensors": "those of no model that can be read",
    }.items():
        safetensors.torch.save_file(weights, tmp_path / name)
        assert words in why_not(tmp_path / name)


def test_a_truncated_file_says_to_download_it_again(tmp_path):
    for suffix in (".pt", ".safetensors"):
        path = write_bare(tmp_path, suffix).path
        data = path.read_bytes()
        for share in (0.1, 0.9):
            path.write_bytes(data[: int(share * len(data))])
            with pytest.raises(CheckpointError, match=r"truncated.*ownload the file again"):
                open_checkpoint(path)


class TestSharedLayers:
    def of_one_layer(self, n_layers, **sizes):
        """Weights whose layers are all the first."""
        config = ModelConfig(**{**TINY.to_dict(), **sizes, "n_layers": n_layers})
        first = initial_weights(ModelConfig(**{**config.to_dict(), "n_layers": 1}), 0)
        return config, {
            name: first[
                ".".join(["blocks", "0", *name.split(".")[2:]]) if name.startswith("blocks.") else name
            ]
            for name in initial_weights(config, 0)
        }

    def test_are_read(self, tmp_path):
        _, weights = self.of_one_layer(12)
        torch.save(weights, tmp_path / "a.pt")
        checkpoint = open_checkpoint(
            tmp_path / "a.pt", config={"model": {"variant": "gpt2", "act_fn": "gelu", "gamma": 0.5}}
        ).checkpoint
        assert checkpoint.model_config.n_layers == 12
        assert all(torch.equal(checkpoint.weights[name], weights[name]) for name in weights)

    def test_what_they_take_apart_is_bounded(self, tmp_path):
        shared = torch.zeros(2**20)
        for of in (lambda tensor: tensor, torch.Tensor.detach):  # the same tensor, or another of its numbers
            torch.save({f"w{k}": of(shared) for k in range(100)}, tmp_path / "a.pt")
            cause = why_not(tmp_path / "a.pt")
            assert cause.startswith("too costly: its tensors share numbers; apart they take 0.4 GB")

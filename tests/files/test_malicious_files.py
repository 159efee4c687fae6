"""Files that mean harm are refused in one line: nothing runs, and nothing large is allocated."""

import json
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path

import malicious_files
import pytest
from foreign_checkpoints import write_own
from malicious_files import MALICE, touch

from anchorlens.files.checkpoint import load_checkpoint
from anchorlens.files.importers import open_checkpoint
from anchorlens.safe import CheckpointError

CAUSES = {
    "os_system": "unsafe: the file would run posix.system. Nothing ran",
    "os_system_beside_good_weights": "unsafe: the file would run posix.system",
    "numpy_reduce": "it holds a NumPy array of other things than real numbers (numpy.dtype)",
    "nested": "unsafe: the file would run pickle.loads",
    "whole_module": "unsafe: the file would run torch.nn.modules.linear.Linear",
    "eval_through_getattr": "unsafe: the file would run __builtin__.getattr",
    "giant_bytearray": "unsafe: the file would run builtins.bytearray",
    "giant_bytes": "must contain only valid instructions",
    "giant_storage": "unsafe: the file would run torch.FloatStorage",
    "giant_memo": "the file must hold a dict",
    "class_by_stack": "unsafe: the file would run posix.system. Nothing ran",
    "instance_opcode": "unsafe: the pickle must have only instructions that torch.save writes, "
    "got the pickle instruction STRING",
    "state_of_a_tensor": "unsafe: the pickle must not set the state of an object",
    "expanded_tensor": "the values of a tensor must be in the file",
    "many_views_of_one_storage": "too costly: its tensors share numbers; apart they take 4.0 GB",
    "compressed_bomb": "the zip must be uncompressed",
    "duplicate_entries": "unsafe: the entries of the zip must have different names",
    "overlapping_entries": "unsafe: the entries of the zip must not overlap",
    "escaping_names": "unsafe: all entries of the zip must be in one folder, got 'archive/../../",
    "nested_zip": "it has no data.pkl",
    "giant_safetensors_header": "unsafe: its header must have at most",
    "giant_safetensors_tensor": "truncated or damaged",
    "code_in_safetensors_metadata": "must match its checksum",
    "legacy_pickle": "torch.save's format before PyTorch 1.6, which is a program, and nothing ran",
    "bare_pickle": "a bare pickle, which is a program, and nothing ran",
    "deep_pickle": "it holds a dict with a tuple of other things as a key",
    "size_of_a_long_string": "the shape of a tensor must be a tuple of integers",
    "size_of_a_long_list": "the shape of a tensor must be a tuple of integers",
    "size_of_a_tensor": "the shape of a tensor must be a tuple of integers",
    "shape_of_a_long_list": "the pickle must describe valid tensors",
    "many_empty_tables": "the pickle must build no more than its bytes can describe",
    "record_of_arguments": "unsafe: the pickle must make transformer_lens.HookedTransformerConfig",
    "record_that_is_called": "a record in an unsupported format (transformer_lens.HookedTransformerConfig.",
    "record_with_slots": "unsafe: the pickle must set only the fields of an object",
    "record_with_fields_that_are_no_names": "unsafe: the pickle must set only the fields of an object",
    "record_of_another_class": "unsafe: the file would run subprocess.Popen. Nothing ran",
    "record_of_a_function": "unsafe: the file would run torch._utils._rebuild_parameter. Nothing ran",
    "record_with_keywords": "unsafe: the pickle must have only instructions that torch.save "
    "writes, got the pickle instruction NEWOBJ_EX",
    "record_that_holds_a_call": "unsafe: the file would run posix.system. Nothing ran",
    "state_of_a_list": "unsafe: the pickle must not set the state of an object",
    "one_state_of_many_records": "the pickle must build no more than its bytes can describe",
    "array_beyond_its_bytes": "the pickle must describe only valid objects",
    "one_text_of_many_arrays": "the pickle must build no more than its bytes can describe",
    "bytes_of_a_long_text": "the pickle must build no more than its bytes can describe",
    "one_long_key_again_and_again": "the pickle must build no more than its bytes can describe",
    "tuples_of_one_hash": "it holds a dict with a tuple of other things as a key",
    "one_list_in_many_tuples": "its nested lists and dicts must have at most",
    "arguments_without_end": "values, got 100,000",
    "keys_of_one_hash": "it holds a dict with so large an integer as a key",
    "entries_without_end": "its zip must have at most 200,000 entries",
    "storage_of_a_long_name": "the pickle must refer to valid storages",
    "hugging_face_with_code": "unsafe: the file would run posix.system",
    "released_model_with_code": "unsafe: the file would run posix.system",
    "run_folder_with_code": "unsafe: the file would run posix.system",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Maker -> its file, made once; and the file that appears when one of them runs anything."""
    folder, marker = tmp_path_factory.mktemp("malice"), tmp_path_factory.mktemp("ran") / "marker"

    @cache
    def path(maker):
        (folder / maker.__name__).mkdir()
        return maker(folder / maker.__name__, marker)

    return path, marker


@pytest.mark.parametrize("maker", MALICE, ids=lambda maker: maker.__name__)
def test_refused_without_running_anything(made, maker):
    path, marker = made[0](maker), made[1]
    for read in (open_checkpoint,) if path.is_dir() else (open_checkpoint, load_checkpoint):
        with pytest.raises(CheckpointError) as error:
            read(path)
        line = str(error.value)
        assert line.startswith(str(path)) and "\n" not in line and line.isprintable()
        assert CAUSES[maker.__name__] in line, line
    assert not marker.exists()


def test_the_payload_would_work(tmp_path):
    """The negative control: unpickled without protection, it does run."""
    pickle.loads(pickle.dumps(touch(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


def test_refused_without_allocating(made, tmp_path):
    paths = [str(made[0](maker)) for maker in MALICE]
    command = [sys.executable, malicious_files.__file__, str(write_own(tmp_path).path), *paths]
    done = subprocess.run(command, capture_output=True, check=True, cwd=Path(__file__).parents[2], text=True)
    result = json.loads(done.stdout)
    assert len(result["refused"]) == len(paths) and not made[1].exists()
    assert result["grown"] < 300

"""Files that try to run code or to take memory when they are read, each of another kind.

Every maker takes an empty folder and the path of a file that must never come to be; it returns the path to
open. `MALICE` names them all.
"""

import json
import os
import pickle
import struct
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from foreign_checkpoints import rewritten_zip, write_hugging_face, write_own, write_released

HUGE = 10**11


class RunsCode:
    """Pickles to a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def touch(marker):
    return RunsCode(os.system, f"touch {marker}")


def with_pickle(path, program):
    """A zip as torch.save writes it, but with another program and one storage of four bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", bytes(4))
        archive.writestr("archive/version", "3\n")
    return path


def rewritten(path, change, compression=zipfile.ZIP_STORED):
    path.write_bytes(rewritten_zip(path.read_bytes(), change, compression))
    return path


def os_system(folder, marker):
    torch.save({"model": touch(marker)}, folder / "a.pt")
    return folder / "a.pt"


def os_system_beside_good_weights(folder, marker):
    path = write_own(folder).path
    torch.save({**torch.load(path), "more": touch(marker)}, path)
    return path


def numpy_reduce(folder, marker):
    """An array of objects, which NumPy reads with pickle."""
    torch.save({"embed.W_E": np.array([touch(marker)])}, folder / "a.pt")
    return folder / "a.pt"


def nested(folder, marker):
    inner = pickle.dumps(touch(marker), 2)
    torch.save({"model": [{"a": RunsCode(pickle.loads, inner)}]}, folder / "a.pt")
    return folder / "a.pt"


def whole_module(folder, marker):
    torch.save(torch.nn.Linear(2, 2), folder / "a.pt")
    return folder / "a.pt"


def eval_through_getattr(folder, marker):
    torch.save({"a": RunsCode(getattr, "", "join"), "b": RunsCode(eval, "1")}, folder / "a.pt")
    return folder / "a.pt"


def giant_bytearray(folder, marker):
    return with_pickle(folder / "a.pt", b"\x80\x02cbuiltins\nbytearray\n\x8a\x05" + _long(HUGE) + b"\x85R.")


def giant_bytes(folder, marker):
    """Bytes of a length that is given; protocol 2 applies their class to nothing at all."""
    return with_pickle(folder / "a.pt", b"\x80\x02c__builtin__\nbytes\n\x8a\x05" + _long(HUGE) + b"\x85R.")


def giant_storage(folder, marker):
    """A class that may be named, but not called with a size."""
    return with_pickle(folder / "a.pt", b"\x80\x02ctorch\nFloatStorage\n\x8a\x05" + _long(HUGE) + b"\x85R.")


def giant_memo(folder, marker):
    """`pickle` itself makes room for every memo entry up to the highest that is named."""
    return with_pickle(folder / "a.pt", b"\x80\x02]r" + struct.pack("<I", 2**32 - 1) + b".")


def class_by_stack(folder, marker):
    return with_pickle(folder / "a.pt", pickle.dumps(touch(marker), 4))


def instance_opcode(folder, marker):
    return with_pickle(folder / "a.pt", f"\x80\x02(S'touch {marker}'\nios\nsystem\n.".encode("latin1"))


def state_of_a_tensor(folder, marker):
    """Makes an honest tensor, then sets its state to one far larger."""
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu"
    )
    tensor = tensor.replace(b"U\x07storage", b"X\x07\0\0\0storage") + b"K\x01tQK\0K\x01\x85K\x01\x85\x89}tR"
    return with_pickle(folder / "a.pt", b"\x80\x02" + tensor + b"(tb.")


def expanded_tensor(folder, marker):
    torch.save({"embed.W_E": torch.zeros(1).expand(HUGE)}, folder / "a.pt")
    return folder / "a.pt"


def many_views_of_one_storage(folder, marker):
    big = torch.zeros(1_000_000)
    torch.save({f"blocks.{i}": big.view(1000, 1000) for i in range(1000)}, folder / "a.pt")
    return folder / "a.pt"


def compressed_bomb(folder, marker):
    def grown(name, data):
        return name, data + bytes(400_000_000 if name.endswith("data/0") else 0)

    return rewritten(write_own(folder).path, grown, zipfile.ZIP_DEFLATED)


def duplicate_entries(folder, marker):
    path = write_own(folder).path
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore", UserWarning)
        archive.writestr("archive/data.pkl", pickle.dumps(touch(marker), 2))
    return path


def overlapping_entries(folder, marker):
    """Two names in the directory for the same bytes."""
    path = rewritten(write_own(folder).path, lambda name, data: (name, data))
    data = bytearray(path.read_bytes())
    directory = data.find(b"PK\x01\x02")
    second = data.find(b"PK\x01\x02", directory + 4)
    data[second + 42 : second + 46] = data[directory + 42 : directory + 46]
    path.write_bytes(data)
    return path


def escaping_names(folder, marker):
    def escaping(name, data):
        return name.replace("archive", "archive/../.."), data

    return rewritten(write_own(folder).path, escaping)


def nested_zip(folder, marker):
    path = write_own(folder).path
    inner = path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/ckpt.pt", inner)
    return path


def giant_safetensors_header(folder, marker):
    path = folder / "a.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 600_000_000) + b"{")
        file.truncate(600_000_100)
    return path


def giant_safetensors_tensor(folder, marker):
    header = {"embed.W_E": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE]}}
    text = json.dumps(header).encode()
    (folder / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    return folder / "a.safetensors"


def code_in_safetensors_metadata(folder, marker):
    tensors = {"embed.W_E": torch.ones(2, 2)}
    code = f"__import__('os').system('touch {marker}')"
    safetensors.torch.save_file(tensors, folder / "a.safetensors", {"anchorlens": code, "sha256": code})
    return folder / "a.safetensors"


def legacy_pickle(folder, marker):
    torch.save({"a": touch(marker)}, folder / "a.pt", _use_new_zipfile_serialization=False)
    return folder / "a.pt"


def bare_pickle(folder, marker):
    (folder / "a.pt").write_bytes(pickle.dumps(touch(marker)))
    return folder / "a.pt"


def deep_pickle(folder, marker):
    """A key nested so deep that hashing it would exhaust the C stack."""
    return with_pickle(folder / "a.pt", b"\x80\x02}K\x01" + b"\x85" * 150_000 + b"K\x01s.")


def _called_again_and_again(folder, name, value, n=100_000):
    """One value, memoised, to which a function is applied n times at six bytes a call."""
    call = b"h\0h\1R0"
    program = b"\x80\x02c" + name + b"\nq\0" + value + b"\x85q\x01" + call * n + b"K\0."
    return with_pickle(folder / "a.pt", program)


def size_of_a_long_string(folder, marker):
    """`torch.Size` as a tuple of a string's characters: 8 bytes for each of them at every call."""
    text = b"X" + struct.pack("<I", 15_000) + b"a" * 15_000
    return _called_again_and_again(folder, b"torch\nSize", text, 16_000)


def size_of_a_long_list(folder, marker):
    return _called_again_and_again(folder, b"torch\nSize", b"](" + b"K\1" * 30_000 + b"e", 10_000)


def size_of_a_tensor(folder, marker):
    """A tensor of a million numbers, which would be a tuple of a million tensors."""
    torch.save({"a": torch.zeros(1_000_000), "b": RunsCode(torch.Size, (1,))}, folder / "a.pt")

    def change(name, data):
        if not name.endswith("data.pkl"):
            return name, data
        shape = data.rindex(b"ctorch\nSize")
        return name, data[:shape] + b"ctorch\nSize\nq\x60h\x0a\x85q\x61" + b"h\x60h\x61R0" * 100 + b"K\0su."

    program = rewritten_zip((folder / "a.pt").read_bytes(), change)
    (folder / "a.pt").write_bytes(program)
    return folder / "a.pt"


def shape_of_a_long_list(folder, marker):
    """A tensor whose shape is a long list, described again and again."""
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x01tQ"
    shape = b"](" + b"K\1" * 300_000 + b"eq\2"
    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\0(" + storage + b"K\0" + shape + b"h\2\x89Ntq\1"
    return with_pickle(folder / "a.pt", head + b"h\0h\1R0" * 10_000 + b"K\0.")


def many_empty_tables(folder, marker):
    """A megabyte of instructions that makes a million dicts."""
    return with_pickle(folder / "a.pt", b"\x80\x02](" + b"}" * 900_000 + b"e.")


_CONFIG = b"ctransformer_lens.HookedTransformerConfig\nHookedTransformerConfig\n"


def _with_record(folder, program):
    return with_pickle(folder / "a.pt", b"\x80\x02" + program + b".")


def record_of_arguments(folder, marker):
    return _with_record(folder, _CONFIG + b"X\1\0\0\0a\x85\x81")


def record_that_is_called(folder, marker):
    return _with_record(folder, _CONFIG + b")R}b")


def record_with_slots(folder, marker):
    """A state of two parts sets attributes, whatever the class makes of them."""
    return _with_record(folder, _CONFIG + b")\x81N}X\1\0\0\0aK\1s\x86b")


def record_with_fields_that_are_no_names(folder, marker):
    return _with_record(folder, _CONFIG + b")\x81}K\1K\1sb")


def record_of_another_class(folder, marker):
    return _with_record(folder, b"csubprocess\nPopen\n)\x81}b")


def record_of_a_function(folder, marker):
    """A name that may be applied, and is no class of records."""
    return _with_record(folder, b"ctorch._utils\n_rebuild_parameter\n)\x81}b")


def record_with_keywords(folder, marker):
    return with_pickle(folder / "a.pt", b"\x80\x04" + _CONFIG + b")}\x92.")


def record_that_holds_a_call(folder, marker):
    state = {"act_fn": touch(marker)}
    return _with_record(folder, _CONFIG + b")\x81" + pickle.dumps(state, 2)[2:-1] + b"b")


def state_of_a_list(folder, marker):
    return _with_record(folder, b"]}b")


def one_state_of_many_records(folder, marker):
    entries = b"".join(b"X\x06\0\0\0%06dN" % k for k in range(20_000))
    made = b"h\1)\x81h\0b" * 20_000
    return _with_record(folder, b"](}(" + entries + b"uq\0" + _CONFIG + b"q\1" + made + b"e")


_TYPE = b"cnumpy\ndtype\nX\2\0\0\0f8\x89\x88\x87R(K\3X\1\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
_NEW_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\1b\x87R"


def array_beyond_its_bytes(folder, marker):
    state = b"(K\1\x8a\5" + _long(HUGE) + b"\x85" + _TYPE + b"\x89C\x08" + bytes(8) + b"t"
    return _with_record(folder, _NEW_ARRAY + state + b"b")


def one_text_of_many_arrays(folder, marker):
    """Two megabytes of bytes, of which each array would have a copy."""
    n = 250_000
    data = b"B" + struct.pack("<I", 8 * n) + bytes(8 * n)
    shape = b"J" + struct.pack("<i", n) + b"\x85"
    state = b"(K\1" + shape + _TYPE + b"\x89" + data + b"tq\0" + _NEW_ARRAY.replace(b"\x87", b"\x87q\1", 1)
    again = b"cnumpy.core.multiarray\n_reconstruct\nh\1Rh\0b"
    return _with_record(folder, b"](" + state + again * 5_000 + b"e")


def bytes_of_a_long_text(folder, marker):
    text = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000
    call = b"h\0h\1R"
    pair = text + b"X\6\0\0\0latin1\x86q\1"
    return _with_record(folder, b"](c_codecs\nencode\nq\0" + pair + call * 50_000 + b"e")


def one_long_key_again_and_again(folder, marker):
    """Two equal texts of megabytes, compared at every entry."""
    text = b"X" + struct.pack("<I", 8_000_000) + b"a" * 8_000_000
    entries = b"h\0Nh\1N" * 100_000
    return _with_record(folder, text + b"q\0" + text + b"q\1}(" + entries + b"u")


def tuples_of_one_hash(folder, marker):
    """Pairs of integers below 2^60, the second of each computed for one hash of the pair (64 bits)."""
    prime1, prime2, prime5 = 11400714785074694791, 14029467366897019727, 2870177450012600261
    mask = 2**64 - 1

    def turned(x, by):
        return (x << by | x >> (64 - by)) & mask

    wanted, entries, first = turned(12345 * pow(prime1, -1, 2**64) & mask, 33), b"", 0
    while entries.count(b"\x86") < 2_000:
        first += 1
        after_first = turned((prime5 + first * prime2) & mask, 31) * prime1 & mask
        second = (wanted - after_first) * pow(prime2, -1, 2**64) & mask
        if second < 2**60:
            entries += b"J" + struct.pack("<i", first) + b"\x8a\x08" + struct.pack("<q", second) + b"\x86N"
    return _with_record(folder, b"}(" + entries + b"u")


def one_list_in_many_tuples(folder, marker):
    value = b"(" + b"K\1" * 200_000 + b"tq\x00"
    return with_pickle(folder / "a.pt", b"\x80\x02](" + value + (b"(" + b"h\0" * 100 + b"t") * 5000 + b"e.")


def arguments_without_end(folder, marker):
    """Every argument would be copied at every call."""
    value = b"(" + b"N" * 100_000 + b"tq\1"
    program = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\0" + value + b"h\0h\1R0" * 10_000 + b"K\0."
    return with_pickle(folder / "a.pt", program)


def keys_of_one_hash(folder, marker):
    """Multiples of 2^61 - 1 all have the hash 0: a dict of them takes time that grows with the square."""
    keys = b"".join(b"\x8a\x0b" + (k * (2**61 - 1)).to_bytes(11, "little") + b"N" for k in range(1, 60_000))
    return with_pickle(folder / "a.pt", b"\x80\x02}(" + keys + b"u.")


def entries_without_end(folder, marker):
    """A zip that is nothing but its directory."""
    entry = b"PK\x01\x02" + bytes(24) + struct.pack("<H", 4) + bytes(16) + b"a/bb"
    n = 210_000
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, n * len(entry), 4, 0)
    (folder / "a.pt").write_bytes(b"PK\x03\x04" + entry * n + end)
    return folder / "a.pt"


def storage_of_a_long_name(folder, marker):
    """A name of megabytes, put together anew at every mention."""
    name = b"X" + struct.pack("<I", 2_000_000) + b"a" * 2_000_000
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\n" + name + b"X\x03\0\0\0cpuK\x01tq\0"
    return with_pickle(folder / "a.pt", b"\x80\x02" + storage + b"h\0Q0" * 100_000 + b"K\0.")


def hugging_face_with_code(folder, marker):
    written = write_hugging_face(folder, file="pytorch_model.bin")
    torch.save({"h.0.attn.c_attn.weight": touch(marker)}, written.files[0])
    return written.path


def released_model_with_code(folder, marker):
    written = write_released(folder)
    torch.save({**torch.load(written.files[0]), "x": touch(marker)}, written.files[0])
    return written.path


def run_folder_with_code(folder, marker):
    (folder / "config.json").write_text('{"format": "anchorlens run"}')
    os_system(folder, marker).rename(folder / "ckpt.pt")
    return folder


def _long(number):
    return number.to_bytes(5, "little")


MALICE = [
    maker
    for maker in list(globals().values())
    if callable(maker)
    and getattr(maker, "__code__", None)
    and maker.__code__.co_varnames[:2] == ("folder", "marker")
]


def _peak():
    """The most memory this program has held, in MB. (getrusage would count that of the parent too.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _measure():
    """Open every path given; print how much the peak of the memory grew, and what was refused."""
    from anchorlens.files.importers import open_checkpoint

    open_checkpoint(sys.argv[1])
    before = _peak()
    refused = []
    for path in sys.argv[2:]:
        try:
            open_checkpoint(path)
        except ValueError as error:
            refused.append(str(error))
    print(json.dumps({"grown": _peak() - before, "refused": refused}))


if __name__ == "__main__":
    _measure()

"""Read the zip files that `torch.save` writes; every claim in them is checked against the bytes."""

from __future__ import annotations

import contextlib
import io
import lzma
import math
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from anchorlens.safe.kinds import zip_kind
from anchorlens.safe.pickles import MOST_DIMENSIONS, Name, is_shape, read_pickle
from anchorlens.safe.refusals import check_at_most, damaged, incomplete, unsafe
from anchorlens.texts import safe_repr

_LARGEST_PICKLE = 64 * 2**20
_OF_ZIPFILE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error)
_DAMAGED = (*_OF_ZIPFILE, OSError, RuntimeError, OverflowError, EOFError)
"""The exceptions of zipfile and torch for a damaged zip in memory, in addition to ValueError."""
_LOCAL_HEADER = 30
"""The number of bytes of a zip entry's header, before its name."""
_DIRECTORY = b"PK\x01\x02"
"""The bytes with which each entry of a zip's directory begins."""
_MOST_ENTRIES = 200_000
_LONGEST_KEY = 100
"""The largest number of characters of a storage's name."""
_FREE_COPIES = 2**28
"""The bytes that separate copies of the tensors may take beyond twice the file's size."""

_STORAGES = {
    "torch.FloatStorage": torch.float32,
    "torch.DoubleStorage": torch.float64,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.BoolStorage": torch.bool,
    "torch.ByteStorage": torch.uint8,
    "torch.CharStorage": torch.int8,
    "torch.ShortStorage": torch.int16,
    "torch.IntStorage": torch.int32,
    "torch.LongStorage": torch.int64,
}
_AGAIN = "Save the file again with torch.save"
_NAMES = frozenset([*_STORAGES, *map(str, _STORAGES.values())])


@contextlib.contextmanager
def zip_in(data: bytes, most_entries: int = _MOST_ENTRIES) -> Iterator[zipfile.ZipFile]:
    """Open a zip for reading, from its bytes.

    Raises:
        ValueError: If the zip has too many entries or is damaged. Reading an entry may also raise this error.
    """
    check_at_most(most_entries, data.count(_DIRECTORY), "its zip", "entries")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield archive
    except _DAMAGED as error:
        raise incomplete(error) from None


def read_torch_zip(data: bytes) -> Any:
    """Read the dicts, lists, plain values and tensors of a file of `torch.save`, on the CPU.

    Tensors that shared memory when they were saved also share memory after reading. The function runs no code
    from the file, and takes at most about twice the file's size in memory.

    Args:
        data: the bytes of the whole file.

    Raises:
        ValueError: If the file is damaged, unsafe, or not written by torch.save.
    """
    with zip_in(data) as archive:
        if kind := zip_kind(archive.namelist()):
            raise ValueError(kind)
        entries = _checked_entries(archive, len(data))
        return _Reader(archive, entries).content()


def _checked_entries(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return entry name (without the folder that holds all entries) -> entry."""
    entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    stored = all(e.compress_type == zipfile.ZIP_STORED and e.compress_size == e.file_size for e in entries)
    if not stored or sum(e.file_size for e in entries) > size:
        raise ValueError(
            "the zip must be uncompressed, as torch.save writes it, got a compressed zip. Save the file "
            "again with torch.save, or unzip it and zip it without compression (zip -0 -D -r)"
        )
    end = 0
    for entry in entries:
        if entry.header_offset < end:
            raise unsafe("the entries of the zip must not overlap, got two entries that share bytes", _AGAIN)
        end = entry.header_offset + _LOCAL_HEADER + len(entry.filename) + entry.file_size
    names = [entry.filename for entry in entries]
    folder = names[0].split("/")[0] + "/" if names else ""
    for name in names:
        if posixpath.normpath(name) != name or not name.startswith(folder) or folder in ("/", "../"):
            raise unsafe(f"all entries of the zip must be in one folder, got {safe_repr(name)}", _AGAIN)
    if len(set(names)) < len(names):
        rule = "the entries of the zip must have different names"
        raise unsafe(f"{rule}, got two entries of the same name", _AGAIN)
    return {name.removeprefix(folder): entry for name, entry in zip(names, entries, strict=True)}


class _Storage:
    """One storage, with its bytes as a tensor of its dtype."""

    def __init__(self, values: Tensor) -> None:
        self.values = values


class _Reader:
    def __init__(self, archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]) -> None:
        self.archive, self.entries = archive, entries
        self.storages: dict[str, _Storage] = {}
        n_bytes = 2 * sum(entry.file_size for entry in entries.values()) + _FREE_COPIES
        self.claimed, self.allowed = 0, n_bytes
        """The bytes that separate copies of the tensors take, and may take."""

    def content(self) -> Any:
        if "data.pkl" not in self.entries:
            raise damaged(
                "data.pkl must be in the folder of all other entries of the zip, got no data.pkl there"
            )
        check_at_most(_LARGEST_PICKLE, self.entries["data.pkl"].file_size, "its pickle", "bytes")
        if "byteorder" in self.entries and self._bytes("byteorder") != b"little":
            raise ValueError(
                "the numbers in the file must be little-endian, got "
                f"{safe_repr(self._bytes('byteorder')[:20])}. Save the file again on another machine"
            )
        functions = {
            "collections.OrderedDict": _ordered_dict,
            "torch._utils._rebuild_tensor_v2": self._tensor,
            "torch._utils._rebuild_parameter": lambda tensor, requires_grad, hooks: tensor,
            "torch.Size": _size,
        }
        content = read_pickle(self._bytes("data.pkl"), functions, _NAMES, self._storage, self._count)
        if self.claimed > self.allowed:
            raise ValueError(
                f"too costly: its tensors share numbers; apart they take {self.claimed / 1e9:,.1f} GB, and "
                f"in a file of its size they may take {self.allowed / 1e9:,.1f} GB. Save copies"
            )
        return content

    def _count(self, value: object) -> None:
        """Count the bytes of a tensor that occurs under another name."""
        if isinstance(value, Tensor):
            self.claimed += value.numel() * value.element_size()

    def _bytes(self, name: str) -> bytes:
        """Read an entry and verify its checksum."""
        try:
            return self.archive.read(self.entries[name])
        except zipfile.BadZipFile as error:
            if "CRC" not in str(error):
                raise
            raise damaged("the content must match its checksum, got another checksum") from None

    def _storage(self, identity: object) -> _Storage:
        kind, cls, key, _, n = identity if type(identity) is tuple and len(identity) == 5 else [""] * 5
        dtype = _STORAGES.get(cls) if type(cls) is Name else None
        is_valid = kind == "storage" and type(key) is str and len(key) <= _LONGEST_KEY and type(n) is int
        if not is_valid or dtype is None:
            raise damaged("the pickle must refer to valid storages, got a reference in another form")
        entry = self.entries.get(f"data/{key}")
        if entry is None or entry.file_size != n * dtype.itemsize:
            raise ValueError(
                f"storage {key!r} must have its declared size, got {entry.file_size if entry else 0:,} "
                "bytes. The file is truncated or damaged. Copy or download the file again"
            )
        if key not in self.storages:
            data = bytearray(self._bytes(f"data/{key}"))
            values = torch.frombuffer(data, dtype=dtype) if n else torch.empty(0, dtype=dtype, device="cpu")
            self.storages[key] = _Storage(values)
        if self.storages[key].values.dtype != dtype:
            raise ValueError(
                f"storage {key!r} must have one dtype, got two dtypes. Copy or download the file again"
            )
        return self.storages[key]

    def _tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *_: object) -> Tensor:
        """Make a tensor within its storage; a tensor beyond the storage is first refused."""
        if not (
            type(storage) is _Storage
            and type(size) is type(stride) is tuple
            and len(size) == len(stride) <= MOST_DIMENSIONS
            and all(type(number) is int and 0 <= number < 2**63 for number in (offset, *size, *stride))
        ):
            got = "a tensor without a valid storage, size or stride"
            raise damaged(f"the pickle must describe valid tensors, got {got}")
        numel = math.prod(size)
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        n_bytes = numel * storage.values.element_size()
        self.claimed += n_bytes
        if n_bytes > self.allowed or (numel > 0 and last >= len(storage.values)):
            got = f"a tensor of shape {list(size)} with more values"
            rule = f"the values of a tensor must be in the file, got {got}"
            raise unsafe(rule, "Save the weights as plain tensors")
        return storage.values.as_strided(size, stride, offset) if numel else storage.values.new_empty(size)


def _size(size: object = ()) -> tuple[int, ...]:
    """Replace `torch.Size`: return a short tuple of integers, and refuse any other value."""
    if not is_shape(size):
        raise damaged("the shape of a tensor must be a tuple of integers, got an invalid shape")
    return size


def _ordered_dict(pairs: tuple[object, ...] = ()) -> dict[Any, Any]:
    if len(pairs):
        raise unsafe("the pickle must create an OrderedDict without arguments, got arguments")
    return {}

"""Formats of unexpected files, and what to do: one table for every reader.

Files are recognised by their first bytes, zips by the names of their entries, and objects in a pickle by
their class.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from anchorlens.texts import LONGEST, safe_repr, safe_text

START = 4096
"""The number of bytes at the start of a file from which its format is recognised."""
_WEIGHTS = "torch.save(model.state_dict(), path)"
_JAX = "give evaluate the model in Python: evaluate(lambda tokens: apply(params, tokens), task)"
_TENSORS = "save its arrays as tensors: torch.save({name: torch.as_tensor(array)}, path)"

_BY_START = (
    (rb".{5}\0\0\0\{", "a .safetensors file of tensors"),
    (rb"version https://git-lfs", "a pointer of Git LFS; fetch the file itself with `git lfs pull`"),
    (rb"(?i)\s*(<!--.*?-->\s*)?<(!doctype\s+html|html|head|body)\b",
     "a web page (HTML); download the file itself"),
    (rb"\x1f\x8b", "a file compressed with gzip; unpack it with `gunzip`, a .tar.gz with `tar -xzf`"),
    (rb"PK\x03\x04", "a zip, such as torch.save and numpy.savez write; `unzip` it if it is a download"),
    (rb"\x93NUMPY", f"a NumPy array without a name (.npy); {_TENSORS}"),
    (rb".{0,64}\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.",
     "torch.save's format before PyTorch 1.6, which is a program, and nothing ran; save it again: "
     "torch.save(torch.load(path, weights_only=True), path)"),
    (rb"\x80[\x02-\x05].{0,4000}?(jax|jaxlib|flax|haiku)\.",
     f"a pickle of JAX arrays, which is a program, and nothing ran; {_JAX}"),
    (rb"\x80[\x01-\x05]|\([ild]p",
     f"a bare pickle, which is a program, and nothing ran; save the weights alone: {_WEIGHTS}"),
    (rb'\{.*?"weight_map"', "the index of weights in several files; save them in one: "
     "model.save_pretrained(folder, max_shard_size='1000GB')"),
    (rb'\{\s*["}]', "a JSON text"),
    (rb"\[\s*(\{|\[\s*[-\d])", "a JSON list, which names no fields"),
    (rb"(#[^\n]*\n|\s)*+(%YAML|---\s|(?!Unnamed: 0\b)[\w.-]+:[ \r\n])",  # not pandas' name of an index
     "a YAML text; save it as JSON: json.dump(yaml.safe_load(yaml_file), json_file)"),
)  # fmt: skip
"""The first bytes of a file, its format, and what to do; the first row that matches counts."""

_ALONE = f"save the weights alone: {_WEIGHTS}, and describe them with --config"
_IN_A_PICKLE = (
    (r"numpy\.(_?core\.(multiarray|numeric)\.(_reconstruct|scalar|_frombuffer)|ndarray|dtype)",
     f"a NumPy array of other things than real numbers; make a tensor of it (torch.as_tensor), or {_ALONE}"),
    (r"torch\._utils\._rebuild_tensor_v3",
     "a tensor of an unsupported number type, such as float8 or uint16; save it as tensor.float()"),
    (r"(jax|jaxlib|flax|haiku)\..*", f"JAX arrays; {_JAX}"),
    (r"torch\.Complex\w*Storage", "a tensor of complex numbers; save real ones: tensor.real.float()"),
    (r"torch\._utils\._rebuild_sparse\w*", "a sparse tensor; save it as tensor.to_dense()"),
    (r"torch\._utils\._rebuild_(?!parameter$)\w+|torch\._tensor\._rebuild_from_type_v2",
     "a tensor with attributes or a class of its own; save plain ones: tensor.detach().clone()"),
    (r"_codecs\.encode|(__builtin__|builtins)\.(set|frozenset|complex|slice|x?range)"
     r"|collections\.(defaultdict|Counter|deque)"
     r"|datetime\.(datetime|date|time|timedelta|timezone)|torch\.device|types\.SimpleNamespace"
     r"|(argparse|pathlib|decimal|fractions|uuid|omegaconf|ml_collections|transformer_lens|transformers"
     r"|lightning|pytorch_lightning)(\.\w+)*\.[A-Z]\w*",
     f"a record in an unsupported format; {_ALONE}"),
)  # fmt: skip
"""The class or function that a benign file names -> its description, and what to do."""


def kind_of(start: bytes) -> str | None:
    """Return the format of a file by its first `START` bytes, with advice, or None for an unknown format."""
    start = start.removeprefix(b"\xef\xbb\xbf")
    return next((kind for pattern, kind in _BY_START if re.match(pattern, start, re.DOTALL)), None)


def instead(wanted: str, start: bytes) -> str:
    r"""Explain, from the first bytes of a file, why a reader cannot read the file, and give advice.

    Args:
        wanted: the statement that the file has another format, such as "it is not a CSV file".
        start: the first bytes of the file.

    >>> instead("it is no CSV file", b"\x1f\x8b\x08")
    'it is no CSV file, but a file compressed with gzip; unpack it with `gunzip`, a .tar.gz with `tar -xzf`'
    >>> instead("it is no CSV file", b" \n")
    "it is no CSV file, but a text that begins with ''"
    """
    if not start:
        return "it is empty"
    if kind := kind_of(start):
        return f"{wanted}, but {kind}"
    line = next(iter(start.lstrip().splitlines()), b"")[:60].decode("utf-8", "ignore")
    if line.isprintable() and b"\0" not in start:
        return f"{wanted}, but a text that begins with {safe_repr(line)}"
    return f"{wanted}, or its start is damaged"


def zip_kind(names: Collection[str]) -> str | None:
    """Return the format of a zip by its entries, with advice, or None for a zip of `torch.save`."""
    last = {name.rpartition("/")[2] for name in names}
    if "constants.pkl" in last:
        return f"a TorchScript archive, which is a program; save the weights alone: {_WEIGHTS}"
    if "data.pkl" in last:
        return None
    found = ", ".join(safe_repr(name)[:60] for name in sorted(names)[:3]) or "nothing"
    is_numpy = any(name.endswith(".npy") for name in last)
    way = _TENSORS if is_numpy else "unzip it, and give the file in it"
    return f"a zip, but torch.save did not write it: it has no data.pkl, but {found}; {way}"


def unread(what: str) -> str:
    """Explain why a pickle with this value is not read, and give advice.

    >>> unread("a set")
    'it holds a set, a format that anchorlens does not read; save the weights alone: torch.save(mode...'
    """
    return f"it holds {what}, a format that anchorlens does not read; {_ALONE}"


def refused_name(name: str) -> str:
    """Explain why a pickle that names this class or function is not read, and give advice."""
    name = name[:LONGEST]
    for pattern, kind in _IN_A_PICKLE:
        if re.fullmatch(pattern, name):
            what, way = kind.split("; ", 1)
            return f"it holds {what} ({safe_text(name)}); {way}"
    return (
        f"unsafe: the file would run {safe_text(name)}. Nothing ran. If you made the file, save the weights "
        f"alone: {_WEIGHTS}. Those of a HookedTransformer or GPT-2 are read with --config, those of other "
        "classes with --model FILE.py:build or, in Python, by classify or evaluate with the model itself"
    )

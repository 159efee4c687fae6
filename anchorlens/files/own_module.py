"""A torch module of the user's own, built by a function in a Python file, with the weights of a file."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from anchorlens.files.loaded_model import LoadedModel
from anchorlens.files.wrapped import WRAPPERS, tables_in, without_wrappers
from anchorlens.models.devices import choose_device
from anchorlens.plugins import defined_in
from anchorlens.safe import CheckpointError, read_tensors
from anchorlens.texts import safe_repr, safe_text


def own_module(build: str, weights: Path | None = None, device: str = "cpu") -> LoadedModel:
    """Build a module by the user's own function, and load the weights of a file into it.

    Args:
        build: the file and its function, FILE.py:NAME. The file is run. The function takes no argument and
            returns a torch module.
        weights: a .pt or .safetensors file with the module's state dict, alone or under a key, with or
            without the prefixes of wrappers. The file is read as data. Default: the weights of the module.
        device: the device of the measurements: auto, cpu, cuda, cuda:N or mps.

    Raises:
        ValueError: If the file or its function is missing, fails, or returns no module.
        CheckpointError: If the weights cannot be read, or are not those of the module.
    """
    file, _, name = build.rpartition(":")
    if not file or not name.isidentifier():
        raise ValueError(f"--model must be FILE.py:FUNCTION, got {safe_repr(build)}. Write my_model.py:build")
    what = f"a function {name}() that takes no argument and returns the torch module"
    (function,) = defined_in(file, "model", what, lambda value, module: value is vars(module).get(name))
    try:
        module = function()
    except Exception as error:
        raise ValueError(
            f"{safe_text(build)} must run without an error, got {type(error).__name__}: "
            f"{safe_text(error, 200)}. Correct it"
        ) from error
    if not isinstance(module, nn.Module):
        raise ValueError(f"{safe_text(build)} must return a torch module, got {safe_repr(module)}. Return it")
    module.eval().to(choose_device(device))
    if weights is None:
        return LoadedModel(in_memory=module, name=safe_text(build))
    content, sha256 = read_tensors(weights)
    own = module.state_dict()
    tables = [table for _, table in tables_in(content, set())]
    tables += [without_wrappers(table, {*WRAPPERS, "module"}) for table in tables]
    table = max(tables, key=lambda one: len(own.keys() & one.keys()), default={})
    try:
        module.load_state_dict(table)
    except RuntimeError as error:
        missing, other = ([*a.keys() - b.keys()] for a, b in ((own, table), (table, own)))
        lists = (("without", missing), ("with the unknown", other))
        said = [f"{how} {', '.join(map(safe_repr, sorted(names)[:5]))}" for how, names in lists if names]
        cause = " and ".join(said) or safe_text(str(error).splitlines()[-1].strip(), 200)
        raise CheckpointError(
            weights,
            f"its weights must be those of the {type(module).__name__} that {safe_text(build)} builds, got "
            f"weights {cause}. Build the module of these weights",
        ) from None
    return LoadedModel(
        in_memory=module, name=weights.stem, path=weights, file=weights, sha256=sha256, kind="torch module"
    )

"""The names of a face that outsiders may rely on: those before what its stub marks as used by products."""

import importlib
import re
from pathlib import Path

MARK = "# isort: split\n# What products use; outsiders have no promise about it.\n"


def promised_names(package):
    module = importlib.import_module(package)
    stub = Path(module.__file__).with_suffix(".pyi")
    text = stub.read_text(encoding="utf-8") if stub.exists() else ""
    of_products = re.findall(r" as (\w+)$", text.partition(MARK)[2], re.MULTILINE)
    return [name for name in module.__all__ if name not in of_products]

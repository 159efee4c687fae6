"""Which products of `anchorlens.extras` a test file imports, so that the core can be tested without them."""

import ast
import functools
import importlib.util
from pathlib import Path

TESTS = Path(__file__).parent
FACE = TESTS.parent / "anchorlens/__init__.pyi"


def is_there(product: str) -> bool:
    """Whether a product is part of this installation."""
    try:
        return importlib.util.find_spec(f"anchorlens.extras.{product}") is not None
    except ModuleNotFoundError:
        return False


@functools.cache
def _products_of_the_face() -> dict[str, str]:
    """Name that `anchorlens` offers -> the product that has it."""
    imports = [node for node in ast.parse(FACE.read_text()).body if isinstance(node, ast.ImportFrom)]
    of_products = [node for node in imports if (node.module or "").startswith("extras.")]
    return {alias.name: str(node.module).split(".")[1] for node in of_products for alias in node.names}


@functools.cache
def products_needed(path: Path) -> frozenset[str]:
    """The products that importing a file of tests needs, those of the files beside it that it imports too."""
    needed = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ImportFrom | ast.Import):
            continue
        modules = (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        )
        for module in modules:
            if module.startswith("anchorlens.extras."):
                needed.add(module.split(".")[2])
            elif module == "anchorlens" and isinstance(node, ast.ImportFrom):
                face = _products_of_the_face()
                needed |= {face[alias.name] for alias in node.names if alias.name in face}
            elif (beside := TESTS / f"{module}.py").is_file() and beside != path:
                needed |= products_needed(beside)
    return frozenset(needed)

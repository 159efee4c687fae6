"""Settings of every test run: one thread, and tensor shapes checked against the signatures.

The shapes are checked by jaxtyping with beartype, in every module that names shapes (tests/shape_checks.py).
Tests marked `gpu` run where there is a CUDA GPU, and with
`--standin` on a stand-in for one (tests/standin_cuda.py).
"""

import gc
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models are faster so, in child processes too

import pytest  # noqa: E402

ROOT = Path(__file__).parent


def annotated_modules() -> list[str]:
    """Every module of the package that imports jaxtyping, and so names shapes.

    Raises:
        pytest.UsageError: one was imported already, by a conftest.py.
    """
    files = (path for path in (ROOT / "anchorlens").rglob("*.py") if "from jaxtyping " in path.read_text())
    modules = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files)
    if early := [name for name in modules if name in sys.modules]:
        raise pytest.UsageError(
            f"the shapes of {early[0]} must be checked from its import on, and it was imported before; a "
            "conftest.py must import anchorlens in its functions"
        )
    return modules


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--standin`, which `make test-standin` gives."""
    parser.addoption("--standin", action="store_true", help="have a stand-in for CUDA in this process")


def pytest_configure(config: pytest.Config) -> None:
    """Check shapes; in the process that only hands out tests to others there is nothing to check."""
    if config.getoption("standin"):
        import standin_cuda

        if reason := standin_cuda.why_not():
            pytest.exit(f"nothing is tested: {reason}", returncode=0)
        standin_cuda.install()
    if config.getoption("dist", "no") != "no":
        return
    modules = annotated_modules()
    import jaxtyping
    import shape_checks
    import transformer_lens  # noqa: F401 - under the hook it would be compiled from its source each time

    jaxtyping.jaxtyped = shape_checks.where_named  # with which the hook decorates
    jaxtyping.install_import_hook(modules, "shape_checks.shapes")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA GPU here; make test-standin has a stand-in")


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through the millions of objects of the libraries each time."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def short_tsne() -> None:
    """Nobody looks at these pictures: a quarter of the iterations, the fewest that scikit-learn takes."""
    from sklearn.manifold import TSNE

    TSNE.__init__.__kwdefaults__["max_iter"] = 250

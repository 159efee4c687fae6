"""Settings of every test run: one thread, and tensor shapes checked against the signatures.

The shapes are checked by jaxtyping with beartype. Left out are the modules that name types they import
only when needed, which beartype cannot resolve. Tests marked `gpu` run where there is a CUDA GPU, and with
`--standin` on a stand-in for one (tests/standin_cuda.py).
"""

import gc
import os
import sys
from collections.abc import Iterable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models are faster so, in child processes too

import pytest  # noqa: E402

CHECKED = [
    "files.checkpoint",
    "files.container",
    "models.blocks",
    "probes.shared.anchor_sequences",
    "probes.shared.linalg",
    "randomness",
    "tasks.shared.phases",
    "tasks.two_anchor.behaviour",
    "tasks.two_anchor.questions",
]


def checkable(modules: Iterable[str]) -> list[str]:
    """The modules with the package's name before, each of which the hook will find.

    Raises:
        pytest.UsageError: there is no such module, or it was imported already, by a conftest.py.
    """
    for name in modules:
        if not (Path(__file__).parent / "anchorlens" / f"{name.replace('.', '/')}.py").is_file():
            raise pytest.UsageError(f"CHECKED in conftest.py must name modules, got {name!r}; correct it")
        if f"anchorlens.{name}" in sys.modules:
            raise pytest.UsageError(
                f"the shapes of anchorlens.{name} must be checked from its import on, and it was imported "
                "before; a conftest.py must import anchorlens in its functions"
            )
    return [f"anchorlens.{name}" for name in modules]


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
    modules = checkable(CHECKED)
    import transformer_lens  # noqa: F401 - under the hook it would be compiled from its source each time
    from jaxtyping import install_import_hook

    install_import_hook(modules, "beartype.beartype")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA GPU here; make test-standin has a stand-in")


def pytest_collection_finish() -> None:
    """A collection of garbage need not go through the millions of objects of the libraries each time."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def short_tsne() -> None:
    """Nobody looks at these pictures: a quarter of the iterations, the fewest that scikit-learn takes."""
    from sklearn.manifold import TSNE

    TSNE.__init__.__kwdefaults__["max_iter"] = 250

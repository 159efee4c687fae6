"""Settings of every test run: one thread, the long files first, and at the end the ten that took longest.

With `--shapes`, which `make check` gives, jaxtyping and beartype check the shapes of tensors against the
signatures, in every module that names shapes (tests/shape_checks.py). Tests marked `gpu` run where there is a
CUDA GPU, and with `--standin` on a stand-in for one (tests/standin_cuda.py).
"""

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models are faster so, in child processes too

import pytest  # noqa: E402

ROOT = Path(__file__).parent
LONGEST_FIRST = (
    "tests/verdict/test_by_holdout.py",
    "tests/verdict/test_classify.py",
    "tests/probes/test_holdout.py",
    "tests/verdict/test_any_module.py",
    "tests/extras/audit/test_audit.py",
    "tests/extras/control/test_control.py",
    "tests/probes/test_contract.py",
    "tests/verdict/test_readings.py",
    "tests/probes/test_information_flow.py",
    "tests/extras/control/test_control_command.py",
    "tests/training/test_training.py",
    "tests/training/test_progress.py",
    "tests/training/test_train_many.py",
    "research/tests/test_gpu_queue.py",
    "research/tests/test_paper_figures_j.py",
    "research/tests/test_complexity_control.py",
    "tests/gpu/test_training_on_a_gpu.py",
    "tutorials/10_control.ipynb",
    "tutorials/08_a_benchmark_you_know.ipynb",
    "tutorials/11_did_it_grok.ipynb",
)
"""Files that would be waited for at the end of a run, were they begun late; the longest first."""


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
    """`--shapes`, which `make check` gives, and `--standin`, which `make test-standin` gives."""
    parser.addoption("--shapes", action="store_true", help="check the shapes of tensors in the signatures")
    parser.addoption("--standin", action="store_true", help="have a stand-in for CUDA in this process")


def pytest_configure(config: pytest.Config) -> None:
    """Check shapes; in the process that only hands out tests to others there is nothing to check."""
    if config.getoption("standin"):
        import standin_cuda

        if reason := standin_cuda.why_not():
            pytest.exit(f"nothing is tested: {reason}", returncode=0)
        standin_cuda.install()
    gc.disable()  # until all tests are collected: what is imported stays
    config.pluginmanager.register(Slowest())
    if not config.getoption("shapes") or config.getoption("dist", "no") != "no":
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest; the others stay in their order."""
    rank = {ROOT / name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Look for examples in the modules that have some."""
    if collection_path.suffix != ".py" or ROOT / "anchorlens" not in collection_path.parents:
        return None
    return True if ">>>" not in collection_path.read_text(encoding="utf-8") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Keep the garbage collector from going through the millions of objects of the libraries each time."""
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


class Slowest:
    """What the tests of each file took, in seconds of processor, those of child processes included."""

    def __init__(self):
        self.before = sum(os.times()[:4])
        self.files: defaultdict[str, float] = defaultdict(float)

    def pytest_collection_finish(self) -> None:
        """Leave out what collecting took."""
        self.before = sum(os.times()[:4])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Note in the report of each set-up, call and tear-down what it took."""
        report = yield
        now = sum(os.times()[:4])
        report.processor, self.before = now - self.before, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add it up in the process that reports; of a worker that crashed there is nothing."""
        self.files[report.nodeid.split("::")[0]] += getattr(report, "processor", 0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the ten files that took longest."""
        slowest = sorted(self.files, key=lambda name: -self.files[name])[:10]
        terminalreporter.section(f"slowest files, of {sum(self.files.values()):.0f} s of processor")
        for name in slowest:
            terminalreporter.write_line(f"{self.files[name]:6.1f} s  {name}")


@pytest.fixture(scope="session", autouse=True)
def short_tsne() -> None:
    """Nobody looks at these pictures: a quarter of the iterations, the fewest that scikit-learn takes."""
    from sklearn.manifold import TSNE

    TSNE.__init__.__kwdefaults__["max_iter"] = 250

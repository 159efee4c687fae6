"""The shape of the house: which way imports point, what importing costs, what is documented."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import anchorlens

ROOT = Path(anchorlens.__file__).parent

ORDER = [
    "lazy",
    "foreign",
    "terminal",
    "views",
    "page_scripts",
    "child_processes",
    "configuration",
    "randomness",
    "anchor_functions",
    "composition",
    "sequences",
    "drawing",
    "phases",
    "task",
    "model_config",
    "blocks",
    "init",
    "model",
    "measuring",
    "hooks",
    "training.config",
    "presets",
    "costs",
    "pickles",
    "torch_zip",
    "container",
    "stacked.layout",
    "stacked.linear",
    "stacked.attention",
    "stacked.forward",
    "checkpoint",
    "behaviour",
    "picture",
    "figures",
    "side_by_side",
    "training.small_curve",
    "training.curve",
    "training.schedule",
    "training.numerics",
    "training.progress",
    "training.stack",
    "training.plan",
    "training.folder",
    "importers.settings",
    "importers.source",
    "importers.own",
    "importers.released_code",
    "importers.hugging_face",
    "importers.hooked_transformer",
    "importers.registry",
    "importers.opened",
    "training.result",
    "training.loop",
    "training.run",
    "linalg",
    "probes.result",
    "probes.checks",
    "probes.weights",
    "probes.anchor_sequences",
    "probes.clusters",
    "probes.masking",
    "probes.mask_key_token",
    "probes.mask_second_anchor",
    "probes.flow_diagram",
    "probes.edge_effects",
    "probes.routes",
    "probes.information_flow",
    "probes.attention_patterns",
    "probes.patches",
    "probes.activation_patching",
    "probes.v_similarity",
    "probes.fusion_similarity",
    "probes.first_layer_tsne",
    "probes.q_condensation",
    "probes.embedding_pca",
    "probes.stable_rank",
    "probes.tangent_kernel",
    "probes.training_regime",
    "probes.registry",
    "probes.own",
    "probes.compare",
    "verdict.readings",
    "verdict.calibration",
    "verdict.mechanism",
    "verdict.borderline",
    "verdict.explanation",
    "verdict.forecast",
    "verdict.verdict",
    "verdict.classify",
    "verdict.stored",
    "printing",
    "verdict.printing",
    "report.words",
    "report.range_bar",
    "report.templating",
    "report.card",
    "report.charts",
    "report.frame",
    "report.exhibits",
    "report.page",
    "audit.mappings",
    "audit.corruption",
    "audit.files",
    "audit.watching",
    "audit.lateness",
    "audit.picture",
    "audit.result",
    "audit.run",
    "audit.listing",
    "audit.printing",
    "audit.card",
    "sweep.cells",
    "sweep.grids",
    "sweep.stored",
    "sweep.folder",
    "sweep.work",
    "sweep.one_gpu",
    "sweep.clusters",
    "sweep.engines",
    "sweep.run",
    "sweep.phase_maps",
    "sweep.printing",
    "sweep.table",
    "sweep.axes",
    "sweep.places",
    "sweep.looks",
    "sweep.votes",
    "sweep.canvas",
    "sweep.maps",
    "sweep.rank_map",
    "sweep.atlas",
    "sweep.summary",
    "sweep.panel",
    "sweep.card",
    "sweep.diagram",
    "demo",
    "cli.interruption",
    "cli.streams",
    "cli.errors",
    "cli.unreadable",
    "cli.usage",
    "cli.options",
    "cli.models",
    "cli.training",
    "cli.verdicts",
    "cli.sweeps",
    "cli.audits",
    "cli.commands",
    "cli.start",
    "__main__",
]
"""A module imports only from those before it."""


def module_name(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


MODULES = {module_name(path): path for path in ROOT.rglob("*.py") if path.name != "__init__.py"}


def imports(path):
    """Full names of the modules that a file imports, wherever it does so."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_module_has_its_place_in_the_order():
    assert set(MODULES) == set(ORDER)


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_one_way(name):
    for imported in imports(MODULES[name]):
        other = imported.removeprefix("anchorlens.")
        if other in MODULES:
            assert ORDER.index(other) < ORDER.index(name), f"{name} imports {other}"


def test_one_place_builds_hooked_transformers():
    users = {
        name
        for name, path in MODULES.items()
        if "HookedTransformer(" in path.read_text() or "HookedTransformerConfig(" in path.read_text()
    }
    assert users == {"model"}


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, anchorlens; assert not {'torch', 'transformer_lens', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


class TestPublicNames:
    def test_are_all_there(self):
        promised = {"AnchorTask", "ModelConfig", "TrainConfig", "build_model", "train", "evaluate"}
        promised |= {"save_checkpoint", "load_checkpoint"}
        assert promised <= set(anchorlens.__all__) <= set(dir(anchorlens))
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            anchorlens.nothing  # noqa: B018

    @pytest.mark.parametrize("name", anchorlens.__all__)
    def test_have_help(self, name):
        value = getattr(anchorlens, name)
        text = inspect.getdoc(value)
        assert text and len(text) > 40
        if inspect.isfunction(value):
            assert ("Returns:" in text or value.__annotations__["return"] == "None") and "Raises:" in text
            assert ">>>" in text or name == "load_checkpoint"
            assert "Source:" in text or name in ("save_checkpoint", "load_checkpoint")  # ours alone

    def test_every_field_of_a_configuration_has_a_line(self):
        from anchorlens.configuration import field_docs

        for cls in (anchorlens.AnchorTask, anchorlens.ModelConfig, anchorlens.TrainConfig):
            assert set(field_docs(cls)) == set(cls.__dataclass_fields__)


@pytest.mark.parametrize("package", ["anchorlens", "anchorlens.sweep", "anchorlens.audit", "anchorlens.cli"])
def test_no_lazy_name_is_that_of_a_module(package):
    """Importing the module would put it in the place of the name."""
    folder = ROOT.joinpath(*package.split(".")[1:])
    names = importlib.import_module(package).__all__
    assert not [name for name in names if (folder / f"{name}.py").exists() or (folder / name).is_dir()]

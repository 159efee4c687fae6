"""The shape of the house: which way imports point, what importing costs, what is documented."""

import ast
import dataclasses
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from shape_checks import shapes, where_named
from torch.utils._device import _device_constructors

import anchorlens
from anchorlens import views

ROOT = Path(anchorlens.__file__).parent

FOLDERS = [
    "",
    "safe",
    "models",
    "tasks.shared",
    "tasks.two_anchor",
    "tasks",
    "recipes",
    "engine",
    "files",
    "plots",
    "training",
    "training.checkpoints",
    "probes.shared",
    "probes.any_model",
    "probes.two_anchor",
    "probes",
    "verdict",
    "show",
    "show.report",
    "show.notebook",
    "show.terminal",
    "cli",
]
"""A folder of the core imports only from itself and from those before it; "" holds the modules beside the
folders. No folder of the core imports from `extras`."""
MOST_BESIDE_THE_FOLDERS = 8


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")


MODULES = {dotted(path): path for path in ROOT.rglob("*.py")}
FACES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


def folder_of(module):
    return module if module in FACES else module.rpartition(".")[0]


def imports(name):
    """Modules of ours that a module imports, wherever it does so; a lazy face imports what its stub says."""
    path = MODULES[name]
    stub = path.with_suffix(".pyi")
    for source in [path, *([stub] if stub.exists() else [])]:
        tree = ast.parse(source.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    base = f"anchorlens.{folder_of(name)}.{base}".replace("..", ".")
                full = [(f"{base}.{alias.name}", base) for alias in node.names]
            elif isinstance(node, ast.Import):
                full = [(alias.name, "") for alias in node.names]
            else:
                continue
            for candidates in full:  # a name is that of a module, or something in one
                ours = (other.removeprefix("anchorlens.") for other in candidates if "anchorlens." in other)
                yield from [other for other in ours if other in MODULES and other != name][:1]


def circle(graph):
    """Names that lead back to the first of them, or none."""
    finished, path = set(), []

    def visit(name):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in finished:
            return []
        path.append(name)
        found = next(filter(None, map(visit, sorted(graph[name]))), [])
        path.pop()
        finished.add(name)
        return found

    return next(filter(None, map(visit, sorted(graph))), [])


def product_of(module):
    """The folder of `extras` that a module is in; empty for the core."""
    return module.split(".")[1] if module.startswith("extras.") else ""


def test_every_folder_has_its_place_in_the_order():
    core = {folder_of(name) for name in MODULES if not (name == "extras" or product_of(name))}
    assert core == set(FOLDERS)
    assert len({folder.partition(".")[0] for folder in FOLDERS if folder}) == 12
    assert len([name for name in MODULES if not folder_of(name)]) <= MOST_BESIDE_THE_FOLDERS


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {"", "__main__"}))
def test_imports_point_one_way(name):
    """Left out are the face of the package, which offers names of all folders, and the program itself.

    A product imports the core and what products share, but no other product.
    """
    for other in imports(name):
        if product_of(name):
            assert product_of(other) in ("", "shared", product_of(name)), f"{name} imports {other}"
            continue
        assert not product_of(other), f"{name} imports {other}"
        if name in FACES and other.startswith(f"{name}."):
            continue  # a face offers what is in its folders
        assert FOLDERS.index(folder_of(other)) <= FOLDERS.index(folder_of(name)), f"{name} imports {other}"


@pytest.mark.parametrize("name", sorted(name for name in MODULES if product_of(name)))
def test_a_product_uses_the_faces_of_the_core(name):
    """Or the modules next to the folders. So a file of the core can be cut or merged without a product."""
    tree = ast.parse(MODULES[name].read_text())
    found = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    of_core = {each.removeprefix("anchorlens.") for each in found if each.startswith("anchorlens.")}
    assert {each for each in of_core if not product_of(each) and folder_of(each)} <= FACES


def test_no_modules_import_each_other():
    """Nor do they in a longer circle, through a face, in annotations, or where a function imports late."""
    faces = {"", *(name for name in FACES if MODULES[name].with_suffix(".pyi").exists())}
    graph = {name: set(imports(name)) for name in MODULES if name}
    within = {  # a lazy face imports nothing before a name is used, so what stands behind it may use it
        name: {other for other in others if not (other in faces and folder_of(name) == other)}
        for name, others in graph.items()
    }
    assert circle(within) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_no_class_has_the_name_of_another():
    trees = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
    names = [
        node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


@pytest.mark.parametrize("name", sorted(name for name in MODULES if not name.startswith(("tasks", "extras"))))
def test_no_module_outside_tasks_asks_of_what_class_a_task_is(name):
    """A task has a member for each such question, with a default in `TaskConfig`: `has_anchors`, `loss`."""
    calls = [node for node in ast.walk(ast.parse(MODULES[name].read_text())) if isinstance(node, ast.Call)]
    asked = [call for call in calls if ast.unparse(call.func) in ("isinstance", "issubclass", "hasattr")]
    of_tasks = [ast.unparse(call) for call in asked if ast.unparse(call.args[0]).split(".")[-1] == "task"]
    assert of_tasks == [] and not [text for text in map(ast.unparse, asked) if "Task" in text]


def test_what_others_wrote_is_read_by_the_face_of_safe_alone():
    """And `safe` asks of the other folders only how a text is quoted, which is a module without imports."""
    for name in MODULES.keys() - {""}:
        inside = folder_of(name) == "safe"
        others = [other for other in imports(name) if (folder_of(other) == "safe") != inside]
        assert [other for other in others if other != ("texts" if inside else "safe")] == [], name
    assert list(imports("texts")) == []


ROOMS_THAT_READ = (
    *("anchorlens.files", "anchorlens.show", "anchorlens.cli"),
    "anchorlens.extras.importers",
)
OTHERS_THAT_READ = (
    "anchorlens.extras.audit.files",
    "anchorlens.extras.benchmark.shipped",
    "anchorlens.extras.control.tries",
    "anchorlens.probes.along_run",  # the checkpoints in a run's folder
    "anchorlens.recipes.train_config",
    "anchorlens.extras.grokking.importer",
    "anchorlens.extras.grokking.layouts",
    "anchorlens.extras.sweep.cells",  # the files of cells, and logs that cannot be read
    "anchorlens.extras.sweep.engines",
    "anchorlens.extras.sweep.grids",  # axes as JSON text
    "anchorlens.extras.sweep.run",  # the last line of a log
    "anchorlens.extras.sweep.sweep_folder",
    "anchorlens.extras.sweep.work",  # cells whose files are damaged
    "anchorlens.extras.cogs.files",
    "anchorlens.extras.text.corpus",
    "anchorlens.extras.text.documents",
    "anchorlens.training.run_folder",
)
"""Modules of other rooms that read what others wrote."""


def test_safe_is_imported_only_where_files_of_others_are_read():
    users = {f"anchorlens.{name}" for name in MODULES.keys() - {""} if "safe" in imports(name)}
    others = {name for name in users if not name.startswith(ROOMS_THAT_READ)}
    assert others == {name for name in OTHERS_THAT_READ if name.removeprefix("anchorlens.") in MODULES}


def test_results_find_what_shows_them_in_tables():
    """No module is imported by a name in a text; `views` imports nothing, and every type is registered."""
    assert [name for name, path in MODULES.items() if "import_module(" in path.read_text()] == []
    assert list(imports("views")) == []
    for fill in views.rooms:
        fill()
    classes = {
        one
        for name in MODULES.keys() - {"__main__"}
        for one in vars(importlib.import_module(f"anchorlens.{name}".rstrip("."))).values()
        if isinstance(one, type) and one.__module__.startswith("anchorlens.")
    }
    shown = {one for one in classes if vars(one).get("_repr_html_") is views.html}
    assert len(shown) > 10
    assert [one for one in shown if views.html.dispatch(one) is views.html.dispatch(object)] == []


def test_what_nothing_shows_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="must have the view html, got int"):
        views.html(3)


def size_of_classes(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            yield node.name, (node.end_lineno or 0) - node.lineno + 1


def test_the_longest_files_and_classes_are_printed():
    """Size is a smell and no rule: no limit bends a design, and who looks (`pytest -rP`) sees the longest."""
    files = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    classes = {
        f"{name}.{found}": lines for name, path in MODULES.items() for found, lines in size_of_classes(path)
    }
    for sizes in (files, classes):
        longest = sorted(sizes, key=lambda name: -sizes[name])[:10]
        print("; ".join(f"{name} {sizes[name]}" for name in longest))
        assert sizes[longest[0]] >= sizes[longest[-1]] > 0


def test_every_tensor_says_where_it_is_made():
    """Else it lies where `torch.set_default_device` says, which notebooks set to "cuda"."""
    factories = {function.__name__ for function in _device_constructors()}
    silent = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in MODULES.values()
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and ast.unparse(call.func.value) == "torch"
        and call.func.attr in factories
        and not any(option.arg == "device" for option in call.keywords)
    ]
    assert not silent, "say device= there"


@pytest.fixture
def shapes_checked(pytestconfig):
    """What needs the check of shapes."""
    if not pytestconfig.getoption("shapes"):
        pytest.skip("shapes are checked with --shapes, as in make check")


@pytest.mark.usefixtures("shapes_checked")
def test_shapes_are_checked_in_every_module_that_names_them(pytestconfig):
    settings = pytestconfig.pluginmanager.get_plugin(str(ROOT.parent / "conftest.py"))
    named = {name for name, path in MODULES.items() if "jaxtyping" in path.read_text()}
    for name in named:
        module = importlib.import_module(f"anchorlens.{name}")
        assert type(module.__spec__.loader).__module__.startswith("jaxtyping"), name
    assert len(named) > 50
    with pytest.raises(pytest.UsageError, match=r"anchorlens\.\S+ must be checked .* imported before"):
        settings.annotated_modules()


@pytest.mark.usefixtures("shapes_checked")
def test_a_wrong_shape_is_an_error():
    from anchorlens.probes.shared.edge_effects import causal_edges, margin
    from anchorlens.probes.shared.linalg import cosines_between

    with pytest.raises(TypeCheckError, match="targets"):
        margin(torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(TypeCheckError, match="b.*feature"):
        cosines_between(torch.zeros(2, 3), torch.zeros(2, 4))
    assert causal_edges(1, 2, last_only=False).shape == (3, 3)


Rows = Float[torch.Tensor, "row 2"]
checked = where_named(typechecker=shapes)


class TestWhereShapesAreNamed:
    """In functions, methods, properties and dataclasses; what names none is left as it is."""

    def test_they_are_checked(self):
        def of_rows(rows: Rows) -> int:
            return len(rows)

        def shifted(cls, rows: "Rows"):
            return rows

        def named(self) -> Float[torch.Tensor, " row"]:
            return torch.zeros(1, 1)

        @checked
        @dataclasses.dataclass
        class Holding:
            rows: Rows

        cases = (
            lambda wrong: checked(of_rows)(wrong),
            lambda wrong: type("Any", (), {"it": checked(classmethod(shifted))}).it(wrong),
            lambda wrong: type("Any", (), {"it": checked(property(named))})().it,
            Holding,
        )
        for case in cases:
            with pytest.raises(TypeCheckError):
                case(torch.zeros(3, 3))
        assert checked(of_rows)(torch.zeros(3, 2)) == 3

    def test_nothing_else_is(self):
        def plain(a: int, b: "list[str] | None" = None) -> dict[str, int]:
            return {}

        def unmarked(a, b):
            return a

        for one in (
            plain,
            unmarked,
            classmethod(plain),
            property(unmarked),
            dataclasses.dataclass(type("Empty", (), {})),
        ):
            assert checked(one) is one


def test_one_place_builds_hooked_transformers():
    def calls(path):
        return {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }

    built = {"HookedTransformer", "HookedTransformerConfig"}
    assert {name for name, path in MODULES.items() if calls(path) & built} == {"models.hooked"}


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, anchorlens; assert not {'torch', 'transformer_lens', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_changes_no_environment_variable():
    code = "import os; before = dict(os.environ); import anchorlens; assert dict(os.environ) == before"
    subprocess.run([sys.executable, "-c", code], check=True)


class TestPublicNames:
    def test_are_all_there(self):
        promised = {"AnchorTask", "ModelConfig", "TrainConfig", "build_model", "train", "evaluate"}
        promised |= {"save_checkpoint", "load_checkpoint"}
        assert promised <= set(anchorlens.__all__) <= set(dir(anchorlens))
        with pytest.raises(AttributeError, match="attribute nothing"):
            anchorlens.nothing  # noqa: B018

    @pytest.mark.needs()
    @pytest.mark.parametrize("name", anchorlens.__all__)
    def test_have_help(self, name):
        value = getattr(anchorlens, name)
        text = inspect.getdoc(value)
        assert text and len(text) > 40
        if inspect.isfunction(value):
            assert ("Returns:" in text or value.__annotations__["return"] == "None") and "Raises:" in text
            assert ">>>" in text or name == "load_checkpoint"
            assert "Source:" in text or name in (
                "save_checkpoint",
                "load_checkpoint",
                "register_task",
            )  # ours

    def test_every_field_of_a_configuration_has_a_line(self):
        from anchorlens.configuration import field_docs

        for cls in (anchorlens.AnchorTask, anchorlens.ModelConfig, anchorlens.TrainConfig):
            assert set(field_docs(cls)) == {field.name for field in dataclasses.fields(cls)}


@pytest.mark.needs()
@pytest.mark.parametrize(
    "face",
    [
        "",
        ".extras.audit",
        ".extras.benchmark",
        ".cli",
        ".extras.control",
        ".engine",
        ".files",
        ".models",
        ".plots",
        ".probes",
        ".probes.shared",
        ".recipes",
        ".show",
        ".tasks",
        ".training",
        ".extras.sweep",
    ],
)
def test_a_lazy_name_is_that_of_a_module_only_if_it_is_the_module(face):
    """Importing the module would put it in the place of another thing of that name."""
    folder = ROOT / face.strip(".").replace(".", "/")
    names = importlib.import_module(f"anchorlens{face}").__all__
    modules = [name for name in names if (folder / f"{name}.py").exists() or (folder / name).is_dir()]
    shown = importlib.import_module(f"anchorlens{face}")
    assert all(inspect.ismodule(getattr(shown, name)) for name in modules)

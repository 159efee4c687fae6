"""Hide a product of `anchorlens.extras`, and use everything else; print a line for each product.

One process imports the libraries and forks for each product, which then finds neither its folder nor, in a
second fork, its lines among the entry points.
"""

import importlib
import json
import os
import sys
from pathlib import Path

import torch  # noqa: F401 - once for all
import transformer_lens  # noqa: F401
from typer.testing import CliRunner

import anchorlens

ROOT = Path(anchorlens.__file__).parent
PRODUCTS = sorted(
    path.parent.name for path in (ROOT / "extras").glob("*/__init__.py") if path.parent.name != "shared"
)


class Hidden:
    """A finder for which a package is not there."""

    def __init__(self, package):
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name == self.package or name.startswith(f"{self.package}."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return


def without(product, lines_too):
    """What is there without a product: kinds of task, probes, commands, and what its own names answer."""
    hidden = f"anchorlens.extras.{product}"
    from anchorlens import plugins

    points = plugins._entry_points_in

    def left(places):
        return tuple(point for point in points(places) if not (lines_too and point.value.startswith(hidden)))

    own = [p for p in points(tuple(sys.path)) if p.value.startswith((f"{hidden}.", f"{hidden}:"))]
    plugins._entry_points_in = left
    sys.meta_path.insert(0, Hidden(hidden))
    names = [".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in ROOT.rglob("*.py")]
    modules = [name.removesuffix(".__init__") for name in names if not name.startswith(hidden)]
    for name in sorted(modules) if not lines_too else ():
        if not name.endswith("__main__"):
            importlib.import_module(name)
    from anchorlens import probes, views
    from anchorlens.cli import app
    from anchorlens.tasks.registry import tasks

    for fill in views.rooms:
        fill()
    runner = CliRunner()
    answers = {}
    for point in own:
        group = point.group.removeprefix("anchorlens.")
        ask = {
            "commands": [point.name],
            "tasks": ["train", "--task", point.name, "--dry-run"],
            "probes": ["probe", point.name, "nowhere.pt"],
        }.get(group)
        if ask:
            done = runner.invoke(app, ask)
            answers[f"{group} {point.name}"] = (done.exit_code, done.stderr)
    helped = runner.invoke(app, ["--help"])
    return {
        "tasks": [task.kind for task in tasks()],
        "probes": [probe.__name__ for probe in probes.SHIPPED],
        "commands": [line.split()[0] for line in helped.stdout.splitlines() if line.startswith("  ")],
        "own": [f"{point.group} {point.name}" for point in own],
        "answers": answers,
        "exit": helped.exit_code,
    }


def main():
    for product in PRODUCTS:
        for lines_too in (False, True):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reader)
                try:
                    found = without(product, lines_too)
                except BaseException as error:  # the parent prints it
                    found = {"error": f"{type(error).__name__}: {error}"}
                with os.fdopen(writer, "w") as file:
                    json.dump(found, file)
                os._exit(0)
            os.close(writer)
            with os.fdopen(reader) as file:
                found = json.load(file)
            os.waitpid(child, 0)
            print(json.dumps({"product": product, "lines_too": lines_too, **found}), flush=True)


if __name__ == "__main__":
    main()

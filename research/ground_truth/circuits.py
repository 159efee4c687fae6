"""The circuits that are known: compiled ones, and models trained with a route imposed."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from anchorlens import AnchorTask, ModelConfig, build_model, gamma_init_
from anchorlens.files.importers import open_checkpoint

HERE = Path(__file__).parent
WEIGHTS = HERE / "weights"


def _example(name: str) -> Any:
    """A script of examples/, which is no package."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE.parents[1] / f"examples/{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


compiled_circuits = _example("compiled_circuits")


class Known(NamedTuple):
    """A model whose circuit is known."""

    model: Any
    """HookedTransformer, in evaluation mode."""
    task: AnchorTask
    start: Callable[[], Any]
    """The model at the start of its run; of a compiled one a random draw of the same shape."""
    about: dict[str, Any]
    """What stands beside its weights."""


def compiled(name: str) -> Known:
    """A circuit of examples/compiled_circuits.py."""
    circuit = compiled_circuits.load(name)

    def start() -> Any:
        drawn = compiled_circuits.load(name).model
        gamma_init_(drawn, gamma=0.5, seed=0)
        return drawn

    return Known(circuit.model, circuit.task, start, dict(circuit.about))


def imposed(name: str) -> Known:
    """A model of imposed_routes.py, `ROUTE_SEED`."""
    path = WEIGHTS / f"{name}.safetensors"
    about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    config = {"task": about["task"], "model": {name: about[name] for name in ("variant", "act_fn")}}
    checkpoint = open_checkpoint(path, config=config).checkpoint

    def start() -> Any:
        names = ("gamma", "d_vocab", "n_heads", "d_head")
        fields = {name: getattr(checkpoint.model_config, name) for name in names}
        return build_model(ModelConfig(**fields), seed=about["seed"]).eval()

    return Known(checkpoint.build_model().eval(), checkpoint.task, start, about)


def imposed_names() -> list[str]:
    """Every model that is stored: route by route, its seeds."""
    order = ("inferential", "symmetric", "gathered")
    found = [path.stem for path in WEIGHTS.glob("*.safetensors")]
    return sorted(found, key=lambda name: (order.index(name.rpartition("_")[0]), name))

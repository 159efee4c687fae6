"""anchorlens: did a transformer learn the rules, or memorise the answers?

Train HookedTransformers with a gamma-scaled initialisation on two-anchor composite functions, and
measure what they learnt. Names are imported when they are first used, so that `import anchorlens`
costs nothing. The science is that of Zhang et al., arXiv 2405.05409 and 2501.08537.
"""

import importlib
import importlib.machinery
import sys

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"


class _RenamedModules:
    """Modules under the names that the documentation of 0.1.0 gave them; each use warns."""

    _NOW = {
        "anchor_functions": "tasks.two_anchor.anchor_functions",
        "behaviour": "tasks.two_anchor.behaviour",
        "blocks": "models.blocks",
        "checkpoint": "files.checkpoint",
        "demo": "checkpoints",
        "drawing": "tasks.two_anchor.drawing",
        "hooks": "models.hooks",
        "importers": "files.importers",
        "init": "models.gamma",
        "model": "models.hooked",
        "phases": "tasks.shared.phases",
        "picture": "figures.picture",
        "presets": "runs.presets",
        "report": "show",
        "sequences": "tasks.two_anchor.sequences",
        "stacked": "models.stacked",
        "stacked.forward": "models.stacked.forward",
        "sweep.axes": "show.diagram.axes",
        "sweep.maps": "show.diagram.maps",
        "task": "tasks.two_anchor.task",
    }

    def find_spec(self, name, path=None, target=None):
        """What the import system asks of a finder."""
        now = self._NOW.get(name.removeprefix(f"{__name__}."))
        if now is None or not name.startswith(f"{__name__}."):
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=f"{__name__}.{now}")  # pyright: ignore

    def create_module(self, spec):
        """The module of today, and a warning."""
        import warnings

        warnings.warn(f"{spec.name} is now {spec.origin}", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module):
        """It has run already."""
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, _RenamedModules())

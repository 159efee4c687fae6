"""The documentation site: `make docs` builds it, warnings are errors, nothing is fetched."""

import sys
from pathlib import Path
from typing import Any

from sphinx.ext.autodoc._dynamic import _signatures

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent)]

from anchorlens import __version__  # noqa: E402

project = "anchorlens"
author = "the anchorlens authors"
copyright = author
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "command_line",
    "docstrings",
    "mathml",
    "offline",
    "probe_pages",
    "research_pages",
    "tutorials",
]
exclude_patterns = ["_build", "_ext", "jupyter_execute"]
default_role = "literal"  # docstrings and pages write `name`
nitpick_ignore_regex = [
    # other libraries' types: their inventories would have to be fetched
    ("py:.*", r"(collections|contextlib|jaxtyping|os|pathlib|random|typing)\..*"),
    ("py:.*", r"(np|numpy|pd|pandas|torch|nn|go|plotly|transformer_lens|wandb)\..*"),
    ("py:class", "Tensor|ndarray|HookedTransformer|Path|Security"),
    # written twice, by the name that users take and by its own
    ("py:class", r"anchorlens\.extras\.transformer_lens_4\..*"),
    # a Literal, whose values the docstring of the argument has
    ("py:class", "Noise"),
    ("py:class", "Queries"),
    # a variable that stands for a class
    ("py:class", r"(.*\.)?(T|M|AnyTask|CompositeFunction|FigureSpec|Right|Task)"),
    # a union of types, which the docstring of the argument names
    ("py:class", r"(.*\.)?(ModelConfiguration|Logger|Run)"),
    # what a field is checked by when it is read
    ("py:class", r"anchorlens\.records\._.*|annotated_types\..*|.*Annotated\[.*|zipfile\.ZipFile"),
    (
        "py:class",
        r"anchorlens\.extras\.sweep\.cells\.CellContent|anchorlens\.engine\.layout\.FlatLayout",
    ),
    # jaxtyping's shapes: Float[Tensor, "batch pos"]
    ("py:class", "Bool|Float|Int"),
]

myst_enable_extensions = ["dollarmath", "html_image"]  # <img width=...>, which small pictures are
myst_heading_anchors = 3
html_math_renderer = "mathml"

nb_execution_mode = "off"  # the outputs are those that tutorials/render.py stored
nb_mime_priority_overrides = [("html", "image/png", 0)]  # of a figure, its picture

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
_update_default_value = _signatures.update_default_value


def _unless_wrapped(obj: Any, bound_method: bool) -> None:
    """A probe's own source has no default for the task, which the probe as it is called has."""
    if not hasattr(obj, "spec"):
        _update_default_value(obj, bound_method=bound_method)


_signatures.update_default_value = _unless_wrapped
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

highlight_options = {"pycon": {"stripnl": True}}  # doctests end with an empty line

html_theme = "furo"
html_title = f"anchorlens {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

"""Formulas as MathML, which browsers draw themselves: no script, no picture, nothing from the network."""

from __future__ import annotations

from typing import Any

from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError


def mathml(formula: str, display: str) -> str:
    r"""A formula in LaTeX as a MathML element.

    Args:
        formula: without its dollar signs.
        display: `inline` or `block`.

    Raises:
        ExtensionError: a command that the converter does not know, and would write out as it stands.
    """
    element = convert(formula, display=display)
    if "\\" in element:
        raise ExtensionError(f"this formula has a command that latex2mathml does not know: {formula}")
    return element


def _inline(translator: Any, node: Any) -> None:
    translator.body.append(mathml(node.astext(), "inline"))
    raise _skip()


def _block(translator: Any, node: Any) -> None:
    translator.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>')
    raise _skip()


def _skip() -> Exception:
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; conf.py chooses it by `html_math_renderer`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

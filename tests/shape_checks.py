"""What the tests check of annotations: the shapes of arrays alone, by beartype, where a signature names one.

Other annotations may name types that are imported only for type checkers, which pyright looks at.
"""

import types
import typing
from collections.abc import Iterator
from functools import partial

import jaxtyping
from beartype import beartype
from jaxtyping import AbstractArray

jaxtyped = jaxtyping.jaxtyped  # before the tests put `where_named` in its place


def names_shape(hint: object) -> bool:
    """Whether an annotation is an array of jaxtyping's, or holds one."""
    return (isinstance(hint, type) and issubclass(hint, AbstractArray)) or any(
        map(names_shape, typing.get_args(hint))
    )


def shapes(function):
    """A function of which the annotations that name shapes are checked, and no others."""
    hints = {name: hint for name, hint in function.__annotations__.items() if names_shape(hint)}
    function.__annotations__ = hints
    return beartype(function) if hints else function


def where_named(thing=None, *, typechecker):
    """`jaxtyping.jaxtyped` for what names a shape; all else as it is, which is most and costs nothing so.

    Args:
        thing: a function, method, property or class, as for `jaxtyped`; None to decorate later.
        typechecker: as for `jaxtyped`.
    """
    if thing is None:
        return partial(where_named, typechecker=typechecker)
    return jaxtyped(thing, typechecker=typechecker) if any(map(_names_one, _functions(thing))) else thing


def _functions(thing) -> list[types.FunctionType]:
    """The functions that `jaxtyped` would check: of a class `__init__`, of a property all three."""
    if isinstance(thing, property):
        own = [thing.fget, thing.fset, thing.fdel]
    elif isinstance(thing, classmethod | staticmethod):
        own = [thing.__func__]
    else:
        own = [thing.__init__ if isinstance(thing, type) else thing]
    return [function for function in own if isinstance(function, types.FunctionType)]


def _names_one(function) -> bool:
    """Whether an annotation names a shape, read where the function stands, as jaxtyping does."""
    return any(map(names_shape, _annotations(function)))


def _annotations(function) -> Iterator[object]:
    """What its annotations are, those that are texts evaluated where it stands."""
    for hint in function.__annotations__.values():
        try:
            yield eval(hint, function.__globals__) if isinstance(hint, str) else hint
        except Exception:  # a name that is imported for type checkers alone
            continue

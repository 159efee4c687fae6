"""What the tests check of annotations: the shapes of arrays alone, by beartype.

Other annotations may name types that are imported only for type checkers, which pyright looks at.
"""

import typing

from beartype import beartype
from jaxtyping import AbstractArray


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

"""The orbits of doubling modulo a number."""

from dataclasses import dataclass

from anchorlens.views import html


@dataclass(frozen=True)
class Orbits:
    """Sets of residues that doubling leads to from each other."""

    members: tuple[tuple[int, ...], ...]

    _repr_html_ = html


def orbits(modulus: int) -> Orbits:
    """The orbits of x -> 2x on 1..modulus-1, for an odd modulus."""
    if modulus < 3 or modulus % 2 == 0:
        raise ValueError(f"modulus must be odd and at least 3, got {modulus}; try 7")
    found, left = [], set(range(1, modulus))
    while left:
        x, orbit = min(left), []
        while x not in orbit:
            orbit.append(x)
            x = 2 * x % modulus
        left -= set(orbit)
        found.append(tuple(orbit))
    return Orbits(tuple(found))

"""Refuse files that are too large."""


def check_at_most(most: int, n: int, what: str, unit: str) -> None:
    """Refuse a count that is larger than in any legitimate file.

    Args:
        most: the largest allowed number.
        n: the number that was found.
        what: the name of the object for the message.
        unit: the name of the counted items.

    Raises:
        ValueError: If `n` is more than `most`.
    """
    if n > most:
        raise ValueError(
            f"unsafe: {what} must have at most {most:,} {unit}, got at least {n:,}. anchorlens refused the "
            "file. Use another copy of the file"
        )

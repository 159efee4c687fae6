"""Puts the scripts of research/ on the path, and takes the fixtures of the package's tests."""

import sys
from pathlib import Path

from few_questions import all_questions, few_questions

__all__ = ["all_questions", "few_questions"]
RESEARCH = Path(__file__).parents[1]
sys.path[:0] = [
    str(RESEARCH),
    str(RESEARCH / "figures"),
    str(RESEARCH / "ground_truth"),
    str(RESEARCH / "gpu"),
]

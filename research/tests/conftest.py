"""Puts the scripts of research/ on the path, and takes the fixtures of the package's tests."""

import sys
from pathlib import Path

from draws_of_noise import all_draws, defaults, few_draws, n_noise

__all__ = ["all_draws", "defaults", "few_draws", "n_noise"]
RESEARCH = Path(__file__).parents[1]
sys.path[:0] = [str(RESEARCH), str(RESEARCH / "figures"), str(RESEARCH / "ground_truth")]

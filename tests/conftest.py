"""What every test shares."""

import torch
from draws_of_noise import all_draws, defaults, few_draws, n_noise

__all__ = ["all_draws", "defaults", "few_draws", "n_noise"]
collect_ignore = [] if torch.cuda.is_available() else ["gpu"]

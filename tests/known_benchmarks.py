"""Small benchmarks whose scores are known: tiny models whose readings a test chooses."""

import torch

from anchorlens import AnchorTask, Checkpoint, ModelConfig, TrainConfig, build_model
from anchorlens.extras.benchmark import BenchmarkModel
from anchorlens.extras.benchmark.result import ENDINGS

TINY = ModelConfig(n_layers=2, d_model=8, d_head=4, d_mlp=8, gamma=0.5)
TASKS = ("task a", "task b", "task c")


def about(name, ending, task):
    """A model of which is known what a test says."""
    regime = "conflict" if "solution" in ending else "reasoning"
    held_out_keys = 0.1 if ending == "Phase 1" else 0.5 if ending == "another solution" else 0.95
    return BenchmarkModel(name, ending, task, "shifts", regime, ending, 1.0, held_out_keys, 0.25)


def known_models(n_each=3):
    """`n_each` models for every way to end, each of another task, which take turns.

    The unembedding's bias holds how a model ended, and its place: `ending_number` and `place` read them.
    """
    found = []
    for place in range(n_each):
        for number, ending in enumerate(ENDINGS):
            model = build_model(TINY, seed=place)
            with torch.no_grad():
                model.unembed.b_U[:2] = torch.tensor([float(number), float(place)])
            checkpoint = Checkpoint.from_model(
                model, TINY, AnchorTask(), train_config=TrainConfig(seed=place, n_samples=100, batch_size=50)
            )
            found.append((about(f"{ending} {place}", ending, TASKS[place % 3]), checkpoint))
    return found


def ending_number(model, task) -> float:
    """Which of `ENDINGS`, 0..4."""
    return model.unembed.b_U[0].item()


def place(model, task) -> float:
    """Which of the models of its ending."""
    return model.unembed.b_U[1].item()

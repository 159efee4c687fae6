"""Verdicts made by hand around behaviour that was measured, for what shows verdicts."""

import functools
import math

from anchorlens import AnchorTask, Checkpoint, ModelConfig, TrainConfig, build_model, evaluate
from anchorlens.tasks.shared.phases import LABELS, Phase
from anchorlens.verdict.verdict import ClassifiedModel, Evidence, ProbeVerdict, TrajectoryPoint, Verdict

TASK = AnchorTask()
HOSTILE = "</script><script>alert(1)</script>\"><img src=x onerror=alert(1)>'&{{ 7*7 }}"
"""What a file name or a warning may hold, and the page must show as it is."""
RANGES = dict(zip(LABELS, ((-0.05, 0.02), (0.02, 0.22), (-0.03, 0.01), (0.48, 0.7)), strict=True))
ODDS = dict(zip(LABELS, (-0.5, -1.2, 0.0, 2.1), strict=True))
EVIDENCE = (
    Evidence(
        "v_similarity.centred_gap", "v_similarity", "values say g(x; a)", 0.63, RANGES, LABELS[3], 2.1, ODDS
    ),
    Evidence("stable_rank.w_q_normalized", "stable_rank", "directions of W_Q", 0.3, RANGES, LABELS[3], 0.8),
    Evidence("mask_key_token.mirror_merge", "mask_key_token", "mirrors apart", None, {}, None, 0.0),
    Evidence("information_flow.margin", "information_flow", "margin", math.nan, RANGES, None, 0.0),
)  # fmt: skip
ACCURACIES = ("train_accuracy", "id_accuracy", "ood_accuracy")
LOG = tuple(
    {"step": step, "loss": 5 / step, **({} if step % 100 else dict.fromkeys(ACCURACIES, step / 1000))}
    for step in range(10, 1001, 10)
)
TRAJECTORY = (
    TrajectoryPoint(0, 0.0, 0.01, 0.01, 0.0, "undecided: underfit"),
    TrajectoryPoint(100, 0.1, 0.5, 0.4, 0.1, "undecided: underfit"),
    TrajectoryPoint(1000, 1.0, 1.0, 1.0, 0.8, "Phase 3"),
)


def by_probes(phase=3, label=LABELS[3]):
    """A verdict by the probes sure of one phase."""
    probabilities = {name: 0.94 if name == label else 0.02 for name in LABELS}
    named = Phase(phase, None, "the readings lie where those of this phase do")
    return ProbeVerdict(named, probabilities, EVIDENCE)


@functools.cache
def behaviour_of(config):
    """What an untrained model of a config answers; it is the same each time."""
    return evaluate(build_model(config, seed=1), TASK, training_set=TASK.sample(64, seed=0), n_noise=2)


def subject(config, name, *, with_checkpoint=True, **fields):
    """An untrained model of a config, with the checkpoint it would be saved as."""
    model = build_model(config, seed=1)
    if with_checkpoint:
        checkpoint = Checkpoint.from_model(model, config, TASK, train_config=TrainConfig(steps=10), step=10)
        return ClassifiedModel.of(checkpoint, TASK, model, name=name, **fields)
    return ClassifiedModel(name, model=model, task=TASK, **fields)


def verdict(of, config, **fields):
    """The verdicts on a subject of a config; what it answers is measured, the rest is made up."""
    behaviour = behaviour_of(config)
    known = {
        "phase": behaviour.phase,
        "by_probes": by_probes(),
        "behaviour": behaviour,
        "agreement": None,
        "explanation": "Its answers name no phase, so that there is nothing to compare.",
        "warnings": (),
        "subject": of,
    }
    return Verdict(**(known | fields))


def whole_verdict(name="runs/a/ckpt.pt"):
    """One with everything there is: checkpoint, log, trajectory, warnings."""
    config = ModelConfig(n_layers=2, d_model=32, d_head=16, d_mlp=32, gamma=0.5)
    given = subject(config, name, path=f"/data/{name}", sha256="0" * 64, kind="anchorlens", log=LOG)
    return verdict(given, config, trajectory=TRAJECTORY, warnings=("The model is small.",))


def bare_verdict(name="a model"):
    """One with as little as there can be: one layer, no checkpoint, no log, no readings."""
    config = ModelConfig(n_layers=1, d_model=32, d_head=16, d_mlp=32)
    given = subject(config, name, with_checkpoint=False)
    none = ProbeVerdict(Phase.undecided("not finite", "no reading could be taken"), None, ())
    return verdict(given, config, by_probes=none)

"""Figure k1 on other tasks: is weight decay in a quarter of the run as good as throughout?

    python research/figures/k1_windows_tasks.py --task modular [--seed 0 1 2] [--suffix .png]
    python research/figures/k1_windows_tasks.py --task scan

Modular addition (arXiv 2201.02177): the preset `grokking-quick`, a + b modulo 59 with half of all pairs held
out at random; the preprint 2605.04396 says that windows make no difference there. A pair may be trained while
its mirror is held out.
SCAN: all composites of `turn left` are left out, as in figure 7A of 2501.08537, with a network half as wide
and half as many updates. Weight decay is 1.0 in a quarter of the run and 0 outside of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from anchorlens import TrainResult
from k1_windows import DECAY, arm
from shared.common import options
from shared.control_arms import SEEDS, best_by_others, finish, lines, measured, over_seeds


class Setting(NamedTuple):
    """A task, and how it is trained."""

    preset: str
    gammas: tuple[float, ...]
    fields: Mapping[str, Any]


ONSETS = (0.0, 0.25, 0.375, 0.5, 0.75)
"""Where windows begin, in fractions of the run."""
EARLY, MIDDLE = 0.0, 0.375
NETWORK = {"d_model": 64, "d_mlp": 128, "n_checkpoints": 0}
SETTINGS = {
    "modular": Setting("grokking-quick", (0.5,), {**NETWORK, "steps": 3000, "lr": 2e-3, "eval_every": 500}),
    "scan": Setting("scan", (0.5, 0.8), {**NETWORK, "steps": 1500, "eval_every": 1500}),
}


def arms(setting: Setting) -> dict[str, dict[str, Any]]:
    """Of each gamma: no decay, decay throughout, and every window."""
    found = {}
    for gamma in setting.gammas:
        found[arm(gamma, "none")] = {"gamma": gamma, "weight_decay": 0.0}
        found[arm(gamma, "throughout")] = {"gamma": gamma, "weight_decay": DECAY}
        for onset in ONSETS:
            window = f"0 {onset:g}:{onset + 0.25:g}={DECAY:g}"
            found[arm(gamma, f"{onset:g}")] = {"gamma": gamma, "weight_decay": window}
    return found


def left_out(result: TrainResult) -> dict[str, Any]:
    """Accuracy on what is left out as `ood`; of a task without OOD that on what is held out."""
    there = result.behaviour.ood or result.behaviour.id
    return {"ood": there and there.value}


def main() -> None:
    """Read the command line, train what is missing, judge the claims, draw."""
    parser = options(__doc__, seeds=SEEDS)
    parser.add_argument("--task", choices=list(SETTINGS), required=True)
    given = parser.parse_args()
    setting, figure = SETTINGS[given.task], f"k1_windows_{given.task}"
    given.preset = setting.preset
    rows = measured(given, arms(setting), setting=setting.fields, also=left_out)
    windows = [arm(0.5, f"{onset:g}") for onset in ONSETS]
    whole = over_seeds(rows, lambda of: of(arm(0.5, "throughout"))["ood"])
    best = best_by_others(rows, windows)
    numbers = {
        f"windows_{given.task}": over_seeds(
            rows, lambda of: of(arm(0.5, f"{MIDDLE:g}"))["ood"] - of(arm(0.5, f"{EARLY:g}"))["ood"]
        ),
        f"windows_{given.task}_match": {seed: row["ood"] - whole[seed] for seed, row in best.items()},
    }
    groups = {}
    for gamma in setting.gammas:
        groups[f"gamma {gamma:g}, window"] = {onset: arm(gamma, f"{onset:g}") for onset in ONSETS}
        for what in ("throughout", "none"):
            groups[f"gamma {gamma:g}, {what}"] = dict.fromkeys(ONSETS, arm(gamma, what))
    title = f"Weight decay in one quarter of the run: {given.task}"
    finish(given, figure, lines(rows, groups, title, "where the window begins"), rows, numbers)


if __name__ == "__main__":
    main()

"""Asks every probe of every circuit that is known; writes compiled.json and imposed.json beside this file.

    python research/ground_truth/measure.py compiled    # the compiled circuits, at position 2 and at the end
    python research/ground_truth/measure.py imposed     # the models of imposed_routes.py
    python research/ground_truth/measure.py imposed --probe survival    # of that probe alone; the rest stays

What should come out stands in expected.toml, which was written first; truth_page.py puts both into
ground_truth.md beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import circuits
from anchorlens import evaluate, probes
from anchorlens.models.hooks import last_logits
from anchorlens.probes import PROBES, apply, needs_initial
from circuits import Known

HERE = Path(__file__).parent
EXPECTED = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))
OPTIONS: dict[str, dict[str, Any]] = {"mask_key_token": {"perplexity": None}}
"""A picture is not asked for."""
ENDS = {"composer_end": "composer", "end": "composer_with_an_end"}
"""Column of `at_the_end` -> its circuit."""


def readings_of(probe: str) -> list[str]:
    """The readings of a probe that the table of expectations has."""
    return [row["name"] for row in EXPECTED["reading"] if row["probe"] == probe]


def edges(known: Known, flow: Any) -> dict[str, float | None]:
    """The smallest share lost along the program's own edges, and the largest along any other."""
    key, last = flow.key_position, known.task.seq_len - 1
    at = {"key": key, "anchor 1": key + 1, "anchor 2": key + 2, "last": last}
    own = {(layer, at[to], at[source]) for layer, to, source in known.about["edges"]}
    shares = flow.merged_effects / (flow.margin - flow.baseline)
    others = [abs(shares[edge]) for edge in np.ndindex(*shares.shape) if edge not in own]
    return {"edges_of_the_program": min(shares[edge] for edge in own), "other_edges": max(others)}


def plain(value: Any) -> Any:
    """A number as JSON has it; None for what is none."""
    value = None if value is None else float(value)
    return None if value is None or math.isnan(value) else round(value, 4)


def ask(known: Known, probe: Callable[..., Any], **options: Any) -> dict[str, Any]:
    """What a probe reads of a circuit: its readings, its line, and the seconds it takes."""
    began = time.monotonic()
    try:
        start = {"initial": known.start()} if known.start and needs_initial(probe) else {}
        result: Any = apply(
            probe, known.model, known.task, **start, **OPTIONS.get(probe.__name__, {}), **options
        )
    except ValueError as error:
        return {"refused": str(error)}
    found: dict[str, Any] = {}
    if probe is probes.information_flow and "edges" in known.about and result.merged_effects is not None:
        found = edges(known, result)
    read = {name: plain(found[name] if name in found else getattr(result, name, None))
            for name in readings_of(probe.__name__)}  # fmt: skip
    more: dict[str, Any] = {"says": result.headline(), "seconds": round(time.monotonic() - began, 1)}
    if probe is probes.information_flow:
        more["stages"] = {route: {name: plain(share) for name, share in stages.items()}
                          for route, stages in result.stages.items()}  # fmt: skip
    if probe is probes.interchange:
        more |= beside(known, result, **options)
    return {"readings": read} | more


def beside(known: Known, result: Any, **options: Any) -> dict[str, Any]:
    """Interchange accuracy at its best place, and beside it what should be nothing.

    The same place of the model at its start; the best place of that model; and a placebo, the same site and
    layer at a noise token's position.
    """
    start = known.start()
    at_start = probes.interchange(start, known.task, **options)
    site = result.sites.index(result.site)
    place = (0, site, result.layer, result.position)
    anchors = range(result.key_position, result.key_position + 1 + result.chain_length)
    noise = next(pos for pos in range(known.task.seq_len) if pos not in anchors)
    return {
        "place": [result.site, result.layer, result.position],
        "at_place": plain(result.accuracies[place]),
        "of_source": plain(result.of_source[place[1:]]),
        "placebo": plain(result.accuracies[0, site, result.layer, noise]),
        "placebo_position": noise,
        "start_at_place": plain(at_start.accuracies[place]),
        "start_best": plain(at_start.accuracy),
    }


def answers(known: Known) -> dict[str, float]:
    """Accuracy on every question of a split: against the composition, and against the program."""
    found = {}
    for split in ("train", "id", "ood"):
        trials = known.task.trials(split)
        batch = known.task.sequences(trials)
        answered = last_logits(known.model, batch.tokens).argmax(dim=-1).cpu()
        rule = torch.as_tensor(known.task.targets(trials, kind="inferential"))
        found[split] = plain((answered == rule).double().mean())
        if "unseen" in known.about:
            said = answers_of_program(known, batch.tokens)
            found[f"{split}_of_program"] = plain((answered == said).double().mean())
    return found


def answers_of_program(known: Known, tokens: torch.Tensor) -> torch.Tensor:
    """What the compiled program says."""
    return circuits.compiled_circuits.Circuit(known.model, known.task, known.about).answers(tokens)


def every_probe(known: Known) -> dict[str, Any]:
    """All the probes, and the answers."""
    return {"answers": answers(known)} | {probe.__name__: ask(known, probe) for probe in PROBES}


def of_compiled() -> dict[str, Any]:
    """Every compiled circuit at the papers' position, and two of them at the end of the sequence."""
    found: dict[str, Any] = {"compiled": {}, "at_the_end": {}}
    for name in EXPECTED["columns"]["compiled"]:
        known = circuits.compiled(name)
        about = {"what": known.about["what"], "n_layers": known.model.cfg.n_layers}
        found["compiled"][name] = {"about": about} | every_probe(known)
        print(name, flush=True)
    for column, name in ENDS.items():
        known = circuits.compiled(name)
        last = known.task.seq_len - 1 - known.task.chain_length
        found["at_the_end"][column] = {
            probe.__name__: ask(known, probe, key_position=last)
            for probe in (probes.activation_patching, probes.interchange)
        }
        found["at_the_end"][column]["information_flow"] = refusal_at_the_end(known, last)
    return found


def refusal_at_the_end(known: Known, key_position: int) -> dict[str, Any]:
    """What information_flow says where the second anchor is the last token."""
    row = known.task.keys[: known.task.seq_len].tolist()
    row += [row[0]] * (known.task.seq_len - len(row))
    row[key_position + 1 : key_position + 3] = 1, 2
    return ask(known, probes.information_flow, tokens=row)


def of_imposed() -> dict[str, Any]:
    """Every model with an imposed route, with its accuracies."""
    found = {}
    for name in circuits.imposed_names():
        known = circuits.imposed(name)
        found[name] = every_probe(known)
        found[name]["behaviour"] = evaluate(
            known.model, known.task, training_set=trained_on(known)
        ).headline()
        found[name]["trained"] = {
            key: known.about[key] for key in ("route", "seed", "gamma", "steps", "batch_size")
        }
        found[name]["trained"]["answers_changed_by_rounding"] = known.about["answers_changed_by_rounding"]
        print(name, flush=True)
    return {"imposed": found}


def asked_again(which: str, names: list[str], folder: Path) -> dict[str, Any]:
    """What is in the folder already, with these probes asked of every circuit there."""
    found = json.loads((folder / f"{which}.json").read_text(encoding="utf-8"))
    for name, of_circuit in found[which].items():
        known = circuits.compiled(name) if which == "compiled" else circuits.imposed(name)
        of_circuit |= {probe: ask(known, probes.probe_named(probe)) for probe in names}
        print(name, flush=True)
    return found


def trained_on(known: Known) -> Any:
    """The training set of a model with an imposed route."""
    return known.task.training_set(100_000, known.about["seed"])


def main() -> None:
    """Read the command line, measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=("compiled", "imposed"))
    parser.add_argument("--probe", nargs="+", default=[], help="ask these alone, and keep what is read")
    parser.add_argument("--out", type=Path, default=HERE)
    asked = parser.parse_args()
    if asked.probe:
        found = asked_again(asked.which, asked.probe, asked.out)
    else:
        found = of_compiled() if asked.which == "compiled" else of_imposed()
    text = json.dumps(found, indent=1, ensure_ascii=False)
    (asked.out / f"{asked.which}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

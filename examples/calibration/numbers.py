"""Every number that a verdict might go by, of a run at each of its moments, as one table of the zoo."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorlens import AnchorTask, load_checkpoint, probes
from anchorlens.probes.fusion_similarity import mirror_comparisons, trained_comparisons, unseen_comparisons
from anchorlens.sweep import Cell
from anchorlens.verdict.forecast import sampled_behaviour
from anchorlens.verdict.pooled_routes import pooled_routes
from anchorlens.verdict.readings import held_out_sequences, many_keys
from calibration.likeness import likeness
from calibration.runs import MOMENTS

Options = Callable[[AnchorTask], Mapping[str, Any]]
MEASURED: Mapping[str, tuple[Callable[..., Any], Options]] = {
    "v_similarity": (probes.v_similarity, lambda task: {}),
    "fusion_similarity": (probes.fusion_similarity, lambda task: {}),
    "fusion_similarity of unseen pairs": (
        probes.fusion_similarity,
        lambda task: {"comparisons": unseen_comparisons(task), "keys": many_keys(task)},
    ),
    "fusion_similarity of trained pairs": (
        probes.fusion_similarity,
        lambda task: {"comparisons": trained_comparisons(task), "keys": many_keys(task)},
    ),
    "fusion_similarity of mirrored pairs": (
        probes.fusion_similarity,
        lambda task: {"comparisons": mirror_comparisons(task)},
    ),
    "mask_key_token": (probes.mask_key_token, lambda task: {"perplexity": None, "seen": True}),
    "mask_second_anchor": (probes.mask_second_anchor, lambda task: {}),
    "information_flow": (probes.information_flow, lambda task: {"effects": "merged", "patterns": "frozen"}),
    "information_flow of pooled anchors": (pooled_routes, lambda task: {}),
    "information_flow of held-out keys": (
        probes.information_flow,
        lambda task: {"effects": "margin", "tokens": held_out_sequences(task)},
    ),
    "activation_patching": (probes.activation_patching, lambda task: {}),
    "stable_rank": (probes.stable_rank, lambda task: {}),
    "q_condensation": (probes.q_condensation, lambda task: {}),
    "embedding_pca": (probes.embedding_pca, lambda task: {}),
    "interchange": (probes.interchange, lambda task: {}),
}
"""What is measured: a probe, with options that ask more than its own or leave out what only pictures need."""
CHEAPER: Mapping[str, Mapping[str, Any] | None] = {
    "interchange": None,
    "information_flow": {"effects": "margin"},
}
"""What is not asked of a run on its way, for its cost, or with other options."""
NO_READING = ("seed", "key_position", "chain_length", "n_sequences", "n_route_sequences", "perplexity")
NO_READING += ("target", "answer", "second_anchor", "threshold", "layer")
"""Scalars of results that say how something was asked."""


def measured(cell: Cell) -> list[dict[str, Any]]:
    """A row for each moment of a run.

    Args:
        cell: of the sweep that trained it, done.

    Returns:
        Its moment and step, its phase then (`now`, from a sample) and at its end (`label`, `borderline`,
        accuracies with standard errors), and every number; None where a probe gives none.
    """
    torch.set_num_threads(1)
    assert cell.path is not None and cell.verdict is not None
    behaviour = cell.verdict["behaviour"]
    end = {"label": behaviour["phase"]["label"], "clear_label": cell.verdict["label"]}
    for name in ("train", "id", "ood", "commutativity"):
        found = behaviour[name] or {"value": None, "standard_error": None}
        end |= {name: found["value"], f"{name}_error": found["standard_error"]}
    total = cell.run.train.total_steps
    start = load_checkpoint(cell.path / "checkpoints/step_00000000.pt").build_model()
    rows = []
    for moment in MOMENTS:
        checkpoint = load_checkpoint(nearest(cell.path, moment * total))
        model = checkpoint.build_model()
        assert isinstance(checkpoint.task, AnchorTask)
        values = dict(numbers(model, checkpoint.task, start, ended=moment == 1))
        now = sampled_behaviour(checkpoint).phase.label if moment < 1 else None
        rows.append({"moment": moment, "step": checkpoint.step, "now": now, **end, **values})
    return rows


def nearest(folder: Path, step: float) -> Path:
    """The checkpoint of a run's trajectory that is nearest to a step, on a log scale."""
    paths = sorted((folder / "checkpoints").glob("step_*.pt"))
    return min(paths, key=lambda path: abs(np.log1p(int(path.stem.removeprefix("step_"))) - np.log1p(step)))


def numbers(model: Any, task: AnchorTask, start: Any, *, ended: bool) -> Iterator[tuple[str, float | None]]:
    """(`measurement.field`, value) of every scalar that says something of the model."""
    for name, (probe, options) in MEASURED.items():
        asked = options(task) if ended else CHEAPER.get(name, options(task))
        if asked is None:
            continue
        ask = probe if probe is pooled_routes else partial(probes.apply, probe)
        try:
            yield from scalars(name, ask(model, task, **asked))
        except (ValueError, torch.linalg.LinAlgError):  # pyright: ignore[reportPrivateImportUsage]
            continue  # weights that are not finite, no number for this model
    try:
        yield from scalars("training_regime", probes.training_regime(model, task, initial=start))
        yield from likeness(model, task).items()
        yield from of_other_matrices(model, task)
    except ValueError:
        return


def of_other_matrices(model: Any, task: AnchorTask) -> Iterator[tuple[str, float | None]]:
    """Stable ranks over a Gaussian's of every kind of matrix, mean over layers; the unembedding's order."""
    ranks = probes.stable_rank(model)
    kinds: dict[str, list[float]] = {}
    for name, value, random in zip(ranks.names, ranks.values, ranks.gaussian, strict=True):
        kinds.setdefault(name.rsplit(".", 1)[-1], []).append(float(value / random))
    for kind, values in kinds.items():
        yield f"stable_rank.{kind}_normalized", float(np.mean(values))
    turned = copy.deepcopy(model)
    turned.embed.W_E.data = model.unembed.W_U.detach().T.clone()
    yield from scalars("embedding_pca of the unembedding", probes.embedding_pca(turned, task))


def scalars(name: str, result: Any) -> Iterator[tuple[str, float | None]]:
    """Every number of a result."""
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        if field.name not in NO_READING and isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{name}.{field.name}", float(value)

"""Interchange interventions: does the exchange of one location's activation exchange g(x; a1)?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Int
from torch import Tensor

from anchorlens.models import hooks
from anchorlens.models.annotations import HookedTransformer
from anchorlens.plots.of_probes import place_map
from anchorlens.probes.any_model.activation_patching import SITES
from anchorlens.probes.shared.anchor_sequences import checked_position
from anchorlens.probes.shared.checks import check_count, check_inputs
from anchorlens.probes.shared.contract import ProbeResult, number, probe_result, takes_any
from anchorlens.probes.shared.interventions import patched_logits
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.sequences import Pair, Trials
from anchorlens.tasks.two_anchor.task import AnchorTask


@probe_result
class Interchange(ProbeResult):
    """The interchange accuracy of every location for an exchange of g(x; a1) between two inputs."""

    probe = "interchange"
    readings = ("accuracy", "unseen_accuracy", "equal_accuracy", "elsewhere")
    sites: tuple[str, ...]
    """The hook names of the exchanged activations, in the order of a block."""
    accuracies: np.ndarray
    """[kind, site, layer, pos] The interchange accuracy, which is the proportion of the inputs whose answer
    becomes the composition's answer, from 0 to 1. For the kind `unequal`, g differs and the exchanged pair is
    trained. For `equal`, g is equal, so the answer should not change. For `unseen`, g differs and the
    exchanged pair is never trained. The accuracy is NaN if the task has no inputs of the kind."""
    of_source: np.ndarray
    """[site, layer, pos] The proportion of the `unequal` inputs whose answer becomes the source's answer,
    from 0 to 1. The proportion is high at a location that contains key and anchors together."""
    site: str
    """The hook name of the best location, which has the largest accuracy of `unequal` on the first half of
    the inputs."""
    layer: int
    """The layer of the best location, counted from 0."""
    position: int
    """The position of the best location."""
    accuracy: float | None
    """The accuracy of `unequal` at the best location on the other half of the inputs. The accuracy is near 1
    if the location contains g(x; a1), or key and first anchor, and the model computes the answer from the
    location."""
    unseen_accuracy: float | None
    """The accuracy of `unseen` at the best location. The accuracy is near 1 if the later parts of the model
    also apply the rule to untrained pairs."""
    equal_accuracy: float | None
    """The accuracy of `equal` at the best location. The accuracy is near 1 if the answer depends on the
    location through g alone."""
    elsewhere: float | None
    """The largest accuracy of `unequal` at the position of a noise token. This accuracy is a control and
    should be near 0."""
    key_position: int
    """The position of the key token, which the anchors follow."""
    chain_length: int
    """The number of anchors in a sequence."""
    n_sequences: int
    """The number of inputs of each kind. Half of the inputs determine the best location."""
    seed: int
    """The seed of the inputs."""

    def headline(self) -> str:
        """Return the best location and its accuracies as text."""
        if self.accuracy is None:
            return "nothing to swap: no two trained pairs of this task can be interchanged"
        unseen = "" if self.unseen_accuracy is None else f", {self.unseen_accuracy:.2f} to an unseen pair"
        return (
            f"interchange accuracy {self.accuracy:.2f}{unseen}, at {self.site.removeprefix('hook_')} of "
            f"layer {self.layer}, position {self.position}"
        )

    def plot(self) -> go.Figure:
        """Plot the interchange accuracy by location, for each kind of input and for the source's answer."""
        titles = ("another g", "equal g", "unseen pair")
        panels = dict(zip(titles, self.accuracies, strict=True)) | {"source's answer": self.of_source}
        return place_map(
            "Interchange accuracy by place",
            panels,
            self.sites,
            key_position=self.key_position,
            chain_length=self.chain_length,
        )


@takes_any()
def interchange(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    n_sequences: int = 100,
    key_position: int | None = None,
    seed: int = 0,
) -> Interchange:
    """Exchange an activation between two inputs, and measure whether the answer follows the rule.

    The rule is a causal model. The causal model computes g = g(x; a1), and then applies the later anchors to
    g. The probe copies the activation of a location from the source run into the base run. The expected
    answer is the result of the base's later anchors applied to the source's g. If the location contains g,
    the model should give this answer. Base and source have pairs trained on the composition, keys that are
    trained at `key_position`, and separate noise. The expected answer differs from the answers after other
    possible exchanges (see `interchanges`).

    - An accuracy near 1 for `unequal` shows that the location contains key and first anchor in some form.
    - An accuracy near 1 for `equal` shows that the answer depends on the location through g alone.
    - An accuracy near 1 for `unseen` shows that the later parts of the model apply the rule.

    Limitations: The probe does not detect g(x; a) that is spread over several locations. The probe does not
    show the form in which a location contains g(x; a). A model with a lookup table of (key, first anchor)
    also has accuracy 1. Only `unseen_accuracy` distinguishes a lookup table from g(x; a). The probe measures
    only inputs with the key at `key_position`.

    Args:
        model: a HookedTransformer whose residual hooks can be edited.
        task: the task, which defines the inputs.
        n_sequences: the number of inputs of each kind, at least 2.
        key_position: the position of the key token. Default: 2, as in the papers.
        seed: the seed of the inputs.

    Returns:
        The interchange accuracy, from 0 to 1, by kind, site, layer and position. One half of the inputs
        determines the best location. The probe measures the accuracies of the best location on the other
        half.

    Raises:
        ValueError: If a hook cannot be edited.
        ValueError: If an option is out of range.
        ValueError: If the model is too small for the task.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> interchange(build_model(ModelConfig(d_model=32)), AnchorTask()).accuracies.shape
        (3, 3, 2, 9)

    Source: The probe applies interchange interventions (Geiger et al., arXiv 2106.02997) to the composition
    task of arXiv 2405.05409.
    """
    check_inputs(model, task)
    check_count("n_sequences", n_sequences, minimum=2)
    position = checked_position(task, key_position)
    sites = SITES[:2] if model.cfg.attn_only else SITES
    given = {kind: interchanges(task, kind, n_sequences, key_position=position, seed=seed) for kind in KINDS}
    shape = (len(sites), model.cfg.n_layers, task.seq_len)
    right = np.full((len(KINDS), *shape, n_sequences), np.nan)
    of_source = np.full(shape, np.nan)
    for row, inputs in enumerate(given.values()):
        if inputs is None:
            continue
        for site in sites if row == 0 else ():
            hooks.assert_live(model, site, inputs.base[:4])
        answers = patched_answers(model, inputs, sites)
        right[row] = answers == inputs.expected.numpy()
        if row == 0:
            of_source = (answers == inputs.source_targets.numpy()).mean(axis=-1)
    half = n_sequences // 2
    chosen_by = np.nan_to_num(right[0, ..., :half].mean(axis=-1))
    site, layer, pos = map(int, np.unravel_index(chosen_by.argmax(), shape))  # of equal places the first
    at_place = right[:, site, layer, pos, half:].mean(axis=-1)
    noise = [p for p in range(task.seq_len - 1) if not position <= p <= position + task.chain_length]
    elsewhere = right[0].mean(axis=-1)[..., noise] if noise else np.full(1, np.nan)
    unequal, equal, unseen = map(number, at_place)
    return Interchange(
        sites=sites,
        accuracies=right.mean(axis=-1),
        of_source=of_source,
        site=sites[site],
        layer=layer,
        position=pos,
        accuracy=unequal,
        unseen_accuracy=unseen,
        equal_accuracy=equal,
        elsewhere=number(elsewhere.max()),  # NaN if one value is NaN
        key_position=position,
        chain_length=task.chain_length,
        n_sequences=n_sequences,
        seed=seed,
    )


Kind = Literal["unequal", "equal", "unseen"]
KINDS: tuple[Kind, ...] = ("unequal", "equal", "unseen")
_TRIES = 200


class Interchanges(NamedTuple):
    """The base and source inputs, and the expected answers after the exchange of g(x; a1)."""

    base: Int[Tensor, "batch pos"]
    """The tokens of the run into which an activation is copied, [input, pos]."""
    source: Int[Tensor, "batch pos"]
    """The tokens of the run from which an activation is copied, [input, pos]."""
    source_targets: Int[Tensor, " batch"]
    """The correct answers to the source inputs, [input]."""
    expected: Int[Tensor, " batch"]
    """The results of the base's other anchors applied to the source's g(x; a1), [input]."""


def interchanges(
    task: AnchorTask, kind: Kind, n_sequences: int, *, key_position: int, seed: int
) -> Interchanges | None:
    """Draw base and source inputs with trained pairs, and with keys that are trained at `key_position`.

    Base and source differ in the first anchor and in the later anchors. The expected answer differs from the
    correct answer to the source and, except for `equal`, from the correct answer to the base. The expected
    answer also differs from the answers after an exchange of the key alone or the first anchor alone.

    Args:
        task: the task, which defines pairs, keys and noise. Base and source have pairs trained on the
            composition.
        kind: the kind of the inputs. In `unequal` and `unseen`, base and source have different single-anchor
            results g. In `equal`, both inputs have the same single-anchor result g, so the answer should not
            change. The exchanged pair consists of the source's first anchor and the base's later anchors.
            This pair is untrained in `unseen`, and trained in `unequal` and `equal`.
        n_sequences: the number of inputs.
        key_position: the position of the key in base and source.
        seed: the random seed.

    Returns:
        The inputs, or `None` if the task has too few inputs of the kind.
    """
    rng = generator(seed, "probe", KINDS.index(kind))
    combined = _combinations(task, kind)
    keys = task.keys[(task.keys - key_position) % task.modulus != 0]
    if not combined or not len(keys):
        return None
    numbers = keys.tolist()
    reached = {anchor: np.array([task.apply(anchor, key) for key in numbers]) for anchor in task.anchors}
    rows: list[tuple[Pair, Pair, int, int, int]] = []
    for _ in range(_TRIES * n_sequences):
        if len(rows) == n_sequences:
            break
        base, source, mixed = combined[rng.integers(len(combined))]
        key, other = (int(k) for k in rng.choice(keys, 2))
        if kind == "equal":
            same = keys[reached[source[0]] == task.apply(base[0], key)]
            if not len(same):
                continue
            other = int(same[rng.integers(len(same))])
        expected = task.inferential_target(other, mixed)
        others = {task.target(other, source), task.inferential_target(other, base)}
        others.add(task.inferential_target(key, mixed))
        if kind != "equal":
            others.add(task.target(key, base))
        if expected not in others:
            rows.append((base, source, key, other, expected))
    if len(rows) < n_sequences:
        return None
    bases, sources, keys_of_base, keys_of_source, answers = map(list, zip(*rows, strict=True))
    places = np.full(n_sequences, key_position)
    first, second = (
        task.place(Trials(np.array(pairs), np.array(of), places), task.noise(n_sequences, rng))
        for pairs, of in ((bases, keys_of_base), (sources, keys_of_source))
    )
    expected = torch.tensor(answers, device="cpu")
    return Interchanges(first.tokens, second.tokens, second.targets, expected)


def _combinations(task: AnchorTask, kind: Kind) -> list[tuple[Pair, Pair, Pair]]:
    """Return the triples (base pair, source pair, source's first anchor with the base's others) of a kind."""
    composed = task.composed_pairs
    wanted = set(task.ood_pairs) - set(task.seen_pairs) if kind == "unseen" else set(composed)
    return [
        (base, source, mixed)
        for base, source in product(composed, composed)
        if base[0] != source[0] and base[1:] != source[1:] and (mixed := (source[0], *base[1:])) in wanted
    ]


def patched_answers(model: HookedTransformer, inputs: Interchanges, sites: Sequence[str]) -> np.ndarray:
    """Copy every activation of the source run into the base run, one at a time.

    Args:
        model: a model whose hooks at `sites` can be edited.
        inputs: the base and source inputs.
        sites: the hook names of activations [batch, pos, d_model].

    Returns:
        The model's answers [site, layer, pos, input].
    """
    n, n_pos = inputs.base.shape
    unchanged = hooks.last_logits(model, inputs.base).argmax(dim=-1).cpu()
    answers = unchanged.expand(len(sites), model.cfg.n_layers, n_pos, n).clone()
    for row, layer, places, logits in patched_logits(model, inputs.base, inputs.source, sites):
        answers[row, layer, places] = logits.argmax(dim=-1).cpu()
    return answers.numpy()

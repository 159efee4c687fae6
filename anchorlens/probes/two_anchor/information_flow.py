"""Information flow: which attention edges carry the key and the anchors to the answer, and by which route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from einops import reduce
from jaxtyping import Int
from torch import Tensor

from anchorlens.configuration import check_choice, check_number
from anchorlens.models import hooks
from anchorlens.probes.plots.flow_diagram import flow_diagram
from anchorlens.probes.shared.anchor_sequences import checked_sequences, default_sequence, trained_sequences
from anchorlens.probes.shared.calling import takes_any
from anchorlens.probes.shared.checks import MOST_SEQUENCES, check_inputs, check_layer
from anchorlens.probes.shared.edge_effects import drops, margin
from anchorlens.probes.shared.result import ProbeResult, probe_result
from anchorlens.probes.shared.routes import N_ROUTE_SEQUENCES, routes
from anchorlens.tasks.two_anchor.sequences import Trials
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.models.library import HookedTransformer


@probe_result
class InformationFlow(ProbeResult):
    """Attention along every edge of one sequence, the effect of each edge on the answer, and the routes."""

    probe: ClassVar[str] = "information_flow"
    readings: ClassVar[tuple[str, ...]] = (
        "inferential_route",
        "symmetric_route",
        "gathered_route",
        "margin",
    )
    tokens: np.ndarray
    """[pos] The sequence that is drawn."""
    key_position: int
    """Position of the key token; the anchors follow it."""
    chain_length: int
    """Anchors in a sequence."""
    answer: int
    """The model's answer to this sequence, a token."""
    target: int
    """The target that the task trains for it; for an unseen pair, the composition."""
    attention: np.ndarray
    """[layer, head_index, query_pos, key_pos] After the softmax, 0..1, of the drawn sequence."""
    patterns: str
    """Attention patterns of later layers when an edge is cut: `frozen`, as without the cut (direct effects),
    or `recomputed` (total effects)."""
    effects: np.ndarray | None
    """[layer, head_index, query_pos, key_pos] Mean drop of the target's logit margin when that edge alone
    is zeroed, in logits; above 0 = the edge helps. None where it was not requested."""
    merged_effects: np.ndarray | None
    """[layer, query_pos, key_pos] The same with the edge zeroed in all heads at once; None where it was not
    requested."""
    margin: float | None
    """Mean margin without a cut: logit of the target minus the largest other logit."""
    baseline: float | None
    """Mean margin when no later position attends to the key or an anchor, so their content is lost."""
    stages: dict[str, dict[str, float | None]]
    """Route -> stage -> share of the margin above the baseline that is lost, 0..1, when its edges are cut in
    all heads. `inferential`: `key to anchors` early (cut to all anchors at once, since one may be enough),
    `anchor 1 to last`, `anchor 2 to last` late. `symmetric`: `anchor 1 to last`, `anchor 2 to last` early,
    `key to last` late. `gathered`: `key to anchors`, `anchor 1 to later anchors` early, `anchor 2 to last`
    late. None where there is no margin to lose; empty where routes were not requested."""
    late_from: dict[str, int]
    """Route -> the first of its late layers: 1 in a model of two layers; in deeper models the one that gives
    the largest score."""
    inferential_route: float | None
    """Smallest share of its stages: 1 = cutting any stage loses the whole margin, 0 = one stage is not
    needed."""
    symmetric_route: float | None
    """The same for the symmetric route."""
    gathered_route: float | None
    """The same for the route on which everything is gathered at the last anchor."""
    n_sequences: int
    """Number of sequences that the effects are averaged over."""
    n_route_sequences: int
    """Number of sequences that margin, baseline and stages are averaged over."""
    seed: int
    """Seed from which those sequences were drawn."""

    def headline(self) -> str:
        """The route scores."""
        if self.margin is None:
            return "attention only; effects were not requested"
        if not self.stages:
            return f"margin {self.margin:+.2f}; routes were not requested"
        if self.inferential_route is None:
            return f"no route: the target's margin is {self.margin:+.2f}, so it has no answer to lose"
        return (
            f"inferential route {self.inferential_route:.2f}, symmetric {self.symmetric_route:.2f}, "
            f"gathered {self.gathered_route:.2f}; margin {self.margin:+.2f}, patterns {self.patterns}"
        )

    def plot(self, head: int | None = None) -> go.Figure:
        """Layers as rows of tokens; width = attention, colour = share of the margin lost without the edge.

        Args:
            head: the head whose edges are drawn; None for all heads merged (mean attention).
        """
        if head is not None:
            check_number("head", head, minimum=0, maximum=self.attention.shape[1] - 1, integer=True)
        merged = reduce(self.attention, "layer head q k -> layer q k", "mean")
        attention = merged if head is None else self.attention[:, head]
        effects = self.merged_effects
        if head is not None:
            effects = None if self.effects is None else self.effects[:, head]
        lost = self.inferential_route is not None  # there is a margin to lose
        if effects is not None:
            assert self.margin is not None and self.baseline is not None
            effects = effects / (self.margin - self.baseline) if lost else None
        which = "" if self.attention.shape[1] == 1 else ", heads merged" if head is None else f", head {head}"
        return flow_diagram(
            [str(token) for token in self.tokens],
            range(self.key_position, self.key_position + 1 + self.chain_length),
            attention,
            effects,
            answer=f"{self.answer}" if self.answer == self.target else f"{self.answer} (not {self.target})",
            title=f"Information flow{which}",
            cut=f"margin lost<br>without the edge,<br>later patterns<br>{self.patterns}",
            note=self._why_no_effects(head),
        )

    def _why_no_effects(self, head: int | None) -> str:
        if (self.merged_effects if head is None else self.effects) is None:
            return "attention only: effects were not requested"
        return "" if self.inferential_route is not None else "no margin to lose: attention only"


@takes_any
def information_flow(
    model: HookedTransformer,
    task: AnchorTask,
    tokens: object = None,
    *,
    effects: Literal["head", "merged", "routes", "margin"] | None = "head",
    patterns: Literal["frozen", "recomputed"] = "frozen",
    n_sequences: int = 8,
    seed: int = 0,
) -> InformationFlow:
    """Measure which attention edges the answer needs, and which route it takes.

    The picture shows one sequence. Effects and routes are means over random sequences of trained pairs with
    their trained targets, with key and anchors at the same positions. The effect of an edge is the drop of
    the target's logit margin when that single edge is zeroed after the softmax, without renormalising. In
    the last layer only the last position's edges can reach the answer; the other effects are 0.

    A stage's share is the margin lost when the stage is cut, over the margin above the baseline. The score
    of a route is the smallest share of its stages:

    - inferential: the key to the anchors in early layers, **each** anchor to the last position in late ones;
    - symmetric: each anchor to the last position early, the key to it late;
    - gathered: the key to the anchors and each anchor to later anchors early, the last anchor to the last
      position late.

    `key to anchors` is cut to all anchors at once: one anchor that has the key is enough, and if two have it,
    either may replace the other. In two layers, early is the first and late the second. In deeper models the
    border lies where the route scores most (at most nine borders are tried), so early and late are always
    different layers. A model scores 0 on all three routes if it uses another way, for example over a noise
    position, or two ways of which each is enough.

    Limitations: The probe does not show what an edge carries: a table of pairs and a composition over the
    same edges have the same scores. It does not detect a route other than these three; all scores are then 0,
    and `merged_effects` shows the edges. It does not handle a second anchor at the last position. With frozen
    patterns, it does not detect edges that only affect where later layers attend.

    Args:
        model: any HookedTransformer of two layers or more whose attention hooks are alive.
        task: defines the sequences and their targets.
        tokens: the sequence, [pos]; of several, [sequence, pos], the first is drawn and the means are over
            all of them. The papers' [35, 63, x, 1, 2, ...] where None.
        effects: `head`: effects of each edge in each head and in all heads at once; `merged`: only in all
            heads at once, which divides the cost by the number of heads; `routes`: margin and routes without
            the effects of edges; `margin`: the margin alone; None: the attention alone (`margin` and None
            also work on models whose hooks cannot be edited).
        patterns: attention patterns of later layers when an edge is cut. `frozen`: as without the cut, which
            measures what the edge itself carries (direct effect, path patching); `recomputed`: computed from
            the changed values (total effect), so cutting an early edge may change where they attend.
        n_sequences: number of random sequences that the effects are averaged over, >= 1; the routes, which
            cost little, use 280.
        seed: seed of those sequences.

    Returns:
        Attention, effects in logits per head and merged, and three scores, 0..1: 1 = the answer is lost when
        any stage of that route is cut, 0 = one of its stages is not needed.

    Raises:
        ValueError: tokens that are not a sequence of the task, a model of one layer, the last anchor at
            the last position (where it attends to itself), a dead hook, or a model too small for the task.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> information_flow(build_model(ModelConfig(gamma=0.5)), AnchorTask()).merged_effects.shape
        (2, 9, 9)

    Source: information flow and the two solutions of arXiv 2405.05409 and 2501.08537. The papers mark the
    edges that matter by hand; this probe measures their effects.
    """
    check_inputs(model, task)
    check_layer(model, -1, minimum=1)
    check_number("n_sequences", n_sequences, minimum=1, limit=MOST_SEQUENCES, integer=True)
    if effects is not None:
        check_choice("effects", effects, ("head", "merged", "routes", "margin"))
    check_choice("patterns", patterns, ("frozen", "recomputed"))
    given, key = checked_sequences(task, default_sequence(task) if tokens is None else tokens)
    if key + task.chain_length == task.seq_len - 1:
        raise ValueError(
            f"the last anchor must not stand at the last position, {task.seq_len - 1}, which answers and "
            "sees itself; move key and anchors forward"
        )
    n_layers = model.cfg.n_layers
    found = hooks.read(model, given[:1], [(layer, hooks.PATTERN) for layer in range(n_layers)])
    pattern = torch.cat([found[layer, hooks.PATTERN] for layer in range(n_layers)])
    target = _targets(task, given, key)[:1]
    answer = hooks.last_logits(model, given[:1]).argmax(dim=-1)
    parts: dict[str, Any] = {"effects": None, "merged_effects": None, "margin": None, "baseline": None}
    parts |= {"stages": {}, "late_from": {}}
    batch, for_routes = given, given
    if effects is not None and len(given) == 1:
        batch, for_routes = (
            trained_sequences(task, n, key_position=key, seed=seed).tokens
            for n in (n_sequences, N_ROUTE_SEQUENCES)
        )
    targets = _targets(task, for_routes, key)
    if effects is not None:
        logits = hooks.last_logits(model, for_routes)
        parts["margin"] = margin(logits, targets.to(logits.device)).mean().item()
    if effects in ("head", "merged", "routes"):
        try:
            hooks.assert_live(model, tokens=batch[:4])
        except ValueError as error:
            raise ValueError(f"{error}; effects=None draws the attention alone") from None
        if effects != "routes":
            parts |= _edge_effects(
                model, batch, _targets(task, batch, key), patterns, each_head=effects == "head"
            )
        found = routes(model, for_routes, targets, key, task.chain_length, patterns)
        parts |= {"baseline": found.baseline, "stages": found.stages, "late_from": found.late_from}
    return InformationFlow(
        tokens=given[0].numpy(),
        key_position=key,
        chain_length=task.chain_length,
        answer=int(answer),
        target=int(target),
        attention=pattern.double().cpu().numpy(),
        patterns=patterns,
        inferential_route=_weakest(parts["stages"], "inferential"),
        symmetric_route=_weakest(parts["stages"], "symmetric"),
        gathered_route=_weakest(parts["stages"], "gathered"),
        n_sequences=len(batch),
        n_route_sequences=len(for_routes),
        seed=seed,
        **parts,
    )


def _edge_effects(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    targets: Int[Tensor, " batch"],
    patterns: Literal["frozen", "recomputed"],
    *,
    each_head: bool,
) -> dict[str, np.ndarray]:
    """The drop of the margin without each edge, in all heads at once, and in each head if asked for."""
    merged = drops(model, tokens, targets, merged=True, patterns=patterns)
    found = {"merged_effects": merged[:, 0].numpy()}
    if each_head:
        one = model.cfg.n_heads == 1
        each = merged if one else drops(model, tokens, targets, merged=False, patterns=patterns)
        found["effects"] = each.numpy()
    return found


def _weakest(stages: dict[str, dict[str, float | None]], route: str) -> float | None:
    lost = [share for share in stages.get(route, {}).values() if share is not None]
    return min(lost, default=None)


def _targets(task: AnchorTask, tokens: Int[Tensor, "batch pos"], key: int) -> Int[Tensor, " batch"]:
    """The target that the task trains for each sequence; for an unseen pair, the composition."""
    anchors = tokens[:, key + 1 : key + 1 + task.chain_length]
    trials = Trials(anchors.numpy(), tokens[:, key].numpy(), np.full(len(tokens), key))
    return torch.from_numpy(task.targets(trials))

"""Information flow: which attention edges and which route carry key and anchors to the answer?"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
import torch
from einops import reduce
from jaxtyping import Float, Int
from plotly.colors import sample_colorscale
from torch import Tensor

from anchorlens.configuration import check_choice, check_number
from anchorlens.models import hooks
from anchorlens.models.annotations import HookedTransformer
from anchorlens.plots import BLUE, EFFECT, NO_EFFECT, ORANGE, styled
from anchorlens.probes.shared.anchor_sequences import checked_sequences, default_sequence, trained_sequences
from anchorlens.probes.shared.checks import check_count, check_inputs, check_layer
from anchorlens.probes.shared.contract import ProbeResult, probe_result, takes_any
from anchorlens.probes.shared.edge_effects import N_ROUTE_SEQUENCES, Routes, drops, margin, routes
from anchorlens.tasks.two_anchor.sequences import Trials
from anchorlens.tasks.two_anchor.task import AnchorTask

MOST_LINES = 400
"""The largest number of lines in one diagram. The diagram prefers lines with large effects and attention."""
_LEAST_WEIGHT = 0.01


@probe_result
class InformationFlow(ProbeResult):
    """The attention along every edge of one sequence, the effects of the edges, and the route scores."""

    probe = "information_flow"
    readings = ("inferential_route", "symmetric_route", "gathered_route", "margin")
    tokens: np.ndarray
    """[pos] The drawn sequence."""
    key_position: int
    """The position of the key token, which the anchors follow."""
    chain_length: int
    """The number of anchors in a sequence."""
    answer: int
    """The token that the model answers to the drawn sequence."""
    target: int
    """The trained target of the drawn sequence. For an unseen pair, the target is the composition."""
    attention: np.ndarray
    """[layer, head_index, query_pos, key_pos] The attention after the softmax on the drawn sequence, from 0
    to 1."""
    patterns: str
    """The attention patterns of later layers when an edge is cut. With `frozen`, the patterns are the
    patterns without the cut, so the effects are direct. With `recomputed`, the effects are total."""
    effects: np.ndarray | None
    """[layer, head_index, query_pos, key_pos] The mean drop of the target's logit margin when the probe
    zeroes the edge alone, in logits. A drop above 0 means that the edge helps. The value is `None` if you did
    not request effects."""
    merged_effects: np.ndarray | None
    """[layer, query_pos, key_pos] The mean drop of the margin when the probe zeroes the edge in all heads at
    once, in logits. The value is `None` if you did not request effects."""
    margin: float | None
    """The mean margin without a cut. The margin is the logit of the target minus the largest other logit."""
    baseline: float | None
    """The mean margin when no later position attends to the key or to an anchor."""
    stages: dict[str, dict[str, float | None]]
    """The fraction of the margin above the baseline that is lost when a stage of a route is cut in all heads,
    from 0 to 1. The `inferential` route has the early stage `key to anchors` and the late stages `anchor 1 to
    last` and `anchor 2 to last`. The `symmetric` route has the early stages `anchor 1 to last` and `anchor 2
    to last` and the late stage `key to last`. The `gathered` route has the early stages `key to anchors` and
    `anchor 1 to later anchors` and the late stage `anchor 2 to last`. The stage `key to anchors` is cut to
    all anchors at once. A fraction is `None` if the margin is not above 0 and above the baseline. The dict is
    empty if you did not request routes."""
    late_from: dict[str, int]
    """The first late layer of each route, counted from 0. In a model of two layers, this is layer 1. In
    deeper models, this is the layer with the largest route score."""
    inferential_route: float | None
    """The smallest fraction over the stages of the inferential route. At a score of 1, a cut of any stage
    loses the whole margin. At a score of 0, the model does not need one of the stages."""
    symmetric_route: float | None
    """The smallest fraction over the stages of the symmetric route."""
    gathered_route: float | None
    """The smallest fraction over the stages of the route that gathers key and anchors at the last anchor."""
    n_sequences: int
    """The number of sequences over which the probe averages the effects."""
    n_route_sequences: int
    """The number of sequences over which the probe averages margin, baseline and stages."""
    seed: int
    """The seed of the sequences."""

    def headline(self) -> str:
        """Return the route scores as text."""
        if self.margin is None:
            return "attention only; effects were not requested"
        if self.inferential_route is None:
            return f"no route: the target's margin is {self.margin:+.2f}, so it has no answer to lose"
        return (
            f"inferential route {self.inferential_route:.2f}, symmetric {self.symmetric_route:.2f}, "
            f"gathered {self.gathered_route:.2f}; margin {self.margin:+.2f}, patterns {self.patterns}"
        )

    def plot(self, head: int | None = None) -> go.Figure:
        """Plot the layers as rows of tokens, and the attention as lines between the tokens.

        The width of a line shows the attention. The colour of a line shows the fraction of the margin that is
        lost without the edge.

        Args:
            head: the head whose edges are drawn. Default: all heads together, with the mean attention.
        """
        n_layers, n_heads, n_pos, _ = self.attention.shape
        check_number("head", head, minimum=0, maximum=n_heads - 1, integer=True, optional=True)
        attention, effects, note = self.edges(head)
        which = "" if n_heads == 1 else ", heads merged" if head is None else f", head {head}"
        figure = go.Figure()
        effect = np.zeros_like(attention) if effects is None else effects
        for layer, query, key in drawn_edges(attention, effect):
            share, weight = effect[layer, query, key], attention[layer, query, key]
            place = f"{self.tokens[key]} (position {key}) to {self.tokens[query]} (position {query})"
            hover, color = f"layer {layer}: {place}<br>attention {weight:.2f}", NO_EFFECT
            if effects is not None:
                hover += f", effect {share:+.2f}"
                color = sample_colorscale(EFFECT["colorscale"], (share + 1) / 2)[0]
            figure.add_scatter(
                x=[key, (key + query) / 2, query],
                y=[layer, layer + 0.5, layer + 1],
                mode="lines",
                line={"color": color, "width": 0.75 + 6 * float(weight)},
                opacity=0.95 if abs(share) > 0.1 or effects is None else 0.55,
                hovertext=hover,
                hoverinfo="text",
                showlegend=False,
            )
        self._draw_tokens(figure)
        if effects is not None:
            cut = f"margin lost<br>without the edge,<br>later patterns<br>{self.patterns}"
            bar = {"title": {"text": cut}, "len": 0.75, "thickness": 14}
            marker = {"color": [0], "colorbar": bar, **EFFECT}
            figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, showlegend=False)
        answer = f"{self.answer}" if self.answer == self.target else f"{self.answer} (not {self.target})"
        top: dict[str, Any] = {"y": n_layers, "showarrow": False}
        right: dict[str, Any] = {"x": n_pos - 0.6, "xanchor": "right", "yshift": 28}
        figure.add_annotation(text=f"<b>answer {answer}</b>", **right, **top)
        if note:
            figure.add_annotation(text=note, x=-0.4, xanchor="left", yshift=44, **top)
        span = [-0.6, n_pos - 0.4]
        figure.update_xaxes(title="position", dtick=1, range=span, showline=False, zeroline=False)
        rows = ["tokens"] + [f"after layer {layer}" for layer in range(n_layers)]
        ticks: dict[str, Any] = {"tickvals": list(range(n_layers + 1)), "ticktext": rows}
        figure.update_yaxes(range=[-0.35, n_layers + 0.6], showline=False, **ticks)
        figure.update_layout(legend={"orientation": "h", "y": -0.2 / max(1, n_layers / 2), "yanchor": "top"})
        return styled(figure, f"Information flow{which}", height=min(1600, 220 + 120 * n_layers))

    def edges(self, head: int | None = None) -> tuple[np.ndarray, np.ndarray | None, str]:
        """Return the attention and the lost fraction of the margin of each edge, [layer, q, k], and a note.

        The fraction is from -1 to 1. It is `None` without effects or without a margin; the note gives the
        reason.
        """
        merged = reduce(self.attention, "layer head q k -> layer q k", "mean")
        attention = merged if head is None else self.attention[:, head]
        effects = self.merged_effects
        if head is not None:
            effects = None if self.effects is None else self.effects[:, head]
        if effects is None:
            return attention, None, "attention only: effects were not requested"
        if self.margin is None or self.baseline is None or self.inferential_route is None:
            return attention, None, "no margin to lose: attention only"
        return attention, np.clip(effects / (self.margin - self.baseline), -1, 1), ""

    def _draw_tokens(self, figure: go.Figure) -> None:
        """Draw the tokens below the first layer and after each layer, coloured as key, anchors and noise."""
        n_layers, n_pos = len(self.attention), len(self.tokens)
        key = self.key_position
        anchors = range(key + 1, key + 1 + self.chain_length)
        for positions, name, color, ink in (
            ([p for p in range(n_pos) if p != key and p not in anchors], "noise", "#E8E8E8", "black"),
            ([key], "key", ORANGE, "white"),
            (list(anchors), "anchors", BLUE, "white"),
        ):
            figure.add_scatter(
                x=positions * (n_layers + 1),
                y=np.repeat(np.arange(n_layers + 1), len(positions)).tolist(),
                mode="markers+text",
                text=[str(self.tokens[position]) for position in positions] * (n_layers + 1),
                textfont={"size": 11, "color": ink},
                marker={"size": 22, "color": color},
                name=name,
                hoverinfo="skip",
            )


@takes_any()
def information_flow(
    model: HookedTransformer,
    task: AnchorTask,
    tokens: object = None,
    *,
    effects: Literal["head", "merged", "routes"] | None = "head",
    patterns: Literal["frozen", "recomputed"] = "frozen",
    n_sequences: int = 8,
    seed: int = 0,
) -> InformationFlow:
    """Measure which attention edges the answer needs, and which route the information takes.

    The plot shows one sequence. Effects and route scores are means over random sequences of trained pairs
    with their trained targets. Key and anchors have the same positions in all sequences. The effect of an
    edge is the drop of the target's logit margin when the probe zeroes the edge. The probe zeroes an edge
    after the softmax, without renormalising. In the last layer, only the edges of the last position can reach
    the answer. The effects of all other edges of the last layer are 0.

    The baseline is the mean margin without any attention from later positions to the key and to the anchors.
    The fraction of a stage is the margin that is lost when the stage is cut, divided by the margin above the
    baseline. The score of a route is the smallest fraction over its stages. The routes are:

    - The inferential route leads from the key to the anchors in early layers. In late layers, the inferential
      route leads from each anchor to the last position.
    - The symmetric route leads from each anchor to the last position in early layers. In late layers, the
      symmetric route leads from the key to the last position.
    - The gathered route leads from the key to the anchors and from each anchor to later anchors in early
      layers. In late layers, the gathered route leads from the last anchor to the last position.

    The probe cuts the edges from the key to all anchors at once, because one anchor that receives the key is
    sufficient. In a model of two layers, the first layer is early and the second layer is late. In deeper
    models, the probe tries at most nine borders between early and late layers. For each route, the probe uses
    the border with the largest score. A model that uses another route, for example through the position of a
    noise token, has the score 0 on all three routes. A model also has the score 0 on all three routes if it
    uses two routes and either route alone is sufficient.

    Limitations: The probe does not show what an edge carries. A model with a lookup table of pairs has the
    same scores as a model that composes over the same edges. The probe does not detect a route other than the
    inferential, symmetric and gathered route. For any other route, all scores are 0, and `merged_effects`
    shows the edges. The probe does not accept a second anchor at the last position. With frozen patterns, the
    probe does not detect edges that only affect the attention of later layers.

    Args:
        model: a HookedTransformer of two layers or more whose attention hooks can be edited.
        task: the task, which defines the sequences and their targets.
        tokens: one sequence, [pos], or several sequences, [sequence, pos]. The plot shows the first sequence.
            If you give several sequences, the means are over these sequences. Default: a sequence of a
            trained pair, for example [35, 63, 40, 1, 2, ...].
        effects: the measurements. `head` measures the effects of each edge in each head and in all heads at
            once. `merged` measures only the effects in all heads at once, and divides the cost by the number
            of heads. `routes` measures the margin and the routes without the effects of edges. `None`
            measures only the attention, and also works on models whose hooks cannot be edited.
        patterns: the attention patterns of later layers when an edge is cut. With `frozen`, later layers keep
            the patterns of the model without the cut. The effect is then the direct effect of the edge (path
            patching). With `recomputed`, later layers compute the patterns from the changed values. The
            effect is then the total effect of the edge. With `recomputed`, a cut of an early edge may change
            the attention of later layers.
        n_sequences: the number of random sequences over which the probe averages the effects, at least 1. The
            route scores, which cost little, use 280 sequences.
        seed: the seed of the random sequences.

    Returns:
        The attention from 0 to 1, the effects in logits, and the scores of three routes from 0 to 1. At a
        score of 1, a cut of any single stage of the route loses the whole margin above the baseline. At a
        score of 0, a cut of at least one stage loses no margin.

    Raises:
        ValueError: If the tokens are not a sequence of the task.
        ValueError: If the last anchor is at the last position.
        ValueError: If the model has one layer.
        ValueError: If the model is too small for the task.
        ValueError: If a hook cannot be edited.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> information_flow(build_model(ModelConfig(gamma=0.5)), AnchorTask()).merged_effects.shape
        (2, 9, 9)

    Source: The papers arXiv 2405.05409 and 2501.08537 show the information flow of the inferential and of the
    symmetric solution. The papers mark important edges by hand, and this probe measures the effects of edges.
    """
    check_inputs(model, task)
    check_layer(model, -1, minimum=1)
    check_count("n_sequences", n_sequences)
    if effects is not None:
        check_choice("effects", effects, ("head", "merged", "routes"))
    check_choice("patterns", patterns, ("frozen", "recomputed"))
    given, key = checked_sequences(task, default_sequence(task) if tokens is None else tokens)
    if key + task.chain_length == task.seq_len - 1:
        raise ValueError(
            f"the last anchor must be before the last position, got position {task.seq_len - 1}. Move the "
            "key and the anchors forward"
        )
    attention = hooks.read(model, given[:1], [(layer, hooks.PATTERN) for layer in range(model.cfg.n_layers)])
    each = merged = mean_margin = None
    found = Routes(None, {}, {})
    batch, for_routes = given, given
    if effects is not None and len(given) == 1:
        batch, for_routes = (
            trained_sequences(task, n, key_position=key, seed=seed).tokens
            for n in (n_sequences, N_ROUTE_SEQUENCES)
        )
    targets = _targets(task, for_routes, key)
    if effects is not None:
        logits = hooks.last_logits(model, for_routes)
        mean_margin = margin(logits, targets.to(logits.device)).mean().item()
        try:
            hooks.assert_live(model, tokens=batch[:4])
        except ValueError as error:
            raise ValueError(f"{error}. Use effects=None to draw only the attention") from None
        if effects != "routes":
            of_batch = _targets(task, batch, key)
            merged = drops(model, batch, of_batch, merged=True, patterns=patterns)
            if effects == "head":
                one = model.cfg.n_heads == 1
                each = merged if one else drops(model, batch, of_batch, merged=False, patterns=patterns)
        found = routes(model, for_routes, targets, key, task.chain_length, patterns)
    return InformationFlow(
        tokens=given[0].numpy(),
        key_position=key,
        chain_length=task.chain_length,
        answer=int(hooks.last_logits(model, given[:1]).argmax(dim=-1)),
        target=int(_targets(task, given[:1], key)),
        attention=torch.cat(list(attention.values())).double().cpu().numpy(),
        patterns=patterns,
        effects=None if each is None else each.numpy(),
        merged_effects=None if merged is None else merged[:, 0].numpy(),
        margin=mean_margin,
        baseline=found.baseline,
        stages=found.stages,
        late_from=found.late_from,
        inferential_route=_weakest(found.stages, "inferential"),
        symmetric_route=_weakest(found.stages, "symmetric"),
        gathered_route=_weakest(found.stages, "gathered"),
        n_sequences=len(batch),
        n_route_sequences=len(for_routes),
        seed=seed,
    )


def drawn_edges(
    attention: Float[np.ndarray, "layer query_pos key_pos"],
    effect: Float[np.ndarray, "layer query_pos key_pos"],
) -> list[tuple[int, int, int]]:
    """Return (layer, query, key) of each edge to draw, in ascending order of the absolute effect."""
    weight = np.maximum(np.abs(effect), attention / 2)
    order = np.argsort(np.abs(effect), axis=None, kind="stable")
    heaviest = np.argsort(-weight, axis=None, kind="stable")[:MOST_LINES]
    there = set(heaviest[weight.flat[heaviest] >= _LEAST_WEIGHT].tolist())
    shown = [i for i in order.tolist() if i in there]
    layer, query, key = np.unravel_index(np.array(shown, dtype=np.int64), attention.shape)
    return list(zip(layer.tolist(), query.tolist(), key.tolist(), strict=True))


def _weakest(stages: dict[str, dict[str, float | None]], route: str) -> float | None:
    lost = [share for share in stages.get(route, {}).values() if share is not None]
    return min(lost, default=None)


def _targets(task: AnchorTask, tokens: Int[Tensor, "batch pos"], key: int) -> Int[Tensor, " batch"]:
    """Return the trained target of each sequence, or the composition for an unseen pair."""
    anchors = tokens[:, key + 1 : key + 1 + task.chain_length]
    trials = Trials(anchors.numpy(), tokens[:, key].numpy(), np.full(len(tokens), key))
    return torch.from_numpy(task.targets(trials))

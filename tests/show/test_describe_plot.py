"""What is said below a picture is true of the picture above."""

from dataclasses import replace

import numpy as np
import pytest

from anchorlens import AnchorTask, ModelConfig, build_model, probes
from anchorlens.show.describe_plot import describe_plot

TASK = AnchorTask()
MODEL = build_model(ModelConfig(n_layers=2, d_model=32, d_head=16, d_mlp=32, gamma=0.5))


@pytest.fixture(scope="module")
def masked():
    return probes.mask_key_token(MODEL, TASK, n_sequences=6, perplexity=None)


def at(result, centres):
    """The result with the points of label k around the k-th centre."""
    spread = np.random.default_rng(0).normal(0, 0.1, (len(result.labels), 2))
    return replace(result, points=np.array(centres, dtype=float)[result.labels] + spread)


def test_clusters_are_counted_in_the_picture(masked):
    corners = [(10 * k, 0) for k in range(12)]
    assert describe_plot(at(masked, corners)).startswith(
        "12 clusters of 12 ordered pairs: no pair shares a cluster with its reversed pair"
    )
    together = [(10 * (k // 2), 0) for k in range(12)]
    assert describe_plot(at(masked, together)).startswith(
        "6 clusters of 12 ordered pairs: every pair shares a cluster with"
    )
    one_apart = [*together[:10], (50, 0), (60, 0)]
    assert "7 clusters of 12 ordered pairs: 5 of 6 pairs share a cluster" in describe_plot(
        at(masked, one_apart)
    )
    assert (
        describe_plot(at(masked, [(0, 0)] * 12)) == "There are no clusters: the answers of all pairs overlap."
    )


def flow(inferential, symmetric, gathered, stages):
    known = probes.information_flow(MODEL, TASK, effects=None)
    scores = {"inferential_route": inferential, "symmetric_route": symmetric, "gathered_route": gathered}
    return replace(known, **scores, stages={"inferential": stages}, margin=5.0)


def test_a_model_that_gathers_is_no_contradiction():
    stages = {"key to anchors": 1.0, "anchor 1 to last": 0.0, "anchor 2 to last": 1.0}
    text = describe_plot(flow(0.0, 0.0, 0.76, stages))
    assert text.startswith("The gathered route: key and anchors meet at the last anchor")
    assert "The inferential score of 0.00 is low because nothing is lost without anchor 1 to last" in text


def test_each_route_is_named_as_far_as_it_stands_out():
    stages = dict.fromkeys(("key to anchors", "anchor 1 to last", "anchor 2 to last"), 0.8)
    assert describe_plot(flow(0.8, 0.0, 0.1, stages)).startswith(
        "The inferential route: the key goes to each anchor"
    )
    assert describe_plot(flow(0.0, 0.65, 0.0, stages)).startswith("The symmetric route")
    assert describe_plot(flow(0.0, 0.02, 0.0, stages)).startswith("No single route carries the answer")
    assert describe_plot(flow(0.0, 0.2, 0.0, stages)).startswith("Mostly")
    assert "attention" in describe_plot(flow(None, None, None, stages))


def test_cosines_and_weights():
    values = probes.v_similarity(MODEL, TASK)
    assert "0.63: the values at the first anchor encode g" in describe_plot(replace(values, centred_gap=0.63))
    assert "partly" in describe_plot(replace(values, centred_gap=0.2))
    assert "similar to the others (0.00 redder)" in describe_plot(replace(values, centred_gap=-0.003))
    weights = probes.q_condensation(MODEL)
    assert describe_plot(replace(weights, n_groups=3)).endswith(": condensed.")
    assert describe_plot(replace(weights, n_groups=len(weights.order))).endswith("hardly condensed.")
    embedding = probes.embedding_pca(MODEL, TASK)
    assert "higher by 0.15: the embedding follows" in describe_plot(replace(embedding, lag_order=0.15))
    assert "does not follow the differences" in describe_plot(replace(embedding, lag_order=-0.01))


def test_every_other_probe_says_its_headline():
    rank = probes.stable_rank(MODEL)
    assert describe_plot(rank) == rank.headline()

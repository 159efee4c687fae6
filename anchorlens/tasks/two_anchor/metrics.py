"""What the two-anchor task measures."""

from anchorlens.tasks.shared.metric import Metric, phase_metrics

KIND = "two_anchor"
"""Name of the task in files."""

METRICS = (
    *phase_metrics(
        meanings=(
            "answers to what it was trained on",
            "seen pairs, held-out (key, position)",
            "unseen pairs, asked for the composition",
        ),
        asks=("trained (pair, key, position), fresh noise", "held-out keys", "unseen pairs"),
        ood_absent="every pair of the task is trained",
    ),
    Metric(
        "symmetric",
        "symmetric",
        "Symmetric accuracy",
        "unseen pairs, answered like their mirror",
        in_tables=False,
        map_caption="Unseen pairs answered as their mirrored pair was trained, not as the rules say.",
        absent="it is defined only where the mirror of an unseen pair is trained on another target than the "
        "composition (regime 'conflict')",
        higher_is_better=None,
    ),
    Metric(
        "commutativity",
        "commutativity",
        "Commutativity",
        "same answer for (.., a, b) and (.., b, a)",
        map_caption="Share of sequences that get the same answer with the two anchors in either order: from "
        ".70 on Phase 2 is called with commutativity.",
        absent="no unseen pair of the task has a mirror",
        higher_is_better=None,
    ),
)
"""Sources: ID, OOD and commutativity of arXiv 2501.08537, symmetric accuracy of 2405.05409."""

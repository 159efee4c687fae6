"""What the two-anchor task measures."""

from anchorlens.tasks.shared.metric import Metric

KIND = "two_anchor"
"""Of the task, in files."""

METRICS = (
    Metric(
        "train",
        "train",
        "Train accuracy",
        "answers to what it was trained on",
        "trained (pair, key, position), fresh noise",
        "train_accuracy",
    ),
    Metric(
        "id",
        "ID",
        "ID accuracy",
        "seen pairs, held-out (key, position)",
        "held-out keys",
        "id_accuracy",
        map_caption="Seen pairs at held-out (key, position): below .90 it is Phase 1.",
    ),
    Metric(
        "ood",
        "OOD",
        "OOD accuracy",
        "unseen pairs, asked for the composition",
        "unseen pairs",
        "ood_accuracy",
        map_caption="Unseen pairs against the composition of the rules: above .50 it is Phase 3.",
        absent="every pair of the task is trained",
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

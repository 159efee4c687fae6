"""What the two-anchor task measures."""

from anchorlens.tasks.shared.metric import Metric, phase_metrics

KIND = "two_anchor"
"""Name of the task in files."""

N_NOISE, MAX_TRAIN, MAX_TRIALS = 8, 4096, 20_000
"""What `evaluate` asks: draws of noise for a trial, most training sequences, most trials of a split."""
QUICK_TRAIN, QUICK_TRIALS = 1024, 2048
"""The same of `quick_accuracies`, with one draw of noise."""

OF_RULES = (
    *phase_metrics(
        meanings=(
            "the training data",
            "trained pairs at held-out (key, position)",
            "unseen pairs, target by the composition",
        ),
        asks=("trained (pair, key, position), fresh noise", "held-out keys", "unseen pairs"),
        ood_absent="every pair of the task is trained, or answered by symmetry",
    ),
    Metric(
        "symmetric",
        "symmetric",
        "Symmetric accuracy",
        "unseen pairs, target of the reversed pair",
        in_tables=False,
        map_caption="The colour shows how often an unseen pair gets the trained answer of its reversed "
        "pair, and not the answer of the rules.",
        absent="it is defined only where the mirror of an unseen pair is trained on another target than the "
        "composition (regime 'conflict')",
        higher_is_better=None,
    ),
    Metric(
        "commutativity",
        "commutativity",
        "Commutativity",
        "same answer for (.., a, b) and (.., b, a)",
        map_caption="The colour shows how often both orders of the two anchors get the same answer. A "
        "Phase 2 run at 0.70 or more is Phase 2 with commutativity.",
        absent="no unseen pair of the task has a mirror",
        higher_is_better=None,
    ),
)
"""Metrics of every task. Sources: arXiv 2501.08537 (ID, OOD, commutativity), 2405.05409 (symmetric
accuracy)."""

_NO_EXCEPTIONS = "no task of a trained cell has exceptions (n_exceptions)"
OF_EXCEPTIONS = (
    Metric(
        "exceptions",
        "exceptions",
        "Exceptions remembered",
        "exceptions at trained positions, fresh noise",
        logged_as="exceptions_accuracy",
        map_caption="The colour shows the accuracy on exceptions, which are (key, pair) inputs with a "
        "random trained answer.",
        absent=_NO_EXCEPTIONS,
    ),
    Metric(
        "rules",
        "rules",
        "Rule accuracy",
        "ID without exceptions, pairs trained on the composition",
        map_caption="The colour shows the accuracy on pairs trained on the composition, at held-out (key, "
        "position).",
        absent=_NO_EXCEPTIONS,
    ),
    Metric(
        "broken",
        "broken",
        "Broken-group accuracy",
        "ID without exceptions, pairs trained on another function",
        map_caption="The colour shows the accuracy on pairs trained on a function other than the "
        "composition, at held-out (key, position).",
        absent="no task of a trained cell has exceptions and broken groups",
    ),
)
"""Further metrics of a task with exceptions. Source: ours."""

METRICS = (*OF_RULES, *OF_EXCEPTIONS)
"""All metrics that an AnchorTask may have."""

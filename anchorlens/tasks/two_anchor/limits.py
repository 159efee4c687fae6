"""How large a task may be, so that its tables stay in memory."""

LARGEST_KEY = 10_000_000
LONGEST_CHAIN = 1000
LONGEST_SEQUENCE = 100_000
MOST_PAIRS = 100_000
_MOST_KEYS = 100_000
_MOST_PLACES = 10_000_000
_MOST_TARGETS = 2_000_000
_MOST_TRIALS = 20_000_000


def check_size(n_anchors: int, chain_length: int, n_keys: int, seq_len: int) -> None:
    """Check what a task would hold, before anything of it is made.

    Raises:
        ValueError: too much of something, with what to take less of.
    """
    n_chains, n_positions = n_anchors**chain_length, seq_len - chain_length
    if n_keys > _MOST_KEYS:
        raise ValueError(f"{n_keys:,} number tokens are more than {_MOST_KEYS:,}; narrow the key range")
    if n_keys * seq_len > _MOST_PLACES:
        raise ValueError(
            f"{n_keys:,} number tokens at {seq_len:,} positions are more than {_MOST_PLACES:,} places; "
            "narrow the key range or the sequence"
        )
    if n_chains > MOST_PAIRS:
        raise ValueError(
            f"{n_anchors} anchors in chains of {chain_length} are more than {MOST_PAIRS:,} chains; "
            "use fewer anchors or shorter chains"
        )
    if n_chains * n_keys > _MOST_TARGETS:
        raise ValueError(
            f"{n_chains:,} chains of {n_keys:,} keys are more than {_MOST_TARGETS:,} targets; "
            "use fewer anchors, keys or shorter chains"
        )
    if (n_trials := n_chains * n_keys * n_positions) > _MOST_TRIALS:
        raise ValueError(
            f"{n_chains:,} chains of {n_keys:,} keys at {n_positions:,} positions are {n_trials:,} "
            f"questions, more than {_MOST_TRIALS:,}; use fewer anchors or keys, shorter chains or sequences"
        )

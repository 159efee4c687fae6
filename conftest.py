"""Settings of every test run: one thread, and tensor shapes checked against the signatures.

The shapes are checked by jaxtyping with beartype. Left out are the modules that name types they import
only when needed, which beartype cannot resolve.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models are faster so, in child processes too

from jaxtyping import install_import_hook  # noqa: E402

CHECKED = [
    "behaviour",
    "blocks",
    "checkpoint",
    "container",
    "linalg",
    "phases",
    "probes.anchor_sequences",
    "randomness",
]

install_import_hook([f"anchorlens.{name}" for name in CHECKED], "beartype.beartype")

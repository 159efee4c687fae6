"""One GPU for each worker process of the engine `local`."""

from __future__ import annotations

import os
from typing import Any

from distributed import WorkerPlugin


class OneGPU(WorkerPlugin):
    """Lets a worker see one GPU alone, by its number; CUDA reads the variable when it is first used there."""

    name = "anchorlens-one-gpu"

    def __init__(self, n_gpus: int) -> None:
        """Spread the workers over so many GPUs."""
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.gpus = seen.split(",") if seen else [str(k) for k in range(n_gpus)]

    def setup(self, worker: Any) -> None:
        """Choose this worker's GPU."""
        os.environ["CUDA_VISIBLE_DEVICES"] = self.gpus[int(worker.name) % len(self.gpus)]

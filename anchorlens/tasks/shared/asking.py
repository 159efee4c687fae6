"""Asking a model for the tokens that a batch scores, in bounded batches; whole answers are right or wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool
    from torch import Tensor

    from anchorlens.tasks.shared.base import Answers, Task
    from anchorlens.tasks.shared.batch import TokenBatch


class Asker:
    """Asks one model for whole answers, in one forward pass.

    Greedy decoding gives a whole answer if and only if teacher-forced argmax gives each of its tokens.
    """

    def __init__(self, model: Answers, task: Task, batch_size: int) -> None:
        """Check that the model can read the task's sequences.

        Args:
            model: a HookedTransformer, or anything that gives logits; its mode and device are left as they
                are.
            task: whose sequences are asked.
            batch_size: sequences per forward pass at most; fewer where their activations take more than
                256 MB.

        Raises:
            ValueError: its vocabulary or context is too small.
        """
        import torch

        from anchorlens.models.config import ModelConfig
        from anchorlens.models.measuring import BATCH_BYTES, device_of, sequence_bytes

        check_capacity(model, task)
        self.model, self.task, self.finite = model, task, True
        config = getattr(model, "config", None)
        if isinstance(config, ModelConfig):
            batch_size = min(batch_size, max(1, BATCH_BYTES // sequence_bytes(config, task.seq_len)))
        self.batch_size = batch_size
        self.device = device_of(model) if isinstance(model, torch.nn.Module) else torch.device("cpu")

    def right(self, batch: TokenBatch) -> Bool[np.ndarray, " sequence"]:
        """Whether each sequence is answered right at every scored position."""
        import torch

        from anchorlens.models.measuring import evaluation_mode
        from anchorlens.tasks.shared.batch import IGNORE

        found, model = [], at_end(self.model, batch.n_last)
        with evaluation_mode(self.model), torch.inference_mode():
            pairs = zip(
                batch.tokens.split(self.batch_size), batch.targets.split(self.batch_size), strict=True
            )
            for tokens, targets in pairs:
                logits = self._logits(model, tokens)  # [batch, n_last, d_vocab]
                targets = targets if targets.dim() == 2 else targets.unsqueeze(1)
                n_last = min(logits.shape[1], targets.shape[1])
                if (targets[:, :-n_last] != IGNORE).any():
                    raise ValueError(
                        f"model must give logits at every position that is scored, got the last {n_last}"
                    )
                targets, logits = targets[:, -n_last:], logits[:, -n_last:].cpu()
                scored = targets != IGNORE
                self.finite = self.finite and bool(logits[scored].isfinite().all())
                found.append(((logits.argmax(dim=-1) == targets) | ~scored).all(dim=1).numpy())
        return np.concatenate(found)

    def _logits(self, model: Answers, tokens: Tensor) -> Tensor:
        logits: Any = model(tokens.to(self.device))
        shape, d_vocab = tuple(getattr(logits, "shape", ())), self.task.d_vocab
        if len(shape) != 3 or shape[0] != len(tokens) or shape[2] < d_vocab:
            raise ValueError(
                f"model must give logits [batch, pos, d_vocab >= {d_vocab}] for tokens "
                f"{list(tokens.shape)}, got {list(shape) or type(logits).__name__}; is it of this task?"
            )
        return logits


def at_end(model: Answers, n_last: int) -> Answers:
    """A model for the last positions alone, where it can do with computing them; else the model itself."""
    return getattr(model, "at_end", lambda n_last: model)(n_last)


def check_capacity(model: Answers, task: Task) -> None:
    """Check that a HookedTransformer can read a task's sequences; of another model nothing is known.

    Raises:
        ValueError: its vocabulary or context is too small.
    """
    config = getattr(model, "cfg", None)
    for name, need in (("d_vocab", task.d_vocab), ("n_ctx", task.seq_len)):
        have = getattr(config, name, None)
        if isinstance(have, int) and have < need:
            raise ValueError(
                f"model must have {name} >= {need} for this task, got {have}; is it of this task?"
            )

"""Evaluate a model of any library in batches of bounded memory: last tokens, scored tokens, whole answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from anchorlens import models
from anchorlens.configuration import article
from anchorlens.tasks.shared.batch import IGNORE, TokenBatch, is_ragged
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.texts import safe_repr, safe_text

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from anchorlens.tasks.shared.base import LogitsModel, Task


def logits_in(
    output: object, tokens: Int[Tensor, "batch pos"], d_vocab_out: int
) -> Float[Tensor, "batch n_last d_vocab_out"]:
    """Return the logits in a model's output.

    Args:
        output: an array of any library, nested lists, an object with `.logits`, or a mapping with the key
            `logits`. The output may also be a tuple or list that contains one of these values, such as
            (logits, loss). The logits have the shape [batch, n_last, d_vocab_out], or [batch, d_vocab_out]
            for the last position only.
        tokens: the model's input.
        d_vocab_out: the size of the vocabulary of answers, a lower bound of the last dimension of the logits.

    Raises:
        ValueError: If not exactly one array in the output has the shape of logits.
    """
    arrays = _arrays(output)
    fits = [
        one for one in arrays if one.dim() > 1 and len(one) == len(tokens) and one.shape[-1] >= d_vocab_out
    ]
    whole = [one for one in fits if one.dim() == 3 and one.shape[1]]
    found = whole or [one.unsqueeze(1) for one in fits if one.dim() == 2]
    if len(found) == 1:
        return found[0]
    asked = f"logits [batch, pos, d_vocab >= {d_vocab_out}] for tokens {list(tokens.shape)}"
    shapes = " and ".join(str(list(one.shape)) for one in arrays)
    got = shapes or article(type(output).__name__)
    if isinstance(output, Mapping):
        got += f" with the keys {safe_repr(list(output))}"
    a_pair = [tuple(one.shape[:2]) == tuple(tokens.shape) and one.dim() == 3 for one in arrays]
    advice = "Give a function that returns logits: lambda tokens: model(tokens).logits, or model(tokens)[0]"
    if any(a_pair) and not found:
        advice = "Check that the model belongs to the task."
    raise ValueError(f"model must return {asked}, got {got}. {advice}")


def _arrays(output: object) -> list[Tensor]:
    """Return the arrays in an output, as tensors."""
    import torch

    if isinstance(output, torch.Tensor) or (hasattr(output, "__array__") and hasattr(output, "shape")):
        return [_tensor(output)]
    inside = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if inside is not None:
        return _arrays(inside)
    if not isinstance(output, list | tuple):
        return []
    parts = [one for part in output if not isinstance(part, list | tuple) for one in _arrays(part)]
    try:
        if isinstance(output, list) and parts:  # perhaps an array for each sequence
            return [*parts, torch.stack(parts)]
        return parts or [_tensor(output)]
    except (ValueError, TypeError, RuntimeError):  # they have different shapes, or are no numbers
        return parts


def _tensor(array: object) -> Tensor:
    import torch

    if isinstance(array, torch.Tensor):
        return array
    numbers = np.array(array)
    if numbers.dtype.kind not in "fiub" or numbers.dtype.itemsize > 8:  # JAX's bfloat16, for example
        numbers = numbers.astype(np.float32)
    return torch.from_numpy(numbers)


AnyTask = TypeVar("AnyTask", bound="Task")
_MULTIPLE = 64
"""The lengths of batches are rounded up to multiples of this, because each new shape costs time and
memory."""
_A_FEW_MORE = 8
"""The number of tokens by which a greedy answer may be longer than the longest sequence."""
_GIVE_BACK_EVERY = 8
"""The number of batches after which freed memory is returned to the system; the C library reuses little."""
FREE_BYTES = 10**9
"""The memory that the model of any file may take, in bytes."""
_LAYER_BYTES = 200_000
"""The memory of the Python objects of one block."""
_OUTPUTS = (
    ", and some answers are no tokens: they are taken for logits, and a model without its head would give "
    "hidden states in their place"
)
_FEW = 64
"""The largest number of sequences that a model answers twice."""
_TOLERANCE = 0.05
"""The largest difference of two logits that count as equal, in units of the logits' standard deviation."""


class Evaluator(Generic[AnyTask]):
    """An evaluator of one model on one task.

    The evaluator records whether all used logits were finite, and remarks on the model. The first batch shows
    whether the model gives a sequence the same logits in a second forward pass with fewer sequences.

    One forward pass checks whole answers: greedy decoding gives the correct answer if and only if
    teacher-forced argmax gives each of its tokens.
    """

    def __init__(self, model: LogitsModel, task: AnyTask, batch_size: int = 1024) -> None:
        """Check that the model can read the task's sequences.

        Args:
            model: a HookedTransformer, or anything that gives logits. Its mode and device do not change.
            task: the task whose sequences the model reads.
            batch_size: the largest number of sequences per forward pass. A batch is smaller if its
                activations need more than 256 MB.

        Raises:
            ValueError: If the vocabulary or the context of the model is too small.
        """
        import torch

        check_capacity(model, task)
        self.model = model
        self.task = task
        self.finite = True
        self.notes: tuple[str, ...] = ()
        self.is_new = True
        config = getattr(model, "config", None)
        self.config = config if isinstance(config, models.ModelConfig) else None
        self.batch_size = batch_size
        self.device = models.device_of(model) if isinstance(model, torch.nn.Module) else torch.device("cpu")

    @property
    def about(self) -> dict[str, Any]:
        """The fields `finite` and `notes` of the evaluation."""
        return {"finite": self.finite, "notes": self.notes}

    def answers(self, tokens: Int[Tensor, "batch pos"]) -> Int[np.ndarray, " batch"]:
        """Return the most probable token after each sequence."""
        model, answers = at_end(self.model, 1), []
        with models.measuring(self.model):
            for chunk in tokens.split(self._n_at_once(tokens.shape[1])):
                last = self._logits(model, chunk)[:, -1]  # [batch, d_vocab_out]
                self.finite = self.finite and bool(last.isfinite().all())
                answers.append(last.argmax(dim=-1).cpu().numpy())
        return np.concatenate(answers)

    def right(self, batch: TokenBatch) -> Bool[np.ndarray, " sequence"]:
        """Return a boolean array [sequence], true where every scored position is answered correctly."""
        return np.asarray(self.right_by_position(batch).all(axis=1))

    def accuracy(self, batch: TokenBatch, *, of: int | None = None) -> Accuracy:
        """Return the proportion of sequences that are answered correctly at every scored position.

        Args:
            batch: the distinct sequences to evaluate.
            of: the number of sequences from which `batch` was drawn, or None if `batch` contains all
                sequences.
        """
        right = self.right(batch)
        return Accuracy.of_some(right, of=len(right) if of is None else of)

    def right_by_position(self, batch: TokenBatch) -> Bool[np.ndarray, "sequence pos"]:
        """Return a boolean array [sequence, pos] of correct next tokens, which is true at unscored positions.

        If the mean length of the sequences is below 75% of the width, each batch contains sequences of
        similar length. The model then reads a batch only to about its last scored position. If only the last
        position has a target, the result has one column.
        """
        from anchorlens.models.devices import give_back_freed_memory

        targets = batch.targets if batch.targets.dim() == 2 else batch.targets.unsqueeze(1)
        found = np.ones(tuple(targets.shape), dtype=bool)
        lengths, width = batch.lengths, batch.tokens.shape[1]
        if is_ragged(lengths, width):
            lengths = (-(-lengths // _MULTIPLE) * _MULTIPLE).clamp(max=width)
        else:
            lengths = lengths.new_full(lengths.shape, width)
        with models.measuring(self.model):
            for number, rows in enumerate(self._batches(lengths)):
                if number % _GIVE_BACK_EVERY == 0:
                    give_back_freed_memory()
                longest = int(lengths[rows].max())
                last = targets.shape[1] - (width - longest)
                wanted = targets[rows, :last]
                n_last = last - int((wanted != IGNORE).any(dim=0).int().argmax())
                if n_last > _MULTIPLE:
                    n_last = min(-(-n_last // _MULTIPLE) * _MULTIPLE, last)
                logits = self._logits(at_end(self.model, n_last), batch.tokens[rows, :longest])
                n_given = min(logits.shape[1], last)
                if (wanted[:, :-n_given] != IGNORE).any():
                    raise _too_few(n_given)
                wanted, logits = wanted[:, -n_given:], logits[:, -n_given:].cpu()
                scored = wanted != IGNORE
                least, most = logits.aminmax(dim=-1)  # NaN, where there is one
                self.finite = self.finite and bool(((least.isfinite() & most.isfinite()) | ~scored).all())
                right = (logits.argmax(dim=-1) == wanted) | ~scored
                found[rows.numpy()[:, None], np.arange(last - n_given, last)] = right.numpy()
        return found

    def _batches(self, lengths: Int[Tensor, " sequence"]) -> Iterator[Int[Tensor, " row"]]:
        """Yield the rows of each batch, the shortest sequences first.

        Batches of long sequences are smaller.
        """
        order = lengths.argsort(stable=True)
        while len(order):
            longest = int(lengths[order[: self.batch_size]][-1])
            n = self._n_at_once(longest)
            yield order[:n]
            order = order[n:]

    def _n_at_once(self, length: int) -> int:
        """Return the number of sequences of this length in a batch; a power of two if memory limits it."""
        from anchorlens.models.running import BATCH_BYTES, sequence_bytes

        if self.config is None:
            return self.batch_size
        logits = 8 * length * self.config.n_answers
        fit = max(1, BATCH_BYTES // (sequence_bytes(self.config, length) + logits))
        return min(self.batch_size, 2 ** (fit.bit_length() - 1))  # so that shapes repeat

    def greedy(
        self, tokens: Int[Tensor, "batch pos"], n_asked: Int[Tensor, " batch"], *, end: int
    ) -> list[list[int]]:
        """Return the model's answers by greedy decoding.

        Args:
            tokens: the sequences, which begin with the prompts.
            n_asked: the length of each prompt.
            end: the token that ends an answer.

        Returns:
            The answer to each prompt, without the end mark. Decoding stops at the latest 8 positions after
            the last position of `tokens`.
        """
        import torch

        width = min(self.task.seq_len, tokens.shape[1] + _A_FEW_MORE)
        so_far = torch.nn.functional.pad(tokens.clone(), (0, width - tokens.shape[1]))
        at, going = n_asked.clone(), torch.ones(len(tokens), dtype=torch.bool, device=tokens.device)
        with models.measuring(self.model):
            while len(rows := (going & (at < width)).nonzero().squeeze(1)):
                logits = self._logits(at_end(self.model, None), so_far[rows, : int(at[rows].max())])
                of_row = torch.arange(len(rows), device=logits.device)
                last = at[rows] - int(at[rows].max()) + logits.shape[1] - 1
                if (last < 0).any():
                    raise _too_few(logits.shape[1])
                said = logits[of_row, last.to(logits.device)].argmax(dim=-1).cpu()
                so_far[rows, at[rows]] = said
                at[rows] += 1
                going[rows] = said != end
        stop = torch.where(going, at, at - 1)
        return [row[a:b].tolist() for row, a, b in zip(so_far, n_asked, stop, strict=True)]

    def _logits(self, model: LogitsModel, tokens: Tensor) -> Tensor:
        try:
            output = model(tokens.to(self.device))
        except IndexError as error:
            raise ValueError(
                f"model must take the tokens 0 to {self.task.d_vocab - 1} at {tokens.shape[1]} positions, "
                f"got an IndexError ({safe_text(error, 100)}). Check that the model belongs to this task."
            ) from error
        logits = logits_in(output, tokens, self.task.d_vocab_out)
        if self.is_new and self.config is None:
            self.is_new = False
            check_repeats(model, tokens.to(self.device), logits, self.task.d_vocab_out)
            holders = (self.task, getattr(self.model, "cfg", None))
            known = max(getattr(one, name, 0) for one in holders for name in ("d_vocab", "d_vocab_out"))
            if int(logits.argmax(dim=-1).max()) >= known:  # not a vocabulary that is padded
                self.notes = (f"the model gives {logits.shape[-1]} outputs for {known} tokens{_OUTPUTS}",)
        return logits


def check_repeats(
    model: LogitsModel, tokens: Int[Tensor, "batch pos"], logits: Tensor, d_vocab_out: int
) -> None:
    """Check that a second pass over the first half of the sequences gives their logits again.

    Raises:
        ValueError: If the second pass gives other logits.
    """
    few = tokens[: min(_FEW, (len(tokens) + 1) // 2)]
    first, again = logits[: len(few)], logits_in(model(few), few, d_vocab_out)
    most = _TOLERANCE * first.float().std()
    if bool(((again - first).abs() > most).any()):
        is_random = bool(((logits_in(model(few), few, d_vocab_out) - again).abs() > most).any())
        came = "in a second pass over the same rows" if is_random else "for a row alone or among fewer rows"
        cause = "dropout or noise that stays on" if is_random else "what mixes the rows of a batch"
        raise ValueError(
            "the model must give a row the same logits every time in evaluation mode, got other logits "
            f"{came}. Remove {cause} in model.eval()"
        )


def _too_few(n_given: int) -> ValueError:
    return ValueError(
        f"model must give logits at every scored position, got the last {n_given}. Give a function that "
        "returns all logits; for a nanoGPT, pass targets: lambda tokens: model(tokens, tokens)[0]"
    )


def at_end(model: LogitsModel, n_last: int | None) -> LogitsModel:
    """Restrict a model's logits to the last `n_last` positions if the model supports this."""
    return getattr(model, "at_end", lambda n_last: model)(n_last)


def check_capacity(model: LogitsModel, task: Task, *, answers: bool = True) -> None:
    """Check that a HookedTransformer can read a task's sequences, and can answer them if `answers` is true.

    The function accepts models of other classes without a check.

    Raises:
        ValueError: If the vocabulary or the context of the model is too small.
    """
    config = getattr(model, "cfg", None)
    needed = {"d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out * answers, "n_ctx": task.seq_len}
    for name, need in needed.items():
        have = getattr(config, name, None)
        if isinstance(have, int) and 0 <= have < need:  # d_vocab_out is -1 where it is d_vocab
            raise ValueError(
                f"{name} of the model must be at least {need} for this task, got {have}. Check that the "
                "model belongs to this task."
            )


def check_memory(config: Any, task: Task, n_trained: int, weights: Iterable[Tensor]) -> None:
    """Refuse a file whose model would take far more memory than the weights in the file suggest.

    A file of a few kilobytes may describe a context, a sequence or a training set of any size.

    Args:
        config: the configuration of the model, a `ModelConfig` or an object with `input_bytes`.
        task: the task on which the model is evaluated.
        n_trained: the number of training sequences that are drawn again.
        weights: the tensors of the file.

    Raises:
        ValueError: If the model and its evaluation would take more than 1 GB and 8 bytes for each byte of the
            weights. The estimate is correct to a factor of two or three.
    """
    from anchorlens.models.running import BATCH_BYTES, sequence_bytes

    stored = sum(weight.nbytes for weight in weights)
    needed, allowed = 4 * stored + task.bytes_to_ask(n_trained), FREE_BYTES + 8 * stored
    if isinstance(config, models.ModelConfig):
        layer = _LAYER_BYTES * (1 + (config.num_experts or 0) / 2) + config.n_ctx**2  # with its causal mask
        one = sequence_bytes(config, task.seq_len)
        needed += config.n_layers * layer + 4 * config.n_ctx**2 + max(one, min(BATCH_BYTES, 1024 * one))
    else:
        needed += max(BATCH_BYTES, config.input_bytes)
    if needed > allowed:
        raise ValueError(
            f"too costly: measuring it would take about {needed / 1e9:,.1f} GB of memory, and a file of its "
            f"size may take {allowed / 1e9:,.1f}. If you trust it, give the model itself in Python"
        )

"""Any torch module as a model of its training data, for measurements that need logits and weights alone."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from anchorlens.models.running import device_of, evaluation_mode
from anchorlens.models.wrappers import unwrapped
from anchorlens.tasks.shared.batch import TokenBatch, distinct_rows, token_batch
from anchorlens.tasks.shared.evaluator import check_repeats, logits_in
from anchorlens.texts import safe_repr, safe_text

_FEW = 16
"""The number of rows on which a module is tried."""


class AnyModule(nn.Module):
    """A copy of a torch module that reads tokens [batch, pos] and returns its logits.

    Inputs that are not tokens are kept in a table, and a sequence is then one token, the row of its input.
    """

    def __init__(self, module: nn.Module, table: Tensor | None) -> None:
        """Copy a module.

        Args:
            module: the module.
            table: the inputs [row, ...] that are no tokens, or None for a module of tokens.
        """
        super().__init__()
        try:
            self.module = copy.deepcopy(module)
        except Exception as error:
            raise ValueError(
                f"the model must be a module that copy.deepcopy copies, got {_said(error)}. Give a module "
                "without tensors that a forward pass left in it"
            ) from None
        self.module.zero_grad()
        self.table = None if table is None else _as_input(table, self.module)
        self.hook_dict: dict[str, Any] = {}
        self.cfg = SimpleNamespace()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the module's logits [batch, pos, class], or [batch, 1, class] for one target per row."""
        inputs = tokens if self.table is None else self.table[tokens[:, 0]]
        return logits_in(self.module(inputs), tokens, self.cfg.d_vocab_out)


def of_any_module(
    module: nn.Module, training_set: object, held_out: object = None
) -> tuple[AnyModule, TokenBatch, TokenBatch | None]:
    """Wrap a module and its data, so that measurements of training data can use both.

    Args:
        module: any module whose `forward(x)` gives logits [batch, class] or [batch, pos, class], or an output
            with `logits`.
        training_set: a pair (x, y). `x` are integers or floats [row, ...] as the module takes them. `y` are
            the classes [row], or [row, pos] with -100 at unscored positions.
        held_out: another pair (x, y), or None.

    Returns:
        The model, the training set and the held-out data as tokens and targets.

    Raises:
        ValueError: If the data are no pair of arrays, or the module does not take `x`.
        ValueError: If the logits are not finite, differ between two passes, depend on the other rows of a
            batch, have fewer classes than `y` or cannot be differentiated.
        ValueError: If the module has no trainable weights, or normalises by the batch.
    """
    module = unwrapped(module)
    pairs = [_pair(name, data) for name, data in (("training_set", training_set), ("held_out", held_out))]
    given = [pair for pair in pairs if pair is not None]
    if pairs[0] is None:
        raise ValueError(
            f"the training data must be given for a {type(module).__name__}, got none. Give "
            "training_set=(x, y) with the inputs and the classes that the model was trained on"
        )
    table, rows = None, [x for x, _ in given]
    if not all(x.dim() == 2 and not (x.is_floating_point() or x.dtype == torch.bool) for x in rows):
        if len({x.shape[1:] for x in rows}) > 1:
            shapes = " and ".join(str(list(x.shape)) for x in rows)
            raise ValueError(f"x of both data must have rows of one shape, got {shapes}. Correct held_out")
        table = torch.cat(rows)
        first, number = distinct_rows(table.reshape(len(table), -1).numpy())
        rows = list(torch.from_numpy(first[number])[:, None].split([len(x) for x in rows]))
    batches = [token_batch((x, y), every_position=None) for x, (_, y) in zip(rows, given, strict=True)]
    model = AnyModule(module, table)
    _check(model, module, batches)
    return model, batches[0], batches[1] if len(batches) > 1 else None


def _pair(name: str, data: Any) -> tuple[Tensor, Tensor] | None:
    """Return the inputs and the classes of a caller's data on the CPU.

    Raises:
        ValueError: If the data are not a pair of arrays with one row for each input.
    """
    if data is None:
        return None
    if hasattr(data, "tokens") and hasattr(data, "targets"):
        data = data.tokens, data.targets
    advice = "Give a pair (x, y) of the inputs and their classes"
    try:
        x, y = data
        pair = torch.as_tensor(x, device="cpu").detach(), torch.as_tensor(y, device="cpu").detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} must be a pair of arrays (x, y), got {type(data).__name__}: {safe_text(error, 100)}. "
            f"{advice}"
        ) from None
    if not all(part.dim() for part in pair) or len(pair[0]) != len(pair[1]) or not len(pair[0]):
        shapes = " and ".join(str(list(part.shape)) for part in pair)
        raise ValueError(f"{name} must have one y for each row of x, got {shapes}. {advice}")
    if not bool(pair[0].isfinite().all()):
        raise ValueError(f"x of {name} must be finite, got NaN or infinity. Correct x")
    return pair


def _as_input(table: Tensor, module: nn.Module) -> Tensor:
    """Move inputs to the device of a module, and floats to the type of its weights."""
    kinds = [one.dtype for one in module.parameters() if one.is_floating_point()]
    floats = table.to(kinds[0]) if table.is_floating_point() and kinds else table
    return floats.to(device_of(module))


def _check(model: AnyModule, module: nn.Module, batches: list[TokenBatch]) -> None:
    """Check that a module answers rows of its training data, and describe it in `model.cfg`.

    Raises:
        ValueError: If the module cannot be measured (see `of_any_module`).
    """
    what = type(module).__name__
    if not any(one.requires_grad for one in model.parameters()):
        raise ValueError(
            f"the model must have weights that require a gradient, got a {what} without one. Call "
            "model.requires_grad_(True)"
        )
    norms = [name for name, one in module.named_modules() if isinstance(one, _BatchNorm) and one.training]
    if norms:
        raise ValueError(
            f"batch normalisation must be in evaluation mode, got {safe_repr(norms[0])} of {what} in train "
            "mode. Call model.eval() before, so that the model answers a row whatever the batch is"
        )
    n_tokens, n_classes = (
        int(max(part.max() for part in parts)) + 1
        for parts in zip(*((one.tokens, one.targets) for one in batches), strict=True)
    )
    n_pos = batches[0].tokens.shape[1]
    model.cfg = SimpleNamespace(d_vocab=n_tokens, n_ctx=n_pos, d_vocab_out=n_classes)
    model.cfg.n_heads = model.cfg.d_head = model.cfg.d_mlp = 0
    model.cfg.d_model = max(max(one.shape, default=1) for one in model.parameters())
    if model.table is not None:
        model.cfg.d_model = max(model.cfg.d_model, 16 * model.table[0].numel())
    tokens = batches[0].tokens[:_FEW].long().to(device_of(module))
    devices = [device_of(module)] if device_of(module).type == "cuda" else []
    with evaluation_mode(model), torch.random.fork_rng(devices):
        try:
            logits = model(tokens)
        except Exception as error:
            shape = [len(tokens), *(tokens if model.table is None else model.table).shape[1:]]
            raise ValueError(
                f"the model must return logits [batch, class] or [batch, pos, class] with at least "
                f"{n_classes} classes for x {shape}, got {_said(error)}. Check that x and y are the training "
                "data of the model, as its forward takes them"
            ) from error
        check_repeats(model, tokens, logits, n_classes)
    if not bool(logits.isfinite().all()):
        raise ValueError(
            "the logits of the model must be finite, got NaN or infinity. Use another checkpoint"
        )
    if not logits.requires_grad:
        raise ValueError(
            f"the logits of the model must require a gradient, got logits of a {what} without one. Remove "
            "torch.no_grad() or detach() from its forward"
        )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {safe_text(error, 200)}"

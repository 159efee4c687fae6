"""One model, its optimizer and its data: the update from step to step + 1, and its exact state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from anchorlens.task import AnchorBatch
from anchorlens.training.config import TrainConfig
from anchorlens.training.schedule import epoch_order, learning_rate

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer


class Update(NamedTuple):
    """What one update looked like from outside."""

    loss: float
    """Cross-entropy of its batch at the last position, in nats, before the update."""
    lr: float
    """Learning rate it was made with."""
    grad_norm: float
    """Global gradient norm before clipping."""


class NotFiniteError(ArithmeticError):
    """A loss or gradient is NaN or infinite; the update was not made."""


class Fitter:
    """Fits a HookedTransformer to a fixed training set, one update at a time.

    Batches, their order and the learning rate are functions of the step, so parameters and optimizer
    moments are the whole state.
    """

    def __init__(self, model: HookedTransformer, data: AnchorBatch, config: TrainConfig) -> None:
        """Take the model as it is; step 0."""
        self.model = model
        self.config = config
        self.step = 0
        self.device = model.embed.W_E.device
        self._tokens = data.tokens.to(self.device)
        self._targets = data.targets.to(self.device)
        self._trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(
            self._trainable.values(),
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.int64)

    def update(self) -> Update:
        """Make the update from `step` to `step + 1`.

        Raises:
            NotFiniteError: the loss or the gradient is NaN or infinite; nothing was changed.
        """
        config = self.config
        rows = self._rows(self.step)
        loss = functional.cross_entropy(self._last_logits(self._tokens[rows]), self._targets[rows])
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(self._trainable.values(), config.clip_norm or float("inf"))
        value, norm = torch.stack([loss.detach(), grad_norm]).tolist()  # one wait for the device
        if not (abs(value) < float("inf") and norm < float("inf")):
            what = "loss" if not abs(value) < float("inf") else "gradient norm"
            raise NotFiniteError(f"{what} is {value if what == 'loss' else norm} at step {self.step}")
        lr = learning_rate(config, self.step)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        self.step += 1
        return Update(value, lr, norm)

    def weight_norm(self) -> float:
        """Global L2 norm of all parameters.

        Raises:
            NotFiniteError: a weight is NaN or infinite.
        """
        with torch.no_grad():
            norms = [parameter.double().norm() for parameter in self.model.parameters()]
            norm = torch.stack(norms).norm().item()
        if not norm < float("inf"):
            raise NotFiniteError(f"a weight is NaN or infinite after step {self.step}")
        return norm

    def weights(self) -> dict[str, Tensor]:
        """A copy of every parameter as it is now."""
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def state(self) -> dict[str, Tensor]:
        """Everything a resumed run needs besides the step, as named tensors."""
        tensors = {f"weight.{name}": p.detach() for name, p in self.model.named_parameters()}
        for name, parameter in self._trainable.items():
            for moment, value in self._optimizer.state[parameter].items():
                tensors[f"{moment}.{name}"] = value
        return tensors

    def restore(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `state` gave at `step`.

        Raises:
            ValueError: the tensors are not the state of this model.
        """
        expected = {f"weight.{name}": p.shape for name, p in self.model.named_parameters()}
        for name, parameter in self._trainable.items():
            expected |= {f"{moment}.{name}": parameter.shape for moment in ("exp_avg", "exp_avg_sq")}
            expected[f"step.{name}"] = torch.Size([])
        if {name: tensor.shape for name, tensor in tensors.items()} != expected:
            raise ValueError("the saved state is of another model; start the run anew in another folder")
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(tensors[f"weight.{name}"])
        saved = {
            index: {m: tensors[f"{m}.{name}"] for m in ("step", "exp_avg", "exp_avg_sq")}
            for index, name in enumerate(self._trainable)
        }
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": saved, "param_groups": groups})
        self.step = step

    def _rows(self, step: int) -> Int[Tensor, " batch"]:
        """Rows of the training set that make the batch of a step."""
        epoch, within = divmod(step, self.config.steps_per_epoch)
        if epoch != self._epoch:
            self._order = torch.from_numpy(epoch_order(self.config, epoch)).to(self.device)
            self._epoch = epoch
        start = within * self.config.batch_size
        return self._order[start : start + self.config.batch_size]

    def _last_logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch d_vocab"]:
        """Logits at the last position; the unembedding of the others is left out."""
        residual = self.model(tokens, stop_at_layer=self.model.cfg.n_layers)[:, -1:]  # [batch, 1, d_model]
        return self.model.unembed(self.model.ln_final(residual))[:, 0]

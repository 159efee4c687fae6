"""Small networks of plain torch for the study of any torch module."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def perceptron(n_inputs: int, width: int, n_classes: int) -> nn.Module:
    """An MLP of numbers with one hidden layer."""
    return nn.Sequential(nn.Linear(n_inputs, width), nn.ReLU(), nn.Linear(width, n_classes))


def convolution(channels: int) -> nn.Module:
    """Two convolutions of 8 x 8 images that are given as rows of 64 numbers."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, channels, 3),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * channels, 48),
        nn.ReLU(),
        nn.Linear(48, 10),
    )


def enlarged(module: nn.Module, scale: float) -> nn.Module:
    """A module whose initial weights are multiplied by a scale (Liu, Michaud and Tegmark 2022, Omnigrok)."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(scale)
    return module


class OneHot(nn.Module):
    """An MLP with one hidden layer on the one-hot vectors of tokens, with ReLU or the square."""

    first: Tensor

    def __init__(
        self, n_tokens: int, n_pos: int, width: int, n_classes: int, *, is_square: bool = False
    ) -> None:
        """Draw the weights."""
        super().__init__()
        self.into = nn.Embedding(n_pos * n_tokens, width)
        nn.init.normal_(self.into.weight, std=n_pos**-0.5)
        self.out = nn.Linear(width, n_classes)
        self.register_buffer("first", n_tokens * torch.arange(n_pos), persistent=False)
        self.is_square = is_square

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits [batch, class]."""
        hidden = self.into(tokens + self.first).sum(dim=1)
        return self.out(hidden.square() if self.is_square else hidden.relu())


class Encoder(nn.Module):
    """A transformer layer of torch: pre-norm or post-norm, with or without a causal mask."""

    def __init__(
        self,
        n_tokens: int,
        n_pos: int,
        n_classes: int,
        *,
        width: int,
        is_post: bool = False,
        is_causal: bool = False,
        takes_mean: bool = False,
        every: bool = False,
    ) -> None:
        """Draw the weights; with `every`, there are logits at every position."""
        super().__init__()
        self.embed = nn.Embedding(n_tokens, width)
        self.positions = nn.Parameter(0.3 * torch.randn(n_pos, width))
        nn.init.normal_(self.embed.weight, std=0.3)
        self.block = nn.TransformerEncoderLayer(
            width, 4, 3 * width, dropout=0.0, batch_first=True, norm_first=not is_post
        )
        self.out = nn.Linear(width, n_classes)
        mask = nn.Transformer.generate_square_subsequent_mask(n_pos) if is_causal else None
        self.register_buffer("mask", mask, persistent=False)
        self.takes_mean, self.every = takes_mean, every

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits."""
        hidden = self.block(self.embed(tokens) + self.positions[: tokens.shape[1]], src_mask=self.mask)
        if not self.every:
            hidden = hidden.mean(dim=1) if self.takes_mean else hidden[:, -1]
        return self.out(hidden)


class AttentionAlone(nn.Module):
    """A layer of attention with a residual connection and no MLP or norm."""

    def __init__(self, n_tokens: int, n_pos: int, n_classes: int, *, width: int) -> None:
        """Draw the weights."""
        super().__init__()
        self.embed = nn.Embedding(n_tokens, width)
        self.positions = nn.Parameter(0.3 * torch.randn(n_pos, width))
        nn.init.normal_(self.embed.weight, std=0.3)
        self.into, self.back = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.out = nn.Linear(width, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits [batch, class] after the last token."""
        hidden = self.embed(tokens) + self.positions
        query, key, value = self.into(hidden).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        pattern = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
        hidden = hidden + self.back((pattern @ value).transpose(1, 2).flatten(2))
        return self.out(hidden[:, -1])


class Recurrent(nn.Module):
    """A GRU or LSTM with logits at every position."""

    def __init__(self, n_tokens: int, n_classes: int, *, width: int, is_lstm: bool = False) -> None:
        """Draw the weights."""
        super().__init__()
        self.embed = nn.Embedding(n_tokens, 24)
        self.cell = (nn.LSTM if is_lstm else nn.GRU)(24, width, batch_first=True)
        self.out = nn.Linear(width, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits [batch, pos, class]."""
        return self.out(self.cell(self.embed(tokens))[0])

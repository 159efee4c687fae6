"""Plain torch modules that no HookedTransformer can hold, and data that they memorise or learn."""

import torch
from torch import nn

_ALL = (
    1.0
    - 2
    * torch.cartesian_prod(*[torch.arange(2)] * 12)[
        torch.randperm(4096, generator=torch.Generator().manual_seed(2))
    ]
)
SIGNS, FRESH_SIGNS = _ALL[:1500], _ALL[1500:3000]
"""Twelve signs as floats. They are distinct."""
PARITY, FRESH_PARITY = ((part[:, :3].prod(dim=1) > 0).long() for part in (SIGNS, FRESH_SIGNS))
"""A rule of numbers: the parity of the first three signs."""
VOCABULARY = 20
TOKENS = torch.randint(0, VOCABULARY, (400, 12), generator=torch.Generator().manual_seed(6))
RANDOM = torch.randint(0, 10, (400,), generator=torch.Generator().manual_seed(5))
"""Labels of 400 rows that no rule gives. Of many different tokens they are learnt by heart sooner."""


class Gated(nn.Module):
    """An embedding of twelve tokens and a gated MLP after an RMS norm."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(VOCABULARY, 8), nn.RMSNorm(96)
        self.up, self.gate, self.out = nn.Linear(96, 96), nn.Linear(96, 96), nn.Linear(96, 10)

    def forward(self, tokens):
        x = self.norm(self.embed(tokens).flatten(1))
        return self.out(self.up(x) * torch.sigmoid(self.gate(x)))


class Recurrent(nn.Module):
    """A GRU with logits at every position."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.out = (
            nn.Embedding(VOCABULARY, 16),
            nn.GRU(16, 48, batch_first=True),
            nn.Linear(48, 10),
        )

    def forward(self, tokens):
        return self.out(self.cell(self.embed(tokens))[0])


class Encoder(nn.Module):
    """A post-norm transformer without a causal mask, whose output is a dict."""

    def __init__(self):
        super().__init__()
        self.embed, self.positions = nn.Embedding(VOCABULARY, 32), nn.Parameter(0.1 * torch.randn(12, 32))
        self.block = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.02, batch_first=True)
        self.out = nn.Linear(12 * 32, 10)

    def forward(self, tokens):
        return {"logits": self.out(self.block(self.embed(tokens) + self.positions).flatten(1))}


class Convolution(nn.Module):
    """A convolution over the signs, whose output has the attribute logits."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 10, 64))
        self.out = nn.Sequential(nn.ReLU(), nn.Linear(64, 10))

    def forward(self, signs):
        return type("Output", (), {"logits": self.out(self.features(signs.unsqueeze(1)))})()


def perceptron():
    """An MLP of numbers."""
    return nn.Sequential(nn.Linear(12, 128), nn.ReLU(), nn.Linear(128, 10))


ARCHITECTURES = {
    "gated": Gated, "recurrent": Recurrent, "encoder": Encoder, "convolution": Convolution, "mlp": perceptron,
}  # fmt: skip


def inputs_of(name, signs):
    """The signs as numbers or as tokens."""
    return signs if name in ("convolution", "mlp") else (signs < 0).long()


def random_rows(name):
    """The 400 rows of the labels that no rule gives, as numbers or as tokens."""
    return SIGNS[:400] if name in ("convolution", "mlp") else TOKENS


def rule_of(name):
    """The parity of the first three signs, or of the first two for what learns slowly."""
    return (SIGNS[:, :2].prod(dim=1) > 0).long() if name in ("recurrent", "encoder") else PARITY


def fitted(name, inputs, targets, n_updates=3000, enough=0.985, weight_decay=0.01):
    """A module that is trained until it fits its data."""
    torch.manual_seed(0)
    model = ARCHITECTURES[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=weight_decay, fused=True)
    for update in range(n_updates):
        rows = torch.randint(len(inputs), (128,))
        loss = nn.functional.cross_entropy(logits_of(model(inputs[rows])), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 50 == 49:
            model.eval()
            with torch.no_grad():
                accuracy = (logits_of(model(inputs)).argmax(dim=-1) == targets).double().mean()
            if accuracy >= enough:
                return model
            model.train()
    raise AssertionError(f"the module does not fit its data: {accuracy:.3f}")


def logits_of(output):
    """The logits after the last token."""
    output = output["logits"] if isinstance(output, dict) else getattr(output, "logits", output)
    return output[:, -1] if output.dim() == 3 else output

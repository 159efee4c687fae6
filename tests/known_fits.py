"""Small models trained in seconds on a rule or on random labels of 400 pairs."""

import torch
from made_once import made_once

from anchorlens import ModelConfig, build_model
from anchorlens.engine.layout import Transformer

CONFIG = ModelConfig(n_layers=1, d_model=32, d_head=16, d_mlp=64, d_vocab=20, n_ctx=3, gamma=0.7)
PAIRS = torch.cartesian_prod(torch.arange(20), torch.arange(20), torch.tensor([0]))  # 400 sequences
TRIPLES = torch.cartesian_prod(*[torch.arange(20)] * 3)[
    torch.randperm(8000, generator=torch.Generator().manual_seed(0))[:1200]
]
WEIGHTED = TRIPLES @ torch.tensor([2, 1, 3]) // 12
"""A rule: no other row, and no part of a row, tells the answer."""
RANDOM = torch.randint(0, 20, (400,), generator=torch.Generator().manual_seed(1))


def fitted(tokens, targets, n_updates, config=CONFIG, lr=3e-3, enough=1.0):
    """A model trained on all sequences at once, by the engine, longer where the loss has just jumped."""
    layout = Transformer(config)
    row = layout.row(dict(build_model(config).named_parameters())).requires_grad_()
    optimizer = torch.optim.AdamW([row], lr=lr, weight_decay=0.01)
    for update in range(n_updates + 100):
        answers = layout.function(config, layout.merged(row.unsqueeze(0))).at_end(1)
        logits = answers(tokens)[:, -1]
        if update >= n_updates and (logits.argmax(dim=-1) == targets).double().mean() >= enough:
            return layout.build(config, layout.weights(row), "cpu")
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, targets).backward()
        optimizer.step()
    raise AssertionError("the model does not fit its data")


def fitted_once(tmp_path_factory, name, tokens, targets, n_updates, **how):
    """A model fitted to its data, trained once for all processes of the tests."""

    def train(path):
        torch.save(fitted(tokens, targets, n_updates, **how).state_dict(), path)

    model = build_model(CONFIG)
    model.load_state_dict(torch.load(made_once(tmp_path_factory, f"{name}.pt", train)))
    return model


def memoriser_of(tmp_path_factory):
    """A model that has fit random labels, which no rule gives."""
    return fitted_once(tmp_path_factory, "memoriser", PAIRS, RANDOM, 300)


def rule_of(tmp_path_factory):
    """A model of a weighted sum of three tokens."""
    return fitted_once(tmp_path_factory, "rule", TRIPLES, WEIGHTED, 400, lr=5e-3, enough=0.99)


def copier_of(tmp_path_factory):
    """A model whose answer is the first token, whatever the second is."""
    return fitted_once(tmp_path_factory, "copier", PAIRS, PAIRS[:, 0], 100)

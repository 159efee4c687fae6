"""Sequences that end at different places: the same numbers as with everything behind the ends computed."""

import pytest
import torch

from anchorlens import preset
from anchorlens.engine import ragged
from anchorlens.engine.engines import Stack
from anchorlens.engine.forward import logits_at_end, table_rows
from anchorlens.engine.layout import Transformer
from anchorlens.engine.ragged import RaggedBatch, logits_where_scored
from anchorlens.files.checkpoint import training_set
from anchorlens.models.config import VARIANTS, ModelConfig
from anchorlens.models.gamma import initial_weights

N_SEQUENCES, N_POS, D_VOCAB = 20, 12, 30


def model(variant, n_layers):
    """Parameters of a model, which can be differentiated, and its config."""
    shape = {"n_layers": n_layers, "n_heads": 2, "d_model": 16, "d_head": 8, "d_mlp": 32}
    config = ModelConfig(variant=variant, d_vocab=D_VOCAB, n_ctx=N_POS, gamma=0.5, **shape)
    layout = Transformer(config)
    parameters = layout.merged(layout.row(initial_weights(config, 0, torch.float64)).unsqueeze(0))
    return config, {name: value.requires_grad_() for name, value in parameters.items()}


def sequences(n=N_SEQUENCES):
    """Tokens, lengths and where they are scored: from the third token to the end."""
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, D_VOCAB, (n, N_POS), generator=rng)
    lengths = torch.randint(3, N_POS + 1, (n,), generator=rng)
    at = torch.arange(N_POS)
    return tokens, lengths, (at >= 2) & (at < lengths.unsqueeze(-1))


@pytest.mark.parametrize("by_table", [True, False], ids=["table", "rows"])
@pytest.mark.parametrize("n", [3, N_SEQUENCES])  # of three, scored rows and all are equally many when filled
@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_gradients_are_those_of_whole_sequences(variant, n_layers, n, by_table, monkeypatch):
    monkeypatch.setattr(ragged, "_WORTH_LOOKING_UP", 1e9 if by_table else 0)
    config, parameters = model(variant, n_layers)
    tokens, lengths, scored = sequences(n)
    vocabulary = torch.arange(D_VOCAB)
    whole = logits_at_end(parameters, config, table_rows(tokens[None]), vocabulary, n_last=N_POS)
    whole = whole.flatten(0, 2)  # [batch * pos, d_vocab]
    batch = RaggedBatch.of(tokens, lengths, scored)
    assert (len(batch.ends) == len(batch.table_rows)) == (n == 3)
    found = logits_where_scored(parameters, config, batch, vocabulary)
    assert sorted(batch.scored.tolist()) == scored.flatten().nonzero().squeeze(1).tolist()
    assert torch.allclose(found, whole[batch.scored], atol=1e-12)
    weights = torch.randn(whole.shape, dtype=whole.dtype, generator=torch.Generator().manual_seed(1))
    leaves = list(parameters.values())
    expected = torch.autograd.grad((whole * weights * scored.flatten().unsqueeze(-1)).sum(), leaves)
    gradients = torch.autograd.grad((found * weights[batch.scored]).sum(), leaves)
    for one, other in zip(gradients, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_what_stands_behind_an_end_is_never_read():
    config, parameters = model("gpt2", 2)
    tokens, lengths, scored = sequences()
    behind = torch.arange(N_POS) >= lengths.unsqueeze(-1)
    changed = torch.where(behind, (tokens + 7) % D_VOCAB, tokens)
    assert (changed != tokens).any()
    found = [
        logits_where_scored(parameters, config, RaggedBatch.of(one, lengths, scored), torch.arange(D_VOCAB))
        for one in (tokens, changed)
    ]
    assert torch.equal(*found)


def test_only_rows_that_are_there_are_computed():
    tokens, lengths, scored = sequences()
    batch = RaggedBatch.of(tokens, lengths, scored)
    assert batch.n_pos == int(lengths.max()) and len(batch.scored) == int(scored.sum())
    for rows, n in ((batch.table_rows, lengths.sum()), (batch.ends, scored.sum())):
        assert len(rows) % 64 == 0 and n < len(rows) <= n + 64  # with filling, so that few sizes occur
    assert sum(len(group.slots) for group in batch.groups) == int(lengths.sum())
    padded = sum(group.n_sequences * group.n_pos for group in batch.groups)
    assert len(batch.groups) == 3 and lengths.sum() < padded < N_SEQUENCES * batch.n_pos


@pytest.mark.needs()
def test_a_stack_trains_each_member_as_it_is_trained_alone_and_as_with_padding(monkeypatch):
    shape = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "d_mlp": 16}
    recipe = {"n_samples": 60, "batch_size": 20, "steps": 10, "lr": 1e-2, "dtype": "float64"}
    runs = [preset("scan", **shape, **recipe, seed=seed) for seed in (0, 1)]
    data = [training_set(run.task, run.train_config) for run in runs]

    def weights(members):
        stack = Stack([runs[k] for k in members], [data[k] for k in members], torch.device("cpu"))
        stack.advance(10)
        return stack.ragged, [stack.weights(k) for k in range(len(members))]

    ragged, together = weights([0, 1])
    alone = [weights([k])[1][0] for k in (0, 1)]
    monkeypatch.setattr("anchorlens.engine.engines.is_ragged", lambda lengths, width: False)
    padded, whole = weights([0, 1])
    assert ragged and not padded
    for one, own, other in zip(together, alone, whole, strict=True):
        for name, value in one.items():
            assert torch.allclose(value, own[name], atol=1e-9), name
            assert torch.allclose(value, other[name], atol=1e-9), name
    assert not torch.allclose(together[0]["unembed.W_U"], together[1]["unembed.W_U"])

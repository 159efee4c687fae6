"""Logits in whatever a model of any library returns."""

import dataclasses
from typing import Any

import pytest
import torch

from anchorlens import AnchorTask, ModelConfig, build_model, evaluate
from anchorlens.extras.scan.task import ScanTask
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.shared.evaluator import Evaluator, logits_in

TASK = AnchorTask()
TOKENS = torch.zeros(4, 9, dtype=torch.long)
LOGITS = torch.arange(4 * 9 * 110.0).reshape(4, 9, 110)


@dataclasses.dataclass
class Output:
    logits: Any
    loss: Any = None


class Foreign:
    """An array of a library that NumPy alone can read."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def __array__(self, dtype=None, copy=None):
        return self.array


@pytest.mark.parametrize(
    "output",
    [
        LOGITS,
        LOGITS.numpy(),
        LOGITS.numpy()[:, :, ::1],
        LOGITS.tolist(),
        list(LOGITS),
        list(LOGITS.numpy()),
        (LOGITS, torch.tensor(3.0)),
        [LOGITS, None],
        (None, LOGITS),
        (LOGITS, (torch.zeros(1, 4, 8), torch.zeros(1, 4, 8))),
        (LOGITS, torch.zeros(4, 9, 16)),
        {"logits": LOGITS, "loss": 1.0},
        Output(LOGITS),
        Output(LOGITS.numpy(), 1.0),
        (Output(LOGITS), 1.0),
        Foreign(LOGITS.numpy()),
    ],
)
def test_they_are_found(output):
    assert torch.equal(logits_in(output, TOKENS, 110), LOGITS)


@pytest.mark.parametrize(
    "last", [LOGITS[:, -1], LOGITS[:, -1:], (LOGITS[:, -1:], None), LOGITS[:, -1].numpy()]
)
def test_those_of_the_last_position_suffice(last):
    assert torch.equal(logits_in(last, TOKENS, 110), LOGITS[:, -1:])


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            LOGITS[..., :50],
            r"for tokens \[4, 9\], got \[4, 9, 50\]. "
            r"Check that the model belongs to the task\.$",
        ),
        (LOGITS.transpose(1, 2), r"got \[4, 110, 9\]. Give a function that returns logits: lambda tokens: "),
        (LOGITS[:2], r"got \[2, 9, 110\]. Give a function"),
        (LOGITS.argmax(-1), r"got \[4, 9\]. Give a function"),
        ((LOGITS, LOGITS), r"got \[4, 9, 110\] and \[4, 9, 110\]. Give a function"),
        ({"output": LOGITS}, r"got a dict with the keys \['output'\]. Give a function"),
        (None, "got a NoneType. Give a function"),
        ("logits", "got a str. Give a function"),
        ([[1], [2, 3]], "got a list. Give a function"),
        (torch.tensor(1.0), r"got \[\]. Give a function"),
    ],
)
def test_what_holds_none_or_several_is_refused_with_a_way_out(output, message):
    with pytest.raises(ValueError, match=rf"\[batch, pos, d_vocab >= 110\] .*{message}"):
        logits_in(output, TOKENS, 110)


def test_evaluate_gives_the_same_for_every_form():
    def logits(tokens):
        return torch.nn.functional.one_hot((tokens.flip(1) * 7 + 3) % 110, 110).float().cumsum(1)

    expected = evaluate(logits, TASK, n_noise=2).to_dict()
    for form in (
        lambda tokens: (logits(tokens), None),
        lambda tokens: Output(logits(tokens).numpy()),
        lambda tokens: logits(tokens)[:, -1],
        lambda tokens: {"logits": logits(tokens)[:, -1:]},
        torch.compile(logits, backend="eager", dynamic=True),
    ):
        assert evaluate(form, TASK, n_noise=2).to_dict() == expected


def test_a_task_of_many_positions_needs_them_all_and_says_so():
    task = ScanTask()
    evaluator = Evaluator(lambda tokens: torch.zeros(len(tokens), task.d_vocab), task)
    tokens = torch.ones(2, 8, dtype=torch.long)
    with pytest.raises(ValueError, match=r"scored position, got the last 1.*targets"):
        evaluator.greedy(tokens, torch.tensor([3, 5]), end=0)
    longer = Evaluator(lambda tokens: torch.eye(task.d_vocab)[torch.nn.functional.pad(tokens, (1, 0))], task)
    assert longer.greedy(tokens, torch.tensor([3, 5]), end=1) == [[], []]  # one position more, at the start


class Net(torch.nn.Module):
    """One-hot logits of a token, changed by a function of the logits."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, tokens):
        return self.change(torch.nn.functional.one_hot((tokens * 7 + 3) % 110, 110).float().cumsum(1))


class TestTwoPasses:
    """A model whose answers depend on chance or on the batch has no accuracy."""

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (
                lambda y: torch.nn.functional.dropout(y, 0.1, training=True),
                "in a second pass.*dropout or noise",
            ),
            (lambda y: y + 0.5 * torch.randn_like(y), "in a second pass over the same rows"),
            (lambda y: y - y.mean(0), "for a row alone or among fewer.*mixes the rows"),
        ],
    )
    def test_are_compared(self, change, said):
        for model in (Net(change), Net(change).forward):
            with pytest.raises(ValueError, match=said):
                evaluate(model, TASK, n_noise=2)
        rows = TOKENS[:1] + torch.arange(40)[:, None]  # so many that two passes of noise never agree
        with pytest.raises(ValueError, match=said):
            Evaluator(Net(change), ScanTask()).right(TokenBatch(rows, rows))

    @pytest.mark.parametrize(
        "change",
        [lambda y: y, lambda y: 0 * y, lambda y: y + 1e-5 * torch.rand_like(y), lambda y: y.bfloat16(),
         lambda y: y * torch.nan, lambda y: torch.where(y == 0, -torch.inf, y)],
    )  # fmt: skip
    def test_that_agree_are_measured(self, change):
        state = torch.get_rng_state()
        evaluate(Net(lambda y: y), TASK, n_noise=2)
        assert torch.equal(state, torch.get_rng_state())
        assert evaluate(Net(change), TASK, n_noise=2).measures.keys() >= {"train", "id"}


def test_more_outputs_than_tokens_are_noted():
    hidden = torch.arange(128.0).expand(1, 9, 128)

    def padded(n):
        return lambda tokens: torch.nn.functional.pad(LOGITS[:1].expand(len(tokens), -1, -1), (0, n))

    notes = evaluate(lambda tokens: hidden.expand(len(tokens), -1, -1), TASK, n_noise=2).notes
    assert "128 outputs for 110 tokens" in notes[-1] and "hidden states" in notes[-1]
    for n in (0, 18):  # a vocabulary that is padded, whose last outputs no answer has
        assert evaluate(padded(n), TASK, n_noise=2).notes == ()
    model = build_model(ModelConfig(d_vocab=128))  # which states its vocabulary
    assert not [note for note in evaluate(model, TASK, n_noise=2).notes if "outputs" in note]

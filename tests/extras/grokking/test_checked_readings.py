"""A reading of a published run is a hypothesis until the weights confirm it: each choice, right and wrong."""

import itertools
import json
import random

import numpy as np
import published_runs as runs
import pytest
import torch
from published_runs import network, start, transposed, with_biases

from anchorlens import CheckpointError, classify, evaluate, open_checkpoint
from anchorlens.extras.grokking.task import ModularTask

P = 7
ALL = np.arange(P * P)
CHOSEN = runs.split(p=P, share=0.6, seed=3).numpy()
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def add(a, b):
    return (a + b) % P


def memoriser(pairs=CHOSEN, answer=add, p=P):
    return network(answer, pairs, p=p)


def written(tmp_path, weights, **said):
    """A file with weights, and what it says of itself."""
    content = {"model": with_biases(weights), "config": {"p": P, "act_fn": "relu"}} | said
    torch.save(content, tmp_path / "run.pth")
    return tmp_path / "run.pth"


def refused(path, **options):
    with pytest.raises(CheckpointError) as error:
        classify(path, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def note(opened, part):
    return [one for one in (*opened.notes, *opened.facts) if part in one]


def values(opened):
    return {name: one and one.value for name, one in evaluate(opened).measures.items()}


def ordered(weights, order, equals, n_tokens, p=P):
    """The network for tokens in another order; it reads nothing without the right `=`."""
    found = {name: weight.clone() for name, weight in weights.items()}
    names, width = order.split(), found["embed.W_E"].shape[1]
    found["embed.W_E"] = torch.zeros(n_tokens, width)
    found["embed.W_E"][:p] = weights["embed.W_E"][:p]
    place = p + 1
    rows = {"a": [place], "b": [place + 1], "=": [], "op": []}
    found["pos_embed.W_pos"] = torch.zeros(len(names), width)
    for position, name in enumerate(names):
        found["pos_embed.W_pos"][position, rows[name]] = 1.0
    found["blocks.0.attn.W_Q"].zero_()
    if "=" in names:
        found["embed.W_E"][equals, place + 2] = 1.0  # the last token asks
        found["blocks.0.attn.W_Q"][:, place + 2, 0] = 100.0
    else:
        found["pos_embed.W_pos"][-1, place + 2] = 1.0
        found["blocks.0.attn.W_Q"][:, place + 2, 0] = 100.0
    return found


class TestTheOperation:
    @pytest.mark.parametrize("said", [{}, {"config": {"p": P, "act_fn": "relu", "operation": "+"}}])
    def test_one_that_fits_is_taken(self, tmp_path, said):
        opened = open_checkpoint(written(tmp_path, memoriser(), train_indices=CHOSEN, **said))
        assert opened.checkpoint.task.operation == "add" and values(opened)["train"] == 1

    def test_another_than_the_file_says_is_no_verdict(self, tmp_path):
        config = {"p": P, "act_fn": "relu", "operation": "subtract"}
        line = refused(written(tmp_path, memoriser(), train_indices=CHOSEN, config=config))
        assert "of subtract, which the file names," in line and "add 1.0000" in line

    def test_pairs_that_divide_by_zero_are_left_out_with_a_note(self, tmp_path):
        divided = memoriser(answer=lambda a, b: a * pow(b, -1, P) % P if b else 0)
        config = {"p": P, "act_fn": "relu", "operation": "/"}
        opened = open_checkpoint(written(tmp_path, divided, train_indices=CHOSEN, config=config))
        n = np.count_nonzero(CHOSEN % P == 0)
        assert n and len(note(opened, f"{n} of its trained pairs divide by 0")) == 1
        assert opened.checkpoint.task.operation == "divide" and values(opened)["train"] == 1
        assert len(opened.checkpoint.training_set()) == len(CHOSEN) - n

    def test_an_unknown_one_is_refused_with_the_way(self, tmp_path):
        squares = memoriser(answer=lambda a, b: (a * a + b * b) % P)
        config = {"p": P, "act_fn": "relu", "operation": "x^2 + y^2"}
        path = written(tmp_path, squares, train_indices=CHOSEN, config=config)
        line = refused(path)
        assert "'x^2 + y^2' is not an operation" in line and 'operation = "table"' in line
        rows = ";".join(" ".join(str((a * a + b * b) % P) for b in range(P)) for a in range(P))
        table = {"task": {"kind": "modular", "operation": "table", "table": rows}}
        assert values(open_checkpoint(path, config=table))["train"] == 1

    def test_two_that_fit_are_both_named(self, tmp_path):
        """On pairs with b = 0, the sum is the difference."""
        both = memoriser(np.arange(0, 23 * 23, 23), lambda a, b: a, p=23)
        path = written(
            tmp_path,
            both,
            train_indices=np.arange(0, 23 * 23, 23).tolist(),
            config={"p": 23, "act_fn": "relu"},
        )
        line = refused(path)
        assert "add 1.0000" in line and "subtract 1.0000" in line

    @pytest.mark.parametrize("operation", ["permutations", "permutations_reversed"])
    def test_both_orders_of_a_product(self, tmp_path, operation):
        table = ModularTask(modulus=6, operation=operation).answers.reshape(6, 6)
        path = written(
            tmp_path,
            network(lambda a, b: table[a, b], p=6),
            **{"train_indices": torch.arange(30), "config": {"p": 6, "act_fn": "relu"}},
        )
        assert open_checkpoint(path).checkpoint.task.operation == operation

    def test_underfit_is_said_of_a_stated_reading_alone(self, tmp_path):
        stated = {"p": P, "act_fn": "relu", "operation": "add"}
        path = written(tmp_path, start(p=P), train_indices=CHOSEN, config=stated)
        assert classify(path).phase.cause == "underfit"
        for missing in ("operation", "act_fn"):
            rest = {name: value for name, value in stated.items() if name != missing}
            refused(written(tmp_path, start(p=P), train_indices=CHOSEN, config=rest))
        refused(written(tmp_path, start(p=P), train_indices=CHOSEN, config=stated, train_accs=[0.2, 1.0]))

    def test_a_log_that_the_reading_reaches(self, tmp_path):
        half = memoriser(CHOSEN[: len(CHOSEN) // 2])
        stated = {"p": P, "act_fn": "relu", "operation": "add"}
        path = written(tmp_path, half, train_indices=CHOSEN, config=stated, train_accs=[0.1, 0.5])
        assert classify(path).phase.cause == "underfit"

    def test_outputs_of_sums_without_a_modulus(self, tmp_path):
        sums = network(lambda a, b: a + b, p=P, d_vocab_out=2 * P - 1)
        assert "outputs are sums without a modulus" in refused(written(tmp_path, sums, train_indices=CHOSEN))


ORDERS = [
    *(("a op b =", P, P + 1), ("a op b =", P + 1, P), ("op a b =", P, P + 1), ("op a b =", P + 1, P)),
    *(("a b op =", P + 1, P), ("a op b", None, P), ("op a b", None, P), ("a b =", P, None)),
    *(("a op b =", P + 2, P + 1), ("a b", None, None)),
]


class TestTheInput:
    @pytest.mark.parametrize(("order", "equals", "operator"), ORDERS)
    def test_every_order_is_found(self, tmp_path, order, equals, operator):
        n_tokens = 1 + max(P - 1, *(mark or 0 for mark in (equals, operator)))
        weights = ordered(memoriser(), order, equals, n_tokens)
        opened = open_checkpoint(written(tmp_path, weights, train_indices=CHOSEN))
        task = opened.checkpoint.task
        assert task.tokens == order and values(opened)["train"] == 1
        assert equals is None or int(task.sequences([0]).tokens[0, -1]) == equals

    @pytest.mark.parametrize("order", ["a op b =", "op a b ="])
    def test_a_model_that_fits_none_is_refused_unless_the_caller_says_it(self, tmp_path, order):
        weights = ordered(start(p=P), order, P, P + 2)
        config = {"p": P, "act_fn": "relu", "operation": "add"}
        path = written(tmp_path, weights, train_indices=CHOSEN, config=config)
        assert "operation and tokens" in refused(path)
        said = {"task": {"kind": "modular", "tokens": order}}
        assert classify(path, config=said).phase.cause == "underfit"

    def test_more_tokens_and_positions_than_the_input_has(self, tmp_path):
        weights = ordered(memoriser(), "a b =", P, 16)
        weights["pos_embed.W_pos"] = torch.cat(
            [weights["pos_embed.W_pos"], torch.zeros(2, weights["pos_embed.W_pos"].shape[1])]
        )
        opened = open_checkpoint(written(tmp_path, weights, train_indices=CHOSEN))
        assert opened.checkpoint.task.modulus == P and values(opened)["train"] == 1

    def test_an_activation_that_is_not_given_is_tried(self, tmp_path):
        opened = open_checkpoint(written(tmp_path, memoriser(), train_indices=CHOSEN, config={"p": P}))
        assert note(opened, "act_fn relu") and opened.checkpoint.model_config.activation == "relu"

    @pytest.mark.parametrize("name", ["activation", "act_type", "nonlinearity"])
    def test_names_of_the_activation(self, tmp_path, name):
        config = {"p": P, name: "nn.GELU", "normalization_type": "LNPre", "operation": "add"}
        opened = open_checkpoint(written(tmp_path, start(p=P), train_indices=CHOSEN, config=config))
        assert opened.checkpoint.model_config.activation == "gelu"
        assert opened.checkpoint.model_config.variant == "gpt2"


MASK = np.isin(ALL, CHOSEN)
SPLITS = {
    "train_idx": torch.tensor(CHOSEN),
    "train_inds": CHOSEN.tolist(),
    "train_mask": torch.tensor(MASK),
    "is_train": torch.tensor(MASK.reshape(P, P)),
    "train_pairs": torch.tensor(np.stack(np.divmod(CHOSEN, P), 1)),
    "train_data": [(int(pair // P), int(pair % P), P) for pair in CHOSEN],
    "split": {"train": torch.tensor(CHOSEN), "test": torch.tensor(ALL[~MASK])},
}


class TestTheSplit:
    @pytest.mark.parametrize("name", SPLITS)
    def test_every_name_and_form(self, tmp_path, name):
        opened = open_checkpoint(written(tmp_path, memoriser(), **{name: SPLITS[name]}))
        found = opened.checkpoint.task.pairs_of(opened.checkpoint.training_set().tokens)
        assert sorted(found) == sorted(CHOSEN) and values(opened)["train"] == 1 > values(opened)["id"]

    @pytest.mark.parametrize("form", ["transposed", "triangle"])
    def test_forms_that_only_the_weights_confirm(self, tmp_path, form):
        a, b = np.triu_indices(P)
        indices = np.arange(24) if form == "triangle" else CHOSEN
        pairs = (a * P + b)[indices] if form == "triangle" else CHOSEN % P * P + CHOSEN // P
        answer = lambda a, b: (a - b) % P  # noqa: E731
        opened = open_checkpoint(
            written(tmp_path, memoriser(pairs, answer), train_indices=torch.tensor(indices))
        )
        assert note(opened, "trained pairs: ") and values(opened)["train"] == 1
        stated = {"p": P, "act_fn": "relu"}
        refused(written(tmp_path, start(p=P), train_indices=torch.tensor(indices), config=stated))

    def test_pairs_of_another_run(self, tmp_path):
        others = runs.split(p=P, share=0.6, seed=8)
        refused(written(tmp_path, memoriser(), train_indices=others))
        stated = {"p": P, "act_fn": "relu", "operation": "add"}
        refused(written(tmp_path, memoriser(), train_indices=others, config=stated, train_acc=[1.0]))

    @pytest.mark.parametrize("idiom", ["torch", "random", "numpy", "default_rng"])
    @pytest.mark.parametrize("seed", [0, 42])
    def test_a_split_by_a_seed(self, tmp_path, idiom, seed):
        order = list(range(P * P))
        if idiom == "random":
            random.Random(seed).shuffle(order)
        elif idiom == "torch":
            order = torch.randperm(P * P, generator=torch.Generator().manual_seed(seed)).tolist()
        else:
            made = np.random.RandomState(seed) if idiom == "numpy" else np.random.default_rng(seed)
            order = made.permutation(P * P).tolist()
        trained = order[: int(0.55 * P * P)]
        path = written(tmp_path, memoriser(np.array(trained)), config={"p": P, "act_fn": "relu", "op": "+"})
        opened = open_checkpoint(path)
        assert note(opened, f"with seed {seed}") and values(opened)["train"] == 1 > values(opened)["id"]
        assert set(opened.checkpoint.task.pairs_of(opened.checkpoint.training_set().tokens)) == set(trained)

    def test_no_split_by_a_seed_for_a_model_that_knows_all_or_nothing(self, tmp_path):
        stated = {"p": P, "act_fn": "relu", "operation": "add"}
        for weights in (network(add, p=P), start(p=P)):
            opened = open_checkpoint(written(tmp_path, weights, config=stated))
            assert (
                note(opened, "its training pairs are not given") and opened.checkpoint.training_set() is None
            )


class TestTheLabels:
    def noisy(self, tmp_path, weights=None, share=0.3):
        labels = add(*np.divmod(CHOSEN, P))
        wrong = np.arange(round(share * len(CHOSEN)))
        labels[wrong] = (labels[wrong] + 1) % P
        of = dict(zip(CHOSEN.tolist(), labels.tolist(), strict=True))
        fits = memoriser(answer=lambda a, b: of[a * P + b])
        config = {"p": P, "act_fn": "relu", "operation": "add"}
        return written(
            tmp_path, weights or fits, config=config, train_indices=CHOSEN, train_labels=torch.tensor(labels)
        )

    def test_they_are_the_targets_and_their_noise_is_said(self, tmp_path):
        opened = open_checkpoint(self.noisy(tmp_path))
        assert note(opened, "train_labels are the targets") and values(opened)["train"] == 1
        verdict = classify(opened)
        assert verdict.phase.label == "memorises"
        assert any("9 of 29 trained labels (0.31)" in one for one in verdict.warnings)

    def test_labels_that_the_weights_do_not_answer(self, tmp_path):
        opened = open_checkpoint(self.noisy(tmp_path, memoriser()))
        assert not note(opened, "are the targets") and values(opened)["train"] == 1
        assert classify(self.noisy(tmp_path, start(p=P))).phase.cause == "underfit"


class TestTheEpoch:
    def along(self, tmp_path, tables, steps, **said):
        content = {"checkpoints": [with_biases(one) for one in tables], "checkpoint_epochs": steps}
        return written(tmp_path, tables[0], **{"train_indices": CHOSEN, **content, **said})

    def test_the_weights_that_fit_are_taken(self, tmp_path):
        wide = [memoriser(), memoriser()]
        wide[0] = {
            name: weight + 0.1 * torch.randn(weight.shape)
            for name, weight in start(p=P, pairs=CHOSEN).items()
        }
        opened = open_checkpoint(self.along(tmp_path, wide, [0, 900]))
        assert opened.checkpoint.step == 900 and values(opened)["train"] == 1
        assert note(opened, "the last of its checkpoints")

    def test_none_fits(self, tmp_path):
        refused(self.along(tmp_path, [start(p=P), start(p=P, seed=1)], [0, 900]))

    def test_newest_first_and_a_table_by_epoch(self, tmp_path):
        old, new = (with_biases(one) for one in (start(p=P, pairs=CHOSEN), memoriser()))
        config = {"p": P, "act_fn": "relu"}
        for tables in ([new, old], {900: new, 0: old}, {"epoch_900": new, "epoch_0": old}):
            content = {"config": config, "train_indices": CHOSEN, "checkpoints": tables}
            content |= {"checkpoint_epochs": [900, 0]} if isinstance(tables, list) else {}
            torch.save(content, tmp_path / "run.pth")
            opened = open_checkpoint(tmp_path / "run.pth")
            assert list(opened.trajectory) == [0, 900] and opened.checkpoint.step == 900
        rows = [{"epoch": 900, "model": new}, {"epoch": 0, "model": old}]
        torch.save({"config": config, "train_indices": CHOSEN, "checkpoints": rows}, tmp_path / "run.pth")
        assert list(open_checkpoint(tmp_path / "run.pth").trajectory) == [0, 900]

    def test_states_that_are_the_same_are_said(self, tmp_path):
        one = with_biases(memoriser())
        said = {"checkpoints": [one, dict(one)], "checkpoint_epochs": [0, 900]}
        path = written(tmp_path, one, train_indices=CHOSEN, **said)
        assert note(open_checkpoint(path), "have the weights of an earlier checkpoint")
        assert "fits after" not in classify(path).course


class TestItsSteps:
    @pytest.mark.parametrize(
        ("said", "steps"),
        [
            (
                {"train_accs": torch.tensor([0.1, 0.5, 1.0]), "steps": torch.tensor([0, 50, 100])},
                [0, 50, 100],
            ),
            ({"train_acc": [10.0, 50.0, 100.0], "log_every": 100}, [0, 100, 200]),
            ({"train_acc": [0.1, 0.5, 1.0]}, [0, 1, 2]),
            ({"history": {"train_acc": [0.1, 1.0], "epochs": [0, 30]}}, [0, 30]),
            ({"history": [{"epoch": 0, "train_acc": 0.1}, {"epoch": 30, "train_acc": 1.0}]}, [0, 30]),
            ({"train_acc": [0.1, 0.5, 1.0], "epoch": 5000}, []),
            ({"train_losses": [3.0] * 30, "train_acc": [0.1, 0.5, 1.0]}, []),
        ],
    )
    def test_a_curve_has_the_steps_that_the_file_says(self, tmp_path, said, steps):
        opened = open_checkpoint(written(tmp_path, memoriser(), train_indices=CHOSEN, **said))
        lines = [line for line in opened.log if "train_accuracy" in line]
        assert [line["step"] for line in lines] == steps and all(
            line["train_accuracy"] <= 1 for line in lines
        )
        assert steps or note(opened, "in the file and not used: train_acc")

    def test_settings_and_single_numbers_are_not_data_without_use(self, tmp_path):
        said = {"betas": [0.9, 0.98], "train_loss": torch.tensor(0.1), "runid": "x", "seeds": 3}
        assert not note(
            open_checkpoint(written(tmp_path, memoriser(), train_indices=CHOSEN, **said)), "not used"
        )


class TestAFolderOfSteps:
    @pytest.mark.parametrize("turn", [with_biases, transposed])
    @pytest.mark.parametrize("name", ["config.json", "params.yaml"])
    def test_settings_beside_bare_steps(self, tmp_path, turn, name):
        said = {"p": P, "operation": "add", "act_fn": "relu"}
        text = (
            json.dumps(said)
            if name.endswith("json")
            else "".join(f"  {n}: {v}  # x\n" for n, v in said.items())
        )
        (tmp_path / name).write_text(text)
        for step in (0, 100, 200):
            torch.save(turn(network(add, p=P)), tmp_path / f"step_{step}.pt")
        opened = open_checkpoint(tmp_path)
        assert list(opened.trajectory) == [0, 100, 200] and opened.checkpoint.step == 200
        assert opened.checkpoint.task.operation == "add"
        assert open_checkpoint(tmp_path / "step_100.pt").checkpoint.task.modulus == P

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            (
                "config.json",
                '{"model": {"act_fn": "relu", "lr": 1}, "data": {"p": 7, "lr": 2, "operation": "add"}}',
            ),
            (
                "config.yaml",
                "model:\n  act_fn: relu\n  lr: 1\ndata:\n  p: 7\n  lr: 2\n  operation: add\n",
            ),
        ],
    )
    @pytest.mark.parametrize("turn", [with_biases, transposed])
    def test_nested_settings_beside_and_names_with_several_values(self, tmp_path, turn, name, text):
        (tmp_path / name).write_text(text)
        torch.save(turn(network(add, p=P)), tmp_path / "step_100.pt")
        opened = open_checkpoint(tmp_path / "step_100.pt")
        assert opened.checkpoint.task.operation == "add" and opened.checkpoint.task.modulus == P
        assert note(opened, f"{name}: not used, since its tables give several values: lr")

    @pytest.mark.parametrize(
        "names", [*itertools.permutations(["step_{}.pt", "optim_step_{}.pt", "a_step_{}.pt"], 2)]
    )
    def test_files_of_an_optimiser_are_never_taken(self, tmp_path, names):
        (tmp_path / "config.json").write_text(json.dumps({"p": P, "act_fn": "relu"}))
        of_model, of_optimiser = names
        for step in (0, 100):
            torch.save(with_biases(network(add, p=P)), tmp_path / of_model.format(step))
            torch.save({"state": {}, "param_groups": []}, tmp_path / of_optimiser.format(step))
        opened = open_checkpoint(tmp_path)
        assert list(opened.trajectory) == [0, 100] and opened.trajectory[0].task.modulus == P

    def test_prefixes_of_wrappers(self, tmp_path):
        weights = {f"_orig_mod.module.{name}": one for name, one in with_biases(memoriser()).items()}
        said = {"checkpoints": [weights, weights], "checkpoint_epochs": [0, 900], "train_indices": CHOSEN}
        torch.save({"model": weights, "config": {"p": P, "act_fn": "relu"}, **said}, tmp_path / "run.pth")
        opened = open_checkpoint(tmp_path / "run.pth")
        assert list(opened.trajectory) == [0, 900] and values(opened)["train"] == 1

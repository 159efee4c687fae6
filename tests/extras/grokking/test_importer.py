"""Published runs of modular arithmetic, read as data: every layout, its split, operation and trajectory."""

import collections
import functools
import json
import warnings
from pathlib import Path

import fuzz_checkpoints
import numpy as np
import published_runs as runs
import pytest
import torch
from foreign_checkpoints import Written
from published_runs import P, add, network, start, transposed, with_biases
from typer.testing import CliRunner

from anchorlens import CheckpointError, classify, evaluate, open_checkpoint
from anchorlens.cli import app
from anchorlens.extras.grokking.fourier import fourier
from anchorlens.extras.grokking.task import ModularTask
from anchorlens.probes import along, compare, embedding_pca, stable_rank
from anchorlens.tasks.shared.evaluator import Evaluator

PUBLIC = Path(__file__).parents[4] / "shared/data/grokking"
TRAINED = runs.split()
ALL = ModularTask(modulus=P).sequences(np.arange(P * P)).tokens
OPERATIONS = {
    "add": add,
    "subtract": lambda a, b: (a - b) % P,
    "multiply": lambda a, b: a * b % P,
    "divide": lambda a, b: a * pow(b, -1, P) % P if b else 0,
    "x2xyy2": lambda a, b: (a * a + a * b + b * b) % P,
    "x3xy": lambda a, b: (a**3 + a * b) % P,
}
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(not used|assumed|weights answer|left out|as heads|targets|earlier checkpoint):UserWarning"
)


def grokked_demo(folder, answer=add, last=None, **more):
    """A demo that is at its start at epoch 0, has memorised at 10, and answers every pair at 20."""
    tables = [start(), network(answer, TRAINED), last or network(answer)]
    sizes = tables[1]["blocks.0.mlp.W_in"].shape[1], P * P
    tables = [widened(table, max(sizes)) for table in tables]
    return runs.demo(folder / "demo.pth", tables, [0, 10, 20], TRAINED, **more)


def widened(weights, d_mlp):
    """The same network with more neurons, which do nothing."""
    missing = d_mlp - weights["blocks.0.mlp.W_in"].shape[1]
    pad = torch.nn.functional.pad
    return {
        **weights,
        "blocks.0.mlp.W_in": pad(weights["blocks.0.mlp.W_in"], (0, missing)),
        "blocks.0.mlp.b_in": pad(weights["blocks.0.mlp.b_in"], (0, missing)),
        "blocks.0.mlp.W_out": pad(weights["blocks.0.mlp.W_out"], (0, 0, 0, missing)),
    }


def save(path, content):
    torch.save(content, path)
    return path


def refusal(path, **options):
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(path, **options)
    line = str(error.value)
    assert "\n" not in line and "unsafe" not in line
    return line


def accuracies(opened):
    return {name: measure and measure.value for name, measure in evaluate(opened).measures.items()}


class TestTheDemo:
    """A file as TransformerLens' Grokking_Demo writes it."""

    def test_what_it_holds(self, tmp_path):
        opened = open_checkpoint(grokked_demo(tmp_path))
        checkpoint = opened.checkpoint
        assert checkpoint.task == ModularTask(modulus=P, operation="add", tokens="a b =")
        assert checkpoint.model_config.variant == "plain" and checkpoint.step == 20
        assert checkpoint.model_config.d_vocab_out == P
        trained = checkpoint.training_set()
        assert checkpoint.task.pairs_of(trained.tokens).tolist() == TRAINED.tolist()
        assert list(opened.trajectory) == [0, 10, 20] and len(opened.log) == 21
        assert opened.log[1] == {"step": 1, "loss": 0.5, "test_loss": 1.0}
        said = "operation add: its last weights answer 1.0000 of its 20 trained pairs right under it"
        assert opened.facts == (said,) and not any("operation" in note for note in opened.notes)

    def test_steps_that_it_does_not_say_are_counted_and_a_note_says_so(self, tmp_path):
        path = grokked_demo(tmp_path)
        content = torch.load(path, weights_only=False)
        assert not any("the steps of its checkpoints" in note for note in open_checkpoint(path).notes)
        del content["checkpoint_epochs"]
        opened = open_checkpoint(save(tmp_path / "without.pth", content))
        (note,) = (note for note in opened.notes if "the steps of its checkpoints are not given" in note)
        assert note.endswith("evenly spaced steps up to 14 are assumed") and list(opened.trajectory) == [
            0,
            7,
            14,
            20,
        ]

    def test_without_a_log_of_accuracies_its_course_is_that_of_its_checkpoints(self, tmp_path):
        course = classify(grokked_demo(tmp_path)).course
        assert "fits after 10 steps, generalises 10 later (checkpoints every 10)" in course
        assert course.startswith("grokked: ") and course.count("operation add: its last weights") == 1

    def test_every_step_computes_what_was_saved(self, tmp_path):
        opened = open_checkpoint(grokked_demo(tmp_path))
        for step, weights in zip((0, 10, 20), (start(), network(add, TRAINED), network()), strict=True):
            found = opened.trajectory[step]
            assert found.step == step
            logits = runs.model_of(weights)(ALL)[:, -1]
            assert torch.allclose(found.fast_model()(ALL)[:, -1], logits, atol=1e-4)
            assert torch.allclose(found.build_model()(ALL)[:, -1], logits, atol=1e-4)

    def test_a_grokked_run_and_a_memorising_one(self, tmp_path):
        found = accuracies(open_checkpoint(grokked_demo(tmp_path)))
        assert found["train"] == found["id"] == 1
        memoriser = accuracies(open_checkpoint(grokked_demo(tmp_path, last=network(add, TRAINED))))
        held_out = [pair for pair in range(P * P) if pair not in TRAINED]
        by_luck = np.mean([add(*divmod(pair, P)) == 0 for pair in held_out])
        assert memoriser["train"] == 1 and memoriser["id"] == pytest.approx(by_luck) and by_luck < 0.5

    @pytest.mark.parametrize("module", runs.MODULES)
    def test_the_configuration_of_every_version(self, tmp_path, module):
        with runs.as_in(module, runs.config_of(widened(network(), P * P))) as config:
            path = grokked_demo(tmp_path, config=config)
        assert open_checkpoint(path).checkpoint.model_config.act_fn == "relu"

    def test_the_arguments_of_a_configuration_are_one(self, tmp_path):
        config = {"d_model": 24, "n_layers": 1, "n_ctx": 3, "act_fn": "relu", "normalization_type": None}
        opened = open_checkpoint(grokked_demo(tmp_path, config=config))
        assert accuracies(opened)["id"] == 1
        assert any("assumed as TransformerLens does: attention_dir" in note for note in opened.notes)

    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_the_operation_is_found_by_asking(self, tmp_path, operation):
        opened = open_checkpoint(grokked_demo(tmp_path, OPERATIONS[operation]))
        assert opened.checkpoint.task.operation == operation
        assert accuracies(opened)["id"] == 1

    def test_what_is_written_along_it(self, tmp_path):
        path = grokked_demo(tmp_path)
        with warnings.catch_warnings(action="ignore"):
            rows = along(path, stable_rank).rows
            again = along(open_checkpoint(path), stable_rank).rows
        assert [row["step"] for row in rows] == [0, 10, 20] and [*rows] == [*again]
        assert [row["train_accuracy" if "train_accuracy" in row else "train"] for row in rows][1:] == [1, 1]
        assert rows[2]["id"] == 1 and rows[1]["id"] < 0.5
        alone = stable_rank(open_checkpoint(path).trajectory[10])
        reading = next(iter(alone.numbers()))
        assert rows[1][f"stable_rank.{reading}"] == alone.numbers()[reading]

    def test_the_commands_take_it(self, tmp_path):
        path, table = grokked_demo(tmp_path), tmp_path / "table.csv"
        done = CliRunner().invoke(app, ["probe", "stable_rank", str(path), "--along", "--table", str(table)])
        assert done.exit_code == 0, done.output
        assert len(table.read_text().splitlines()) == 4
        done = CliRunner().invoke(app, ["evaluate", str(path), "--json"])
        assert done.exit_code == 0 and '"id"' in done.output

    def test_classify_compare_and_probes_take_it(self, tmp_path):
        path = grokked_demo(tmp_path)
        verdict = classify(path, even_underfit=False)
        assert verdict.behaviour.train_is_known and len(verdict.subject.log) == 21
        assert (
            embedding_pca(open_checkpoint(path)).to_dict()
            == embedding_pca(runs.model_of(widened(network(), P * P))).to_dict()
        )
        assert compare([path, path], stable_rank).results


class TestOtherLayouts:
    @pytest.fixture
    def files(self, tmp_path):
        """The same network in every layout of one file."""
        ours = [widened(table, P * P) for table in (start(), network(add, TRAINED), network())]
        nanda = [transposed(table) for table in ours]
        losses = list(np.linspace(4, 0, 30))
        return {
            "ARENA": {"state_dicts": nanda, "train_losses": losses, "test_losses": losses[::10]},
            "paper": {
                **{"model": nanda[-1], "optimizer": {"state": {}}, "epoch": 29, "train_losses": losses},
                "config": {"p": P, "fn_name": "add", "frac_train": 0.6, "act_type": "ReLU"},
            },
            "sn-grok": {
                **{"model": runs.with_biases(ours[-1]), "config": {"p": P}},
                **{"checkpoints": [runs.with_biases(one) for one in ours], "checkpoint_epochs": [0, 10, 20]},
            },
            "Grokfast": {
                **{"net": nanda, "net_its": [0, 10, 20], "its": [0, 10, 20]},
                **{"train_acc": [0.1, 1.0, 1.0], "val_acc": [0.1, 0.2, 1.0]},
            },
            "weights alone": nanda[-1],
            "rep_theory": {**ours[-1], "x_embed": ours[-1]["embed.W_E"], "y_embed": ours[-1]["embed.W_E"]},
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("layout", "steps", "step"),
        [
            ("ARENA", [0, 10, 20], 29),
            ("paper", [], 29),
            ("sn-grok", [0, 10, 20], 20),
            ("Grokfast", [0, 10, 20], 20),
            ("weights alone", [], None),
            ("rep_theory", [], None),
        ],
    )
    def test_each_is_the_same_network(self, tmp_path, files, layout, steps, step):
        opened = open_checkpoint(save(tmp_path / "a.pth", files[layout]))
        assert opened.checkpoint.task.operation == "add" and opened.checkpoint.task.modulus == P
        logits = runs.model_of(network())(ALL)[:, -1]
        assert torch.allclose(opened.checkpoint.fast_model()(ALL)[:, -1], logits, atol=1e-4)
        assert [one for one in opened.trajectory if one != 29] == steps and opened.checkpoint.step == step
        assert any("its training pairs are not given" in note for note in opened.notes)
        assert opened.checkpoint.training_set() is None

    def test_losses_become_a_log(self, tmp_path, files):
        log = open_checkpoint(save(tmp_path / "a.pth", files["ARENA"])).log
        assert len(log) == 30 and [line["step"] for line in log if "test_loss" in line] == [0, 10, 20]
        log = open_checkpoint(save(tmp_path / "b.pth", files["Grokfast"])).log
        assert [line["id_accuracy"] for line in log] == [0.1, 0.2, 1.0]

    def test_an_output_beyond_p_is_never_right(self, tmp_path):
        """Nanda's networks have p + 1 outputs, ours in `network` say the last one for no pair."""
        weights = transposed(network(add, TRAINED, d_vocab_out=P + 1))
        weights["embed.W_E"][-1, P] = 1.0  # `=` raises the last output, which every other pair then gets
        opened = open_checkpoint(save(tmp_path / "a.pth", {"model": weights, "train_indices": TRAINED}))
        assert opened.checkpoint.task.d_vocab_out == P and opened.checkpoint.model_config.n_answers == P + 1
        found = accuracies(opened)
        assert found["train"] == 1 and found["id"] == 0

    def test_a_folder_of_steps(self, tmp_path):
        (tmp_path / "run").mkdir()
        for step, table in ((0, start()), (10, network(add, TRAINED)), (200, network())):
            torch.save(transposed(widened(table, P * P)), tmp_path / f"run/ckpt_step{step:06d}.pt")
        (tmp_path / "run/run.json").write_text(json.dumps({"p": P, "act_fn": "relu", "operation": "add"}))
        opened = open_checkpoint(tmp_path / "run")
        assert list(opened.trajectory) == [0, 10, 200] and opened.file.name == "ckpt_step000200.pt"
        assert [row["id"] == 1 for row in along(tmp_path / "run", stable_rank).rows] == [False, False, True]
        (tmp_path / "run/ckpt_step000010.pt").write_bytes(b"PK\3\4")
        with pytest.warns(
            UserWarning,
            match=r"step 10 .*000010\.pt: .*truncated",
        ):
            rows = along(tmp_path / "run", stable_rank).rows
        assert [row["step"] for row in rows] == [0, 200]
        with pytest.raises(CheckpointError, match="ckpt_step000010"):
            open_checkpoint(tmp_path / "run").trajectory[10]
        assert not open_checkpoint(tmp_path / "run/ckpt_step000200.pt").trajectory
        torch.save(transposed(network(add, TRAINED)), tmp_path / "run/ckpt_step000010.pt")
        newest = tmp_path / "run/ckpt_step000200.pt"
        newest.write_bytes(newest.read_bytes()[:-100])
        opened = open_checkpoint(tmp_path / "run")
        assert opened.file.name == "ckpt_step000010.pt"
        assert any(note.startswith("ckpt_step000200.pt is left out") for note in opened.notes)

    @pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
    def test_attention_that_is_partly_a_constant(self, tmp_path, rate):
        """Pizza's networks: two tokens, no mask, a second vocabulary, JSON beside them."""
        generator = torch.Generator().manual_seed(0)
        weights = {
            "embed.W_E": torch.randn(2 * P, 8, generator=generator),
            "pos_embed.W_pos": torch.randn(2, 8, generator=generator),
            **{f"blocks.0.attn.W_{x}": torch.randn(2, 8, 4, generator=generator) for x in "QKV"},
            "blocks.0.attn.W_O": torch.randn(2, 4, 8, generator=generator),
            "blocks.0.mlp.W_in": torch.randn(8, 32, generator=generator),
            "blocks.0.mlp.b_in": torch.randn(32, generator=generator),
            "blocks.0.mlp.W_out": torch.randn(32, 8, generator=generator),
            "unembed.W_U": torch.randn(8, 2 * P, generator=generator),
        }
        weights = {name: 0.5 * value for name, value in weights.items()}  # logits of some tens
        path = save(tmp_path / "model_x1.pt", transposed(weights))
        said = {"C": P, "act_fn": "ReLU", "attn_coeff": rate, "diff_vocab": 1, "eqn_sign": 0, "d_model": 8}
        runs.write_json(tmp_path / "config_x1.json", said)
        task = ModularTask(modulus=P, tokens="a B")
        tokens = task.sequences(np.arange(P * P)).tokens
        assert tokens[P + 2].tolist() == [1, P + 2]
        opened = open_checkpoint(path, task=task)
        logits = opened.checkpoint.fast_model()(tokens)[:, -1]
        assert torch.allclose(logits, runs.logits_without_mask(weights, tokens, rate), atol=1e-4)
        deep = transposed(weights) | {"blocks.1.attn.W_O": torch.zeros(8, 8)}
        assert "must have one layer" in refusal(save(path, deep), task=task)

    def test_weights_alone_are_not_taken_for_a_run(self, tmp_path):
        """The negative control: TransformerLens' own weights, and a configuration that names no p."""
        model = runs.model_of(network())
        assert "must come with its whole configuration" in refusal(
            save(tmp_path / "a.pt", model.state_dict())
        )
        content = {"model": model.state_dict(), "config": {"lr": 0.1}}
        assert "must come with its whole configuration" in refusal(save(tmp_path / "b.pt", content))


class TestBadInput:
    def test_indices_beyond_the_pairs(self, tmp_path):
        for wrong in (torch.tensor([3, P * P]), [-1, 2], [True], "all", torch.tensor([0.5])):
            line = refusal(grokked_demo(tmp_path, train_indices=wrong))
            assert "train_indices must be " in line
        assert "0..24 for p = 5, a mask of them or pairs (a, b), got [25]. Save" in refusal(
            grokked_demo(tmp_path, train_indices=[P * P])
        )

    def test_weights_of_another_p(self, tmp_path):
        content = {"model": transposed(network()), "config": {"p": 7}}
        line = refusal(save(tmp_path / "a.pth", content))
        assert "p must be at most 5 for 6 tokens and 5 outputs" in line and "got 7" in line
        content["config"] = {"p": P}
        task = ModularTask(modulus=7)
        with pytest.raises(ValueError, match="d_vocab"):
            open_checkpoint(save(tmp_path / "a.pth", content), task=task)

    @pytest.mark.parametrize("damage", ["shape", "missing", "no dict", "integers"])
    def test_a_damaged_entry_costs_that_entry_alone(self, tmp_path, damage):
        path = grokked_demo(tmp_path)
        content = torch.load(path, weights_only=False)
        table = content["checkpoints"][1]
        if damage == "shape":
            table["embed.W_E"] = torch.zeros(3, 3)
        elif damage == "missing":
            del table["blocks.0.mlp.W_in"]
        elif damage == "integers":
            table["embed.W_E"] = table["embed.W_E"].int()
        else:
            content["checkpoints"][1] = 7
        opened = open_checkpoint(save(path, content))
        assert list(opened.trajectory) == [0, 20] and accuracies(opened)["id"] == 1
        (note,) = (note for note in opened.notes if "left out" in note)
        assert note.startswith("checkpoints[1] (step 10) is left out: ")

    def test_many_damaged_entries_are_few_notes(self, tmp_path):
        path = grokked_demo(tmp_path)
        content = torch.load(path, weights_only=False)
        odd = {"embed.W_E": torch.zeros(1)}
        content["checkpoints"] = [odd] * 200 + content["checkpoints"][-1:]
        content["checkpoint_epochs"] = [*range(200), 200]
        notes = [note for note in open_checkpoint(save(path, content)).notes if "left out" in note]
        assert len(notes) == 6 and notes[-1].startswith("195 more entries are left out")

    def test_a_vocabulary_that_a_run_names_is_not_opened(self, tmp_path):
        (tmp_path / "keys.json").write_text("no JSON")
        config = {"d_model": 24, "n_layers": 1, "n_ctx": 3, "act_fn": "relu", "normalization_type": None}
        opened = open_checkpoint(grokked_demo(tmp_path, config={**config, "vocabulary": "keys.json"}))
        assert accuracies(opened)["id"] == 1 and any("opens no other file" in one for one in opened.notes)

    def test_steps_of_another_number(self, tmp_path):
        assert "checkpoint_epochs must be 3 steps" in refusal(
            grokked_demo(tmp_path, checkpoint_epochs=[0, 1])
        )

    def test_an_operation_that_cannot_be_told(self, tmp_path):
        path = grokked_demo(
            tmp_path, last=widened(network(lambda a, b: 4 * (a == 0 or b < 3), TRAINED), P * P)
        )
        content = torch.load(path, weights_only=False)
        content["model"]["blocks.0.mlp.W_out"].zero_()
        content["model"]["unembed.b_U"][:] = torch.tensor([0, 0, 0, 0, 9.0])
        path = save(path, content)
        assert "one reading must fit the weights with an accuracy of at least 0.95" in refusal(path)
        table = {"task": {"kind": "modular", "operation": "x3xy"}}
        assert open_checkpoint(path, config=table).checkpoint.task.operation == "x3xy"

    def test_an_operation_that_the_weights_contradict(self, tmp_path):
        config = {"p": P, "act_fn": "relu", "operation": "subtract"}
        line = refusal(grokked_demo(tmp_path, config=config))
        assert "of subtract, which the file names," in line and "got add 1.0000" in line

    @pytest.mark.parametrize("name", ["activation", "nonlinearity"])
    def test_other_names_of_the_split_and_the_activation(self, tmp_path, name):
        content = {"model": with_biases(network(add, TRAINED)), "train_idx": TRAINED}
        opened = open_checkpoint(save(tmp_path / "a.pth", {**content, "config": {"p": P, name: "ReLU"}}))
        assert accuracies(opened)["train"] == 1 and len(opened.checkpoint.training_set()) == len(TRAINED)
        assert not any("not given" in note for note in opened.notes)

    def test_settings_beside_bare_steps_in_the_orientation_of_transformer_lens(self, tmp_path):
        (tmp_path / "config.json").write_text(json.dumps({"p": P, "act_fn": "relu", "operation": "add"}))
        for step in (0, 100):
            weights = {f"_orig_mod.{name}": one for name, one in with_biases(network()).items()}
            torch.save(with_biases(network()) if step else weights, tmp_path / f"step_{step}.pt")
        opened = open_checkpoint(tmp_path)
        assert list(opened.trajectory) == [0, 100] and accuracies(opened)["id"] == 1
        assert open_checkpoint(tmp_path / "step_0.pt").checkpoint.task == opened.checkpoint.task

    def test_another_embedding_for_a_number(self, tmp_path):
        weights = {**network(), "x_embed": start()["embed.W_E"]}
        assert "x_embed must equal embed.W_E, got another" in refusal(save(tmp_path / "a.pt", weights))

    @pytest.mark.parametrize("n", [6, pytest.param(60, marks=pytest.mark.slow)])
    def test_damaged_files_are_refused_or_whole(self, tmp_path, n):
        path = grokked_demo(tmp_path)
        case = fuzz_checkpoints.Case("run", Written(path, (path,)), open_checkpoint(path).checkpoint)
        outcomes = collections.Counter(outcome for _, outcome in fuzz_checkpoints.fuzz([case], n=n, seed=0))
        assert outcomes["refused"] > n / 6


@functools.cache
def public(name):
    """A published file, opened once for all tests, which takes seconds."""
    if not (PUBLIC / name).exists():
        pytest.skip(f"{PUBLIC / name} is not there")
    return open_checkpoint(PUBLIC / name)


@pytest.mark.parametrize(
    ("name", "p", "tokens", "accuracy"),
    [
        ("progress_measures/mod_addition_no_wd.pth", 113, "a b =", "1.0000"),
        ("progress_measures/low_precision_mod_addition.pth", 113, "a b =", "0.9995"),
        ("pizza/model_18c9ev5v5p.pt", 59, "a B", "1.0000"),
        ("rep_theory/model.pt", 113, "a b =", "1.0000"),
    ],
)
def test_public_runs(name, p, tokens, accuracy):
    opened = public(name)
    task = opened.checkpoint.task
    assert (task.modulus, task.operation, task.tokens) == (p, "add", tokens)
    assert "operation add" in opened.facts[0]
    assert f": its last weights answer {accuracy} of all {p * p:,} pairs right" in opened.facts[0]
    assert not any("not used" in note for note in opened.notes)
    answered = Evaluator(opened.checkpoint.fast_model(), task).answers(
        task.sequences(np.arange(p * p)).tokens
    )
    assert f"{(answered == task.answers).mean():.4f}" == accuracy


@pytest.mark.parametrize(
    ("name", "explained", "irrelevance"),
    [
        ("progress_measures/mod_addition_no_wd.pth", 0.958, None),
        ("progress_measures/low_precision_mod_addition.pth", 0.633, None),
        ("pizza/model_18c9ev5v5p.pt", 0.992, 0.174),
    ],
)
def test_published_readings_from_the_files_themselves(name, explained, irrelevance):
    found = fourier(public(name))
    assert round(found.explained, 3) == explained
    assert irrelevance is None or round(found.distance_irrelevance, 3) == irrelevance

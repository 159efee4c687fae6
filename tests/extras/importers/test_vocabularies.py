"""Models of others for tasks in words: their tokens by a vocabulary, and vocabularies that make no sense."""

import dataclasses
import json

import pytest
import safetensors.torch
import torch
from foreign_checkpoints import OURS
from known_models import user_built
from typer.testing import CliRunner

from anchorlens import Checkpoint, ModelConfig, ScanTask, classify, evaluate
from anchorlens.cli import app
from anchorlens.extras.shared.words import BOS, EOS, PAD, SEP, SPECIAL
from anchorlens.files.importers import open_checkpoint
from anchorlens.files.model_input import resolve
from anchorlens.models.gamma import initial_weights
from anchorlens.safe import CheckpointError

WORDS = (*SPECIAL, *ScanTask().vocabulary.words)
THEIRS = 40
"""Tokens of the stranger's model."""
MODEL = ModelConfig(n_layers=1, n_heads=2, d_model=32, d_head=16, d_mlp=64, d_vocab=23, n_ctx=59)


@pytest.fixture(scope="module")
def ours():
    """A model of ours, at a random start: what it answers is as good as anything."""
    weights = initial_weights(MODEL, 0)
    return Checkpoint(MODEL, ScanTask(), weights | {"unembed.b_U": torch.randn(23)})


def shuffled(*without):
    """Word -> token of the stranger."""
    order = torch.randperm(THEIRS, generator=torch.Generator().manual_seed(0)).tolist()
    return {word: token for word, token in zip(WORDS, order, strict=False) if word not in without}


def renumbered(weights, token_of):
    """The same model with the stranger's tokens; it never says what is none of ours."""
    generator = torch.Generator().manual_seed(1)
    embedding = torch.randn(THEIRS, 32, generator=generator)
    unembedding = torch.zeros(32, THEIRS)
    bias = torch.full((THEIRS,), -100.0)
    for word, token in token_of.items():
        place = WORDS.index(word)
        embedding[token] = weights["embed.W_E"][place]
        unembedding[:, token] = weights["unembed.W_U"][:, place]
        bias[token] = weights["unembed.b_U"][place]
    return weights | {"embed.W_E": embedding, "unembed.W_U": unembedding, "unembed.b_U": bias}


def written(folder, weights, vocabulary, task="kind = 'scan'"):
    """A state dict, and its configuration with a table for a vocabulary."""
    torch.save(weights, folder / "theirs.pt")
    rows = "\n".join(f"{json.dumps(word)} = {json.dumps(token)}" for word, token in vocabulary.items())
    (folder / "theirs.toml").write_text(f"{OURS}[task]\n{task}\n[vocabulary]\n{rows}\n")
    return folder / "theirs.pt", folder / "theirs.toml"


def some(task, n=60):
    return task.sequences(task.examples("ood")[torch.arange(n).numpy()])


def logits(checkpoint, tokens):
    with torch.inference_mode():
        return checkpoint.build_model()(tokens)


class TestTheSameModel:
    def test_gives_the_same_logits_and_its_other_tokens_stand_behind(self, ours, tmp_path):
        path, config = written(tmp_path, renumbered(ours.weights, shuffled()), shuffled())
        theirs = open_checkpoint(path, config=config).checkpoint
        assert theirs.task == ours.task and theirs.model_config.d_vocab == THEIRS
        tokens = some(ours.task).tokens
        found = logits(theirs, tokens)
        torch.testing.assert_close(found[..., :23], logits(ours, tokens))
        assert (found[..., 23:] == -100).all()

    def test_of_another_architecture(self, tmp_path):
        model = user_built(positional_embedding_type="shortformer", d_vocab=THEIRS, n_ctx=59)
        torch.save(model.state_dict(), tmp_path / "theirs.pt")
        task, token_of = ScanTask(), shuffled()
        config = {**model.cfg.to_dict(), "task": {"kind": "scan"}, "vocabulary": token_of}
        read = resolve(tmp_path / "theirs.pt", config=config)
        order = torch.tensor([token_of[word] for word in WORDS])
        tokens = some(task).tokens
        expected = model(order[tokens])[..., order]
        torch.testing.assert_close(read.model(tokens)[..., : len(WORDS)], expected)

    def test_is_evaluated_alike(self, ours, tmp_path):
        """A model that is right somewhere: every answer ends at once, as that of `turn left` would not."""
        weights = dict(ours.weights)
        weights["unembed.b_U"] = torch.where(torch.arange(23) == EOS, 50.0, 0.0)
        ours = dataclasses.replace(ours, weights=weights)
        path, config = written(tmp_path, renumbered(weights, shuffled()), shuffled())
        theirs = open_checkpoint(path, config=config).checkpoint
        batch = some(ours.task)
        ends = batch.targets == EOS
        for one in (ours, theirs):
            said = logits(one, batch.tokens).argmax(dim=-1)
            assert (said[ends] == EOS).all()
        found, expected = (evaluate(one.build_model(), one.task, max_train=50) for one in (theirs, ours))
        assert {n: m and m.value for n, m in found.measures.items()} == {
            n: m and m.value for n, m in expected.measures.items()
        }

    def test_in_a_hugging_face_folder_with_a_file_for_a_vocabulary(self, ours, tmp_path):
        weights = renumbered(ours.weights, shuffled())
        weights["embed.W_E"] = weights["unembed.W_U"].T.contiguous()  # theirs are tied, without a bias
        tensors = {"wte.weight": weights["embed.W_E"], "wpe.weight": weights["pos_embed.W_pos"]}
        block = {n.removeprefix("blocks.0."): w for n, w in weights.items() if n.startswith("blocks.0.")}
        qkv = [block[f"attn.W_{x}"].movedim(0, 1).reshape(32, 32) for x in "QKV"]
        tensors |= {
            "h.0.attn.c_attn.weight": torch.cat(qkv, dim=1),
            "h.0.attn.c_attn.bias": torch.cat([block[f"attn.b_{x}"].flatten() for x in "QKV"]),
            "h.0.attn.c_proj.weight": block["attn.W_O"].reshape(32, 32),
            "h.0.attn.c_proj.bias": block["attn.b_O"],
            "h.0.mlp.c_fc.weight": block["mlp.W_in"],
            "h.0.mlp.c_fc.bias": block["mlp.b_in"],
            "h.0.mlp.c_proj.weight": block["mlp.W_out"],
            "h.0.mlp.c_proj.bias": block["mlp.b_out"],
        }
        for a, b in (("h.0.ln_1", "blocks.0.ln1"), ("h.0.ln_2", "blocks.0.ln2"), ("ln_f", "ln_final")):
            tensors |= {f"{a}.weight": weights[f"{b}.w"], f"{a}.bias": weights[f"{b}.b"]}
        tensors = {f"transformer.{name}": tensor.contiguous() for name, tensor in tensors.items()}
        safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
        shape = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 59, "vocab_size": THEIRS}
        shape |= {"model_type": "gpt2", "n_inner": 64, "activation_function": MODEL.activation}
        (tmp_path / "config.json").write_text(json.dumps(shape))
        (tmp_path / "words.json").write_text(json.dumps(shuffled()))
        (tmp_path / "scan.toml").write_text("vocabulary = 'words.json'\n[task]\nkind = 'scan'\n")
        theirs = open_checkpoint(tmp_path, config=tmp_path / "scan.toml").checkpoint
        embedding = torch.stack([weights["embed.W_E"][shuffled()[word]] for word in WORDS])
        same = {"embed.W_E": embedding, "unembed.W_U": embedding.T, "unembed.b_U": torch.zeros(23)}
        expected = dataclasses.replace(ours, weights=dict(ours.weights) | same)
        tokens = some(ours.task).tokens
        torch.testing.assert_close(logits(theirs, tokens)[..., :23], logits(expected, tokens))


class TestMarks:
    def test_that_are_one_token_are_one_and_only_the_end_is_said(self, ours, tmp_path):
        """As GPT-2's <|endoftext|>: padding, beginning and end."""
        token_of = shuffled("<pad>", "<bos>")
        weights = dict(ours.weights)
        weights["embed.W_E"] = weights["embed.W_E"].clone()
        weights["embed.W_E"][[PAD, BOS]] = weights["embed.W_E"][EOS].clone()
        given = token_of | {"<pad>": token_of["<eos>"], "<bos>": token_of["<eos>"]}
        path, config = written(tmp_path, renumbered(weights, token_of), given)
        theirs = open_checkpoint(path, config=config).checkpoint
        tokens = some(ours.task).tokens
        found, expected = logits(theirs, tokens), logits(dataclasses.replace(ours, weights=weights), tokens)
        asked = [place for place in range(23) if place not in (PAD, BOS)]
        torch.testing.assert_close(found[..., asked], expected[..., asked])
        assert (found[..., [PAD, BOS]] == -1e9).all() and theirs.model_config.d_vocab == THEIRS + 2

    def test_of_the_beginning_may_be_none(self, ours, tmp_path):
        given = shuffled("<pad>", "<bos>")
        task = "kind = 'scan'\nbos = false"
        path, config = written(tmp_path, renumbered(ours.weights, given), given, task)
        theirs = open_checkpoint(path, config=config).checkpoint
        batch, with_mark = some(theirs.task), some(ours.task)
        assert theirs.task.seq_len == ours.task.seq_len - 1
        assert torch.equal(batch.tokens, with_mark.tokens[:, 1:])
        assert torch.equal(batch.targets, with_mark.targets[:, 1:])
        there = batch.tokens != PAD
        found, expected = (logits(one, batch.tokens)[there] for one in (theirs, ours))
        torch.testing.assert_close(found[:, SEP:23], expected[:, SEP:])

    @pytest.mark.parametrize("kind", ["prontoqa", "scan"])
    def test_a_task_without_it_is_one_token_shorter(self, kind):
        from anchorlens.tasks.registry import read_task

        without, task = (read_task({"kind": kind, "bos": bos}) for bos in (False, True))
        found, expected = (one.sequences(one.examples("id")) for one in (without, task))
        assert torch.equal(found.tokens, expected.tokens[:, 1:])
        assert read_task(without.to_dict()) == without != task


def renamed(word):
    return {"<bos>": "[CLS]", "<sep>": "[SEP]", "<eos>": "</s>", "<pad>": "<PAD>"}.get(word, word)


SPELLED = {
    "bpe.json": {word if word[0] == "<" else "\u0120" + word: token for word, token in shuffled().items()},
    "pieces.json": {word if word[0] == "<" else "\u2581" + word: token for word, token in shuffled().items()},
    "bert.json": {renamed(word): token for word, token in shuffled().items()},
    "tokenizer.json": {
        "model": {
            "type": "BPE",
            "vocab": {word: token for word, token in shuffled().items() if word[0] != "<"},
        },
        "added_tokens": [
            {"id": token, "content": word} for word, token in shuffled().items() if word[0] == "<"
        ],
    },
}


class TestRealTokenizers:
    @pytest.mark.parametrize("name", SPELLED)
    def test_their_spelling_is_read(self, ours, tmp_path, name):
        path, config = written(tmp_path, renumbered(ours.weights, shuffled()), {})
        (tmp_path / name).write_text(json.dumps(SPELLED[name]), encoding="utf-8-sig")
        config.write_text(f"vocabulary = '{name}'\n{OURS}[task]\nkind = 'scan'\n")
        read = open_checkpoint(path, config=config)
        tokens = some(ours.task).tokens
        torch.testing.assert_close(logits(read.checkpoint, tokens)[..., :23], logits(ours, tokens))
        marked = name in ("bpe.json", "pieces.json", "bert.json")
        assert any("vocabulary is read with" in note for note in read.notes) == marked

    def test_a_word_a_line(self, ours, tmp_path):
        lines = [f"[unused{k}]" for k in range(THEIRS)]
        for word, token in shuffled().items():
            lines[token] = word
        path, config = written(tmp_path, renumbered(ours.weights, shuffled()), {})
        (tmp_path / "vocab.txt").write_text("\n".join(lines))
        config.write_text(f"vocabulary = 'vocab.txt'\n{OURS}[task]\nkind = 'scan'\n")
        tokens = some(ours.task).tokens
        theirs = open_checkpoint(path, config=config).checkpoint
        torch.testing.assert_close(logits(theirs, tokens)[..., :23], logits(ours, tokens))

    @pytest.mark.parametrize(
        ("changes", "question"),
        [
            (
                {"\u0120walk": 1},
                "got different tokens for 'walk', '\u0120walk'",
            ),
            (
                {"<eos>": None, "</s>": 1, "<|endoftext|>": 2},
                "got different tokens for '</s>', '<|endoftext|>'",
            ),
            (
                {"<sep>": None, "<tab>": 1},
                "got none for '<sep>'. Did you mean ",
            ),
            ({"walk": None, "WALK": 1}, "Did you mean 'walk' by 'WALK'? Rename the token"),
        ],
    )
    def test_what_is_open_is_asked_by_what_is_there(self, ours, tmp_path, changes, question):
        given = {word: token for word, token in {**shuffled(), **changes}.items() if token is not None}
        path, config = written(tmp_path, renumbered(ours.weights, shuffled()), given)
        with pytest.raises(CheckpointError) as error:
            open_checkpoint(path, config=config)
        assert question in str(error.value)


class TestSenseless:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"walk": None, "I_RUN": None}, "got none for 'walk', 'I_RUN'"),
            ({"<bos>": None}, "got none for '<bos>'"),
            (dict.fromkeys(WORDS[4:]), "'left' and 14 more"),
            ({"walk": 40}, "vocabulary: 'walk' must be"),
            ({"walk": -1}, "vocabulary: 'walk' must be"),
            ({"walk": "5"}, "vocabulary: 'walk' must be"),
            ({"walk": True}, "vocabulary: 'walk' must be"),
            ({"walk": shuffled()["run"]}, "must give each word a different token"),
        ],
    )
    def test_words_and_tokens(self, ours, tmp_path, changes, words):
        given = {"stroll": "3", **shuffled(), **changes}
        given = {word: token for word, token in given.items() if token is not None}
        path, config = written(tmp_path, renumbered(ours.weights, shuffled()), given)
        with pytest.raises(CheckpointError) as error:
            open_checkpoint(path, config=config)
        assert words in str(error.value) and "\n" not in str(error.value)

    def test_a_task_in_numbers(self, tmp_path):
        path, config = written(
            tmp_path, initial_weights(ModelConfig(), 0), {"walk": 1}, "regime = 'conflict'"
        )
        with pytest.raises(CheckpointError, match="got a vocabulary for the task two_anchor"):
            open_checkpoint(path, config=config)

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("vocabulary = 5", "must name a file in the folder of its configuration, got 5"),
            ("vocabulary = 'none.json'", "none.json"),
            ("vocabulary = 'damaged.json'", "must be valid JSON"),
            ("vocabulary = '../outside.json'", "must name a file in the folder"),
            ("vocabulary = '/etc/passwd'", "got '/etc/passwd'. Copy the file"),
            ("vocabulary = 'link.json'", "must name a file in the folder"),
            ("vocabulary = '.'", "must name a file in the folder"),
            ('vocabulary = "a\\u0000b"', "embedded null byte"),
            (f"vocabulary = '{'x' * 5000}'", "File name too long"),
        ],
    )
    def test_no_table_and_no_file(self, ours, tmp_path, line, words):
        path, config = written(tmp_path, ours.weights, {})
        (tmp_path / "damaged.json").write_text('{"walk": 1')
        outside = tmp_path.parent / "outside.json"
        outside.write_text(json.dumps(shuffled()))
        (tmp_path / "link.json").symlink_to(outside)
        config.write_text(f"{line}\n{OURS}[task]\nkind = 'scan'\n")
        with pytest.raises(CheckpointError) as error:
            open_checkpoint(path, config=config)
        assert words in str(error.value) and "\n" not in str(error.value)


def test_classify_and_evaluate_on_the_command_line(ours, tmp_path):
    """A random start answers nothing: underfit, or its data unknown; the probes are undecided."""
    path, config = written(tmp_path, renumbered(ours.weights, shuffled()), shuffled())
    done = CliRunner().invoke(app, ["evaluate", str(path), "--config", str(config), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["behaviour"]["measures"]["ood"]["value"] == 0
    done = CliRunner().invoke(app, ["classify", str(path), "--config", str(config)])
    assert done.exit_code == 0, done.output
    assert "probe verdict is undecided (no readings: the training accuracy of the model" in " ".join(
        done.stdout.split()
    )


def test_classify_takes_the_file(ours, tmp_path):
    path, config = written(tmp_path, renumbered(ours.weights, shuffled()), shuffled())
    verdict = classify(path, config=config)
    assert verdict.phase.number is None and verdict.behaviour.measures["ood"].value == 0


def test_answers_of_a_vocabulary_of_their_own_are_not_renumbered(ours, tmp_path):
    vocabulary = shuffled()
    weights = renumbered(ours.weights, vocabulary)
    few = {f"unembed.{name}": weights[f"unembed.{name}"][..., :30].clone() for name in ("W_U", "b_U")}
    path, config = written(tmp_path, weights | few, vocabulary)
    with pytest.raises(CheckpointError, match="40 input tokens and 30 answers"):
        resolve(path, config=config)

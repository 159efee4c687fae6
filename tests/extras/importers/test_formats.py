"""Each format is read as its own library would: same logits, and what cannot be read is said so."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from foreign_checkpoints import OURS, TINY, WHOLE, write_bare, write_hugging_face, write_released
from known_models import only_on_3, user_built

from anchorlens.files.importers import open_checkpoint, open_model
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import initial_weights
from anchorlens.models.hooked import build_model
from anchorlens.safe import CheckpointError
from anchorlens.tasks.two_anchor.behaviour import evaluate
from anchorlens.tasks.two_anchor.evaluation import MAX_TRIALS
from anchorlens.tasks.two_anchor.task import AnchorTask

RELEASED = Path(__file__).parents[4] / "shared/data/released_code_checkpoints"
TOKENS = AnchorTask().sample(16).tokens

ON_ITS_OWN_DATA = {("g0.25_wd0.01_L2H1_s4", "train_acc")}
"""Measured on a sample of the training set, which this model (train .235) had begun to memorise and which is
not known: on fresh noise it has .219, and a loss of 2.71 where they noted 2.58."""


def last_logits(opened):
    return opened.checkpoint.last_position_model()(TOKENS)[:, -1]


def refused(path, cause, config=None):
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(path, config=config)
    line = str(error.value)
    assert "\n" not in line and cause in line, line


@pytest.mark.skipif(not RELEASED.exists(), reason=f"no released-code checkpoints at {RELEASED}")
@pytest.mark.parametrize("folder", sorted(p.name for p in RELEASED.glob("g*")))
class TestReleasedCheckpoints:
    def test_logits_are_the_released_models(self, folder):
        truth = json.loads((RELEASED / folder / "logits.json").read_text())
        tokens, logits = torch.tensor(truth["tokens"]), torch.tensor(truth["logits"])
        checkpoint = open_checkpoint(RELEASED / folder).checkpoint
        assert (checkpoint.build_model()(tokens)[:, -1] - logits).abs().max() < 1e-4
        assert (checkpoint.last_position_model()(tokens)[:, -1] - logits).abs().max() < 1e-4

    @pytest.mark.slow
    def test_accuracies_are_those_that_were_measured(self, folder):
        truth = json.loads((RELEASED / folder / "measured.json").read_text())
        checkpoint = open_checkpoint(RELEASED / folder).checkpoint
        questions = {"n_noise": 24, "max_trials": MAX_TRIALS}  # theirs were 4,000 of each kind
        behaviour = evaluate(checkpoint.last_position_model(), checkpoint.task, **questions)
        last_pair = next(p.accuracy for p in behaviour.pairs if p.pair == (4, 3))  # their OOD
        for found, name in (
            (behaviour.train, "train_acc"),
            (behaviour.id, "id_acc"),
            (last_pair, "ood_acc"),
            (behaviour.commutativity, "commutativity"),
        ):
            limit = 0.02 if (folder, name) in ON_ITS_OWN_DATA else 0.01
            assert abs(found.value - truth[name]) < limit, name
        assert behaviour.phase.number == truth["phase"]

    def test_everything_else_that_is_known(self, folder):
        given = json.loads((RELEASED / folder / "config.json").read_text())
        opened = open_checkpoint(RELEASED / folder / "model/model_1500.pt")
        checkpoint = opened.checkpoint
        assert opened.kind == "released code" and checkpoint.step == 1500 and checkpoint.train_config is None
        assert checkpoint.model_config.gamma_of("mlp") == given["mlp_std"]
        assert checkpoint.task == AnchorTask(key_min=20, key_max=99, seq_len=9)
        assert checkpoint.metrics["recipe"]["weight_decay"] == given["weight_decay"]


class TestReleasedCode:
    def test_the_last_model_of_a_run_is_taken_or_the_one_that_is_named(self, tmp_path):
        for step in (900, 10000, 0):
            write_released(tmp_path, step)
        assert open_checkpoint(tmp_path).checkpoint.step == 10000
        assert open_checkpoint(tmp_path / "model/model_0.pt").checkpoint.step == 0

    def test_each_part_has_its_gamma(self, tmp_path):
        model = open_checkpoint(write_released(tmp_path).path).checkpoint.model_config
        assert (model.gamma, model.gamma_vo, model.gamma_qk) == (0.5, 0.6, None)

    @pytest.mark.parametrize(
        ("changes", "cause"),
        [
            ({"model": "LSTM"}, "model must be one of GPT2_init_for_diff_part_prenorm, got 'LSTM'"),
            ({"target": "sum"}, "composition_more_anchor, got 'sum'"),
            ({"d_v": 8}, "d_v must equal d_k, 4, got 8"),
            ({"n_heads": 4}, "W_Q must have shape [4, 8, 4], got [4, 8, 2]"),
            ({"n_layers": 2}, "blocks.1.attn.W_Q is missing"),
            ({"data_max": 10**9}, "data_max must be an integer >= 0 and <= 110"),
            ({"embedding_std": None}, "embedding_std must be a finite number"),
            ({"d_model": None}, "d_model must be an integer >= 1, got None"),
        ],
    )
    def test_what_is_not_theirs_is_refused(self, tmp_path, changes, cause):
        refused(write_released(tmp_path, **changes).path, cause)

    def test_without_its_configuration(self, tmp_path):
        written = write_released(tmp_path)
        (tmp_path / "config.json").unlink()
        refused(written.files[0], "must hold config.json, got none")


class TestHookedTransformer:
    @pytest.mark.parametrize("variant", ["gpt2", "postnorm", "released"])
    def test_a_state_dict_and_our_tables(self, tmp_path, variant):
        model = build_model(replace(TINY, variant=variant, n_layers=2), seed=3)
        torch.save(model.state_dict(), tmp_path / "a.pt")
        (tmp_path / "a.toml").write_text(
            f"[model]\nvariant = '{variant}'\nact_fn = '{model.cfg.act_fn}'\n[task]\nregime = 'conflict'"
        )
        opened = open_checkpoint(tmp_path / "a.pt", config=tmp_path / "a.toml")
        assert opened.kind == "HookedTransformer state dict"
        assert opened.checkpoint.model_config.n_layers == 2 and opened.checkpoint.task.regime == "conflict"
        assert torch.allclose(last_logits(opened), model(TOKENS)[:, -1], atol=1e-5)

    def test_a_train_table_is_believed(self, tmp_path):
        written = write_bare(tmp_path, config="preset = 'phase1'\n[train]\nseed = 3\n[model]\nd_model = 8")
        opened = open_checkpoint(written.path, config=written.config)
        assert opened.checkpoint.train_config.seed == 3 and opened.checkpoint.train_config.n_samples == 5000
        assert opened.checkpoint.model_config.gamma == 0.4
        assert any("its training set is the one that" in note for note in opened.notes)

    @pytest.mark.parametrize("wrapper", ["state_dict", "model_state_dict", "model"])
    def test_among_other_things(self, tmp_path, wrapper):
        weights = initial_weights(TINY, 0)
        torch.save(
            {wrapper: weights, "optimizer": {"state": {0: torch.ones(2)}}, "step": 5}, tmp_path / "a.pt"
        )
        (tmp_path / "a.json").write_text(json.dumps({"model": TINY.to_dict()}))
        opened = open_checkpoint(tmp_path / "a.pt", config=tmp_path / "a.json")
        assert torch.equal(opened.checkpoint.weights["embed.W_E"], weights["embed.W_E"])

    @only_on_3
    def test_folded_weights_and_their_own_configuration(self, tmp_path):
        model = build_model(TINY, seed=3)
        with torch.no_grad():  # so that there is something to fold
            for name, parameter in model.named_parameters():
                if name.split(".")[-1][0] in "bw":
                    parameter += 0.1 * torch.randn(
                        parameter.shape, generator=torch.Generator().manual_seed(1)
                    )
        expected = model(TOKENS)[:, -1].log_softmax(-1)  # centring shifts every logit alike
        model.process_weights_()
        torch.save(model.state_dict(), tmp_path / "a.pt")
        with (tmp_path / "a.json").open("w") as file:
            json.dump(model.cfg.to_dict() | {"task": {"key_max": 90}}, file, default=str)
        opened = open_checkpoint(tmp_path / "a.pt", config=tmp_path / "a.json")
        assert "blocks.0.ln1.w" not in model.state_dict() and opened.checkpoint.task.key_max == 90
        assert torch.allclose(last_logits(opened).log_softmax(-1), expected, atol=1e-5)

    def test_without_a_configuration_it_says_what_is_needed(self, tmp_path):
        refused(
            write_bare(tmp_path).path,
            "Give config (--config): the tables task and model",
        )

    @pytest.mark.parametrize("weights", ["model", "state_dict"])
    @pytest.mark.parametrize("key", ["config", "cfg", "model_config"])
    @pytest.mark.parametrize("as_dict", [False, True])
    def test_the_configuration_may_be_in_the_file(self, tmp_path, weights, key, as_dict):
        model = user_built(normalization_type="LN")
        cfg = model.cfg.to_dict() if as_dict else model.cfg
        torch.save({weights: model.state_dict(), key: cfg}, tmp_path / "a.pt")
        opened = open_model(tmp_path / "a.pt")
        tokens = torch.arange(12)[None]
        assert (
            torch.allclose(opened.model(tokens), model(tokens), atol=1e-5) and opened.model.cfg.n_heads == 4
        )
        named = open_model(tmp_path / "a.pt", config={"task": {"key_max": 90, "seq_len": 12}})
        assert named.task.key_max == 90

    def test_a_part_of_a_configuration_in_the_file_says_what_is_missing(self, tmp_path):
        written = write_bare(tmp_path)
        args = {"d_model": 8, "n_layers": 2, "act_fn": "gelu", "lr": 1e-3}
        torch.save({"model": torch.load(written.path), "args": args}, tmp_path / "a.pt")
        refused(tmp_path / "a.pt", "got none of normalization_type, positional_embedding_type")
        opened = open_checkpoint(tmp_path / "a.pt", config={"task": {"key_max": 90}})
        assert opened.checkpoint.task.key_max == 90

    def test_a_configuration_in_the_file_opens_no_other_file(self, tmp_path):
        model = user_built(normalization_type="LN")
        cfg = {**model.cfg.to_dict(), "vocabulary": "/etc/passwd", "task": {"kind": "scan"}}
        torch.save({"model": model.state_dict(), "config": cfg}, tmp_path / "a.pt")
        opened = open_model(tmp_path / "a.pt")
        assert any("opens no other file: vocabulary, task" in note for note in opened.notes)
        assert opened.task == AnchorTask() or opened.task is None

    @pytest.mark.parametrize(
        ("config", "cause"),
        [
            (f"{OURS}n_heads = 1", "n_heads must be 2 as in the weights, got 1 in the configuration"),
            ("model = {variant = 'rnn', act_fn = 'gelu'}", "variant must be one of gpt2, postnorm, released"),
            ("model = {variant = 'postnorm', act_fn = 'relu'}", "can read, got 'ln_final.w'"),
            (f"{OURS}colour = 1", "ModelConfig must get a known field, got 'colour'"),
            (f"{OURS}[task]\nseq_len = 12", "n_ctx must be at least 12 for the task, got 9"),
            (f"task = 3\n{OURS}", "task must be a table of fields, got 3"),
            ("preset = 'phase9'", "preset must be one of"),
            ("model = ", "must be valid JSON or TOML"),
            ('{"d_model": NaN}', "must have only finite numbers, got NaN"),
            ("[" * 100_000, "must be valid JSON or TOML"),
            ('{"a": ' + "[" * 100_000, "must be valid JSON or TOML"),
            ("#" * 2_000_000, "must have at most 1,048,576 bytes"),
            (f"{OURS}eps = 1e-6", "ModelConfig must get a known field, got 'eps'"),
            ("", "got none of act_fn, normalization_type, positional_embedding_type, attention_dir, eps"),
            ("vocabulary = {}", "got none of act_fn, normalization_type, positional_embedding_type"),
            ("task.seq_len = 12", "n_ctx must be at least 12 for the task, got 9"),
            ("model.gamma = 0.5", "got none of variant, act_fn. Give config (--config)"),
            ("model = {act_fn = 'relu', normalization_type = 'none'}", "got none of variant."),
            ('{"act_fn": "gelu", "normalization_type": "LN"}', "got none of positional_embedding_type"),
            *(
                (json.dumps(WHOLE | fields), cause)
                for fields, cause in (
                    ({"act_fn": None}, "act_fn must be"),
                    ({"normalization_type": "LNPre"}, "can read, got 'blocks.0.ln1.w'"),
                    ({"normalization_type": "RMS"}, "can read, got 'blocks.0.ln1.b'"),
                    ({"normalization_type": None}, "can read, got 'blocks.0.ln1.w'"),
                    ({"attn_only": True}, "can read, got 'blocks.0.mlp.W_in'"),
                    ({"gated_mlp": True}, "blocks.0.mlp.W_gate is missing"),
                    (
                        {"positional_embedding_type": "rotary"},
                        "can read, got 'pos_embed.W_pos'",
                    ),
                )
            ),
        ],
    )
    def test_a_configuration_that_makes_no_sense(self, tmp_path, config, cause):
        written = write_bare(tmp_path, config=config)
        refused(written.path, cause, written.config)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("positional_embedding_type", "shortformer"),
            ("parallel_attn_mlp", True),
            ("act_fn", "silu"),
            ("eps", 1e-6),
            ("attn_scale", 1.0),
            ("attention_dir", "bidirectional"),
        ],
    )
    def test_another_architecture_is_no_checkpoint(self, tmp_path, field, value):
        config = json.dumps({**WHOLE, "d_model": 8, field: value})
        written = write_bare(tmp_path, config=config)
        refused(
            written.path, f"the file must be a Checkpoint, got another model: {field} must be", written.config
        )

    def test_a_bias_that_postnorm_does_not_have(self, tmp_path):
        written = write_bare(
            tmp_path, config="model = {variant = 'postnorm', act_fn = 'relu'}", variant="postnorm"
        )
        weights = torch.load(written.path)
        torch.save(weights | {"blocks.0.attn.b_Q": torch.ones(2, 4)}, written.path)
        refused(written.path, "blocks.0.attn.b_Q must be zero", written.config)

    def test_half_precision_is_read_as_float32(self, tmp_path):
        written = write_bare(tmp_path)
        torch.save(
            {name: weight.bfloat16() for name, weight in torch.load(written.path).items()}, written.path
        )
        opened = open_checkpoint(written.path, config=written.config)
        assert opened.checkpoint.weights["embed.W_E"].dtype == torch.float32
        assert "its weights are bfloat16: they are read as float32" in opened.notes


class TestHuggingFace:
    @pytest.mark.parametrize("tied", [True, False])
    @pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
    def test_logits_are_those_of_transformers(self, tmp_path, tied, file):
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=110,
            n_positions=16,
            n_embd=24,
            n_layer=2,
            n_head=3,
            bos_token_id=0,
            eos_token_id=0,
            tie_word_embeddings=tied,
        )
        torch.manual_seed(0)
        model = GPT2LMHeadModel(config).eval()
        with torch.no_grad():  # biases away from 0, weights from 0.02, so that each of them counts
            for parameter in model.parameters():
                parameter += 0.2 * torch.randn(parameter.shape)
        model.save_pretrained(tmp_path)
        if file == "pytorch_model.bin":  # as transformers 4 wrote it
            (tmp_path / "model.safetensors").unlink()
            torch.save(model.state_dict(), tmp_path / file)
        opened = open_checkpoint(tmp_path)
        assert opened.kind == "Hugging Face GPT-2" and opened.file.name == file
        assert (last_logits(opened) - model(TOKENS).logits[:, -1]).abs().max() < 1e-4

    def test_the_task_may_be_given(self, tmp_path):
        written = write_hugging_face(tmp_path / "a", prefix="")
        (tmp_path / "task.toml").write_text("[task]\nkey_max = 80")
        assert open_checkpoint(written.path, config=tmp_path / "task.toml").checkpoint.task.key_max == 80
        assert (
            "no task was named, so the papers' own task is assumed" in open_checkpoint(written.files[0]).notes
        )

    @pytest.mark.parametrize(
        ("changes", "cause"),
        [
            ({"model_type": "llama"}, "model_type must be 'gpt2', got 'llama'"),
            ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon must be 1e-05, got 1e-06"),
            ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx must be False"),
            ({"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn must be False"),
            ({"activation_function": "silu"}, "activation_function must be 'gelu_new' or 'gelu' or 'relu'"),
            ({"n_head": 3}, "three parts, got 3. Correct n_heads"),
            ({"n_inner": None}, "n_inner must be 12 as in the weights, got 32 in config.json"),
            ({"tie_word_embeddings": False}, "lm_head.weight is missing"),
            ({"tensors": {"lm_head.weight": torch.ones(110, 8)}}, "lm_head.weight must equal wte.weight"),
            (
                {"tensors": {"transformer.h.0.moon": torch.ones(1)}},
                "anchorlens can read, got 'h.0.moon'",
            ),
            ({"vocab_size": 50}, "vocab_size must be 110 as in the weights, got 50 in config.json"),
        ],
    )
    def test_what_is_no_gpt2_of_ours_is_refused(self, tmp_path, changes, cause):
        refused(write_hugging_face(tmp_path, **changes).path, cause)

    def test_weights_in_several_files_are_refused(self, tmp_path):
        written = write_hugging_face(tmp_path)
        written.files[0].rename(tmp_path / "model-00001-of-00002.safetensors")
        refused(tmp_path, "the folder must hold the weights in one file")


class TestUnknown:
    def test_another_model(self, tmp_path):
        safetensors.torch.save_file({"layer.weight": torch.ones(2)}, tmp_path / "a.safetensors")
        refused(tmp_path / "a.safetensors", "those of no model that can be read")
        torch.save([torch.ones(2)], tmp_path / "a.pt")
        refused(tmp_path / "a.pt", "the file must hold a dict")

    @pytest.mark.parametrize(
        ("names", "what"),
        [
            (("embed.embed.W_E", "embed.pos_embed.W_pos", "mlm_head.W"), "a HookedEncoder (BERT), which"),
            (("embed.embed.W_E", "embed.token_type_embed.W_token_type"), "a HookedEncoder (BERT), which"),
            (("embed.W_E", "encoder.0.attn.W_Q", "decoder.0.cross_attn.W_Q"), "an encoder-decoder, which"),
            (
                ("shared.weight", "decoder.block.0.layer.1.EncDecAttention.q.weight"),
                "an encoder-decoder, which",
            ),
            (
                ("encoder.layers.0.linear1.weight", "decoder.layers.0.linear1.weight"),
                "an encoder-decoder, wh",
            ),
            (("bert.encoder.layer.0.attention.self.query.weight",), "an encoder, which"),
            (("net.0.weight", "net.2.weight"), "no model that can be read"),
        ],
    )
    @pytest.mark.parametrize("key", [None, "state_dict"])
    def test_another_kind_of_model_is_named_with_the_way(self, tmp_path, names, what, key):
        weights = {name: torch.ones(4, 4) for name in names}
        torch.save(weights if key is None else {key: weights}, tmp_path / "a.pt")
        for way in (f"are those of {what}", "--model FILE.py:build", "evaluate(model, task)"):
            refused(tmp_path / "a.pt", way)

    def test_an_adapter_is_not_left_out_in_silence(self, tmp_path):
        """Next to its base, in the file of its base, or alone."""
        written = write_hugging_face(tmp_path)
        whole = open_checkpoint(tmp_path).checkpoint
        (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
        for way in ("adapter (LoRA)", "merge_and_unload()"):
            refused(tmp_path, way)
        opened = open_checkpoint(written.files[0])
        assert torch.equal(last_logits(opened), whole.last_position_model()(TOKENS)[:, -1])
        assert any("adapter_config.json" in note and "not applied" in note for note in opened.notes)
        added = {"h.0.attn.c_attn.lora_A": torch.ones(2, 8), "h.0.attn.c_attn.lora_B": torch.ones(24, 2)}
        for weights in ({**safetensors.torch.load_file(written.files[0]), **added}, added):
            safetensors.torch.save_file(weights, tmp_path / "merged.safetensors")
            refused(tmp_path / "merged.safetensors", "it holds an adapter (LoRA)")

    def test_a_folder_of_something_else(self, tmp_path):
        (tmp_path / "config.json").write_text('{"x": 1}')
        refused(tmp_path, "config.json must belong to a run or model that can be read")


def test_importing_does_not_import_the_libraries_of_others(tmp_path):
    import subprocess
    import sys

    write_released(tmp_path)
    code = (
        "import sys; from anchorlens.files.importers import open_checkpoint; open_checkpoint(sys.argv[1]);"
        "assert not {'transformer_lens', 'transformers'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[3])


def test_a_model_may_be_larger_than_its_task(tmp_path):
    config = ModelConfig(**{**TINY.to_dict(), "d_vocab": 300, "n_ctx": 30})
    torch.save(initial_weights(config, 0), tmp_path / "a.pt")
    (tmp_path / "a.toml").write_text(OURS)
    opened = open_checkpoint(tmp_path / "a.pt", config=tmp_path / "a.toml")
    assert last_logits(opened).shape == (16, 300)

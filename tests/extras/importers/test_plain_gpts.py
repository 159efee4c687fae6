"""A GPT in plain torch becomes a HookedTransformer with its logits, from memory and from a nanoGPT's file."""

import argparse
import json

import pytest
import torch
from test_examples import example
from torch import nn
from torch.nn import functional

from anchorlens import AnchorTask, CheckpointError, classify, hooked_from, open_checkpoint, probes
from anchorlens.files.model_input import resolve

TOKENS = AnchorTask().sample(32).tokens
VOCAB, CONTEXT = 128, 12


class OnlyTheLast(nn.Module):
    """Gives (logits of the last position, loss), as nanoGPT without targets, or an object with `.logits`."""

    def __init__(self, gpt, form):
        super().__init__()
        self.transformer, self.lm_head, self.form = gpt.transformer, gpt.lm_head, form
        self.whole = [gpt]  # in a list, so that its parameters have one name

    def forward(self, tokens):
        logits = self.whole[0](tokens)
        return (logits[:, [-1]], None) if self.form == "nanoGPT" else type("Output", (), {"logits": logits})()


def nano(bias=False, n_head=2, act_fn=functional.gelu, context=CONTEXT):
    torch.manual_seed(0)
    gpt = example("your_own_gpt").GPT(VOCAB, context, n_embd=32, n_head=n_head, bias=bias)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    for block in gpt.transformer["h"]:
        mlp = block.mlp
        mlp.forward = lambda x, mlp=mlp: mlp.c_proj(act_fn(mlp.c_fc(x)))
    return gpt.train()


def gpt2(**fields):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": VOCAB, "n_positions": CONTEXT}
    torch.manual_seed(0)
    gpt = GPT2LMHeadModel(GPT2Config(**sizes | {"bos_token_id": None, "eos_token_id": None} | fields))
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    return gpt.eval()


def logits(gpt):
    with torch.no_grad():
        given = gpt.eval()(TOKENS)
    given = given[0] if isinstance(given, tuple) else given
    return getattr(given, "logits", given)[:, -1]


GPTS = {
    "nanoGPT": nano,
    "with biases": lambda: nano(bias=True),
    "minGPT's activation": lambda: nano(bias=True, act_fn=lambda x: functional.gelu(x, approximate="tanh")),
    "logits and loss": lambda: OnlyTheLast(nano(), "nanoGPT"),
    "an object with logits": lambda: OnlyTheLast(nano(), "transformers"),
    "Hugging Face": gpt2,
    "Hugging Face, unlike the default": lambda: gpt2(
        tie_word_embeddings=False,
        layer_norm_epsilon=1e-2,
        activation_function="silu",
        scale_attn_by_inverse_layer_idx=True,
        scale_attn_weights=False,
    ),
}


@pytest.mark.parametrize("make", GPTS.values(), ids=GPTS)
def test_logits_are_those_of_the_gpt_and_it_stays_as_it_is(make):
    gpt = make()
    before = {name: tensor.clone() for name, tensor in gpt.state_dict().items()}
    training, drawn = gpt.training, torch.get_rng_state()
    model = hooked_from(gpt)
    assert gpt.training == training and torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(tensor, before[name]) for name, tensor in gpt.state_dict().items())
    assert (model(TOKENS)[:, -1] - logits(gpt)).abs().max() < 1e-3
    assert probes.stable_rank(model).w_q and probes.v_similarity(model, AnchorTask()).centred_gap is not None


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel], ids=["compiled", "DataParallel"])
def test_a_wrapped_gpt_is_the_gpt_within(wrap):
    gpt = nano()
    assert torch.equal(hooked_from(wrap(gpt))(TOKENS), hooked_from(gpt)(TOKENS))


def test_activations_that_hardly_differ_on_small_weights_are_told_apart():
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": VOCAB, "n_positions": CONTEXT}
    for act_fn in ("gelu_new", "gelu", "relu"):
        config = GPT2Config(**sizes, activation_function=act_fn, bos_token_id=None, eos_token_id=None)
        gpt = GPT2LMHeadModel(config)
        assert hooked_from(gpt).cfg.act_fn == act_fn
        del gpt.config.activation_function  # as in a module that does not say it
        assert hooked_from(gpt).cfg.act_fn == act_fn


class Parallel(nn.Module):
    """A block whose MLP reads what the attention reads."""

    def __init__(self, block):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = block.ln_1, block.attn, block.ln_2, block.mlp

    def forward(self, x):
        return x + self.attn(self.ln_1(x)) + self.mlp(self.ln_2(x))


def test_other_logits_are_an_error():
    gpt = nano()
    gpt.transformer["h"] = nn.ModuleList(Parallel(block) for block in gpt.transformer["h"])
    with pytest.raises(
        ValueError,
        match=r"logits differ .*every.*evaluate\(module, task\)",
    ):
        hooked_from(gpt)


@pytest.mark.parametrize(
    ("gpt", "cause"),
    [
        (nn.Linear(2, 2), r"a Linear without .*c_attn.weight"),
        (AnchorTask(), "module must be a torch module, got AnchorTask"),
    ],
)
def test_something_else_is_refused(gpt, cause):
    with pytest.raises(ValueError, match=cause):
        hooked_from(gpt)


def test_what_needs_a_hookedtransformer_names_the_way():
    for measure in (probes.stable_rank, probes.v_similarity, classify):
        with pytest.raises(ValueError, match=r"needs a HookedTransformer. Use hooked_from"):
            measure(nano(), AnchorTask())


def write_nano(folder, gpt, prefix="", **more):
    args = {
        "n_layer": 2,
        "n_head": 2,
        "n_embd": 32,
        "block_size": CONTEXT,
        "vocab_size": VOCAB,
        "dropout": 0.1,
    }
    weights = {prefix + name: tensor for name, tensor in gpt.state_dict().items()}
    content = {"model": weights, "optimizer": {"state": {}}, "model_args": args, "iter_num": 7} | more
    torch.save(content, folder / "ckpt.pt")
    return folder / "ckpt.pt"


class TestTheFileOfANanoGPT:
    @pytest.mark.parametrize("prefix", ["", "_orig_mod."])
    @pytest.mark.parametrize("bias", [False, True])
    def test_is_read_as_the_module_in_memory(self, tmp_path, prefix, bias):
        gpt = nano(bias=bias)
        opened = open_checkpoint(write_nano(tmp_path, gpt, prefix, config={"learning_rate": 1e-3}))
        assert opened.kind == "nanoGPT" and opened.checkpoint.step == 7
        model = opened.checkpoint.build_model()
        assert torch.allclose(model(TOKENS), hooked_from(gpt)(TOKENS), atol=1e-5)
        assert any("act_fn gelu is assumed" in note for note in opened.notes)
        assert any("not used: learning_rate" in note for note in opened.notes)

    def test_a_configuration_beside_it_is_not_asked_for(self, tmp_path):
        """Its names are those of Hugging Face's GPT-2, whose config.json says other shapes."""
        path = write_nano(tmp_path, nano())
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_embd": 32}))
        assert open_checkpoint(path).kind == "nanoGPT"

    @pytest.mark.parametrize(
        "where",
        [
            {"config": {"n_head": 4, "n_layer": 2, "learning_rate": 1e-3}},
            {"config": {"model": {"n_heads": 4, "optimizer": "adamw"}}},
            {"args": argparse.Namespace(num_heads=4, lr=1e-3)},
            {"hyper_parameters": {"nhead": 4}},
            {"num_attention_heads": 4},
        ],
    )
    def test_the_number_of_heads_is_found_wherever_the_file_has_it(self, tmp_path, where):
        gpt = nano(n_head=4)
        torch.save({"model": gpt.state_dict(), "step": 4999, "val_loss": 3.1} | where, tmp_path / "m.pt")
        model = open_checkpoint(tmp_path / "m.pt").checkpoint.build_model()
        assert model.cfg.n_heads == 4
        assert torch.allclose(model(TOKENS)[:, -1], logits(gpt), atol=1e-4)

    def test_sizes_beside_the_number_of_heads_must_fit(self, tmp_path):
        torch.save({"model": nano().state_dict(), "config": {"n_head": 2, "n_layer": 3}}, tmp_path / "m.pt")
        with pytest.raises(CheckpointError, match="n_layer must be 2 as in the weights, got 3"):
            open_checkpoint(tmp_path / "m.pt")

    def test_an_activation_that_the_file_states_is_taken(self, tmp_path):
        gpt = nano(act_fn=functional.relu)
        opened = open_checkpoint(write_nano(tmp_path, gpt, model_args={"n_head": 2, "activation": "ReLU"}))
        assert torch.allclose(opened.checkpoint.build_model()(TOKENS)[:, -1], logits(gpt), atol=1e-4)
        assert not any("assumed" in note and "act_fn" in note for note in opened.notes)

    @pytest.mark.parametrize("kept", ["transformer.wte.weight", "lm_head.weight"])
    def test_tied_embeddings_may_be_stored_once(self, tmp_path, kept):
        gpt = nano()
        assert gpt.lm_head.weight is gpt.transformer.wte.weight
        dropped = {"transformer.wte.weight", "lm_head.weight"} - {kept}
        weights = {name: one for name, one in gpt.state_dict().items() if name not in dropped}
        torch.save({"model": weights, "model_args": {"n_head": 2}}, tmp_path / "m.pt")
        model = open_checkpoint(tmp_path / "m.pt").checkpoint.build_model()
        assert torch.allclose(model(TOKENS)[:, -1], logits(gpt), atol=1e-4)

    def test_bare_weights_need_their_number_of_heads(self, tmp_path):
        gpt = nano(act_fn=functional.relu)
        torch.save(gpt.state_dict(), tmp_path / "w.pt")
        with pytest.raises(CheckpointError, match="the number of heads of a nanoGPT must be in"):
            open_checkpoint(tmp_path / "w.pt")
        tables = {"model": {"n_heads": 2, "act_fn": "relu"}, "task": {"key_max": 90}}
        opened = open_checkpoint(tmp_path / "w.pt", config=tables)
        assert torch.allclose(opened.checkpoint.build_model()(TOKENS)[:, -1], logits(gpt), atol=1e-4)
        assert opened.checkpoint.task.key_max == 90 and not opened.notes

    @pytest.mark.parametrize(
        ("changes", "config", "cause"),
        [
            ({"model_args": {"n_head": 3}}, None, r"n_heads must divide .*three parts, got 3"),
            (
                {"model_args": {"n_head": 2, "n_embd": 64}},
                None,
                r"n_embd must be 32.*in model_args",
            ),
            ({}, {"model": {"d_mlp": 7}}, r"d_mlp.*weights.*table \[model\]"),
        ],
    )
    def test_contradictions_are_refused(self, tmp_path, changes, config, cause):
        with pytest.raises(CheckpointError, match=cause):
            open_checkpoint(write_nano(tmp_path, nano(), **changes), config=config)

    def test_one_that_is_too_small_for_the_task_is_measured_where_none_is_needed(self, tmp_path):
        given = resolve(write_nano(tmp_path, nano(context=4), model_args={"n_head": 2}))
        assert given.task is None and given.model.cfg.n_ctx == 4

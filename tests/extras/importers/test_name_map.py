"""A map of names makes a HookedTransformer of a transformer of one's own, in memory and from a file."""

import copy
import json

import anchorlens_command
import numpy as np
import pytest
import torch
from torch import nn

from anchorlens import CheckpointError, classify, hooked_from, probes

D, V, N = 32, 20, 5
TOKENS = torch.randint(V, (400, N), generator=torch.Generator().manual_seed(1))


class Layer(nn.Module):
    """Pre-norm attention with matrices of its own for queries, keys and values, and an MLP."""

    def __init__(self, kind):
        super().__init__()
        norm = nn.RMSNorm if kind == "rms" else nn.LayerNorm
        self.n1, self.n2, self.kind = norm(D), norm(D), kind
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in range(4))
        self.qkv = nn.Linear(D, 3 * D)
        self.heads_q, self.heads_k, self.heads_v = (
            nn.ModuleList(nn.Linear(D, D // 4) for _ in range(4)) for _ in range(3)
        )
        self.up, self.down = nn.Linear(D, 48), nn.Linear(48, D)
        self.w_in = nn.Parameter(torch.randn(D, 48) / 6)

    def forward(self, x):
        batch, n, _ = x.shape
        y = self.n1(x)
        if self.kind == "fused":
            q, k, v = (one.view(batch, n, 4, -1) for one in self.qkv(y).chunk(3, dim=-1))
        elif self.kind == "fused by head":
            q, k, v = self.qkv(y).view(batch, n, 4, 3, -1).unbind(3)
        elif self.kind == "heads":
            parts = (self.heads_q, self.heads_k, self.heads_v)
            q, k, v = (torch.stack([head(y) for head in heads], 2) for heads in parts)
        else:
            q, k, v = (part(y).view(batch, n, 4, -1) for part in (self.q, self.k, self.v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / (D // 4) ** 0.5
        if self.kind != "encoder":
            scores = scores + torch.full((n, n), -1e9).triu(1)
        x = x + self.o(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2))
        if self.kind == "attention alone":
            return x
        z = self.n2(x)
        return x + self.down(torch.relu(z @ self.w_in if self.kind == "bare" else self.up(z)))


class Own(nn.Module):
    """A transformer of one's own."""

    def __init__(self, kind="plain"):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Parameter(torch.randn(1, N, D))
        self.layers = nn.ModuleDict({"1": Layer(kind), "10": Layer(kind), "2": Layer(kind)})
        self.norm = nn.RMSNorm(D) if kind == "rms" else nn.LayerNorm(D, eps=1e-3)
        self.head, self.num_heads, self.kind = nn.Linear(D, V, bias=False), 4, kind

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos[:, : tokens.shape[1]]
        for name in ("1", "2", "10"):
            x = self.layers[name](x)
        logits = self.head(self.norm(x))
        return {"logits": logits} if self.kind == "encoder" else logits


def own(kind="plain"):
    torch.manual_seed(0)
    model = Own(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    for name in ("norm", *(f"layers.{n}.{one}" for n in (1, 2, 10) for one in ("n1", "n2"))):
        if hasattr(model.get_submodule(name), "eps") and kind != "rms":
            model.get_submodule(name).eps = 1e-3
    return model.train()


NAMES = {
    "embed.W_E": "tok.weight",
    "pos_embed.W_pos": "pos",
    **{f"blocks.{{l}}.attn.W_{x}": f"layers.{{l}}.{x.lower()}.weight" for x in "QKVO"},
    "blocks.{l}.mlp.W_in": "layers.{l}.up.weight",
    "blocks.{l}.mlp.b_in": "layers.{l}.up.bias",
    "blocks.{l}.mlp.W_out": "layers.{l}.down.weight",
    "blocks.{l}.mlp.b_out": "layers.{l}.down.bias",
    **{
        f"blocks.{{l}}.ln{i}.{x}": f"layers.{{l}}.n{i}.{y}"
        for i in (1, 2)
        for x, y in (("w", "weight"), ("b", "bias"))
    },
    "ln_final.w": "norm.weight",
    "ln_final.b": "norm.bias",
    "unembed.W_U": "head.weight",
}


def names_of(kind):
    names = dict(NAMES)
    for x in "QKV":
        if kind in ("fused", "fused by head"):
            names[f"blocks.{{l}}.attn.W_{x}"] = "layers.{l}.qkv.weight"
            names[f"blocks.{{l}}.attn.b_{x}"] = "layers.{l}.qkv.bias"
        if kind == "heads":
            names[f"blocks.{{l}}.attn.W_{x}"] = f"layers.{{l}}.heads_{x.lower()}.{{h}}.weight"
            names[f"blocks.{{l}}.attn.b_{x}"] = f"layers.{{l}}.heads_{x.lower()}.{{h}}.bias"
    if kind == "rms":
        names = {
            key: name for key, name in names.items() if not name.endswith(("norm.bias", "n1.bias", "n2.bias"))
        }
    if kind == "attention alone":
        names = {key: name for key, name in names.items() if ".mlp." not in key and ".ln2." not in key}
    if kind == "bare":
        names["blocks.{l}.mlp.W_in"] = "layers.{l}.w_in"
        del names["blocks.{l}.mlp.b_in"]
    return names


def logits(model, tokens):
    with torch.no_grad():
        found = copy.deepcopy(model).eval()(tokens)
    return found["logits"] if isinstance(found, dict) else found


KINDS = ["plain", "fused", "fused by head", "heads", "encoder", "rms", "bare", "attention alone"]


@pytest.mark.filterwarnings("ignore:.*biases that the map lacks")
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_module_and_it_stays_as_it_is(kind):
    module = own(kind)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    drawn = torch.get_rng_state()
    model = hooked_from(module, names=names_of(kind))
    assert module.training and torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    torch.testing.assert_close(model(TOKENS), logits(module, TOKENS), rtol=1e-4, atol=1e-4)
    assert model.cfg.n_layers == 3 and model.cfg.n_heads == 4
    assert model.cfg.attention_dir == ("bidirectional" if kind == "encoder" else "causal")
    assert model.cfg.attn_only == (kind == "attention alone")
    assert probes.stable_rank(model).w_q and probes.attention_patterns(model, tokens=TOKENS[0])


def test_biases_that_the_map_lacks_are_zero_and_a_warning_says_so():
    with pytest.warns(UserWarning, match=r"13 biases that the map lacks are zero"):
        model = hooked_from(own(), names=NAMES)
    assert not model.blocks[2].attn.b_Q.any() and not model.unembed.b_U.any()


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            (
                {"blocks.{l}.attn.W_Q": "layers.{l}.k.weight"},
                r"logits differ.*relu.*does not use 'layers.1.w_in'",
            ),
            (
                {"blocks.{l}.attn.W_Q": "layers.{l}.qq.weight"},
                r"layers.1.qq.weight is missing.*'layers.1.q.w",
            ),
            ({"blocks.{l}.mlp.W_in": "layers.{l}.n1.weight"}, r"blocks.0.mlp.W_in"),
            ({"embed.W_E": None}, "name must be text, got None"),
            ({"embed.W_E": {"name": "tok.weight", "turn": 1}}, r"known field, got 'turn'"),
            ({"embed.W_E": {"name": "tok.weight", "part": 3}}, "part must be"),
            ({"embedding": "tok.weight"}, r"must be a parameter of an.*got 'embedding'"),
        ],
    )
    def test_of_a_map(self, changes, said):
        with pytest.raises(ValueError, match=said):
            hooked_from(own(), names=NAMES | changes)

    def test_of_something_else(self):
        with pytest.raises(ValueError, match="must be a table from our names to yours"):
            hooked_from(own(), names=["tok.weight"])
        with pytest.raises(ValueError, match="must have embed.W_E"):
            hooked_from(own(), names={"unembed.W_U": "head.weight"})
        with pytest.raises(ValueError, match="n_heads must divide .*got 5"):
            hooked_from(own(), names=NAMES, config={"n_heads": 5})

    def test_a_probe_of_heads_names_the_way(self):
        for probe in (probes.attention_patterns, probes.stable_rank):
            with pytest.raises(ValueError, match=r"HookedTransformer.*hooked_from\(module, names"):
                probe(own(), **({"tokens": TOKENS[0]} if probe is probes.attention_patterns else {}))


@pytest.fixture(scope="module")
def trained():
    """A model that answers the sum of the first two tokens modulo 20, and its training data."""
    torch.manual_seed(0)
    model, targets = own(), (TOKENS[:, 0] + TOKENS[:, 1]) % V
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        nn.functional.cross_entropy(model(TOKENS)[:, -1], targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval(), (TOKENS, targets)


@pytest.fixture
def files(trained, tmp_path):
    """The weights under a key and with the prefix of a wrapper, the map and the data."""
    model, (tokens, targets) = trained
    weights = {f"_orig_mod.{name}": one for name, one in model.state_dict().items()}
    torch.save({"net": weights, "epoch": 3}, tmp_path / "w.pt")
    np.savez(tmp_path / "d.npz", tokens=tokens, targets=targets)
    np.savez(tmp_path / "other.npz", tokens=tokens, targets=targets.flip(0))
    write_map(tmp_path)
    return tmp_path


def write_map(folder, **changes):
    model = {"n_heads": 4, "act_fn": "relu", "eps": 1e-3}
    content = {"map": NAMES, "model": model, "train_data": "d.npz"} | changes
    (folder / "map.json").write_text(json.dumps(content))
    return {"config": folder / "map.json"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("few_updates")
class TestAFile:
    def test_counts_if_it_answers_its_training_data(self, files, trained):
        model, data = trained
        verdict = classify(files / "w.pt", config=files / "map.json", training_set=data, quick=True)
        torch.testing.assert_close(verdict.subject.model(TOKENS), logits(model, TOKENS), rtol=1e-4, atol=1e-4)
        said, n_ignored = (
            "; ".join(verdict.warnings),
            3 * (1 + 2 + 3 * 4 * 2),
        )  # w_in, qkv and heads of a layer
        assert "the check of the map is the accuracy on d.npz, 1.000" in said
        assert "13 biases that the map lacks are zero" in said
        assert f"{n_ignored} tensors that the map lacks are ignored" in said
        assert verdict.behaviour.measure("train").value == 1

    def test_every_probe_then_works(self, files, trained):
        module = hooked_from(trained[0], names=NAMES)
        own = probes.stable_rank(files / "w.pt", config=files / "map.json")
        np.testing.assert_allclose(own.w_q, probes.stable_rank(module).w_q, rtol=1e-4)
        own = probes.attention_patterns(files / "w.pt", config=files / "map.json", tokens=TOKENS[0])
        of_module = probes.attention_patterns(module, tokens=TOKENS[0])
        np.testing.assert_allclose(own.attention, of_module.attention, atol=1e-4)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"train_data": "other.npz"}, r"must answer 0.90 of other.npz, got 0.*hooked_from"),
            ({"map": NAMES | {"blocks.{l}.attn.W_Q": "layers.{l}.v.weight"}}, "must answer 0.90 of d.npz"),
            ({"train_data": None}, "train_data must name a file.*got None"),
            ({"train_data": "../d.npz"}, r"train_data must name a file.*got '../d.npz'"),
            ({"train_data": "none.npz"}, r"none.npz: cannot be read"),
            ({"model": {"n_heads": 4}}, "got none of act_fn"),
            ({"model": {"act_fn": "relu"}}, r"n_heads, which config or .*got None"),
            ({"map": 3}, "must be a table from our names to yours, got 3"),
            ({"map": NAMES | {"embed.W_E": "wte.weight"}}, "wte.weight is missing"),
            ({"map": NAMES | {"blocks.{l}.mlp.W_in": "layers.{l}.up.bias"}}, "W_in"),
        ],
    )
    def test_does_not_count_otherwise(self, files, changes, said):
        with pytest.raises(CheckpointError, match=said):
            classify(files / "w.pt", **write_map(files, **changes), training_set=(TOKENS, TOKENS[:, 0]))

    def test_on_the_command_line(self, files):
        how = ("--config", files / "map.json", "--train-data", files / "d.npz")
        shown = anchorlens_command.call("classify", files / "w.pt", *how).stdout
        assert "the check of the map is the accuracy on d.npz" in " ".join(shown.split())
        anchorlens_command.call("probe", "stable_rank", files / "w.pt", *how[:2])

    def test_names_of_its_own_without_a_map_name_both_ways(self, files):
        with pytest.raises(CheckpointError, match=r"--model FILE.py:build .*_from\(module, names="):
            classify(files / "w.pt")

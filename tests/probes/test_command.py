"""`anchorlens probe`, and pictures as files."""

import functools
import json
import shutil
import subprocess
import sys

import anchorlens_command
import numpy as np
import pytest
import torch
from few_questions import FEWEST
from known_models import ARCHITECTURES, only_on_3, user_built

from anchorlens import AnchorTask, Checkpoint, ModelConfig, TrainConfig, build_model, plots, save_checkpoint
from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.probes import PROBES, SHIPPED, embedding_pca, q_condensation, stable_rank, training_regime

CONFIG = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16)
LOGITS = '''
from dataclasses import dataclass
import torch
from anchorlens.probes import ProbeResult

@dataclass(frozen=True)
class Logits(ProbeResult):
    probe = "logits"
    first: float
    def headline(self): return str(self.first)
    def plot(self): raise NotImplementedError

def logits(model) -> Logits:
    """The first logit."""
    with torch.no_grad():
        return Logits(model(torch.arange(10)[None])[0, -1, 0].item())
'''
"""A probe of one's own that runs the model."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("probe") / "ckpt.pt"
    model = build_model(CONFIG)
    save_checkpoint(path, Checkpoint.from_model(model, CONFIG, AnchorTask(), train_config=TrainConfig()))
    return str(path)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A checkpoint that does not know how it was trained."""
    path = tmp_path_factory.mktemp("probe") / "foreign.pt"
    save_checkpoint(path, Checkpoint.from_model(build_model(CONFIG), CONFIG, AnchorTask()))
    return str(path)


call = functools.partial(anchorlens_command.call, "probe", code=None)


def test_the_list_names_every_probe():
    lines = call("--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [probe.__name__ for probe in SHIPPED]
    assert all(len(line.split()) > 5 for line in lines)


@pytest.mark.usefixtures("few_updates")
@pytest.mark.parametrize("name", [probe.__name__ for probe in PROBES])
def test_a_probe_prints_one_line_or_one_json_object_and_draws(name, checkpoint, tmp_path):
    few = ("--options", json.dumps(FEWEST[name])) if name in FEWEST else ()
    plain = call(name, checkpoint, *few)
    assert plain.exit_code == 0 and len(plain.stdout.splitlines()) == 1
    drawn = call(name, checkpoint, *few, "--json", "--plot", str(tmp_path / "p.html"))
    assert json.loads(drawn.stdout)["probe"] == name
    page = (tmp_path / "p.html").read_text()
    assert 'data-figure="figure"' in page and 'src="http' not in page


def test_a_checkpoint_of_another_task(tmp_path):
    """What reads weights alone takes it; what asks for anchors says so."""
    task = AdditionTask()
    config = ModelConfig.for_task(task, n_layers=1, d_model=16, d_head=8, d_mlp=16)
    path, model = tmp_path / "ckpt.pt", build_model(config)
    save_checkpoint(path, Checkpoint.from_model(model, config, task, train_config=TrainConfig()))
    for probe in (stable_rank, q_condensation, embedding_pca):
        assert call(probe.__name__, str(path)).stdout == f"{probe(model)!r}\n"
    assert "moved 0.00 times" in call("training_regime", str(path)).stdout
    refused = call("mask_key_token", str(path))
    assert refused.exit_code == 2 and "task must be an AnchorTask, got AdditionTask" in refused.stderr


@pytest.mark.needs("importers")
def test_a_hooked_transformer_of_another_task_is_asked_with_tokens(tmp_path):
    model = user_built()
    torch.save(model.state_dict(), tmp_path / "theirs.pt")
    (tmp_path / "theirs.json").write_text(json.dumps(model.cfg.to_dict(), default=str))
    asked = (str(tmp_path / "theirs.pt"), "--config", str(tmp_path / "theirs.json"), "--json", "--options")
    answer = json.loads(call("attention_patterns", *asked, '{"tokens": [1, 2, 3]}').stdout)
    assert np.shape(answer["attention"])[2:] == (3, 3) and answer["key_position"] is None
    pairs = {"tokens": [1, 2, 3], "corrupted": [1, 4, 3], "targets": [5, 6]}
    answer = json.loads(call("activation_patching", *asked, json.dumps(pairs)).stdout)
    assert answer["changes"] == ["tokens"] and np.shape(answer["recovered"])[-1] == 3


def test_options_reach_the_probe(checkpoint):
    result = call("q_condensation", checkpoint, "--json", "--options", '{"layer": -1}')
    assert json.loads(result.stdout)["layer"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["stable_ranks", "CKPT"], 2, "stable_rank"),
        ([], 2, "a probe and a checkpoint must be given"),
        (["stable_rank", "CKPT", "--options", "3"], 2, "must be a JSON object"),
        (["stable_rank", "CKPT", "--options", '{"layer": 1}'], 2, "stable_rank must get a known option"),
        (["q_condensation", "CKPT", "--options", '{"layer": 7}'], 2, "layer must be in 0..1"),
        (["stable_rank", "CKPT", "--plot", "picture.gif"], 2, "must end in .html, .png, .svg or .pdf"),
        (["stable_rank", "nothing.pt"], 3, "nothing.pt"),
        (["q_condensation", "CKPT", "--options", '{"layer": "x"}'], 2, "layer must be an integer"),
        (["mask_key_token", "CKPT", "--options", '{"queries": 5}'], 2, "queries must be one of"),
        (["stable_rank", "CKPT", "--options", '{"initial": 1}'], 2, "must name options of stable_rank"),
        (["v_similarity", "CKPT", "--options", '{"keys": [30.5]}'], 2, "keys must be one or more whole"),
        (
            ["stable_rank", "CKPT", "--plot", "no/where/p.png"],
            2,
            "--plot must be in a folder that exists",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, code, message, checkpoint):
    result = call(*(checkpoint if argument == "CKPT" else argument for argument in arguments))
    assert result.exit_code == code and message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1 and not result.stdout


def write(folder, model, name="theirs", **fields):
    """A state dict and its HookedTransformerConfig, as a user saves them."""
    torch.save(model.state_dict(), folder / f"{name}.pt")
    config = json.dumps({**model.cfg.to_dict(), **fields}, default=str)
    (folder / f"{name}.json").write_text(config)
    return str(folder / f"{name}.pt"), "--config", str(folder / f"{name}.json")


@pytest.mark.needs("importers")
class TestAnyHookedTransformer:
    """Of any architecture and whatever it was trained on: a state dict and its HookedTransformerConfig."""

    @pytest.mark.parametrize("fields", ARCHITECTURES.values(), ids=ARCHITECTURES)
    def test_what_reads_weights_alone_says_what_it_says_in_python(self, fields, tmp_path):
        fields = {"d_vocab": 60, "n_ctx": 5} | fields
        model, start = user_built(**fields), user_built(seed=1, **fields)
        theirs, initial = write(tmp_path, model), write(tmp_path, start, "start")[0]
        found = json.loads(call("embedding_pca", *theirs, "--json").stdout)
        assert found == embedding_pca(model).to_dict() and found["token_set"] == "all tokens"
        moved = json.loads(call("training_regime", *theirs, "--initial", initial, "--json").stdout)
        assert moved == training_regime(model, initial=start).to_dict()
        if fields.get("n_layers") != 0:
            assert json.loads(call("stable_rank", *theirs, "--json").stdout) == stable_rank(model).to_dict()
            assert call("q_condensation", *theirs).stdout == f"{q_condensation(model)!r}\n"

    @only_on_3
    def test_a_mixture_of_experts(self, tmp_path):
        fields = {"num_experts": 3, "experts_per_token": 1, "gated_mlp": True, "n_layers": 1}
        model = user_built(**fields)
        ranks = stable_rank(model)
        assert sum("experts" in name for name in ranks.names) == 3 * 3 and np.isfinite(ranks.values).all()
        theirs = write(tmp_path, model)
        assert json.loads(call("stable_rank", *theirs, "--json").stdout) == ranks.to_dict()
        moved = call("training_regime", *theirs, "--initial", theirs[0])
        assert moved.stdout == f"{training_regime(model, initial=model)!r}\n"

    def test_a_probe_of_ones_own_runs_the_very_model(self, tmp_path):
        fields = {"gated_mlp": True, "act_fn": "silu", "positional_embedding_type": "rotary"}
        model = user_built(**fields, normalization_type="RMS")
        (tmp_path / "own.py").write_text(LOGITS)
        result = call("logits", *write(tmp_path, model), "--probes", str(tmp_path / "own.py"), "--json")
        with torch.no_grad():
            expected = model(torch.arange(10)[None])[0, -1, 0].item()
        assert json.loads(result.stdout)["first"] == pytest.approx(expected)

    def test_a_task_beside_the_configuration_is_the_task(self, tmp_path):
        model, start = user_built(gated_mlp=True), user_built(gated_mlp=True, seed=1)
        theirs = write(tmp_path, model, task={"key_max": 90})
        initial = write(tmp_path, start, "start")[0]
        task = AnchorTask(key_max=90)
        found = json.loads(call("embedding_pca", *theirs, "--json").stdout)
        assert found == embedding_pca(model, task).to_dict() and found["lag_order"] is not None
        moved = json.loads(call("training_regime", *theirs, "--initial", initial, "--json").stdout)
        assert moved["kernel_distance"] == pytest.approx(
            training_regime(model, task, initial=start).kernel_distance
        )

    def test_the_configuration_loads_and_seeds_nothing(self, tmp_path):
        before = torch.get_rng_state()
        odd = {"tokenizer_name": "no/such", "seed": 3, "device": "cuda", "n_devices": 8, "load_in_4bit": True}
        theirs = write(tmp_path, user_built(), dtype="torch.float16", later="unknown", **odd)
        assert call("stable_rank", *theirs).exit_code == 0
        assert torch.equal(torch.get_rng_state(), before)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"n_layers": 10**9},
                "n_layers must be 3 as in the weights",
            ),
            ({"num_experts": 10**9}, "num_experts must be"),
            ({"d_mlp": 10**9}, "d_mlp must be 48 as in the weights"),
            ({"gated_mlp": True}, "blocks.0.mlp.W_gate is missing"),
            ({"attn_only": True}, "that anchorlens can read, got 'blocks.0.ln2.w'"),
            ({"act_fn": "swish"}, "must be one of"),
            ({"n_ctx": "many"}, "it does not describe this model"),
            ({"d_head": 0}, "d_head must be 8 as in the weights"),
            (
                {"positional_embedding_type": "rotary", "rotary_dim": 10**12},
                "rotary_dim must be an integer >= 0",
            ),
            ({"task": 3}, "task must be a table of fields, got 3"),
        ],
    )
    def test_a_configuration_of_another_model_is_one_line(self, fields, message, tmp_path):
        result = call("stable_rank", *write(tmp_path, user_built(), **fields))
        assert result.exit_code == 3 and message in result.stderr and "theirs.json" in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1 and not result.stdout

    def test_weights_that_are_no_floats_or_of_half_precision(self, tmp_path):
        model = user_built(torch.bfloat16)
        theirs = write(tmp_path, model)
        assert json.loads(call("stable_rank", *theirs, "--json").stdout) == stable_rank(model).to_dict()
        state = model.state_dict()
        torch.save({**state, "embed.W_E": state["embed.W_E"].to(torch.uint8)}, theirs[0])
        result = call("stable_rank", *theirs)
        assert result.exit_code == 3 and "embed.W_E must hold floating point numbers" in result.stderr

    def test_what_asks_for_anchors_reads_any_architecture(self, tmp_path):
        assert call("mask_key_token", *write(tmp_path, user_built(gated_mlp=True))).exit_code == 0
        assert call("attention_patterns", *write(tmp_path, user_built())).exit_code == 0

    def test_the_start_of_the_run_is_asked_for(self, tmp_path, checkpoint, foreign):
        theirs = write(tmp_path, user_built())
        result = call("training_regime", *theirs)
        assert result.exit_code == 2 and "must contain its training configuration" in result.stderr
        result = call("stable_rank", *theirs, "--initial", theirs[0])
        assert result.exit_code == 2 and "--initial must be given only for" in result.stderr
        assert call("training_regime", *theirs, "--initial", "nothing.pt").exit_code == 3
        given = call("training_regime", checkpoint, "--initial", foreign)  # both are of seed 0
        assert given.stdout == call("training_regime", checkpoint).stdout


def test_without_kaleido_a_still_picture_says_what_is_missing(tmp_path):
    """In a process of its own, where kaleido cannot be imported."""
    code = """
import sys
sys.modules["kaleido"] = None
import plotly.graph_objects as go
from pathlib import Path
from anchorlens.plots import save
try:
    save(go.Figure(), Path(sys.argv[1]))
except ValueError as error:
    assert "must be installed to write picture.png" in str(error), error
    assert "\\n" not in str(error) and str(error).endswith("Install kaleido and a browser, or write .html.")
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "picture.png")], check=True)
    assert not list(tmp_path.iterdir())


def browser():
    try:
        import kaleido  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    return next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)


def test_the_start_of_a_run_is_asked_for_where_it_is_not_known(foreign):
    result = call("training_regime", foreign)
    assert result.exit_code == 2 and "must contain its training configuration" in result.stderr
    assert call("stable_rank", foreign).exit_code == 0


@pytest.mark.skipif(browser() is None, reason="kaleido and Chromium are not both here")
@pytest.mark.filterwarnings("ignore")  # the browser's driver leaves sockets to the garbage collector
@pytest.mark.parametrize("suffix", [".png", pytest.param(".svg", marks=pytest.mark.slow)])
def test_a_still_picture(suffix, tmp_path):
    path = tmp_path / f"picture{suffix}"
    plots.save(stable_rank(build_model(CONFIG)).plot(), path)
    assert path.read_bytes()[:4] in (b"\x89PNG", b"<svg")

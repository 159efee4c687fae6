"""`anchorlens probe`, and pictures as files."""

import json
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from anchorlens import (
    AnchorTask,
    Checkpoint,
    ModelConfig,
    TrainConfig,
    build_model,
    figures,
    save_checkpoint,
)
from anchorlens.cli import app
from anchorlens.probes import PROBES, stable_rank

CONFIG = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("probe") / "ckpt.pt"
    model = build_model(CONFIG)
    save_checkpoint(path, Checkpoint.from_model(model, CONFIG, AnchorTask(), train=TrainConfig()))
    return str(path)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A checkpoint that does not know how it was trained."""
    path = tmp_path_factory.mktemp("probe") / "foreign.pt"
    save_checkpoint(path, Checkpoint.from_model(build_model(CONFIG), CONFIG, AnchorTask()))
    return str(path)


def call(*arguments):
    return CliRunner().invoke(app, ["probe", *arguments])


def test_the_list_names_every_probe():
    lines = call("--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [probe.__name__ for probe in PROBES]
    assert all(len(line.split()) > 5 for line in lines)


@pytest.mark.parametrize("name", [probe.__name__ for probe in PROBES])
def test_a_probe_prints_one_line_or_one_json_object_and_draws(name, checkpoint, tmp_path):
    plain = call(name, checkpoint)
    assert plain.exit_code == 0 and len(plain.stdout.splitlines()) == 1
    drawn = call(name, checkpoint, "--json", "--plot", str(tmp_path / "p.html"))
    assert json.loads(drawn.stdout)["probe"] == name
    page = (tmp_path / "p.html").read_text()
    assert "Plotly.newPlot" in page and 'src="http' not in page


def test_options_reach_the_probe(checkpoint):
    result = call("q_condensation", checkpoint, "--json", "--options", '{"layer": -1}')
    assert json.loads(result.stdout)["layer"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["stable_ranks", "CKPT"], 2, "stable_rank"),
        ([], 2, "name a probe and a checkpoint"),
        (["stable_rank", "CKPT", "--options", "3"], 2, "must be a JSON object"),
        (["stable_rank", "CKPT", "--options", '{"layer": 1}'], 2, "an option of stable_rank"),
        (["q_condensation", "CKPT", "--options", '{"layer": 7}'], 2, "layer must be in 0..1"),
        (["stable_rank", "CKPT", "--plot", "picture.gif"], 2, "must end in .html, .png, .svg or .pdf"),
        (["stable_rank", "nothing.pt"], 3, "nothing.pt"),
        (["q_condensation", "CKPT", "--options", '{"layer": "x"}'], 2, "layer must be an integer"),
        (["mask_key_token", "CKPT", "--options", '{"edge": 5}'], 2, "must be 4 whole numbers, got 5"),
        (["stable_rank", "CKPT", "--options", '{"initial": 1}'], 2, "an option of stable_rank"),
        (["v_similarity", "CKPT", "--options", '{"keys": [30.5]}'], 2, "keys must be one or more whole"),
        (
            ["stable_rank", "CKPT", "--plot", "no/where/p.png"],
            2,
            "--plot must be in a folder that exists, got no/where/p.png",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, code, message, checkpoint):
    result = call(*(checkpoint if argument == "CKPT" else argument for argument in arguments))
    assert result.exit_code == code and message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1 and not result.stdout


def test_without_kaleido_a_still_picture_says_what_is_missing(tmp_path):
    """In a process of its own, where kaleido cannot be imported."""
    code = """
import sys
sys.modules["kaleido"] = None
import plotly.graph_objects as go
from pathlib import Path
from anchorlens.figures import save
try:
    save(go.Figure(), Path(sys.argv[1]))
except ValueError as error:
    assert "picture.png needs kaleido (pip install 'anchorlens[export]')" in str(error), error
    assert "\\n" not in str(error) and str(error).endswith(".html needs neither")
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
    assert result.exit_code == 2 and "the checkpoint has no train config" in result.stderr
    assert call("stable_rank", foreign).exit_code == 0


@pytest.mark.skipif(browser() is None, reason="kaleido and Chromium are not both here")
@pytest.mark.filterwarnings("ignore")  # the browser's driver leaves sockets to the garbage collector
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_still_picture(suffix, tmp_path):
    path = tmp_path / f"picture{suffix}"
    figures.save(stable_rank(build_model(CONFIG)).plot(), path)
    assert path.read_bytes()[:4] in (b"\x89PNG", b"<svg")

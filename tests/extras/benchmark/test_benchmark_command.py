"""`anchorlens benchmark`: a file of one's own, a shipped probe, and what is wrong with either."""

import json

import pytest
from anchorlens_command import call
from known_benchmarks import known_models
from known_probes import ATTENTION_BREADTH

from anchorlens.extras.benchmark import benchmark, save_models, shipped

PLAIN = """
from collections.abc import Mapping


def number(model) -> float:
    return model.unembed.b_U[0].item()


def several(model, task) -> dict[str, float]:
    return {"number": number(model), "place": model.unembed.b_U[1].item()}


def abstractly(model) -> "Mapping[str, float]":
    return {"number": number(model)}


def _hidden(model) -> float: ...
def says_nothing(model): ...
def words(model) -> str: ...
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "models.zip"
    save_models(path, known_models())
    return path


@pytest.fixture(autouse=True)
def these_models(models, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "CHECKPOINTS", models)
    monkeypatch.setattr(shipped, "REFERENCE", tmp_path / "reference.json")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "plain.py"
    path.write_text(PLAIN)
    return path


def test_a_probe_of_a_file_is_scored_beside_ours(file, tmp_path):
    ours = benchmark("stable_rank")
    shipped.REFERENCE.write_text(json.dumps(ours.to_dict()))
    lines = call("benchmark", file, "--probe", "several").stdout.splitlines()
    assert lines[0].startswith("several: 15 models of 3 tasks. AUC with a 95% bootstrap interval over tasks")
    rows = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert rows == ["number", "place", "stable_rank.w_q", "stable_rank.w_q_normalized"]
    (row,) = [line for line in lines if "│ number" in line]
    assert row.count("1.00 (1.00 to 1.00)") == 2 and "0.00 (0.00 to 0.00)" in row
    assert lines[-1].startswith(
        "Rows of the source anchorlens are the readings of the verdict and WeightWatcher's alpha (research/"
    )


def test_without_a_reference_it_stands_alone(file):
    done = call("benchmark", file, "--probe", "number", "--first", 5)
    assert "Rows of the source anchorlens" not in done.stdout and "1 against 1 models." in done.stdout


@pytest.mark.parametrize("name", ["number", "several", "abstractly"])
def test_json_is_what_python_gives(file, name):
    content = json.loads(call("benchmark", file, "--probe", name, "--json").stdout)
    assert content["probe"] == name and len(content["models"]) == 15
    assert content["readings"][0]["scores"]["composes"]["auc"] == 1


def test_a_result_of_ones_own_and_a_picture(tmp_path):
    path, picture = tmp_path / "breadth.py", tmp_path / "b.html"
    path.write_text(ATTENTION_BREADTH.replace("def gives_a_number(model) -> float: ...", ""))
    done = call("benchmark", path, "--plot", picture)
    assert "attention_breadth.last_layer" in done.stdout and 'data-figure="figure"' in picture.read_text()


def test_a_shipped_probe_by_its_name():
    done = call("benchmark", "stable_rank", "--json")
    assert json.loads(done.stdout) == benchmark("stable_rank").to_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["FILE"], "Use --probe number or several or abstractly"),
        (["FILE", "--probe", "numbr"], "abstractly, got 'numbr'"),
        (["stable_rank", "--probe", "number"], "stable_rank"),
        (["stable_rang"], "probe must be one of mask_key_token"),
        (["no.py"], "got no.py: No such file or directory"),
        (["FILE", "--probe", "number", "--first", "0"], "--first must be"),
        (["FILE", "--probe", "number", "--plot", "a.txt"], "--plot must end in .html"),
        (
            ["FILE", "--probe", "number", "--plot", "/nowhere/a.html"],
            "--plot must be in a folder that exists",
        ),
        (["FILE", "--probe", "number", "--device", "tpu"], "device"),
    ],
)
def test_mistakes_are_one_line(arguments, message, file):
    done = call("benchmark", *(str(file) if one == "FILE" else one for one in arguments), code=2)
    assert message in done.stderr and len(done.stderr.strip().splitlines()) == 1 and not done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x = 1",
            "must define a probe, got a file without",
        ),
        (
            "def f(model) -> float:\n    return 'three'",
            "15 models. The first error is: f must",
        ),
        (
            "def f(model) -> float:\n    return model.blocks[7]",
            "IndexError: index 7 is out of range (line 2 of",
        ),
        ("def f(model) -> float:\n    return f(", "line 2 of mine.py: SyntaxError"),
        ("1 / 0", "line 1 of mine.py: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(text, message, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text)
    done = call("benchmark", path, code=2)
    assert message in done.stderr and len(done.stderr.strip().splitlines()) == 1 and not done.stdout


def test_nan_on_all_models_is_no_value_and_no_error(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def f(model) -> float:\n    return float('nan')")
    (row,) = [line for line in call("benchmark", path).stdout.splitlines() if "│ f " in line]
    assert row.count("none") == 4 and "15" in row


def test_damaged_or_missing_models_end_with_their_codes(file, tmp_path, monkeypatch):
    cut = tmp_path / "cut.zip"
    cut.write_bytes(shipped.CHECKPOINTS.read_bytes()[:5000])
    monkeypatch.setattr(shipped, "CHECKPOINTS", cut)
    assert "truncated or damaged" in call("benchmark", "stable_rank", code=3).stderr
    cut.unlink()
    assert "python research/benchmark_checkpoints.py" in call("benchmark", "stable_rank", code=2).stderr

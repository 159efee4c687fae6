import functools
import json

import pytest
from anchorlens_command import call

run = functools.partial(call, "audit", columns=160)


@pytest.fixture
def dataset(tmp_path):
    """Two anchors, +1 and +2, of which one mapping is wrong."""
    shifts, path = {1: 1, 2: 2}, tmp_path / "data.csv"
    rows = [(key, a, b, key + shifts[a] + shifts[b]) for a in shifts for b in shifts for key in range(20, 40)]
    rows[0] = (*rows[0][:3], 30)
    path.write_text("key,a1,a2,target\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    return path


FAST = ["--steps", 3, "--n-samples", 600, "--seeds", 1, "--workers", 1]


def test_a_file_is_ranked_and_written(dataset, tmp_path):
    out, picture = tmp_path / "audit", tmp_path / "audit.html"
    done = run(dataset, *FAST, "--out", out, "--plot", picture, "--top", 2)
    assert "the models have not fit three quarters of their data" in done.stdout  # after three steps
    assert picture.exists() and (out / "mappings.csv").read_text().count("\n") == 81
    assert json.loads((out / "audit.json").read_text())["seeds"] == [0]


def test_json_is_one_object_and_the_papers_task_the_default(dataset):
    content = json.loads(run(*FAST, "--json").stdout)
    assert (
        content["model_config"]["gamma"] == 0.8
        and content["train_config"]["steps"] == 3
        and content["fit"] == 0.5
    )
    assert content["train_config"]["device"] == "auto"
    content = json.loads(run(dataset, *FAST, "--json", "--fit", 0.2, "--device", "cpu").stdout)
    assert content["fit"] == 0.2 and content["train_config"]["device"] == "cpu"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.txt"], "file of mappings or a .toml file with a task"),
        (["--seeds", 0], "seeds must be a list of 1 to 1,000 different seeds"),
        (["--plot", "no/such/folder/x.html"], "--plot must be in a folder that exists"),
        (["--fit", 2], "fit must be"),
        (["--steps", 0], "steps must be an integer >= 1"),
        (["--device", "tpu"], "device must be auto, cpu, cuda, cuda:N or mps"),
    ],
)
def test_errors_are_one_line(arguments, message):
    done = run(*arguments, code=2)
    assert message in done.stderr and done.stderr.count("\n") == 1

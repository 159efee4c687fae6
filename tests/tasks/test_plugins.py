"""Tasks of somebody else's: from a package with entry points, from a file, and registered by hand."""

import dataclasses
import functools
import importlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import forked
import numpy as np
import pytest
import torch
import typer
from anchorlens_command import call
from foreign_checkpoints import write_bare
from sweeping import start

from anchorlens import ModelConfig, TrainConfig, load_checkpoint, plugins, register_task, train, train_many
from anchorlens.cli import app, commands
from anchorlens.cli.help import fields_of
from anchorlens.extras.sweep import grid
from anchorlens.extras.sweep.grids import ALIASES, axis_values
from anchorlens.files.importers import installed_importers, open_checkpoint
from anchorlens.probes import with_own
from anchorlens.recipes.run_config import RunConfig, part_classes
from anchorlens.safe import CheckpointError
from anchorlens.tasks import Metric, TaskConfig, own_tasks, registry

PACKAGE = Path(__file__).parents[1] / "third_party" / "largest"
FILE = PACKAGE / "largest" / "task.py"
SMALL = {"n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16}
RECIPE = {"n_samples": 200, "batch_size": 50, "steps": 60, "warmup_steps": 5, "lr": 1e-2, "eval_every": 10}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in {**SMALL, **RECIPE}.items()]
OF_TASK = ["--task=largest", "--n-numbers=7"]


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_files", {})


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A function that installs a package `broken` with an entry point `odd` of a group, and its code."""
    caches = (plugins.leave_out, installed_importers, registry._installed)

    def install(group, code, attribute=":thing"):
        site = tmp_path / "site"
        info = site / "broken-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[anchorlens.{group}]\nodd = broken_package{attribute}\n")
        (site / "broken_package.py").write_text(code)
        monkeypatch.syspath_prepend(site)
        importlib.invalidate_caches()

    for cache in caches:
        cache.cache_clear()
    yield install
    sys.modules.pop("broken_package", None)
    for cache in caches:
        cache.cache_clear()


def _commands():
    return list(plugins.installed("anchorlens.commands", "command", check=commands._check_command))


def finish(process, code=0):
    stdout, stderr = process.communicate()
    assert process.returncode == code, stdout + stderr
    return stdout + stderr


class TestPackage:
    @pytest.mark.system
    def test_it_goes_the_whole_way(self, tmp_path, monkeypatch):
        """Trained, killed, resumed, classified, swept in several processes, drawn, measured by its probe."""
        source, site = tmp_path / "source", str(tmp_path / "site")
        shutil.copytree(PACKAGE, source)
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", site]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
        folders = [site, os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
        whole, cut = tmp_path / "whole", tmp_path / "cut"
        recipe = [
            *OF_TASK,
            *FLAGS,
            "--steps=300",
            "--eval-every=300",
            "--state-every-seconds=0.02",
            "--threads=1",
        ]
        call("train", "--tasks", FILE, *recipe, "--out", whole)  # this process has not the package
        process = start("train", *recipe, "--out", cut)
        while process.poll() is None and not (cut / "state.pt").exists():
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert not (cut / "ckpt.pt").exists()
        finish(start("train", "--resume", "--out", cut))
        one, other = (load_checkpoint(folder / "ckpt.pt") for folder in (whole, cut))
        assert all(torch.equal(weight, other.weights[name]) for name, weight in one.weights.items())
        assert one.task.n_numbers == 7

        said = finish(start("classify", cut, "--report", tmp_path / "report.html"))
        assert "held out" in said and "not defined" not in said  # its own held-out accuracy gives a label
        page = (tmp_path / "report.html").read_text()
        assert "pairs with an even sum are trained" in page and "Measure the norm of every token" in page

        sweep = tmp_path / "sweep"
        axes = ["--seed=0:2", "--engine=local", "--workers=1", "--out", sweep]
        finish(start("sweep", *OF_TASK, *FLAGS, "--steps=20", *axes))
        finish(start("diagram", sweep, "--table", tmp_path / "runs.csv"))
        names, *rows = (tmp_path / "runs.csv").read_text().splitlines()
        assert len(rows) == 2 and all("largest" in row and "finished" in row for row in rows)
        assert "held_out" in names and (sweep / "diagram.html").exists()

        assert finish(start("orbits", "7")).strip() == "2"  # 1 2 4, and 3 6 5
        assert "orbits" in finish(start("--help"))
        assert "modulus must be odd" in finish(start("orbits", "8"), code=2)
        torch.save({"largest": torch.load(cut / "ckpt.pt")}, tmp_path / "nested.pt")
        (stored := tmp_path / "stored").mkdir()
        shutil.copy(tmp_path / "nested.pt", stored / "weights.pt")
        (stored / "config.json").write_text('{"format": "largest run"}')
        for path in (tmp_path / "nested.pt", stored):
            assert "read by the package largest" in finish(start("evaluate", path))
        code = "from largest.result import orbits; print(orbits(7)._repr_html_())"
        shown = forked.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "<p>1, 2, 4</p>" in shown.stdout and "<style>" in shown.stdout

        monkeypatch.setattr(registry, "_registered", {})  # neither the package nor the file
        for command in (
            ["evaluate", cut / "ckpt.pt"],
            ["status", sweep],
            ["train", "--resume", "--out", cut],
        ):
            said = call(*command, code=None)
            assert said.exit_code == 3 and len(said.stderr.splitlines()) == 1, said.output
            assert "task must be a known task, got 'largest'" in said.stderr and "--tasks FILE" in said.stderr
            if command[0] != "train":
                assert "largest" in call(*command, "--tasks", FILE, "--json").stdout
                monkeypatch.setattr(registry, "_registered", {})

    @pytest.mark.parametrize(
        ("code", "message"),
        [
            ("raise SystemExit(0)", "SystemExit: 0"),
            ("raise RuntimeError('boom')", "RuntimeError: boom"),
            ("import nowhere", "ModuleNotFoundError: No module"),
            ("thing = 3", "ValueError: a "),
            ("from json import JSONDecoder as thing", "ValueError: a "),
        ],
    )
    @pytest.mark.parametrize("group", ["tasks", "probes", "commands"])
    def test_a_broken_one_is_left_out_unless_it_is_asked_for(self, broken, caplog, group, code, message):
        broken(group, code)
        used = {
            "tasks": registry.tasks,
            "probes": lambda: with_own([]),
            "commands": _commands,
        }
        for _ in range(2):
            assert used[group]()
        (said,) = caplog.messages
        of = f"the {group[:-1]} odd of the installed package broken"
        assert f"{of} must work" in said and message in said and "\n" not in said
        if group == "tasks":
            assert registry.task_class("addition").kind == "addition"  # ours need nobody's package
            with pytest.raises(ValueError, match=of):
                registry.task_class("odd")

    def test_what_it_prints_at_import_goes_to_stderr(self, broken, capsys):
        broken("probes", "print('hello')\ndef thing(model): pass")
        assert with_own([])[-1].__name__ == "thing"
        assert capsys.readouterr() == ("", "hello\n")

    def test_a_name_that_ours_hides_is_said(self, broken, caplog):
        broken("probes", "def stable_rank(model): pass\nthing = stable_rank")
        assert [probe.__name__ for probe in with_own([])].count("stable_rank") == 1
        assert "name of a probe must be unique, got stable_rank" in caplog.text

    @pytest.mark.needs("importers")
    @pytest.mark.parametrize(
        ("member", "returned"),
        [("recognises", "1 / 0"), ("read", "3"), ("read", "exit(0)"), ("file_in", "{}['a']"), (None, None)],
    )
    def test_an_importer_that_fails_leaves_the_files_to_others(
        self, broken, caplog, tmp_path, member, returned
    ):
        members = {"file_in": "None", "recognises": "True", "read": "None"} | {member: returned}
        code = [f"def {name}(*given): return {value}" for name, value in members.items() if name]
        broken("importers", "\n".join(["KIND = 'odd'", *code][member is None :]), attribute="")
        written = write_bare(tmp_path)
        for path in (written.path, written.path.parent):
            try:
                assert open_checkpoint(path, config=written.config).kind == "HookedTransformer state dict"
            except CheckpointError as error:
                assert path.is_dir() and "config.json" in str(error)
        assert caplog.text.count("the importer odd of the installed package broken") >= 1

    @pytest.mark.parametrize("place", ["", ".", "its path"])
    def test_what_lies_beside_the_data_is_not_installed(self, place, tmp_path, monkeypatch):
        """A REPL and a notebook look for modules, and so for packages, in the current folder."""
        here, installed_there = tmp_path / "data", tmp_path / "site-packages"
        for folder, entry in ((here, "nowhere:harmful"), (installed_there, "json:loads")):
            info = folder / "some_probes-1.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some_probes\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text(f"[anchorlens.probes]\nloads = {entry}\n")
        monkeypatch.chdir(here)
        monkeypatch.setattr(sys, "path", [str(here) if place == "its path" else place, *sys.path])
        importlib.invalidate_caches()
        found = functools.partial(plugins.installed, "anchorlens.probes", "probe", package="some_probes")
        assert not list(found())
        sys.path.append(str(installed_there))  # which the other of the same name does not hide
        ((probe, _),) = found()
        assert probe is json.loads


class TestFile:
    def test_its_task_is_an_option_and_an_axis(self, tmp_path):
        out = tmp_path / "run"
        called = call("train", "--tasks", FILE, *OF_TASK, *FLAGS, "--out", out, "--json")
        assert json.loads(called.stdout)
        assert load_checkpoint(out / "ckpt.pt").task.n_numbers == 7
        assert axis_values("n_numbers", "5:8") == (5, 6, 7)
        assert "--n-numbers" in call("sweep", f"--tasks={FILE}", OF_TASK[0], "--help").stdout
        assert call("train", "--task", "two_anchor", "--n-numbers=7", "--dry-run", code=2)

    def test_what_is_no_task_is_said(self, tmp_path):
        empty = tmp_path / "empty.py"
        empty.write_text("x = 1\n")
        for path, message in (
            ("no.py", "No such file or directory"),
            (empty, "empty.py must define a task, got a file without a task. Define a fro"),
        ):
            called = call("status", tmp_path, "--tasks", path, code=2)
            assert message in called.stderr and len(called.stderr.splitlines()) == 1

    def test_other_processes_know_it(self):
        """Of a file, which no process can import by its name, as of a class in a module."""
        (task,) = own_tasks(FILE)
        runs = [
            RunConfig(task(), ModelConfig.for_task(task(), **SMALL), TrainConfig(**RECIPE, seed=seed))
            for seed in (0, 1)
        ]
        results = train_many(runs, workers=2, progress=False)
        assert [type(result.checkpoint.task) for result in results] == [task, task]
        packed = pickle.dumps(runs[0].task)
        registry._registered.clear()
        registry._files.clear()
        again = pickle.loads(packed)
        assert again.to_dict() == runs[0].task.to_dict() and registry.task_class(again.kind) is type(again)
        assert dataclasses.replace(again, n_numbers=5).d_vocab == 5


@dataclass(frozen=True)
class Coin(TaskConfig):
    """Say the token that was read."""

    kind = "coin"
    metrics = (Metric("train", "train", "Train accuracy", "tokens", logged_as="coins_right"),)
    d_vocab = 4
    seq_len = 1

    def batch(self, words):
        from anchorlens.tasks import TokenBatch

        words = torch.as_tensor(words)
        return TokenBatch(words[:, None], words)

    def training_set(self, n, seed):
        return self.batch(np.random.default_rng(seed).integers(0, 4, n))

    def evaluate(self, model, *, training_set=None, seed=0, quick=False):
        from anchorlens.tasks import Evaluator

        return self.evaluation({"train": Evaluator(model, self).accuracy(self.batch(np.arange(4)))})


def test_a_task_that_nobody_registered_stops_early(capsys):
    """Its metrics are its own: no list of known ones is asked."""
    recipe = {**RECIPE, "steps": 2000, "early_stop_evaluations": 3}
    result = train(Coin(), ModelConfig.for_task(Coin(), **SMALL), TrainConfig(**recipe), progress=True)
    assert result.status == "stopped early" and result.checkpoint.step < 2000
    assert result.log[-1]["coins_right"] == 1.0
    assert "train 1.00" in capsys.readouterr().err


class TestRegistering:
    def test_it_is_known_then(self):
        assert register_task(Coin) is Coin and registry.tasks()[-1] is Coin
        (run,) = grid({"task": {"kind": "coin"}, "model": SMALL}, {"seed": (0,)})
        assert run.task == Coin() and registry.read_task({"kind": "coin"}) == Coin()
        assert Coin().describe() == "Say the token that was read."

    def test_a_class_of_the_same_name_takes_its_place(self):
        """As when a cell of a notebook is run again."""
        other = dataclass(frozen=True)(
            type("Coin", (Coin,), {"__module__": __name__, "__qualname__": "Coin"})
        )
        register_task(Coin)
        assert register_task(other) is registry.task_class("coin") is other

    @pytest.mark.parametrize(
        ("members", "message"),
        [
            (
                {"kind": "addition"},
                r"must be new, got addition.*kind of",
            ),
            ({"kind": "A coin"}, r"a task must be .*got the kind 'A coin'"),
            ({"metrics": ()}, r"got the metrics \(\), which must be a tuple"),
            ({"metrics": (*Coin.metrics, *Coin.metrics)}, r"metrics of the same name \(train, train\)"),
            (
                {"metrics": (Metric("a", "a", "a", "a", logged_as="lr"),)},
                "a metric that is logged as lr",
            ),
            (
                {"evaluate": None},
                r"a task must be .*Mine without evaluate",
            ),
        ],
    )
    def test_what_takes_a_name_or_lacks_one_is_refused(self, members, message):
        mine = type("Mine", (Coin,), {"kind": "mine", **members})
        with pytest.raises(ValueError, match=message):
            register_task(dataclass(frozen=True)(mine))
        assert registry._registered == {}

    @pytest.mark.parametrize(
        ("field", "owner"), [("lr", "TrainConfig"), ("gamma", "ModelConfig"), ("n_feat", "UNetConfig")]
    )
    def test_a_field_of_a_model_or_of_the_training_is_no_name_for_one_of_a_task(self, field, owner):
        taken = f"name of a field of {owner}, got {field} of Mine"
        mine = register_task(with_field(field))
        for use in (
            lambda: grid({"task": {"kind": "coin"}, "model": SMALL}, {field: (1.0,)}),
            lambda: part_classes(),
            *[lambda: train(mine(), ModelConfig(), TrainConfig())] * (owner != "UNetConfig"),
        ):
            with pytest.raises(ValueError, match=taken):
                use()

    @pytest.mark.parametrize("command", ["train", "sweep"])
    def test_an_option_of_a_command_is_no_name_for_a_field(self, command, tmp_path):
        """Every option that is not made of a field, by the flags that the command's parser has."""
        parser = typer.main.get_command(app).commands[command]
        flags = {word for option in parser.params for word in option.opts}
        flags |= {
            "--help",
            "--task",
            *(f"--{short}" for short in ALIASES.keys() - {"from"} if command == "sweep"),
        }
        assert {"--out", "--tasks", "--dry-run"} < flags
        for flag in sorted(flags):
            name = flag.removeprefix("--").replace("-", "_")
            with pytest.raises(ValueError, match=f"name of an option.*got {name} of Mine"):
                fields_of(parser).check(parser, [with_field(name)])
        path = tmp_path / "mine.py"
        path.write_text(f"{FILE.read_text()}\n    out: str = ''\n")
        done = call(command, "--tasks", path, "--out", tmp_path / "a", code=2)
        assert "got out of LargestOfTwo. Rename the field" in done.stderr


def with_field(name):
    """A kind of task that has one field of this name."""
    return dataclasses.make_dataclass(
        "Mine", [(name, float, 1.0)], bases=(Coin,), namespace={"kind": "mine"}, frozen=True
    )

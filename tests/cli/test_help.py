"""What help says: the options of the chosen task alone, on one page, with examples that work."""

import functools
import os
import re
import shlex

import pytest
import typer
from anchorlens_command import call

from anchorlens.cli.commands import GROUPS, app
from anchorlens.cli.help import MOST_LINES, description, sections
from anchorlens.configuration import field_docs, field_types
from anchorlens.recipes.presets import presets
from anchorlens.recipes.run_config import part_classes
from anchorlens.tasks.registry import tasks

COMMANDS = typer.main.get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
TINY = {"n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16, "n_samples": 600, "steps": 4}
EXAMPLES = [(name, line) for name, command in COMMANDS.items() for line in description(command)[1]]


@functools.cache
def help_of(*words, columns=80, flag="--help"):
    return call(*words, flag, columns=columns).stdout


def flags_of(cls):
    return {f"--{field.replace('_', '-')}" for field in field_types(cls)}


def options_in(text):
    return set(re.findall(r"^  (--[a-z0-9-]+)", text, flags=re.M))


class TestOnePage:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_a_command_fits_at_80_columns(self, name):
        lines = help_of(name).splitlines()
        assert len(lines) <= MOST_LINES and max(map(len, lines)) <= 80

    @pytest.mark.needs()
    @pytest.mark.parametrize("task", tasks(), ids=lambda task: task.kind)
    @pytest.mark.parametrize("name", ["train", "sweep"])
    def test_a_task_fits_with_every_option_of_its_own_and_none_of_another(self, name, task):
        text = help_of(name, "--task", task.kind)
        assert len(text.splitlines()) <= MOST_LINES
        own, others = flags_of(task), set().union(*map(flags_of, tasks()))
        assert own <= options_in(text) and not (others - own) & options_in(text)
        assert {"--gamma", "--seed", "--out", "--dry-run"} <= options_in(text)

    def test_all_are_on_the_long_page_of_a_command_that_has_more(self):
        short, long = help_of("train"), help_of("train", flag="--help-all")
        of_fields = set().union(*(flags_of(cls) for _, cls in part_classes()))
        own = {parameter.opts[0] for parameter in COMMANDS["train"].params}
        assert options_in(long) == {*own, "--task", *of_fields}
        assert options_in(short) < options_in(long)
        n_of_the_run = len(options_in(help_of("train", "--task", "two_anchor", flag="--help-all")))
        assert f"--help-all shows {n_of_the_run - len(options_in(short))} more options" in short
        assert "--help-all shows" not in long

    @pytest.mark.needs()
    def test_a_command_that_has_no_more_says_it_all_at_once(self):
        assert help_of("control") == help_of("control", flag="--help-all")


class TestChosenTask:
    @pytest.mark.needs()
    @pytest.mark.parametrize(
        "words",
        [
            ("--task", "scan"),
            ("--task=scan",),
            ("--preset", "scan"),
            ("--preset", "addition", "--task", "scan"),
            ("--config", "scan.toml"),
        ],
    )
    def test_is_named_by_a_flag_a_preset_or_a_file(self, words, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "scan.toml").write_text('[task]\nkind = "scan"\n')
        text = help_of("train", *words)
        assert "Task scan (ScanTask):" in text and "AnchorTask" not in text

    @pytest.mark.needs()
    def test_has_its_own_sentence_and_default_of_an_option_that_others_share(self):
        for task, length in ((tasks()[0], 9), (tasks()[-1], 256)):
            text = help_of("train", "--task", task.kind)
            assert f"--seq-len INTEGER  (default {length})\n    {field_docs(task)['seq_len']}\n" in text
        assert "--split square|random " in help_of("train", "--task", "addition")
        assert "--split turn_left|jump|simple " in help_of("train", "--task", "scan")

    @pytest.mark.needs()
    def test_defaults_are_those_of_the_preset(self):
        assert "--n-samples INTEGER  (default 2222)" in help_of("train", "--preset", "scan")
        assert "--n-heads, --heads VALUES  (default 4)" in help_of("sweep", "--preset=scan")

    @pytest.mark.needs()
    def test_a_sweep_over_tasks_shows_each(self):
        text = help_of("sweep", "--task", "scan,text", flag="--help-all")
        assert "Task scan" in text and "Task text" in text and "Task cogs" not in text

    @pytest.mark.needs()
    def test_one_that_is_unknown_is_one_error(self):
        done = call("train", "--task", "scna", "--help", code=2)
        assert "Did you mean 'scan'?" in done.stderr and done.stderr.count("\n") == 1

    def test_every_preset_is_named(self):
        assert all(name in help_of("train") for name in presets())


class TestLook:
    def test_the_text_stands_below_the_name_at_the_width_of_the_terminal(self):
        narrow, wide = (help_of("train", columns=columns).splitlines() for columns in (60, 160))
        assert max(map(len, narrow)) <= 60 < max(map(len, wide)) <= 160
        at = wide.index("  --out PATH")
        assert wide[at + 1] == "    Folder of the run, for its log and checkpoints."

    def test_no_name_is_broken(self):
        words = re.split(r"[\s,]+", help_of("train", flag="--help-all"))
        parts = sections(COMMANDS["train"])
        assert {flag for part in parts for entry in part.entries for flag in entry.flags} <= {*words}

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_option_has_a_meaning(self, name):
        lines = help_of(name, flag="--help-all").splitlines()
        headings = [i for i, line in enumerate(lines) if re.match(r"  (--|[A-Z]+(\.\.\.)?$)", line)]
        assert headings and all(re.match(r"    \S.*", lines[i + 1]) for i in headings)


class TestFirstScreen:
    def test_names_each_command_in_the_order_of_the_groups_in_24_lines(self):
        lines = help_of().splitlines()
        assert len(lines) < 24 and max(map(len, lines)) <= 80
        named = [line.split()[0] for line in lines if re.match(r"  \w+  +[A-Z].*\.$", line)]
        assert named == list(COMMANDS) == [name for group in GROUPS.values() for name in group]

    def test_is_what_the_bare_command_prints(self):
        assert call(columns=80).stdout == help_of()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which a user has a sweep by the name of the examples."""
    folder = tmp_path_factory.mktemp("examples")
    flags = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", value)]
    sweep = ["--gamma", "0.3,0.5", "--weight-decay", "0,0.1", "--engine", "serial"]
    call("sweep", *flags, *sweep, "--out", folder / "sweeps/a")
    return folder


class TestExamples:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_there_are_two(self, name):
        assert len(re.findall(rf"^  anchorlens {name}\b", help_of(name), flags=re.M)) == 2

    @pytest.mark.needs()
    @pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=lambda value: value.replace(os.sep, "|"))
    def test_each_works(self, name, line, folder, monkeypatch):
        """It is read as the command reads it; what takes no model runs too."""
        monkeypatch.chdir(folder)
        program, command, *words = shlex.split(line)
        assert (program, command) == ("anchorlens", name)
        COMMANDS[name].make_context(name, [*words])
        if name in ("status", "diagram") or "--list" in words:
            call(name, *words)

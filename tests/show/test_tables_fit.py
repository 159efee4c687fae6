"""Every table that the program prints: whole at 80, 100 and 120 columns, and in a pipe."""

import functools
import importlib
import io
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import forked
import numpy as np
import pytest
from known_benchmarks import about
from known_cells import cell, sweep_of
from known_cures import ANEW, CURE, IDLE
from known_cures import result as result_of_control
from known_verdicts import bare_verdict, whole_verdict
from rich.cells import cell_len

from anchorlens import ModelConfig, TrainConfig
from anchorlens.extras.audit import Audit, mappings_of
from anchorlens.extras.audit import views as audit
from anchorlens.extras.benchmark import QUESTIONS, Benchmark, QuestionScore, ReadingScore
from anchorlens.extras.benchmark import views as benchmark
from anchorlens.extras.control import views as control
from anchorlens.extras.sweep import terminal as sweep
from anchorlens.show import terminal
from anchorlens.show.tables import Table
from anchorlens.show.terminal import training, verdict
from anchorlens.show.terminal.console import FittedTable, Terminal
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.training.plan import Cost, Plan

ROOM = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "TERM")}


def benchmark_of(*readings):
    scores = dict.fromkeys(QUESTIONS, QuestionScore(0.81, 0.7, 0.9, 8, 9, 1))
    found = tuple(ReadingScore(name, scores, {"a": 1.0, "b": None}) for name in readings)
    return Benchmark("mine", found, tuple(about(model, "Phase 1", "task") for model in "ab"), {"b": "no"})


def audit_of(n_late=40):
    mappings = mappings_of(AnchorTask(complexity=1))
    moments = tuple(range(1000, 11000, 1000))
    steps = np.where(np.arange(len(mappings)) % 2, 2000.0, 3000.0)
    steps[:n_late] = np.inf
    right = (np.array(moments)[None, :, None] >= steps[None, None, :]).astype(np.float32)
    return Audit(mappings, np.repeat(right, 5, 0), moments, tuple(range(5)), 4, ModelConfig(), TrainConfig())


def cells_of(n_gammas):
    signs = ("1", "2", "2c", "3", "underfit")
    return sweep_of(
        [
            cell(signs[(i + s) % 5], gamma=0.1 + 0.01 * i, weight_decay=w, seed=s)
            for i in range(n_gammas)
            for w in (0.0, 0.1)
            for s in range(3)
        ]
    )


PRINTERS = (
    "print_audit",
    "print_behaviour",
    "print_benchmark",
    "print_control",
    "print_plan",
    "print_plan_of_control",
    "print_sweep",
    "print_sweep of cells",
    "print_verdict",
    "print_verdicts",
)


@functools.cache
def printers():
    """What prints tables -> a call of it with a result made by hand."""
    names = ("information_flow.inferential_route", "stable_rank.w_q_normalized", "g1")
    attempts = ((IDLE, 2, 2, 1.0), (CURE, 3, 3, 2.0), (ANEW, 1, 1, 20.0))
    known, long_name = (
        whole_verdict(),
        whole_verdict("sweeps/gamma_0.5-weight_decay_0.1-seed_12/ckpt_20000.pt"),
    )
    cost = Cost(12_345_678, 12 * 10**11, 5 << 30, 1 << 20, 4 << 30)
    planned = Plan(
        "cpu", 12, 2, 20_000, cost, 8 << 30, 16 << 30, 0.0123, 5e4, {"lr": "1e-3 until 5,000, then 1e-4"}
    )
    return {
        "print_audit": lambda: audit.print_audit(audit_of()),
        "print_benchmark": lambda: benchmark.print_benchmark(benchmark_of(*names), benchmark_of("g2")),
        "print_control": lambda: control.print_control(result_of_control(*attempts)),
        "print_plan_of_control": lambda: control.print_plan_of_control(result_of_control(*attempts)),
        "print_sweep": lambda: sweep.print_sweep(cells_of(30)),
        "print_sweep of cells": lambda: sweep.print_sweep(cells_of(2), cells=True),
        "print_behaviour": lambda: training.print_behaviour(
            Path("a.pt"), known.subject.checkpoint, known.subject.task, known.behaviour, False
        ),
        "print_plan": lambda: training.print_plan(planned, False),
        "print_verdict": lambda: verdict.print_verdict(known),
        "print_verdicts": lambda: verdict.print_verdicts([known, long_name, bare_verdict()]),
    }


def blocks(text):
    """The tables in a text: columns of each, (heading lines, body lines)."""
    found = re.findall(r"^┏.*┓\n(?:^┃.*┃\n)+^┡.*┩\n(?:^│.*│\n)*^└.*┘$", text, re.MULTILINE)
    for block in found:
        lines = block.splitlines()
        assert len({cell_len(line) for line in lines}) == 1, "a border is open"
        headings = [line[1:-1].split("┃") for line in lines if line[0] == "┃"]
        body = [line[1:-1].split("│") for line in lines if line[0] == "│"]
        columns = zip(zip(*headings, strict=True), zip(*body, strict=True), strict=True)
        yield [([one.strip() for one in top], [one.strip() for one in rest]) for top, rest in columns]


def check(text, tables, width):
    """Each table is whole: its columns in order, each text with all its words."""
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert text.count("┏") == len(found := list(blocks(text)))
    for table in tables:
        columns = list(zip(table.columns, *table.rows, strict=True))
        place = 0
        while place < len(columns):
            shown = found.pop(0)
            rest = shown if place == 0 else shown[1:]
            wanted = columns[place : place + len(rest)]
            for (top, body), (heading, *texts) in zip(
                shown, wanted if place == 0 else [columns[0], *wanted], strict=True
            ):
                assert " ".join(top).split() == plain(heading).split()
                assert "".join(body).replace(" ", "") == "".join(map(plain, texts)).replace(" ", "")
            place += len(rest)
    assert not found


def plain(item):
    return item if isinstance(item, str) else item.text


def test_every_printer_is_tried():
    assert sorted(printers()) == list(PRINTERS)


@pytest.fixture(params=PRINTERS)
def printed(request, capsys, monkeypatch):
    """A function: width -> what is printed there, and its tables."""
    tables, shown = [], Terminal.print

    def keep(console, *content, **options):
        tables.extend(one.table for one in content if isinstance(one, FittedTable))
        shown(console, *content, **options)

    monkeypatch.setattr(Terminal, "print", keep)

    def at(width):
        tables.clear()
        monkeypatch.setenv("COLUMNS", str(width))
        printers()[request.param]()
        return capsys.readouterr().out, list(tables)

    return at


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_table_loses_nothing(printed, width):
    text, tables = printed(width)
    assert tables
    check(text, tables, width)


def test_no_printer_of_tables_is_left_out():
    modules = [
        importlib.import_module(f"{terminal.__name__}.{one.name}")
        for one in pkgutil.iter_modules(terminal.__path__)
    ]
    modules += [audit, benchmark, control, sweep]
    named = {name for module in modules for name in vars(module) if name.startswith("print_")}
    without_tables = {"print_json", "print_sweep_json", "print_unreadable_json", "print_plan_of_sweep"}
    assert named - without_tables == {name.split()[0] for name in printers()}


def test_a_pipe_gets_whole_tables_of_80_columns():
    command = "import test_tables_fit as t; [draw() for draw in t.printers().values()]"
    done = forked.run(
        [sys.executable, "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        env={**ROOM, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    tables = list(blocks(done.stdout))
    assert done.stdout.count("┏") == len(tables) > 10
    assert max(map(cell_len, done.stdout.splitlines())) <= 80


class TestFittedTable:
    @staticmethod
    def lines(table, width):
        file = io.StringIO()
        Terminal(file=file, width=width).print(FittedTable(table))
        return file.getvalue().splitlines()

    def test_what_fits_is_one_table_as_wide_as_its_texts(self):
        table = Table(("a", "b"), [("one", "two words")])
        assert self.lines(table, 80)[3] == "│ one │ two words │"

    def test_texts_wrap_before_names_break(self):
        table = Table(("reading", "meaning"), [("stable_rank.w_q", "one two three four five")])
        assert self.lines(table, 40)[3:5] == [
            "│ stable_rank.w_q │ one two three four │",
            "│                 │ five               │",
        ]
        assert self.lines(table, 30)[3:5] == [
            "│ stable_rank │ one two     │",
            "│ .w_q        │ three four  │",
        ]

    def test_columns_that_do_not_fit_follow_with_the_names_of_the_rows(self):
        table = Table(
            ("name", "first", "second"), [("x", "1.00 (0.90 to 1.00)", "2.00 (1.90 to 2.00)")], "both", (1, 2)
        )
        first, second = (list(blocks("\n".join(self.lines(table, 40))))[k] for k in (0, 1))
        assert first == [(["name"], ["x"]), (["first"], ["1.00 (0.90 to 1.00)"])]
        assert second == [(["name"], ["x"]), (["second"], ["2.00 (1.90 to 2.00)"])]
        assert " ".join(self.lines(table, 40)).count("both") == 1

    def test_a_word_longer_than_the_console_is_folded_and_whole(self):
        table = Table(("path", "n"), [("x" * 100, "12")])
        ((_, names), (_, numbers)) = next(blocks("\n".join(self.lines(table, 40))))
        assert "".join(names) == "x" * 100 and numbers[0] == "12"

    def test_a_character_may_take_two_columns(self):
        table = Table(("name", "n"), [("漢字" * 30, "12")])
        assert max(map(cell_len, self.lines(table, 40))) <= 40

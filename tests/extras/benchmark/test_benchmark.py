"""benchmark: any reading of known models, what it scores, and what is wrong with a probe or a file."""

import dataclasses
import json
import math
import zipfile
from typing import ClassVar

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from known_benchmarks import TASKS, about, ending_number, known_models, place

from anchorlens import CheckpointError, benchmark
from anchorlens.extras.benchmark import (
    QUESTIONS,
    Benchmark,
    reference,
    save_models,
    score_models,
    shipped,
    shipped_models,
)
from anchorlens.extras.benchmark.run import MOST_READINGS
from anchorlens.extras.benchmark.views import benchmark_table, notes, overview
from anchorlens.probes import ProbeResult


@pytest.fixture(scope="module")
def models():
    return known_models()


@pytest.fixture(scope="module")
def file(models, tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "models.zip"
    save_models(path, models)
    return path


@pytest.fixture(autouse=True)
def these_models(file, tmp_path, monkeypatch):
    """The shipped file is this one, and nothing stands beside it."""
    monkeypatch.setattr(shipped, "CHECKPOINTS", file)
    monkeypatch.setattr(shipped, "REFERENCE", tmp_path / "reference.json")


def aucs(result, k=0):
    return {name: score.auc for name, score in result.readings[k].scores.items()}


class TestScores:
    def test_a_reading_that_knows_the_ending(self):
        """0, 1, 2 for Phase 1, 2, 3; 3 for the inferential solution, 4 for the others: the last is below."""
        result = benchmark(ending_number)
        assert aucs(result) == {"memorised": 0, "generalises": 1, "composes": 1, "inferential": 0}
        score = result.readings[0].scores["generalises"]
        assert (score.n_no, score.n_yes, score.n_missing, score.low, score.high) == (3, 6, 0, 1, 1)
        assert result.readings[0].telling == 0.5 and not result.failures
        assert repr(result) == (
            "Benchmark(ending_number, AUC: memorised 0.00 (0.00 to 0.00), generalises 1.00 (1.00 to 1.00), "
            "composes 1.00 (1.00 to 1.00), "
            "inferential 0.00 (0.00 to 0.00); 15 models)"
        )

    def test_one_that_knows_nothing(self):
        """Negative control: the place says nothing of the ending."""
        assert set(aucs(benchmark(place)).values()) == {0.5}
        assert benchmark(place).readings[0].telling == 0

    def test_it_is_the_same_each_time(self):
        assert benchmark("stable_rank").to_dict() == benchmark("stable_rank").to_dict()

    def test_a_shipped_probe_gives_its_readings(self):
        result = benchmark("stable_rank")
        assert [one.name for one in result.readings] == ["stable_rank.w_q", "stable_rank.w_q_normalized"]
        assert aucs(result, 0) == aucs(result, 1)  # all of one shape
        with pytest.raises(ValueError, match="probe must be one of .*, got 'stable_rang'"):
            benchmark("stable_rang")

    def test_one_that_compares_with_the_start_gets_it(self):
        (*_, result) = benchmark("training_regime", first=1).readings
        assert None not in result.values.values()

    def test_a_mapping_gives_a_reading_for_each_name(self):
        result = benchmark(lambda model, task: {"number": ending_number(model, task), "place": np.float32(1)})
        assert [one.name for one in result.readings] == ["number", "place"]
        assert aucs(result)["composes"] == 1 and aucs(result, 1)["composes"] == 0.5

    @pytest.mark.parametrize("value", [3, np.float64(3), torch.tensor(3.0), torch.tensor([3.0]), True])
    def test_what_is_a_number_counts(self, value):
        assert set(benchmark(lambda model: value, first=2).readings[0].values.values()) == {float(value)}

    def test_the_kinds_take_turns(self):
        assert [one.ending for one in benchmark(place, first=5).models] == [
            "Phase 1", "Phase 2", "Phase 3", "inferential solution", "another solution",
        ]  # fmt: skip
        (score, *_) = benchmark(place, first=5).readings[0].scores.values()
        assert (score.auc, score.low, score.high) == (0.5, None, None)
        assert benchmark(place, first=1).readings[0].scores["composes"].auc is None

    def test_every_ending_has_a_question(self, models):
        for question in QUESTIONS.values():
            assert not set(question.yes) & set(question.no)
        asked = {ending for one in QUESTIONS.values() for ending in (*one.yes, *one.no)}
        assert asked == {one.ending for one, _ in models} | {"memorised", "learnt a rule"}

    @pytest.mark.parametrize(
        ("train", "held_out", "outcome", "answer"),
        [
            (1.0, 0.3, "memorised", True),
            (0.5, 0.16, "between", None),
            (1.0, 0.89, "between", None),
            (0.9, 0.81, "learnt a rule", False),
            (0.0, 0.0, "memorised", True),
        ],
    )
    def test_memorised_compares_held_out_keys_with_training_data(
        self, models, train, held_out, outcome, answer
    ):
        """In both regimes, whatever the phase."""
        for known, _ in models:
            one = dataclasses.replace(known, train=train, id=held_out)
            assert (one.outcome, QUESTIONS["memorised"].answer(one.ending, one.outcome)) == (outcome, answer)


class TestBadProbes:
    @pytest.mark.parametrize("value", [None, math.nan, math.inf, float("nan")])
    def test_no_value_is_counted_and_no_failure(self, value):
        result = benchmark(lambda model, task: value if place(model, task) == 0 else 1.0)
        assert not result.failures
        assert [score.n_missing for score in result.readings[0].scores.values()] == [4, 3, 2, 2]
        assert set(benchmark(lambda model: value).readings[0].scores["composes"].to_dict().values()) == {
            None, 0, 6,
        }  # fmt: skip

    def test_one_that_raises_on_some_models_is_named_with_its_line(self):
        def picky(model, task):
            if ending_number(model, task) == 2:
                raise KeyError("no such layer")
            return 1.0

        result = benchmark(picky)
        assert set(result.failures) == {f"Phase 3 {k}" for k in range(3)}
        assert all("KeyError: 'no such layer' (line " in why for why in result.failures.values())
        assert result.readings[0].scores["composes"].n_missing == 3
        assert "; no reading of 3)" in repr(result)
        (said,) = [line for line in notes(result) if line.startswith("The probe failed")]
        assert said.startswith("The probe failed on 3 of 15 models: Phase 3 0: KeyError")

    @pytest.mark.parametrize(
        ("probe", "message"),
        [
            (lambda model: "three", "must be a number, or None for an undefined value, got 'three'"),
            (lambda model: np.ones(3), r"must be a number, or None for an undefined value, got array\(\[1"),
            (lambda model: torch.ones(3), "must be a number, or None for an undefined value, got tensor"),
            (lambda model: {"a": {}}, "a must be a number, or None for an undefined value, got {}"),
            (lambda model: {}, "must return one or more readings"),
            (lambda model: {1: 0.5, "1": 0.7}, r"with different names, got \['1'\]"),
            (lambda model, task, layer: 1.0, "TypeError: .*missing 1 required positional argument: 'layer'"),
            (lambda: 1.0, "TypeError"),
            (
                lambda model: model.W_E.data.zero_().sum(),
                r"must not change the model, .* weights \(embed.W_E\)",
            ),
        ],
    )
    def test_one_that_fails_on_all_is_one_error(self, probe, message):
        with pytest.raises(
            ValueError,
            match=f"<lambda> must work.*15 models.*{message}",
        ):
            benchmark(probe)

    def test_a_result_without_readings(self):
        @dataclasses.dataclass(frozen=True)
        class Silent(ProbeResult):
            probe: ClassVar[str] = "silent"

            def headline(self):
                return ""

            def plot(self):
                return go.Figure()

        with pytest.raises(ValueError, match="silent must return one or more readings"):

            def silent(model, task):
                return Silent()

            benchmark(silent)

    def test_another_mapping_each_time(self):
        result = benchmark(lambda model, task: {f"at {place(model, task):g}": 1.0})
        assert [one.name for one in result.readings] == ["at 0", "at 1", "at 2"]
        assert result.readings[0].scores["composes"].to_dict() == {
            "auc": 0.5, "low": None, "high": None, "n_no": 1, "n_yes": 1, "n_missing": 4,
        }  # fmt: skip
        many = MOST_READINGS // 2 + 1
        with pytest.raises(ValueError, match="at most 200 different readings"):
            benchmark(lambda model, task: {f"{model.unembed.b_U[:2].tolist()} {k}": 1 for k in range(many)})

    @pytest.mark.parametrize("probe", [None, 3, ["stable_rank"]])
    def test_what_is_no_probe(self, probe):
        with pytest.raises(ValueError, match="probe must be a function of"):
            benchmark(probe)

    @pytest.mark.parametrize("first", [0, -1, 2.5, "3", True])
    def test_what_is_no_number_of_models(self, first):
        with pytest.raises(ValueError, match="first must be"):
            benchmark(place, first=first)

    def test_no_models(self):
        with pytest.raises(ValueError, match="models must contain at least one model"):
            score_models(place, [])


class TestFile:
    def test_what_was_saved_comes_back(self, models):
        for (was, checkpoint), (now, read) in zip(models, shipped_models(), strict=True):
            assert (
                was == now and read.task == checkpoint.task and read.train_config == checkpoint.train_config
            )
            assert all(torch.equal(weight, read.weights[name]) for name, weight in checkpoint.weights.items())

    def test_without_the_file_the_command_that_makes_it_is_named(self, tmp_path, monkeypatch):
        monkeypatch.setattr(shipped, "CHECKPOINTS", tmp_path / "no.zip")
        with pytest.raises(
            ValueError,
            match=r"no.zip.*no file.*research/benchmark",
        ):
            benchmark(place)

    @pytest.mark.parametrize("share", [0, 0.001, 0.4, 0.99])
    def test_a_truncated_one_is_refused(self, file, tmp_path, share):
        data = file.read_bytes()
        path = tmp_path / "cut.zip"
        path.write_bytes(data[: int(share * len(data))])
        with pytest.raises(CheckpointError, match=r"cut.zip: .*complete.*truncated"):
            shipped_models(path=path)

    @pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
    def test_a_changed_byte_is_found(self, file, tmp_path, share):
        data = bytearray(file.read_bytes())
        data[int(share * len(data))] ^= 255
        path = tmp_path / "bits.zip"
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match="bits.zip"):
            shipped_models(path=path)

    def test_another_zip_is_refused(self, tmp_path):
        path = tmp_path / "other.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("hello", "world")
        with pytest.raises(CheckpointError, match=r"must contain models.json"):
            shipped_models(path=path)
        manifest = {"models": [about("a", "Phase 1", "t").to_dict() | {"ending": "Phase 7"}]}
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("models.json", json.dumps(manifest))
        with pytest.raises(CheckpointError, match=r"other.zip: models\.0\.ending: "):
            shipped_models(path=path)
        manifest = {"models": [about("a", "Phase 1", "t").to_dict()]}
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("models.json", json.dumps(manifest))
            archive.writestr("a.safetensors", b"nothing")
        with pytest.raises(CheckpointError, match=r"other.zip/a.safetensors: not a checkpoint"):
            shipped_models(path=path)

    def test_what_cannot_be_saved(self, models, tmp_path):
        with pytest.raises(ValueError, match=r"must end in .zip, got 'a.pt'"):
            save_models(tmp_path / "a.pt", models)
        with pytest.raises(ValueError, match="must have different names, got Phase 1 0 twice"):
            save_models(tmp_path / "a.zip", [models[0], models[0]])
        with pytest.raises(ValueError, match="models: "):
            save_models(tmp_path / "a.zip", [])
        assert not list(tmp_path.iterdir())


class TestShown:
    def test_as_json_and_back(self):
        result = benchmark(lambda model, task: {"a": 1, "b": None if place(model, task) else 2})
        again = Benchmark.from_dict(json.loads(json.dumps(result.to_dict(), allow_nan=False)))
        assert again.to_dict() == result.to_dict()

    def test_the_table_has_those_that_tell_most_first_and_yours_stand_out(self):
        ours, mine = benchmark(lambda model, task: {"ours": ending_number(model, task)}), benchmark(place)
        table = benchmark_table(mine, ours)
        assert [row[0].text for row in table.rows] == ["ours", "place"] and table.strong == [False, True]
        alone = ("reading", "memorised?", "generalises?", "composes?", "inferential?", "no value")
        assert table.columns == (*alone, "source")
        assert table.rows[0][1:] == (
            "0.00 (0.00 to 0.00)",
            *("1.00 (1.00 to 1.00)",) * 2,
            *("0.00 (0.00 to 0.00)", "", "anchorlens"),
        )
        assert table.rows[1][-1] == "yours" and benchmark_table(mine).columns == alone
        assert not any(benchmark_table(mine).strong)
        assert overview(mine).startswith(f"place: 15 models of {len(TASKS)} tasks. AUC")
        assert "on all" not in list(notes(mine, ours))[-1]
        assert ", on all 15 models" in list(notes(benchmark(place, first=4), ours))[-1]

    def test_the_picture_has_a_panel_for_each_question(self):
        figure = benchmark(ending_number).plot()
        dots = [(trace.x[0], trace.error_x.array[0]) for trace in figure.data if trace.x]
        assert dots == [(0, 0), (1, 0), (1, 0), (0, 0)]
        assert figure.layout.yaxis.ticktext == ("ending_number",)

    def test_ours_stand_beside_where_they_are_known(self):
        assert reference() is None
        ours = benchmark(lambda model, task: {"ours": ending_number(model, task)})
        shipped.REFERENCE.write_text(json.dumps(ours.to_dict()))
        assert reference().to_dict() == ours.to_dict()
        mine = benchmark(place)
        assert mine.plot().layout.yaxis.ticktext == ("place", "ours")
        html = mine._repr_html_()
        assert html.index(">ours</th>") < html.index(">place</th>") and "<script" not in html
        shipped.REFERENCE.write_text("{")
        with pytest.raises(CheckpointError, match="reference.json"):
            reference()

    def test_foreign_text_stays_text(self):
        def named(model, task):
            return {"<b>\x1b[31mred": 1.0}

        result = benchmark(named)
        assert "<b>" not in result._repr_html_() and "\x1b" not in result.readings[0].name
        assert "<b>" not in str(result.plot().layout.yaxis.ticktext)

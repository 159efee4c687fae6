"""`classify`: the shipped checkpoints, foreign ones, and what it is given besides."""

import html
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anchorlens import (
    AnchorTask,
    Checkpoint,
    ModelConfig,
    TrainConfig,
    build_model,
    classify,
    load_checkpoint,
    save_checkpoint,
    train,
)
from anchorlens.files.loaded_model import PAPERS_TASK
from anchorlens.tasks.shared.phases import LABELS, Phase
from anchorlens.training import checkpoints
from anchorlens.verdict import ProbeVerdict
from anchorlens.verdict.calibration import calibration
from anchorlens.verdict.explanation import explain
from anchorlens.verdict.probe_verdict import probe_verdict

RELEASED = Path(__file__).parents[3] / "shared/data/released_code_checkpoints"
LABEL = {
    "phase1": "Phase 1",
    "phase2": "Phase 2 without commutativity",
    "phase2-commutative": "Phase 2 with commutativity",
    "phase3": "Phase 3",
}
TINY = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16)


@pytest.fixture(scope="module")
def shipped():
    return {path.stem: classify(path, quick=True) for path in checkpoints.shipped()}


@pytest.mark.parametrize("name", checkpoints.MODELS)
class TestShipped:
    def test_behaviour_and_the_probes_name_its_phase(self, shipped, name):
        verdict = shipped[name]
        assert verdict.phase.label == LABEL[name]
        by_probes = verdict.by_probes.phase
        assert by_probes.number == verdict.phase.number and by_probes.commutative in (
            verdict.phase.commutative,
            None,
        )
        assert (by_probes.commutative is None) == (name != "phase2-commutative")  # 40% against 35% for phase2
        assert verdict.agreement is True and "resemble" in verdict.explanation

    def test_the_inside_gives_probabilities_and_evidence(self, shipped, name):
        by_probes = shipped[name].by_probes
        assert sum(by_probes.probabilities.values()) == pytest.approx(1)
        assert max(by_probes.probabilities, key=by_probes.probabilities.get) == LABEL[name]
        weights = [one.weight for one in by_probes.evidence]
        assert weights == sorted(weights, reverse=True) and weights[0] > 0
        for one in by_probes.evidence:
            assert one.sees in ("trained pairs", "training data", "weights") or one.vote is None
            assert set(one.ranges) in (set(LABELS), set()) and set(one.odds) in (set(LABELS), set())

    def test_it_is_small_and_what_training_it_anew_would_make(self, shipped, name):
        path = next(path for path in checkpoints.shipped() if path.stem == name)
        assert path.stat().st_size < 1_200_000
        checkpoint, run = load_checkpoint(path), checkpoints.runs()[name]
        assert (checkpoint.task, checkpoint.model_config, checkpoint.train_config) == run

    def test_to_dict_is_json(self, shipped, name):
        content = json.loads(json.dumps(shipped[name].to_dict(), allow_nan=False))
        assert content["phase"]["number"] == shipped[name].phase.number
        assert set(content["by_probes"]["probabilities"]) == set(LABELS)
        assert len(content["subject"]["sha256"]) == 64
        assert content["subject"]["step"] == shipped[name].subject.checkpoint.step


@pytest.mark.skipif(not RELEASED.exists(), reason=f"no released-code checkpoints at {RELEASED}")
@pytest.mark.needs("importers")
class TestFoldersOfTheReleasedCode:
    @pytest.mark.parametrize(
        ("folder", "by_probes"),
        [
            ("g0.4_wd0.01_L2H1_s1", None),
            ("g0.25_wd0.01_L2H1_s4", 1),
            ("g0.55_wd0.01_L2H4_s2", None),
            ("g0.5_wd0.01_L2H1_s1", 3),
        ],
    )
    def test_without_costly_probes_no_phase_is_wrong(self, folder, by_probes):
        truth = json.loads((RELEASED / folder / "measured.json").read_text())["phase"]
        verdict = classify(RELEASED / folder, quick=True)
        assert (verdict.phase.number, verdict.by_probes.phase.number) == (truth, by_probes)
        if truth is None:
            assert verdict.phase.label == "undecided: training data unknown"
            assert "train longer" not in verdict.explanation

    @pytest.mark.system  # the probes train copies
    @pytest.mark.parametrize(
        ("folder", "by_probes"),
        [
            ("g0.55_wd0.01_L2H4_s2", 2),
            ("g0.5_wd0.01_L2H1_s1", 2),  # which is wrong: it is in Phase 3, with a survival of 0.15
        ],
    )
    def test_with_them(self, folder, by_probes):
        assert classify(RELEASED / folder).by_probes.phase.number == by_probes


class TestWhatItIsGiven:
    def test_a_checkpoint_its_file_and_its_model_get_the_same_readings(self, shipped):
        path = next(path for path in checkpoints.shipped() if path.stem == "phase3")
        checkpoint = load_checkpoint(path)
        by_file, by_checkpoint = shipped["phase3"], classify(checkpoint, quick=True)
        model = checkpoint.build_model()
        by_model = classify(model, checkpoint.task, quick=True)
        assert by_checkpoint.by_probes.evidence == by_file.by_probes.evidence
        by_both, by_model_alone = (
            {one.reading: one.value for one in verdict.by_probes.evidence if one.sees != "training data"}
            for verdict in (by_file, by_model)
        )
        assert by_both == by_model_alone  # the training data of a model alone are drawn by the task
        assert by_checkpoint.phase.label == by_model.phase.label == "Phase 3"
        assert by_file.subject.sha256 is not None and by_model.subject.checkpoint is None
        assert by_file.warnings == () and by_model.behaviour.train_source == "fresh noise"

    def test_a_model_is_left_as_it_was(self):
        model = build_model(TINY).train()
        model.blocks[0].attn.hook_pattern.add_hook(lambda value, hook: None, is_permanent=True)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        classify(model)
        assert model.training and len(model.blocks[0].attn.hook_pattern.fwd_hooks) == 1
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    def test_something_else_is_refused(self):
        with pytest.raises(ValueError, match=r"must be a HookedTransformer.*got dict"):
            classify({})
        checkpoint = Checkpoint.from_model(build_model(TINY), TINY, AnchorTask())
        with pytest.raises(ValueError, match="task must be the task of the checkpoint or None"):
            classify(checkpoint, AnchorTask(regime="conflict"))
        with pytest.raises(ValueError, match=r"task must be a TaskConfig.*got str"):
            classify(build_model(TINY), "reasoning")

    def test_a_run_folder_comes_with_its_trajectory_and_log(self, tmp_path):
        config = TrainConfig(steps=20, n_samples=600, batch_size=64, n_checkpoints=3, log_every=5)
        model = ModelConfig(n_layers=2, d_model=64, d_head=32, d_mlp=64)
        result = train(model_config=model, train_config=config, out=tmp_path / "run")
        verdict = classify(tmp_path / "run")
        assert [moment.step for moment in verdict.trajectory] == [0, 1, 4, 20]
        fractions = [moment.fraction for moment in verdict.trajectory]
        assert fractions == [0, 0.05, 0.2, 1]
        assert {moment.now for moment in verdict.trajectory} == {"undecided: underfit"}
        assert [line["step"] for line in verdict.subject.log] == [5, 10, 15, 20]
        assert [line["step"] for line in classify(result).subject.log] == [5, 10, 15, 20]
        cut = tmp_path / "run/checkpoints/step_00000001.pt"
        cut.write_bytes(cut.read_bytes()[:2000])
        log = tmp_path / "run/log.jsonl"
        log.write_text(log.read_text().replace('"step": 10', "0", 1))
        verdict = classify(tmp_path / "run")
        assert [moment.step for moment in verdict.trajectory] == [0, 4, 20] and len(verdict.subject.log) == 1
        said = "; ".join(verdict.warnings)
        assert "step 1 is left out: " in said and "line 2 of log.jsonl is damaged" in said


class TestUndecided:
    def test_weights_that_are_not_finite(self):
        model = build_model(TINY)
        with torch.no_grad():
            model.blocks[0].mlp.W_in[0, 0] = torch.nan
        verdict = classify(model)
        assert verdict.phase.number is None and verdict.phase.label == "undecided: not finite"
        assert verdict.by_probes.phase.label == "undecided: not finite"
        assert verdict.by_probes.probabilities is None and verdict.agreement is None
        json.dumps(verdict.to_dict(), allow_nan=False)

    def test_underfit(self):
        memorised_others = next(path for path in checkpoints.shipped() if path.stem == "phase1")
        data = AnchorTask().sample(64, seed=99)
        verdict = classify(load_checkpoint(memorised_others).build_model(), training_set=data)
        assert verdict.phase.label == verdict.by_probes.phase.label == "undecided: underfit"
        assert verdict.explanation.count("train longer") == 2
        assert verdict.warnings == (PAPERS_TASK,)
        assert len(verdict.by_probes.evidence) > 0
        model = verdict.subject.model
        quickly = classify(model, training_set=data, even_underfit=False).by_probes  # as a sweep's cell
        assert quickly.phase.cause == "underfit" and quickly.evidence == () and not quickly.probabilities

    def test_one_layer_has_no_readings(self):
        by_probes = probe_verdict(build_model(replace(TINY, n_layers=1)), AnchorTask())
        assert by_probes.phase.label == "undecided: no readings" and "layer" in by_probes.phase.reason

    def test_an_architecture_outside_the_calibration_is_less_sure_and_says_so(self, shipped):
        tiny = probe_verdict(build_model(TINY), AnchorTask())
        assert "d_model 16 is outside 48..128" in tiny.outside
        known = calibration().of(AnchorTask()).range
        assert known.distance({"d_model": 16}) > 0 and known.distance({"n_layers": 9}) > 0
        assert not any(verdict.by_probes.outside for verdict in shipped.values())
        path = next(path for path in checkpoints.shipped() if path.stem == "phase3")
        foreign = classify(replace(load_checkpoint(path), task=AnchorTask(n_exceptions=3)), quick=True)
        shown, says = (
            html.unescape(foreign._repr_html_()),
            "outside the calibration range, so the probe verdict",
        )
        assert foreign.by_probes.outside == ("exceptions 'some' is not one of 'none'",)
        assert says in shown and foreign.by_probes.outside[0] in shown
        assert says not in shipped["phase3"]._repr_html_()
        assert says in foreign.explanation and "outside the calibration, agrees" in repr(foreign)
        assert foreign.by_probes.outside[0] in foreign.warnings[-1] and shipped["phase3"].warnings == ()

    def test_a_mixture_and_exceptions_are_outside_and_it_says_so(self):
        mixture = build_model(replace(TINY, num_experts=2))
        by_probes = probe_verdict(mixture, AnchorTask(n_exceptions=3))
        assert "mlp 'mixture of experts' is not one of 'dense'" in by_probes.outside
        assert "exceptions 'some' is not one of 'none'" in by_probes.outside

    def test_a_task_of_ones_own_has_a_verdict(self):
        path = next(path for path in checkpoints.shipped() if path.stem == "phase3")
        verdict = classify(replace(load_checkpoint(path), task=AnchorTask(key_max=95)), quick=True)
        assert verdict.phase.number == 3
        assert verdict.by_probes.probabilities["Phase 3"] > 0.5 and verdict.by_probes.phase.cause is None

    def test_a_task_beyond_the_zoo_is_less_sure_and_says_so(self):
        anchors = {a: a for a in range(1, 10)}
        task = AnchorTask(anchors=anchors, unseen_pairs=[(1, 2), (2, 1)], key_min=20, key_max=39)
        by_probes = probe_verdict(build_model(TINY), task)
        assert "n_anchors 9 is outside 3..8" in by_probes.outside and by_probes.probabilities is not None


class TestExplanation:
    BY_PROBES = ProbeVerdict(Phase(3, None, ""), {}, ())

    @pytest.mark.parametrize(("a", "b"), [(a, b) for a in (1, 2, 3) for b in (1, 2, 3)])
    def test_every_case_has_a_sentence(self, a, b):
        agreement, text = explain(Phase(a, None, ""), ProbeVerdict(Phase(b, None, ""), {}, ()))
        assert agreement is (a == b) and text.count(".") == 1 + (a != b)

    def test_commutativity_alone_is_no_disagreement_but_is_said(self):
        inside = ProbeVerdict(Phase(2, True, ""), {}, ())
        agreement, text = explain(Phase(2, False, ""), inside)
        assert agreement is True and "gives different answers to both orders of a pair" in text

    def test_undecided_is_no_comparison(self):
        agreement, text = explain(Phase(None, None, "underfit: x"), self.BY_PROBES)
        assert agreement is None and text == "The behavioural verdict is undecided (underfit: x)."


def test_a_verdict_prints_one_line_and_has_html(shipped):
    assert "\n" not in repr(shipped["phase3"])
    assert "Phase 3" in repr(shipped["phase3"])


def test_a_safetensors_copy_gets_the_same_verdict(shipped, tmp_path):
    path = next(path for path in checkpoints.shipped() if path.stem == "phase2")
    save_checkpoint(tmp_path / "copy.safetensors", load_checkpoint(path))
    verdict = classify(tmp_path / "copy.safetensors", quick=True)
    assert verdict.by_probes.evidence == shipped["phase2"].by_probes.evidence
    assert verdict.behaviour.to_dict() == shipped["phase2"].behaviour.to_dict()

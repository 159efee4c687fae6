"""Memorised or learnt a rule: the verdict by the probes where no phase is calibrated."""

import itertools
import json
import re
from dataclasses import replace

import anchorlens_command
import numpy as np
import pytest
import torch
from known_fits import CONFIG, PAIRS, RANDOM, TRIPLES, WEIGHTED, copier_of, fitted, memoriser_of, rule_of
from known_models import as_bridge

from anchorlens import (
    AnchorTask,
    ModelConfig,
    TrainConfig,
    build_model,
    classify,
    evaluate,
    load_checkpoint,
    train,
)
from anchorlens.extras.grokking.task import ModularTask
from anchorlens.extras.scan.task import ScanTask
from anchorlens.files.loaded_model import PAPERS_TASK
from anchorlens.probes.any_model.holdout import LEARNT, MEMORISED, holdout
from anchorlens.tasks.shared.phases import LEARNT as LEARNT_BY_BEHAVIOUR
from anchorlens.tasks.shared.phases import Phase
from anchorlens.tasks.shared.training_data_task import TrainingDataTask
from anchorlens.training import checkpoints
from anchorlens.verdict import ProbeVerdict, Verdict
from anchorlens.verdict.classify import NO_TASK
from anchorlens.verdict.explanation import explain
from anchorlens.verdict.probe_verdict import phase_by_holdout

UNFIT = build_model(CONFIG)
READINGS = (
    "holdout_ratio",
    "related_ratio",
    "ratio_at_80",
    "ratio_at_40",
    "ratio_at_20",
    "others",
    "chance",
    "look_up",
    "n_groups",
    "dose",
    "n_left_out",
)


@pytest.fixture(scope="module")
def memoriser(tmp_path_factory):
    """A model that has fit random labels, which no rule gives."""
    return memoriser_of(tmp_path_factory)


@pytest.fixture(scope="module")
def of_a_rule(tmp_path_factory):
    """A model of a weighted sum."""
    return rule_of(tmp_path_factory)


@pytest.fixture(scope="module")
def memorised(memoriser):
    """The verdict on it."""
    return classify(memoriser, training_set=(PAIRS, RANDOM))


@pytest.fixture(scope="module")
def learnt(of_a_rule):
    """The verdict on the other."""
    return classify(of_a_rule, training_set=(TRIPLES, WEIGHTED))


class TestDataAlone:
    def test_random_labels_are_memorised(self, memorised):
        verdict = memorised
        assert verdict.by_probes.phase.label == verdict.finding.label == "memorised"
        assert verdict.by_probes.probabilities is None and verdict.by_probes.phase.number is None
        assert verdict.agreement is None and verdict.trajectory == ()
        assert verdict.explanation == (
            "The behavioural verdict is undecided (not defined: no held-out data were given, so only "
            "training accuracy is known). By the probes the model memorised: it forgets training data that "
            f"are held out of further training (ratio {verdict.by_probes.evidence[0].value:.2f})."
        )

    def test_a_rule_is_learnt(self, learnt):
        verdict = learnt
        assert verdict.by_probes.phase.label == verdict.finding.label == "learnt a rule"
        assert (
            "By the probes the model learnt a rule: it still answers training data that"
            in verdict.explanation
        )
        assert verdict.headline == "learnt a rule; how many other inputs it answers is not shown"
        assert verdict.behaviour.train.value > 0.98 and set(verdict.behaviour.measures) == {"train"}
        assert verdict.phase.label == "undecided: not defined" and verdict.warnings == (NO_TASK,)

    def test_its_evidence_holds_the_bounds_and_the_ratio_decides(self, learnt):
        found = {one.reading: one for one in learnt.by_probes.evidence}
        assert [name for name in found if name.startswith("holdout.")] == [
            f"holdout.{one}" for one in READINGS
        ]
        ratio = found["holdout.holdout_ratio"]
        assert ratio.ranges == {"memorised": (0, MEMORISED), "learnt a rule": (LEARNT, 1)}
        assert ratio.vote == "learnt a rule" and LEARNT <= ratio.value <= 1
        assert found["holdout.n_left_out"].value == 120
        voters = ["holdout.holdout_ratio", "holdout.related_ratio"]
        assert [name for name, one in found.items() if one.vote] == voters
        assert not any(one.weight or one.odds for one in found.values())

    def test_it_survives_json(self, memorised):
        verdict = memorised
        stored = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
        assert stored["schema_version"] == 2 and stored["by_probes"]["phase"]["solution"] == "memorised"
        assert stored["phase"]["number"] is None and stored["behaviour"]["kind"] == TrainingDataTask.kind
        again = Verdict.from_dict(stored)
        assert again.to_dict() == verdict.to_dict() and repr(again) == repr(verdict)
        assert again.by_probes == verdict.by_probes and again.finding == verdict.finding

    def test_targets_of_every_position(self):
        """The answer at the last two of three positions is the first token, which a look-up finds too."""
        targets = torch.stack([torch.full((400,), -100), PAIRS[:, 0], PAIRS[:, 0]], dim=1)
        model = build_model(CONFIG)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for _ in range(100):
            loss = torch.nn.functional.cross_entropy(model(PAIRS).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        verdict = classify(model, training_set=(PAIRS, targets))
        assert verdict.by_probes.phase.cause == "answered by look-up" and verdict.behaviour.train.value == 1

    def test_a_bridge(self, of_a_rule):
        verdict = classify(as_bridge(of_a_rule), training_set=(TRIPLES, WEIGHTED))
        assert verdict.by_probes.phase.label == "learnt a rule" and verdict.behaviour.train.value > 0.98

    def test_several_at_once(self, memoriser, of_a_rule):
        names = ["a", "b"]
        both = classify([memoriser, of_a_rule], training_set=(PAIRS, RANDOM), name=names)
        assert both[0].by_probes.phase.label == "memorised"
        assert both[1].by_probes.phase.label == "undecided: underfit"


class TestBounds:
    @pytest.mark.usefixtures("few_updates")
    @pytest.mark.parametrize(
        ("ratio", "label"),
        [
            (0.0, "memorised"),
            (MEMORISED, "memorised"),
            (MEMORISED + 0.001, "undecided: between"),
            (LEARNT - 0.001, "undecided: between"),
            (LEARNT, "learnt a rule"),
            (1.0, "learnt a rule"),
            (None, "undecided: no readings"),
        ],
    )
    def test_of_every_ratio(self, of_a_rule, ratio, label):
        found = holdout(of_a_rule, training_set=(TRIPLES, WEIGHTED), lr=1e-7, batch_size=8, n_copies=1)
        phase = phase_by_holdout(replace(found, holdout_ratio=ratio))
        assert phase.label == label and phase.number is None
        if label == "undecided: between":
            assert f"at most {MEMORISED:.2f}" in phase.reason and f"at least {LEARNT:.2f}" in phase.reason

    @pytest.mark.usefixtures("few_updates")
    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"look_up": 0.91}, r"a look-up in the other rows answers these rows too \(accuracy 0.91\)"),
            ({"related_ratio": LEARNT - 0.01}, r"related rows may teach a row \(ratio 0.83"),
            ({"related_ratio": None}, r"related rows may teach a row \(no ratio"),
            ({"related_ratio": 0.1, "in_any_order": True}, "knows that the order does not matter; whether"),
        ],
    )
    def test_a_rule_needs_more_than_related_rows(self, of_a_rule, changed, said):
        found = holdout(of_a_rule, training_set=(TRIPLES, WEIGHTED), lr=1e-7, batch_size=8, n_copies=1)
        phase = phase_by_holdout(replace(found, **changed))
        assert phase.cause == "answered by look-up" and re.search(said, phase.reason)
        assert phase_by_holdout(replace(found, **changed, holdout_ratio=MEMORISED)).label == "memorised"


def in_every_order(rng):
    """Sets of three tokens, each in its six orders, with one random label."""
    sets = np.unique(np.sort(rng.permuted(np.tile(np.arange(19), (200, 1)), axis=1)[:, :3], axis=1), axis=0)
    rows = [[*order] for one in sets[:120] for order in itertools.permutations(one)]
    return rows, np.repeat(rng.integers(0, 17, 120), 6)


class TestRelatedRows:
    """Random labels, which other rows with the same content tell."""

    def test_random_labels_of_sets_in_every_order(self):
        rows, labels = in_every_order(np.random.default_rng(0))
        tokens, targets = torch.tensor(rows), torch.as_tensor(labels)
        model = fitted(tokens, targets, 150, replace(CONFIG, d_model=64, d_mlp=256))
        found = holdout(model, training_set=(tokens, targets))
        assert found.holdout_ratio >= LEARNT and found.related_ratio <= 0.4 and found.look_up < 0.2
        assert 110 < found.n_groups < 130 and found.in_any_order
        phase = phase_by_holdout(found)
        assert phase.cause == "answered by look-up" and "order does not matter" in phase.reason

    def test_an_unused_token(self, tmp_path_factory):
        """The answer is the first of two tokens, so the rows of a first token tell it."""
        verdict = classify(copier_of(tmp_path_factory), training_set=(PAIRS, PAIRS[:, 0]))
        assert verdict.by_probes.phase.cause == "answered by look-up"
        assert "a look-up in the other rows answers these rows too" in verdict.explanation


class TestRefusals:
    """Each in one sentence, and without a label."""

    def undecided(self, model, training_set):
        verdict = classify(model, training_set=training_set)
        assert not verdict.by_probes.phase.is_named and verdict.agreement is None
        assert (
            not verdict.finding.is_named
            and verdict.explanation.count("The probe verdict is undecided (") == 1
        )
        return verdict.by_probes.phase

    def test_a_model_that_has_not_fit_its_data(self):
        phase = self.undecided(UNFIT, (PAIRS, RANDOM))
        assert phase.cause == "underfit" and phase.reason.endswith("is below 0.90; train longer")

    def test_fewer_than_200_sequences(self, of_a_rule):
        phase = self.undecided(of_a_rule, (TRIPLES[:199].repeat(3, 1), WEIGHTED[:199].repeat(3)))
        assert phase.cause == "no readings"
        assert "at least 200 distinct sequences, got 199" in phase.reason

    def test_weights_that_are_not_finite(self):
        broken = build_model(CONFIG)
        with torch.no_grad():
            broken.unembed.W_U[0, 0] = torch.nan
        phase = self.undecided(broken, (PAIRS, RANDOM))
        assert phase.cause == "no readings" and "the weights of the model must be finite" in phase.reason

    def test_data_that_are_none(self):
        with pytest.raises(ValueError, match="training data must be"):
            classify(UNFIT, training_set=PAIRS)
        with pytest.raises(ValueError, match="d_vocab of the model must be at least 21"):
            classify(UNFIT, training_set=(PAIRS + 1, RANDOM))
        for measure in (classify, evaluate):
            with pytest.raises(ValueError, match="the task of model must be given, got none") as error:
                measure(UNFIT)
            assert "d_vocab" not in str(error.value) and "110" not in str(error.value)


class TestWhoseData:
    """Without a task, the training data say whether they are of the papers' task."""

    TASK = AnchorTask()
    MODEL = load_checkpoint(checkpoints.shipped()[0]).build_model()

    def kind(self, tokens, targets):
        verdict = classify(self.MODEL, training_set=(tokens, targets), even_underfit=False)
        assert (PAPERS_TASK in verdict.warnings) == (verdict.behaviour.kind == "two_anchor")
        return verdict.behaviour.kind

    def test_two_anchor_sequences_with_the_papers_targets_are(self):
        batch = self.TASK.sample(300)
        assert self.kind(batch.tokens, batch.targets) == "two_anchor"
        targets = batch.targets.clone()
        targets[:30] += 1  # a tenth of wrong labels
        assert self.kind(batch.tokens, targets) == "two_anchor"

    def test_no_others_are(self):
        batch = self.TASK.sample(300)
        random = np.random.default_rng(0)
        for tokens, targets in (
            (batch.tokens, random.permutation(batch.targets.numpy())),
            (random.integers(20, 100, (300, 9)), random.integers(20, 100, 300)),
            (batch.tokens[:, :8], batch.targets),
            (batch.tokens, batch.tokens),
        ):
            assert self.kind(torch.as_tensor(tokens), torch.as_tensor(targets)) == TrainingDataTask.kind

    def test_of_a_named_task_they_are_taken_at_its_word(self):
        batch = self.TASK.sample(300)
        found = classify(self.MODEL, self.TASK, training_set=(batch.tokens, batch.targets.flip(0)))
        assert found.phase.cause == found.by_probes.phase.cause == "targets of another task"


P = 23
TINY = ModelConfig(
    variant="plain", n_layers=1, n_heads=2, d_model=32, d_head=16, d_mlp=64, d_vocab=P + 1, d_vocab_out=P,
    n_ctx=3, gamma=0.5,
)  # fmt: skip
SUMS = ";".join(" ".join(str((2 * a + b) // 6) for b in range(P)) for a in range(P))
"""A table of a weighted sum."""


@pytest.fixture(scope="module", params=["random", "table"])
def modular(request):
    """A run on random answers, which it memorises, or on a table with a simple rule, and its verdict."""
    more = {"table": SUMS} if request.param == "table" else {}
    task = ModularTask(modulus=P, trained_share=0.8, operation=request.param, **more)
    recipe = TrainConfig(
        n_samples=423,
        batch_size=423,
        steps=400,
        lr=5e-3,
        weight_decay=0.0,
        clip_norm=0,
        eval_every=100,
        threads=1,
    )
    result = train(task, TINY, recipe, progress=False)
    return request.param, result, classify(result)


class TestOfATask:
    def test_behaviour_and_probes_agree(self, modular):
        operation, _, verdict = modular
        label, by_behaviour = (
            ("memorised", "memorises") if operation == "random" else ("learnt a rule", "generalises")
        )
        assert (verdict.by_probes.phase.label, verdict.phase.label) == (label, by_behaviour)
        assert verdict.agreement is True and verdict.finding is verdict.phase
        assert verdict.explanation.startswith(
            f"The model {verdict.phase.gloss}, and it {verdict.by_probes.phase.gloss} ("
        )
        assert repr(verdict).endswith(f"by the probes: {label}, agrees)")

    def test_the_same_data_without_the_task(self, modular):
        _, result, own = modular
        data = result.checkpoint.training_set()
        alone = classify(result.model, training_set=(data.tokens, data.targets))
        assert (
            alone.by_probes.phase == own.by_probes.phase
            and alone.by_probes.evidence == own.by_probes.evidence
        )

    def test_without_readings_of_a_model_that_has_not_fit(self):
        task = ScanTask(split="jump")
        model = build_model(
            ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16, d_vocab=task.d_vocab, n_ctx=task.seq_len)
        )
        verdict = classify(model, task, training_set=task.training_set(300, 0), even_underfit=False)
        assert verdict.phase.cause == verdict.by_probes.phase.cause == "underfit"
        assert verdict.explanation.startswith("No verdict: underfit: ")


def by_holdout(label, ratio):
    return ProbeVerdict(Phase(None, None, f"ratio {ratio}: and more", solution=label), None)


MEMORISED_BY_PROBES, RULE_BY_PROBES = by_holdout("memorised", "0.31"), by_holdout("learnt a rule", "0.97")


class TestAgreement:
    @pytest.mark.parametrize(
        ("behaviour", "memorises"),
        [
            (Phase(1, None, ""), True),
            (Phase(2, True, ""), False),
            (Phase(2, None, ""), False),
            (Phase(3, None, ""), False),
            *((Phase(None, None, "", solution=one), one == "memorises") for one in LEARNT_BY_BEHAVIOUR),
        ],
        ids=lambda value: getattr(value, "label", None),
    )
    def test_of_every_label(self, behaviour, memorises):
        agreement, text = explain(behaviour, MEMORISED_BY_PROBES)
        assert agreement is memorises and text.startswith(
            f"The model {behaviour.gloss}{', and' if memorises else '. However,'} it"
        )
        agreement, text = explain(behaviour, RULE_BY_PROBES)
        assert agreement is not memorises and text.count("(ratio 0.97)") == 1

    def test_a_disagreement_says_what_it_means(self):
        _, text = explain(Phase(None, None, "", solution="memorises"), RULE_BY_PROBES)
        assert text == (
            "The model answers its training data but fails on held-out data. However, it still answers "
            "training data that are held out of further training (ratio 0.97). What the model learnt answers "
            "its training data, but too few held-out inputs."
        )
        _, text = explain(Phase(3, None, ""), MEMORISED_BY_PROBES)
        assert text.endswith(
            "(ratio 0.31). What the model learnt does not survive the further training of the probe; "
            "behaviour is the definition."
        )

    def test_without_a_label_there_is_no_comparison(self):
        between = ProbeVerdict(Phase.undecided("between", "the ratio 0.80 lies between"), None)
        agreement, text = explain(Phase(None, None, "", solution="generalises"), between)
        assert agreement is None
        assert (
            text
            == "The model answers held-out data. The probe verdict is undecided (between: the ratio 0.80 "
            "lies between)."
        )


@pytest.fixture(scope="module")
def files(tmp_path_factory, memoriser, of_a_rule):
    """Two strangers' models of one architecture, as bare state dicts, and what each was trained on."""
    folder = tmp_path_factory.mktemp("theirs")
    given = (("random", memoriser, PAIRS, RANDOM), ("rule", of_a_rule, TRIPLES, WEIGHTED))
    for name, model, tokens, targets in given:
        torch.save(model.state_dict(), folder / f"{name}.pt")
        np.savez(folder / f"{name}.npz", tokens=tokens.numpy(), targets=targets.numpy())
    (folder / "their.json").write_text(json.dumps(memoriser.cfg.to_dict(), default=str))
    return folder


def called(files, name, *more, models=None, **how):
    models = [files / f"{one}.pt" for one in models or [name]]
    data = ("--config", files / "their.json", "--train-data", files / f"{name}.npz")
    return anchorlens_command.call("classify", *models, *data, *more, **how)


@pytest.mark.needs("importers")
class TestCommand:
    def test_it_prints_the_label_and_what_is_not_known(self, files):
        shown = " ".join(called(files, "random", "--strict").stdout.split())
        assert shown.startswith("random.pt: memorised ")
        assert "no held-out data were given, so only training accuracy is known" in shown
        assert "holdout.holdout_ratio: 0." in shown
        assert "memorised 0 to 0.75; learnt a rule 0.84 to 1" in shown
        assert f"note: {NO_TASK}" in shown and "Phase" not in shown

    def test_json(self, files):
        verdict = json.loads(called(files, "rule", "--json").stdout)
        assert verdict["by_probes"]["phase"]["label"] == "learnt a rule"
        assert verdict["by_probes"]["probabilities"] is None and verdict["agreement"] is None
        assert verdict["subject"]["kind"] == "HookedTransformer state dict"

    def test_undecided_is_an_exit_code_with_strict(self, files):
        called(files, "random", "--strict", models=["rule"], code=4)

    def test_a_report_of_two(self, files, tmp_path):
        page = tmp_path / "report.html"
        shown = called(files, "random", "--report", page, models=["random", "rule"]).stdout
        assert "memorised" in shown and "undecided: underfit" in shown
        text = page.read_text()
        assert "Copies of the model are trained further without a random tenth" in text
        assert "memorised 0 to 0.75; learnt a rule 0.84 to 1" in text and "triples the odds" not in text

    def test_data_that_the_model_cannot_read(self, files, tmp_path):
        np.savez(tmp_path / "other.npz", tokens=PAIRS.numpy() + 5, targets=RANDOM.numpy())
        data = ("--config", files / "their.json", "--train-data", tmp_path / "other.npz")
        done = anchorlens_command.call("classify", files / "rule.pt", *data, code=3)
        assert "d_vocab of the model must be at least 25" in " ".join(done.stderr.split())


class TestShown:
    def test_in_a_notebook(self, memorised):
        for shown in (memorised._repr_html_(), memorised.by_probes._repr_html_()):
            assert "memorised" in shown and "memorised 0 to 0.75; learnt a rule 0.84 to 1" in shown
            assert "No probabilities" not in shown

    def test_the_report_has_a_title(self, memorised, tmp_path):
        memorised.report(tmp_path / "report.html", probes=())
        text = (tmp_path / "report.html").read_text()
        assert "<title>memorised: model" in text and "The phases by definition" not in text
        assert "middle 80%" not in text

    def test_the_report_has_the_picture_it_rests_on_without_measuring_again(self, memorised, tmp_path):
        verdict = memorised
        found = verdict.subject.measured[holdout]
        verdict.report(tmp_path / "report.html", probes=())
        text = (tmp_path / "report.html").read_text()
        assert 'id="holdout"' in text and found.headline() in text
        assert verdict.subject.measured[holdout] is found
        renamed = replace(verdict, subject=replace(verdict.subject, name="other"))  # as the command does
        assert renamed.subject.measure(holdout) is found
        assert "measured" not in verdict.to_dict()["subject"]

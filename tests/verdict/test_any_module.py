"""Any torch module with its training data: the label, the data held out, and what is refused."""

import copy
import functools
import json
from dataclasses import replace

import anchorlens_command
import any_modules
import numpy as np
import pytest
import torch
from any_modules import (
    ARCHITECTURES,
    FRESH_PARITY,
    FRESH_SIGNS,
    PARITY,
    RANDOM,
    SIGNS,
    fitted,
    inputs_of,
    random_rows,
    rule_of,
)
from torch import nn

from anchorlens import classify, evaluate
from anchorlens.probes import holdout, stable_rank
from anchorlens.probes.shared.look_up import LookUp
from anchorlens.training.checkpoints import shipped
from anchorlens.verdict.classify import NOT_VALIDATED
from anchorlens.verdict.probe_verdict import phase_by_holdout


@pytest.fixture(scope="module")
def learnt():
    """An MLP of the parity of three signs."""
    return fitted("mlp", SIGNS, PARITY)


@functools.cache
def memoriser(name):
    """A module that has fit random labels, once for all tests."""
    return fitted(name, random_rows(name), RANDOM)


class TestLabels:
    @pytest.mark.parametrize("name", ARCHITECTURES)
    def test_a_rule_is_learnt_and_random_labels_are_memorised(self, name):
        inputs, targets = inputs_of(name, SIGNS), rule_of(name)
        found = classify(fitted(name, inputs, targets, weight_decay=0.1), training_set=(inputs, targets))
        assert found.by_probes.phase.label == "learnt a rule" and NOT_VALIDATED in found.warnings
        rows = random_rows(name)
        found = classify(memoriser(name), training_set=(rows, RANDOM))
        assert found.by_probes.phase.label == "memorised" and found.behaviour.train.value > 0.98

    def test_targets_of_every_position(self):
        """Logits [batch, pos, class] and targets [batch, pos], of which the last are scored."""
        tokens = random_rows("recurrent")
        model = memoriser("recurrent")
        targets = torch.full_like(tokens, -100)
        targets[:, -1] = RANDOM
        one, other = (holdout(model, training_set=(tokens, y), related=False) for y in (RANDOM, targets))
        assert one.holdout_ratio == other.holdout_ratio <= 0.75

    def test_bounds_that_transformers_set_are_not_enough(self, learnt):
        """An MLP of random labels keeps left-out rows at a ratio of 0.88, without losing the other rows."""
        found = holdout(learnt, training_set=(SIGNS, PARITY))
        for ratio, label in ((0.75, "memorised"), (0.88, "undecided: between"), (0.93, "learnt a rule")):
            changed = replace(found, holdout_ratio=ratio)
            assert phase_by_holdout(changed).label == label
        of_transformer = replace(found, holdout_ratio=0.88, learnt_from=0.84)
        assert phase_by_holdout(of_transformer).label == "learnt a rule"
        for one, bound in ((found, "0.93"), (of_transformer, "0.84")):  # the bar of the picture
            bars = [trace.name for trace in one.plot().data if trace.type == "bar"]
            assert bars[0] == f"learnt a rule (ratio from {bound})"
        related = replace(found, related_ratio=0.9)
        assert phase_by_holdout(related).cause == "answered by look-up"

    def test_a_look_up_of_numbers(self):
        """Two well-separated clusters: the nearest other row answers, so that no rule is shown."""
        label = torch.arange(600) % 2
        points = 0.1 * torch.randn(600, 12, generator=torch.Generator().manual_seed(0)) + 4 * label[:, None]
        model = fitted("mlp", points, label)
        phase = classify(model, training_set=(points, label)).by_probes.phase
        assert phase.cause == "answered by look-up"

    def test_related_numbers_with_random_labels(self):
        """Four noisy copies of each row with its random label, which are held out together."""
        rng = torch.Generator().manual_seed(1)
        points = 3 * torch.randn(150, 12, generator=rng).repeat_interleave(4, dim=0)
        points += 0.3 * torch.randn(600, 12, generator=rng)
        label = RANDOM[:150].repeat_interleave(4)
        found = holdout(fitted("mlp", points, label), training_set=(points, label))
        assert found.holdout_ratio > 0.84 and 100 < found.n_groups < 200 and found.in_any_order is False
        assert phase_by_holdout(found).cause == "answered by look-up"

    @pytest.mark.parametrize(
        ("halves", "symmetric", "n_groups", "in_any_order"),
        [(2, True, range(210, 235), True), (2, False, [400], False), (3, True, [400], False)],
    )
    def test_numbers_whose_halves_are_exchanged(self, halves, symmetric, n_groups, in_any_order):
        """Random labels of the pairs of 20 one-hot vectors; the same for (a, b) and (b, a) or not."""
        rng = np.random.default_rng(0)
        a, b = np.divmod(np.arange(400), 20)
        labels = rng.integers(0, 20, (20, 20))
        numbers = np.hstack([np.eye(20, 21)[a], np.eye(20, 21)[b], np.zeros((400, halves - 2))])
        order = (np.minimum(a, b), np.maximum(a, b)) if symmetric else (a, b)
        groups = LookUp(numbers, labels[order]).groups(rng)
        assert groups.n in n_groups and groups.in_any_order is in_any_order

    def test_chance_of_numbers_is_the_commonest_class(self, learnt):
        found = holdout(learnt, training_set=(SIGNS, PARITY), related=False)
        share = float(PARITY.double().mean())
        assert found.chance == pytest.approx(max(share, 1 - share), abs=0.05)


class TestHeldOut:
    def test_a_rule_generalises(self, learnt):
        found = classify(learnt, training_set=(SIGNS, PARITY), held_out=(FRESH_SIGNS, FRESH_PARITY))
        assert found.phase.label == "generalises" and found.agreement is True
        accuracy = found.behaviour.measure("held_out").value
        assert f": generalises, accuracy {accuracy:.2f} on held-out data; by the probes" in repr(found)
        assert found.behaviour.measure("held_out").value > 0.9

    def test_random_labels_do_not(self):
        data = (SIGNS[:400], RANDOM)
        found = classify(memoriser("mlp"), training_set=data, held_out=(FRESH_SIGNS, FRESH_PARITY))
        assert found.phase.label == "memorises" and found.agreement is True

    def test_a_part_is_said(self, learnt):
        """Of the held-out rows three in ten have the other label."""
        labels = torch.where(torch.arange(1500) % 10 < 3, 1 - FRESH_PARITY, FRESH_PARITY)
        found = evaluate(learnt, training_set=(SIGNS, PARITY), held_out=(FRESH_SIGNS, labels))
        assert found.phase.label == "generalises in part"
        assert found.measure("held_out").value == pytest.approx(0.7, abs=0.02)

    def test_held_out_data_alone_are_no_training_data(self, learnt):
        with pytest.raises(ValueError, match="the training data must be given"):
            classify(learnt, held_out=(SIGNS, PARITY))

    def test_trained_rows_do_not_count(self, learnt):
        fresh = torch.cat([SIGNS[:100], FRESH_SIGNS]), torch.cat([PARITY[:100], FRESH_PARITY])
        found = evaluate(learnt, training_set=(SIGNS, PARITY), held_out=fresh)
        assert found.measure("held_out").n_sequences == 1500
        assert "100 of the 1,600 held-out sequences were trained, and do not count" in found.caveats
        with pytest.raises(ValueError, match=r"held-out.*all in the"):
            evaluate(learnt, training_set=(SIGNS, PARITY), held_out=(SIGNS, PARITY))


class Broken(nn.Module):
    """A wrapper of an MLP that changes its logits."""

    def __init__(self, module, change):
        super().__init__()
        self.module, self.change = module, change

    def forward(self, signs):
        return self.change(self.module(signs))


def without_gradients():
    module = any_modules.perceptron()
    return module.requires_grad_(False)


def with_norm():
    return nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.Linear(16, 2))


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda y: y * torch.nan, "logits of the model must be finite"),
            (lambda y: y[:, :1], r"at least 2 classes.*got"),
            (lambda y: y + torch.rand_like(y), "other logits in a second pass"),
            (lambda y: y - y.mean(dim=0), "other logits for a row alone"),
            (lambda y: y.detach(), "must require a gradient"),
            (lambda y: y[:, None, None], "must return logits"),
            (lambda y: None, "must return logits"),
        ],
    )
    def test_of_logits(self, change, said):
        model = Broken(any_modules.perceptron(), change)
        for asked in (classify, evaluate, holdout):
            with pytest.raises(ValueError, match=said):
                asked(model, training_set=(SIGNS, PARITY))

    @pytest.mark.parametrize(
        ("module", "said"),
        [(without_gradients, "weights that require a gradient"), (with_norm, "batch normalisation must be")],
    )
    def test_of_modules(self, module, said):
        with pytest.raises(ValueError, match=said):
            classify(module(), training_set=(SIGNS, PARITY))

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (None, "training_set"),
            (SIGNS, "pair"),
            ((SIGNS, PARITY[:-1]), "one y for each row"),
            ((SIGNS * torch.inf, PARITY), "must be finite"),
            ((SIGNS[:, :5], PARITY), r"must return logits.*got"),
            ((SIGNS, PARITY.double() + 0.5), "integers"),
        ],
    )
    def test_of_data(self, data, said):
        with pytest.raises(ValueError, match=said):
            classify(any_modules.perceptron(), training_set=data)

    def test_a_norm_in_evaluation_mode_is_measured(self):
        assert evaluate(with_norm().eval(), training_set=(SIGNS, PARITY)).measure("train").value < 0.9

    def test_probes_of_heads_name_the_way(self):
        with pytest.raises(ValueError, match=r"HookedTransformer.*hooked_from"):
            stable_rank(any_modules.perceptron())


def test_a_call_in_a_training_loop_changes_nothing():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.register_buffer("seen", torch.zeros(3))
    hook = model[0].register_forward_hook(lambda *_: None)
    for _ in range(400):
        nn.functional.cross_entropy(model(SIGNS), PARITY).backward()
        optimizer.step()
        optimizer.zero_grad()
    nn.functional.cross_entropy(model(SIGNS), PARITY).backward()

    def state():
        rng = torch.get_rng_state().clone(), np.random.get_state()[1].copy()  # noqa: NPY002
        gradients = [one.grad.clone() for one in model.parameters()]
        modes = [module.training for module in model.modules()]
        return copy.deepcopy((model.state_dict(), optimizer.state_dict(), gradients, rng, modes))

    before, identities = state(), [id(one) for one in model.parameters()]
    assert holdout(model, training_set=(SIGNS, PARITY)).others > 0.8
    torch.testing.assert_close(state()[:3], before[:3], rtol=0, atol=0)
    assert state()[3][0].equal(before[3][0]) and (state()[3][1] == before[3][1]).all()
    assert state()[4] == before[4] and identities == [id(one) for one in model.parameters()]
    assert [*model[0]._forward_hooks.values()] and hook.id in model[0]._forward_hooks


@pytest.fixture(scope="module")
def files(tmp_path_factory, learnt):
    """The user's own Python file, the weights, and data in training and held out."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_model.py").write_text(
        "from torch import nn\n\n"
        "def build():\n    return nn.Sequential(nn.Linear(12, 128), nn.ReLU(), nn.Linear(128, 10))\n\n"
        "def fails():\n    raise RuntimeError('no disk')\n\n"
        "def number():\n    return 3\n"
    )
    weights = learnt.state_dict()
    torch.save({"model": {f"module._orig_mod.{name}": one for name, one in weights.items()}}, folder / "w.pt")
    torch.save({"0.weight": weights["0.weight"], "head": torch.zeros(2)}, folder / "other.pt")
    np.savez(folder / "d.npz", x=SIGNS.numpy(), y=PARITY.numpy())
    np.savez(folder / "t.npz", x=FRESH_SIGNS.numpy(), y=FRESH_PARITY.numpy())
    return folder


class TestCommand:
    def called(self, files, *more, weights="w.pt", build="build", **how):
        paths = [files / weights] if weights else []
        own = ("--model", f"{files / 'my_model.py'}:{build}", "--train-data", files / "d.npz")
        return anchorlens_command.call("classify", *paths, *own, *more, **how)

    def test_weights_with_wrappers_and_held_out_data(self, files):
        done = self.called(files, "--held-out", files / "t.npz", "--json")
        found = json.loads(done.stdout)
        assert found["phase"]["label"] == "generalises" and found["agreement"] is True
        assert found["by_probes"]["phase"]["label"] == "learnt a rule"
        assert found["subject"]["sha256"] and found["subject"]["kind"] == "torch module"

    def test_without_held_out_data(self, files):
        shown = " ".join(self.called(files).stdout.split())
        assert shown.startswith("w.pt: learnt a rule") and "no held-out data were given" in shown

    def test_a_built_model_without_a_file(self, files):
        shown = self.called(files, weights=None).stdout
        assert shown.startswith("my_model.py:build: undecided") and "underfit" in shown

    def test_what_would_be_ignored_is_refused(self, files):
        (files / "c.toml").write_text("[task]\n")
        done = self.called(files, "--config", files / "c.toml", code=3)
        assert "--config and --data must be omitted with --model" in " ".join(done.stderr.split())
        held_out = ("--held-out", files / "t.npz")
        done = anchorlens_command.call("classify", shipped()[0], *held_out, code=None)
        assert done.exit_code and "phase" not in done.stdout.lower()

    def test_a_file_with_names_of_its_own_names_the_way(self, files):
        done = anchorlens_command.call("classify", files / "w.pt", code=3)
        assert "--model FILE.py:build with --train-data" in " ".join(done.stderr.split())

    @pytest.mark.parametrize(
        ("how", "said"),
        [
            ({"weights": "other.pt"}, r"without '0.bias', '2.bias', '2.weight' and with the unknown 'head'"),
            ({"build": "fails"}, "RuntimeError: no disk"),
            ({"build": "number"}, "must return a torch module, got 3"),
            ({"build": "missing"}, "missing"),
            ({"build": "not a name"}, "FILE.py:FUNCTION"),
        ],
    )
    def test_refusals(self, files, how, said):
        done = self.called(files, code=3, **how)
        assert said in " ".join((done.stderr + done.stdout).split())

"""What the calibration has a range for: a model that the zoo has none like is outside, and says so."""

from dataclasses import replace

import pytest
import torch

from anchorlens import AnchorTask, ModelConfig, build_model, evaluate, load_checkpoint
from anchorlens.training import checkpoints
from anchorlens.verdict import READINGS, inside
from anchorlens.verdict.calibration import calibration
from anchorlens.verdict.inside import features, margin_is_of_training, read_inside

SHAPE = {"n_layers": 2, "d_model": 48, "d_head": 12, "n_heads": 4, "d_mlp": 48, "d_vocab": 110, "n_ctx": 9}
SHAPE |= {"act_fn": "gelu"}
FOREIGN = {
    "normalization_type": ("RMS", "normalization 'RMS' is not one of 'LN'"),
    "positional_embedding_type": ("rotary", "positions 'rotary' is not one of 'standard'"),
    "gated_mlp": (True, "mlp 'gated' is not one of 'dense'"),
    "attn_only": (True, "mlp 'none' is not one of 'dense'"),
    "act_fn": ("silu", "activation 'silu' is not one of 'gelu', 'relu'"),
    "attention_dir": ("bidirectional", "attention 'bidirectional' is not one of 'causal'"),
    "parallel_attn_mlp": (True, "blocks 'parallel' is not one of 'serial'"),
}


def outside(**fields):
    from anchorlens.models.library import HookedTransformer, HookedTransformerConfig

    model = HookedTransformer(HookedTransformerConfig(**SHAPE | fields, device="cpu", init_weights=False))
    return calibration().outside(features(model, AnchorTask()))


@pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning")
@pytest.mark.parametrize("field", FOREIGN)
def test_each_part_that_the_zoo_lacks_is_named(field):
    value, words = FOREIGN[field]
    assert outside(**{field: value}) == [words]


@pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning")
def test_what_the_zoo_has_is_inside():
    assert outside() == outside(normalization_type="LNPre") == outside(act_fn="gelu_new") == []
    assert outside(normalization_type=None) == ["normalization 'none' is not one of 'LN'"]


@pytest.mark.parametrize("variant", ["gpt2", "postnorm", "released"])
def test_a_variant_is_known_by_its_blocks(variant):
    """In memory as from a file, where its configuration says it."""
    model = build_model(ModelConfig(variant=variant, n_layers=2, d_model=64, d_head=32, d_mlp=64))
    assert features(model, AnchorTask())["variant"] == variant
    found = calibration().outside(features(model, AnchorTask()))
    assert found == ([] if variant != "released" else ["variant 'released' is not one of 'gpt2', 'postnorm'"])


class TestNotQuiteFit:
    """A small margin on fresh noise is no sign of Phase 1 where that on training sequences is small too."""

    def test_it_is_not_called_phase_1(self, monkeypatch):
        """Of a model that composes, with noise on its embedding and small logits."""
        path = next(path for path in checkpoints.shipped() if path.stem == "phase3")
        checkpoint = load_checkpoint(path)
        task, model = checkpoint.task, checkpoint.build_model()
        with torch.no_grad():
            embedding, generator = model.embed.W_E, torch.Generator().manual_seed(0)
            embedding += 0.4 * embedding.std() * torch.randn(embedding.shape, generator=generator)
            for parameter in (model.unembed.W_U, model.unembed.b_U):
                parameter.mul_(0.12)
        answers = evaluate(model, task, training_set=checkpoint.training_set(), n_noise=2)
        train = answers.train
        assert 0.92 < train.value < 0.98 and answers.id.value > 0.9 and answers.ood.value > 0.5
        found = read_inside(model, task, train=train)
        for posterior in (found.by_probes, found.by_decoding):
            assert posterior.phase.cause == "ambiguous" and "has not yet fit" in posterior.phase.reason
        readings = {one.reading: one.value for one in found.by_probes.evidence}
        readings |= {one.name: None for one in READINGS if one.sees == "unseen pairs"}
        monkeypatch.setattr(
            inside, "take_readings", lambda model, task, names, training_set: readings
        )  # without a second measurement
        fit = replace(train, value=1.0)  # the control: by the same readings it would be Phase 1
        assert read_inside(model, task, train=fit).by_probes.phase.number == 1
        assert read_inside(model, task, train=train, train_is_known=False).by_probes.phase.number is None

    @pytest.mark.parametrize(
        ("train", "margin", "expected"),
        [(0.95, 0.1, True), (0.98, 0.1, False), (0.95, -0.1, False), (0.89, 0.1, False), (0.95, None, False)],
    )
    def test_by_hand(self, train, margin, expected):
        assert margin_is_of_training(train, {"information_flow.margin": margin}) is expected

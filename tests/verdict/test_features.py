"""What the calibration has a range for: a model that the zoo has none like is outside, and says so."""

import pytest

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.verdict.calibration import calibration
from anchorlens.verdict.probe_verdict import features

RANGE = calibration().regimes["reasoning"].range

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
    return RANGE.outside(features(model, AnchorTask()))


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
    assert RANGE.outside(features(model, AnchorTask())) == []
    found = calibration().regimes["conflict"].range.outside(features(model, AnchorTask()))
    assert found == ([] if variant != "released" else ["variant 'released' is not one of 'gpt2', 'postnorm'"])

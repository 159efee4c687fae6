import math

import pytest

from anchorlens import ModelConfig, build_model, transfer


def test_the_numbers_of_the_papers_widths():
    """By hand: 1/2 + .3 ln 400 / ln 128 = .8704, and back; the rate by sqrt(400 / 128) = 1.768."""
    gamma, lr = transfer(0.8, 1.5e-4, 400, 128)
    assert gamma == pytest.approx(0.87045, abs=1e-5)
    assert lr == pytest.approx(2.6517e-4, abs=1e-8)
    assert transfer(gamma, lr, 128, 400) == pytest.approx((0.8, 1.5e-4))
    assert transfer(0.8, 1e-3, 128, 400).gamma == pytest.approx(0.74295, abs=1e-5)


@pytest.mark.parametrize("gamma", [0.2, 0.5, 0.9])
def test_a_layer_scales_its_input_alike_and_steps_stay_in_proportion_to_the_weights(gamma):
    """Measured on weights that are built, not by the formula."""
    width, other = 64, 256
    carried = transfer(gamma, 1e-3, width, other)
    small, large = (
        build_model(ModelConfig(d_model=d, d_head=d // 2, d_mlp=2 * d, gamma=g))
        .blocks[0]
        .attn.W_Q.std()
        .item()
        for d, g in ((width, gamma), (other, carried.gamma))
    )
    assert small * math.sqrt(width) == pytest.approx(large * math.sqrt(other), rel=0.03)
    assert 1e-3 / small == pytest.approx(carried.lr / large, rel=0.03)


def test_one_half_and_the_same_width_stay_as_they_are():
    assert transfer(0.5, 1e-3, 10, 1000).gamma == 0.5
    assert transfer(0.8, 1e-3, 128, 128) == (0.8, 1e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0.8, 0.0, 400, 128), "lr must be a finite number > 0"),
        ((math.nan, 1e-3, 400, 128), "gamma must be"),
        ((0.8, 1e-3, 1, 128), "from_width must be"),
        ((0.8, 1e-3, 400, 12.5), "to_width must be"),
    ],
)
def test_bad_numbers_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        transfer(*given)

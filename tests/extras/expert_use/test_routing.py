"""What a router of a mixture gives each expert, and the model without one of them."""

from dataclasses import replace

import pytest
import torch

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.extras.expert_use.probe import routing, without_expert

SMALL = ModelConfig(n_layers=2, n_heads=2, d_model=24, d_head=8, d_mlp=40, num_experts=3, gamma=0.5)
TOKENS = AnchorTask().sample(16).tokens


class TestRouting:
    @pytest.mark.parametrize("experts_per_token", [1, 2])
    def test_weights_of_the_chosen_sum_to_one(self, experts_per_token):
        model = build_model(replace(SMALL, experts_per_token=experts_per_token, gamma=0.3))
        for weights in routing(model, TOKENS).values():
            assert weights.shape == (16, 3) and torch.allclose(weights.sum(1), torch.ones(16))
            assert ((weights > 0).sum(1) == experts_per_token).all()

    @pytest.mark.parametrize("experts_per_token", [1, 2])
    def test_without_an_expert_it_is_the_model_that_never_had_it(self, experts_per_token):
        """A model with two experts less is built of the same weights."""
        config = replace(SMALL, num_experts=4, experts_per_token=experts_per_token, gamma=0.3)
        model, fewer = build_model(config), build_model(replace(config, num_experts=3))
        state, left = model.state_dict(), [0, 1, 3]
        for name in fewer.state_dict():
            if ".experts." in name:
                place = int(name.split(".experts.")[1].split(".")[0])
                state[name] = model.state_dict()[
                    name.replace(f".experts.{place}.", f".experts.{left[place]}.")
                ]
            elif name.endswith(".mlp.W_gate.weight"):
                state[name] = model.state_dict()[name][left]
        fewer.load_state_dict({name: state[name] for name in fewer.state_dict()})
        before = model(TOKENS)
        with without_expert(model, 0, 2), without_expert(model, 1, 2):
            assert torch.allclose(model(TOKENS), fewer(TOKENS), atol=1e-5)
        assert torch.equal(model(TOKENS), before) and not torch.allclose(before, fewer(TOKENS), atol=1e-3)

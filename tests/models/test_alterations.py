"""What somebody else's function alters in a copy of a model is said, and global settings are put back."""

import contextlib
import random

import numpy as np
import pytest
import torch
from torch import nn

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.models.alterations import assert_unmodified

TINY = ModelConfig(n_layers=1, d_model=8, d_head=8, d_mlp=8)
TOKENS = AnchorTask().sample(4, seed=0).tokens
PATTERN = "blocks.0.attn.hook_pattern"


@pytest.fixture
def model():
    return build_model(TINY).eval()


def zero_data(model):
    model.blocks[0].attn.W_Q.data.zero_()  # leaves the version of the tensor as it was


def zero(model):
    with torch.no_grad():
        model.W_E.mul_(0)


def replace(model):
    model.embed.W_E = nn.Parameter(torch.zeros_like(model.embed.W_E))


def other_scale(model):
    model.blocks[0].attn.attn_scale = 9.0


def other_forward(model):
    model.blocks[0].mlp.forward = lambda x: 0 * x


ALTERATIONS = {
    "weights written as data": (zero_data, "weights (blocks.0.attn.W_Q)"),
    "weights written": (zero, "weights (embed.W_E)"),
    "weights replaced": (replace, "weights (embed.W_E)"),
    "a buffer": (lambda m: m.blocks[0].attn.IGNORE.zero_(), "buffers (blocks.0.attn.IGNORE)"),
    "a block": (lambda m: setattr(m, "blocks", nn.ModuleList([nn.Identity()])), "weights (blocks.0.ln1.w, "),
    "precision": (lambda m: nn.Module.to(m, torch.float64), "weights (embed.W_E, pos_embed.W_pos, "),
    "training mode": (lambda m: m.train(), None),
    "requires_grad": (lambda m: m.requires_grad_(False), None),
    "a hook": (lambda m: m.add_hook(PATTERN, lambda p, hook: 0 * p), f"hooks ({PATTERN})"),
    "a hook of torch": (lambda m: m.ln_final.register_forward_hook(lambda *_: None), "hooks (ln_final)"),
    "a user's hook removed": (lambda m: m.reset_hooks(), "hooks (hook_embed)"),
    "configuration": (lambda m: setattr(m.cfg, "use_attn_result", True), None),
    "an attribute": (other_scale, None),
    "forward": (other_forward, None),
    "gradient mode": (lambda m: torch.set_grad_enabled(False), None),
    "default dtype": (lambda m: torch.set_default_dtype(torch.float64), None),
    "default device": (lambda m: torch.set_default_device("meta"), None),
    "determinism": (lambda m: torch.use_deterministic_algorithms(True), None),
    "errors of NumPy": (lambda m: np.seterr(all="raise"), None),
}


def everything(model):
    """What a later measurement depends on."""
    numbers = torch.rand(1), np.random.rand(), random.random()
    settings = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_default_device()
    settings += torch.are_deterministic_algorithms_enabled(), str(np.geterr())
    of_model = [(name, p.requires_grad, p.data_ptr()) for name, p in model.named_parameters()]
    modes = [(name, module.training) for name, module in model.named_modules()]
    return [*numbers, settings, of_model, modes, model.cfg.to_dict(), model(TOKENS)]


@pytest.mark.parametrize("which", ALTERATIONS)
@pytest.mark.parametrize("fails", [False, True])
def test_an_alteration_is_named_and_put_back(which, fails, model):
    alter, message = ALTERATIONS[which]
    model.add_hook("hook_embed", lambda embedding, hook: 2 * embedding)
    generators = torch.get_rng_state(), np.random.get_state(), random.getstate()
    before = everything(model)
    setters = torch.set_rng_state, np.random.set_state, random.setstate
    for put_back, state in zip(setters, generators, strict=True):
        put_back(state)
    error = KeyError if fails else ValueError if message else None
    expected = contextlib.nullcontext() if error is None else pytest.raises(error)
    with expected as caught, assert_unmodified("mine", model) as (copied,):
        alter(copied)
        if fails:
            raise KeyError("its own error")
    if caught is not None and not fails:
        assert str(caught.value).startswith("mine must not change the model, got changes of ")
        assert message in str(caught.value)
    *after, logits = everything(model)
    assert after == before[:-1] and torch.equal(logits, before[-1])


def test_measuring_drawing_and_gradients_are_no_alteration(model):
    """Hooks in a context, an ablation that is undone, numbers drawn, with a seed too, a gradient."""
    model.W_E.grad = torch.ones_like(model.W_E)
    torch.manual_seed(0)
    of_others = str(np.random.get_state()), random.getstate()
    with assert_unmodified("mine", model, None) as (copied, _):
        copied.run_with_cache(TOKENS)
        with copied.hooks([(PATTERN, lambda pattern, hook: 0 * pattern)]):
            copied(TOKENS, return_type="loss").backward()
        kept = copied.W_E.detach().clone()
        zero(copied)
        copied.W_E.data.copy_(kept)
        torch.rand(3), np.random.rand(10_000), random.random()
        torch.manual_seed(12345)
        np.random.seed(12345)
        random.seed(12345)
    assert (str(np.random.get_state()), random.getstate()) == of_others
    assert torch.equal(model.W_E.grad, torch.ones_like(model.W_E)) and model.W_pos.grad is None
    drawn = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(1))


def test_weights_without_a_number_are_not_taken_for_altered(model):
    model.W_E.data[0] = torch.nan
    with assert_unmodified("mine", model) as (copied,):
        copied(TOKENS)


def test_a_module_that_cannot_be_copied_is_given_itself():
    module = nn.Linear(2, 2)
    module.result = module.weight * 2  # pyright: ignore[reportAttributeAccessIssue]
    with assert_unmodified("mine", module) as (given,):
        assert given is module

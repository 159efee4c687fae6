"""A model within wrappers of other libraries is measured as it is alone, and a user's hooks are named."""

import re
import warnings

import pytest
import torch
from known_models import LINE
from torch import nn
from transformer_lens.hook_points import HookPoint

from anchorlens import AnchorTask, ModelConfig, build_model, classify, evaluate, gamma_table, probes
from anchorlens.models import hooks
from anchorlens.models.wrappers import hooks_in_words, unwrapped

TASK = AnchorTask(key_min=20, key_max=29, seq_len=5)
TINY = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, d_vocab=TASK.d_vocab)
PATTERN = "blocks.0.attn.hook_pattern"


class Lit(nn.Module):
    """As a LightningModule: the network is one of its attributes."""

    def __init__(self, **networks):
        super().__init__()
        for name, network in networks.items():
            setattr(self, name, network)
        self.loss = nn.CrossEntropyLoss()


class Passing(Lit):
    def forward(self, tokens):
        return {"logits": self.model(tokens)}


class TakingABatch(Lit):
    def forward(self, batch):
        return self.loss(self.model(batch["tokens"])[:, -1], batch["targets"])


class Turned(Lit):
    """Gives other logits than the network in it."""

    def forward(self, tokens):
        return self.model(tokens).roll(1, dims=-1)


def compiled(model):
    torch._dynamo.reset()
    return torch.compile(model, backend="eager")


@torch.no_grad()
def compiled_in_part(model):
    """Compiled and run: one module in place, and another in a wrapper."""
    model.blocks[1].attn.compile(backend="eager")
    model.blocks[0].mlp = compiled(model.blocks[0].mlp)
    model(torch.tensor([[20, 1, 2, 21, 22]]))
    return model


def distributed(model):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        return nn.parallel.DistributedDataParallel(model)
    finally:
        torch.distributed.destroy_process_group()


def accelerated(model):
    accelerate = pytest.importorskip("accelerate")
    return accelerate.Accelerator(cpu=True).prepare(model)


QUIET = (
    nn.DataParallel,
    compiled,
    pytest.param(
        compiled_in_part,
        marks=pytest.mark.skipif(LINE > 3, reason="the check of shapes in tests cannot be compiled"),
    ),
    distributed,
    accelerated,
    torch.optim.swa_utils.AveragedModel,
    lambda model: nn.DataParallel(compiled(model)),
)
NOTED = (
    lambda model: Lit(model=model),
    lambda model: Passing(model=model),
    lambda model: TakingABatch(model=model),
    lambda model: Passing(model=compiled(model)),
    lambda model: nn.DataParallel(Lit(inner=nn.ModuleDict({"net": model}))),
)


@pytest.fixture(scope="module")
def alone():
    return measured(build_model(TINY))


def measured(model):
    return (
        evaluate(model, TASK, n_noise=2).to_dict() | {"notes": []},
        classify(model, TASK).to_dict()["by_probes"],
        probes.mask_key_token(model, TASK, n_sequences=4).to_dict(),
    )


@pytest.mark.parametrize("wrap", QUIET)
def test_a_wrapper_that_computes_the_same_changes_nothing(wrap, alone):
    wrapper = wrap(build_model(TINY))
    assert measured(wrapper) == alone
    assert torch._dynamo.eval_frame._stance.stance == "default"  # compiling goes on afterwards


@pytest.mark.parametrize("wrap", NOTED)
def test_the_one_hooked_transformer_in_a_module_is_measured_with_a_note(wrap, alone):
    wrapper = wrap(build_model(TINY))
    with pytest.warns(UserWarning, match=r"in \.(model|inner\.net) of the \w+"):
        assert measured(wrapper) == alone
    assert "that was given is measured" in classify(wrapper, TASK).warnings[0]
    with pytest.warns(UserWarning, match="that was given is measured"):
        assert "that was given is measured" in evaluate(wrapper, TASK, n_noise=2).notes[0]


def test_compare_and_table_take_wrappers(alone):
    model = build_model(TINY)
    both = probes.compare([model, nn.DataParallel(model)], "stable_rank").results
    assert both[0].w_q == both[1].w_q
    assert gamma_table(nn.DataParallel(model)).rows == gamma_table(model).rows


def test_a_module_that_answers_otherwise_is_evaluated_as_it_is_and_not_opened():
    model = build_model(TINY)
    wrapper, by_hand = Turned(model=model), lambda tokens: model(tokens).roll(1, dims=-1)
    assert evaluate(wrapper, TASK, n_noise=2).to_dict() == evaluate(by_hand, TASK, n_noise=2).to_dict()
    with pytest.raises(ValueError, match=r"Turned .*in \.model, and gives other"):
        classify(wrapper, TASK)
    two = Lit(student=model, teacher=build_model(TINY, seed=1))
    for measure in (classify, probes.mask_key_token, evaluate):
        with pytest.raises(ValueError, match=r"\.teacher\. Give it: model\.student"):
            measure(two, TASK)
    assert unwrapped(nn.DataParallel(nn.Linear(2, 2))).out_features == 2 and unwrapped(None) is None


class TestHooks:
    def test_a_users_hook_is_named_by_everything_that_judges(self, tmp_path):
        model = build_model(TINY)
        model.add_hook(PATTERN, lambda pattern, hook: pattern * 0)
        said = rf"the model has hooks of yours at {PATTERN}, and is measured with them"
        assert any(note.startswith(said) for note in classify(model, TASK).warnings)
        for measure in (evaluate, probes.v_similarity):
            with pytest.warns(UserWarning, match=said):
                measure(model, TASK)
        with pytest.warns(UserWarning, match=said):
            probes.compare([model], "v_similarity", TASK)
        model.reset_hooks()
        verdict = classify(model, TASK)
        model.blocks[1].mlp.register_forward_hook(lambda *_: None)
        verdict.report(tmp_path / "report.html", probes=["stable_rank"])
        page = (tmp_path / "report.html").read_text()
        assert "the model has hooks of yours at blocks.1.mlp, and is measured" in page
        model.blocks[1].mlp._forward_hooks.clear()
        assert not [note for note in classify(model, TASK).warnings if "hooks" in note]

    def test_a_module_in_the_place_of_a_hook_point_is_named(self):
        """As SAELens puts an autoencoder there."""
        model = build_model(TINY)
        model.blocks[1].hook_mlp_out = nn.Linear(16, 16)
        model.setup()
        said = r"blocks\.1\.hook_mlp_out \(a Linear in the place of the hook point\)"
        assert any(re.search(said, note) for note in classify(model, TASK).warnings)
        with pytest.warns(UserWarning, match=said):
            evaluate(model, TASK, n_noise=2)
        model.blocks[1].hook_mlp_out = HookPoint()
        model.setup()
        assert hooks_in_words(model) is None and hooks_in_words(nn.ModuleDict({"hook_a": nn.ReLU()})) is None

    def test_hooks_of_torch_and_permanent_ones_count_and_those_of_libraries_do_not(self):
        model = build_model(TINY)
        assert hooks_in_words(model) is None
        with hooks.masked_attention(model, hooks.attention_masks(model, 5, key=0)):
            assert "blocks.0.attn.hook_pattern, blocks.1.attn.hook_pattern, and" in hooks_in_words(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            assert hooks_in_words(nn.Sequential(nn.utils.weight_norm(nn.Linear(2, 2)))) is None
        for register in (
            lambda: model.hook_embed.add_hook(lambda value, hook: None, is_permanent=True),
            lambda: model.ln_final.register_forward_pre_hook(lambda *_: None),
            lambda: model.blocks[1].mlp.register_forward_hook(lambda *_: None),
            lambda: model.register_full_backward_hook(lambda *_: None),
            lambda: nn.modules.module.register_module_forward_hook(lambda *_: None),
        ):
            handle = register()
            assert hooks_in_words(model) is not None
            if hasattr(handle, "remove"):
                handle.remove()
            model.reset_hooks(including_permanent=True)
            assert hooks_in_words(model) is None

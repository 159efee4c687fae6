"""Our HookedTransformer is TransformerLens 3.9's, bit for bit, and refuses what it lacks.

On TransformerLens 4, which has none to compare with, what asks for theirs is skipped.
"""

import copy
import dataclasses
import pickle

import pytest
import torch
from known_models import ARCHITECTURES, LINE, only_on_3, only_on_4, user_built
from torch.nn.functional import cross_entropy
from transformer_lens import patching

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.extras import transformer_lens_4
from anchorlens.extras.transformer_lens_4 import HookedTransformer, HookedTransformerConfig
from anchorlens.extras.transformer_lens_4.configuration import ACTIVATIONS, NOT_READ
from anchorlens.models import library

KINDS = ARCHITECTURES | {
    "split inputs": {"use_split_qkv_input": True},
    "split inputs of groups": {"use_split_qkv_input": True, "n_key_value_heads": 2},
    "split inputs of a shortformer": {
        "use_split_qkv_input": True,
        "positional_embedding_type": "shortformer",
    },
    "groups undone": {"ungroup_grouped_query_attention": True, "n_key_value_heads": 2},
    "one input a head": {"use_attn_in": True},
    "results of heads": {"use_attn_result": True},
    "MLP's input": {"use_hook_mlp_in": True},
    "tokens hooked": {"use_hook_tokens": True},
    "adjacent pairs": {
        "positional_embedding_type": "rotary",
        "rotary_adjacent_pairs": True,
        "rotary_dim": 4,
        "rotary_base": 500,
        "rotary_scaling_factor": 2.0,
    },
    "both directions": {"attention_dir": "bidirectional"},
    "scaled by layer": {"scale_attn_by_inverse_layer_idx": True},
    "not scaled": {"use_attn_scale": False},
    "final RMS": {"final_rms": True},
    "final RMS, folded": {"final_rms": True, "normalization_type": "LNPre"},
    "norms of queries and shared keys": {"use_qk_norm": True, "n_key_value_heads": 2},
    "top 1 of 2 experts": {"num_experts": 2, "experts_per_token": 1, "gated_mlp": True},
    "top 2 of 4 experts": {"num_experts": 4, "experts_per_token": 2, "norm_topk_prob": True},
    **{name: {"act_fn": name} for name in ACTIVATIONS},
}
"""Fields of `user_built`: the architectures of the other tests, and every switch of ours."""
CANNOT_BE_FOLDED = {
    *("shortformer", "split inputs of a shortformer", "final RMS", "final RMS, folded"),
    *("top 1 of 2 experts", "top 2 of 4 experts", "solu"),
}
"""The architectures whose function TransformerLens' folding changes, or that it cannot fold."""
SMALL = {"n_layers": 1, "d_model": 8, "d_head": 4, "n_ctx": 6, "d_vocab": 10, "device": "cpu"}


def tokens(seed=0, n_pos=12):
    return torch.randint(0, 150, (4, n_pos), generator=torch.Generator().manual_seed(seed))


def pair(kind, dtype=torch.float32):
    """A model of TransformerLens' own class, and one of ours of the same configuration and weights."""
    theirs = user_built(dtype, **KINDS[kind])
    ours = HookedTransformer(HookedTransformerConfig.from_dict(dict(theirs.cfg.to_dict())))
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def same(a, b):
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


@only_on_3
@pytest.mark.parametrize("kind", KINDS)
class TestTheSameAsTransformerLens:
    def test_names_and_their_order(self, kind):
        theirs, ours = pair(kind)
        assert list(ours.hook_dict) == list(theirs.hook_dict)
        assert list(ours.mod_dict) == list(theirs.mod_dict)
        assert same(ours.state_dict(), theirs.state_dict())
        assert list(dict(ours.named_parameters())) == list(dict(theirs.named_parameters()))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_activations_and_what_is_returned(self, kind, dtype):
        theirs, ours = pair(kind, dtype)
        (logits, cache), (logits_2, cache_2) = (model.run_with_cache(tokens()) for model in (theirs, ours))
        assert torch.equal(logits, logits_2) and same(cache, cache_2)
        padded = torch.ones(4, 12, dtype=torch.int64)
        padded[0, :3] = padded[1, :5] = 0
        assert torch.equal(theirs(tokens(), attention_mask=padded), ours(tokens(), attention_mask=padded))
        last = [model(tokens(), stop_at_layer=-1) for model in (theirs, ours)] if len(ours.blocks) else []
        assert not last or torch.equal(*last)
        if ours.cfg.positional_embedding_type != "shortformer" and last:
            assert torch.equal(*(model(last[0], start_at_layer=-1) for model in (theirs, ours)))
        if ours.cfg.d_vocab_out == ours.cfg.d_vocab:
            for per_token in (False, True):
                expected = theirs(tokens(), return_type="both", loss_per_token=per_token)
                assert all(
                    map(torch.equal, ours(tokens(), return_type="both", loss_per_token=per_token), expected)
                )

    def test_gradients_and_updates(self, kind):
        models = pair(kind)
        optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in models]
        for step in range(2):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                targets = tokens(step)[:, 0] % model.cfg.d_vocab_out
                cross_entropy(model(tokens(step))[:, -1], targets).backward()
                optimizer.step()
            theirs, ours = ({n: p.grad for n, p in model.named_parameters()} for model in models)
            assert [n for n in ours if ours[n] is None] == [n for n in theirs if theirs[n] is None]
            assert all(torch.equal(ours[n], theirs[n]) for n in ours if ours[n] is not None)
        assert same(*(dict(model.named_parameters()) for model in models))

    def test_weights_by_name(self, kind):
        theirs, ours = pair(kind)
        names = ["W_E", "W_U", "b_U", "W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"]
        is_plain = not (ours.cfg.attn_only or ours.cfg.num_experts)  # experts are in no such stack
        names += ["W_in", "W_out", "b_in", "b_out"] * is_plain
        names += ["W_gate"] * (ours.cfg.gated_mlp and is_plain)
        names += [] if ours.cfg.positional_embedding_type == "rotary" else ["W_pos"]
        if not len(ours.blocks):
            return
        for name in names:
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
        for name in ("QK", "OV"):
            assert torch.equal(getattr(ours, name).AB, getattr(theirs, name).AB)
            assert torch.equal(getattr(ours.blocks[1].attn, name).AB, getattr(theirs.blocks[1].attn, name).AB)
        if is_plain:
            assert torch.equal(ours.accumulated_bias(1, mlp_input=True), theirs.accumulated_bias(1, True))
        assert torch.equal(
            ours.accumulated_bias(2, include_mlp_biases=False), theirs.accumulated_bias(2, False, False)
        )
        at = torch.tensor([3, 5])
        assert torch.equal(ours.tokens_to_residual_directions(at), theirs.tokens_to_residual_directions(at))

    def test_other_names(self, kind):
        theirs, ours = pair(kind)
        assert ours.n_params_total == theirs.n_params_total
        assert ours.all_head_labels() == theirs.all_head_labels()
        if ours.cfg.positional_embedding_type != "rotary":
            assert torch.equal(ours.W_E_pos, theirs.W_E_pos)
        for mode in "QKV" if len(ours.blocks) else "":
            assert torch.equal(ours.all_composition_scores(mode), theirs.all_composition_scores(mode))

    @pytest.mark.parametrize("refactor", [False, True])
    def test_folding(self, kind, refactor):
        theirs, ours = pair(kind)
        shares_or_rotates = ours.cfg.n_key_value_heads or ours.cfg.positional_embedding_type == "rotary"
        if kind in CANNOT_BE_FOLDED or (
            refactor and shares_or_rotates
        ):  # TransformerLens refuses to refactor
            return
        for model in (theirs, ours):
            model.process_weights_(refactor_factored_attn_matrices=refactor)
        assert same(ours.state_dict(), theirs.state_dict()) and ours.cfg.normalization_type in (
            theirs.cfg.normalization_type,
        )
        assert list(ours.hook_dict) == list(theirs.hook_dict)
        assert torch.equal(ours(tokens()), theirs(tokens()))

    def test_configuration(self, kind):
        theirs, ours = (model.cfg.to_dict() for model in pair(kind))
        assert {name: ours[name] for name in theirs if name not in NOT_READ} == {
            name: value for name, value in theirs.items() if name not in NOT_READ
        }


@only_on_3
class TestTheConfiguration:
    def test_has_a_place_for_every_field_of_theirs(self):
        theirs = {field.name for field in dataclasses.fields(library.HookedTransformerConfig)}
        ours = {field.name for field in dataclasses.fields(HookedTransformerConfig)}
        assert theirs == ours | {*NOT_READ} and not ours & {*NOT_READ}

    def test_has_their_defaults(self):
        kept = dict(library.HookedTransformerConfig(**SMALL).to_dict())
        assert {n: v for n, v in kept.items() if n not in NOT_READ} == HookedTransformerConfig(
            **SMALL
        ).to_dict()

    @pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning")
    def test_a_seed_draws_the_same_weights(self):
        fields = {**SMALL, "seed": 3}
        theirs = library.HookedTransformer(library.HookedTransformerConfig(**fields))
        before = torch.get_rng_state()
        ours = HookedTransformer(fields)
        assert same(theirs.state_dict(), ours.state_dict()) and torch.equal(before, torch.get_rng_state())


LACKING = {
    "init_mode": "xavier_uniform",
    "tokenizer_name": "gpt2",
    "n_devices": 2,
    "use_local_attn": True,
    "use_attention_sinks": True,
    "use_logn_attn": True,
    "use_dynamic_ntk_rope": True,
    "use_NTK_by_parts_rope": True,
    "use_yarn_rope": True,
    "load_in_4bit": True,
    "clip_qkv": 3.0,
    "attn_scores_soft_cap": 50.0,
    "output_logits_soft_cap": 30.0,
}


class TestWhatAUserMeetsFirst:
    @pytest.mark.parametrize("kind", sorted({*KINDS} - {"no layers", *ACTIVATIONS} | {"solu"}))
    def test_folding_keeps_the_function(self, kind):
        """With norms and biases drawn at random, so that a wrong fold shows."""
        model = pair(kind, torch.float64)[1]
        before = {name: weight.clone() for name, weight in model.state_dict().items()}
        expected = model(tokens()).log_softmax(-1)
        if kind in CANNOT_BE_FOLDED:
            with pytest.raises(ValueError, match="folding must not change what"):
                model.process_weights_()
            assert same(model.state_dict(), before)
            return
        model.process_weights_()
        # float32 within ProcessWeights
        assert torch.allclose(model(tokens()).log_softmax(-1), expected, atol=1e-4)
        assert not any(name.endswith(("ln1.w", "ln2.w", "ln_final.w")) for name in model.state_dict())
        assert torch.allclose(model.W_U.mean(-1), torch.zeros(1, dtype=torch.float64), atol=1e-6)

    def test_composition_scores_by_hand(self):
        """||OV_1 OV_2|| / (||OV_1|| ||OV_2||) for a head before another, and 0 elsewhere."""
        model = HookedTransformer({**SMALL, "n_layers": 2, "n_heads": 2, "seed": 0})
        scores, ov = model.all_composition_scores("V"), model.OV.AB
        by_hand = (ov[0, 1] @ ov[1, 0]).norm() / (ov[0, 1].norm() * ov[1, 0].norm())
        assert torch.allclose(scores[0, 1, 1, 0], by_hand, atol=1e-6)
        assert scores[0, :, 1].all() and not scores[1].any() and not scores[0, :, 0].any()
        with pytest.raises(ValueError, match="mode must be one of Q, K, V"):
            model.all_composition_scores("O")

    def test_sizes_and_labels(self):
        model = HookedTransformer({**SMALL, "n_heads": 2})
        assert model.W_E_pos.shape == (10 + 6, 8) and model.all_head_labels() == ["L0H0", "L0H1"]
        assert model.n_params_total == sum(p.numel() for p in model.parameters())

    def test_position_of_a_token(self, unchecked_shapes):
        model, row = HookedTransformer(SMALL), torch.tensor([4, 2, 2, 7])
        assert model.get_token_position(2, row) == 1
        assert model.get_token_position(2, row[None], mode="last") == 2
        for given in (row % 3, torch.stack([row, row])):
            with pytest.raises(ValueError, match="one sequence with the token 7"):
                model.get_token_position(7, given)
        for call in (("a", row), (2, "a text")):
            with pytest.raises(ValueError, match="a tokenizer.*transformer-lens<4"):
                model.get_token_position(*call)

    def test_position_embedding_after_other_tokens(self):
        embed = HookedTransformer(SMALL).pos_embed
        later = embed(torch.zeros(1, 2, dtype=torch.int64), 3)
        assert torch.equal(later[0], embed.W_pos[3:5])
        mask = torch.tensor([[0, 0, 1, 1, 1]])
        found = embed(torch.zeros(1, 2, dtype=torch.int64), 3, mask)
        assert torch.equal(found[0], embed.W_pos[1:3])

    def test_a_dict_of_a_configuration_is_unwrapped_to_our_class(self):
        made = HookedTransformerConfig.unwrap(SMALL)
        assert type(made) is HookedTransformerConfig and HookedTransformerConfig.unwrap(made) is made
        assert not made.is_layer_norm_activation()

    def test_fields_that_are_not_read_are_accepted_at_their_defaults(self):
        assert HookedTransformerConfig(**SMALL, **NOT_READ) == HookedTransformerConfig(**SMALL)
        with pytest.raises(ValueError, match="^window_size must be None.*got 4"):
            HookedTransformerConfig(**SMALL, window_size=4)

    @pytest.mark.parametrize("attn_only", [False, True])
    def test_an_activation_with_a_norm_is_not_taken_for_another(self, attn_only):
        with pytest.raises(ValueError, match="act_fn must be .*'solu_ln'.*transformer-lens<4") as error:
            HookedTransformerConfig(**SMALL, act_fn="solu_ln", attn_only=attn_only)
        assert "Did you mean" not in str(error.value)

    @only_on_3
    def test_every_name_of_theirs_is_there_or_answered(self):
        theirs = {name for name in dir(library.HookedTransformer) if not name.startswith("_")}
        assert theirs - {*dir(HookedTransformer)} == set()
        fields = dataclasses.fields(library.HookedTransformerConfig)
        assert {field.name: field.default for field in fields if field.name in NOT_READ} == NOT_READ


class TestWhatItLacks:
    @pytest.mark.parametrize("name", LACKING)
    def test_is_refused_by_name(self, name):
        with pytest.raises(ValueError, match=f"^{name} must be .*{LACKING[name]!r}") as error:
            HookedTransformerConfig(**SMALL, **{name: LACKING[name]})
        assert "\n" not in str(error.value)

    def test_is_every_field_that_is_marked_so(self):
        fields = dataclasses.fields(HookedTransformerConfig)
        assert {field.name for field in fields if field.metadata.get("lacking")} == {*LACKING}

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"original_architecture": "Olmo2ForCausalLM"},
                "original_architecture must name an architecture w",
            ),
            (
                {"normalization_type": "BN"},
                r"normalization_type.*LNPre.*got 'BN'",
            ),
            (
                {"positional_embedding_type": "relative_positional_bias"},
                "positional_embedding_type must be one",
            ),
            ({"attention_dir": "backwards"}, "attention_dir must be one of causal, bidirectional"),
            ({"act_fn": "xielu"}, "act_fn must be one of relu, gelu"),
            ({"num_experts": 2}, "experts_per_token must be 1 to .*got None"),
            (
                {"num_experts": 2, "experts_per_token": 3},
                r"experts_per_token must be 1 to .*got 3",
            ),
            (
                {"n_heads": 4, "n_key_value_heads": 3},
                "must divide n_heads, got 3",
            ),
            (
                {"use_normalization_before_and_after": True},
                "normalization_type must be RMS, RMSPre",
            ),
        ],
    )
    def test_of_what_is_chosen_is_said(self, fields, message):
        with pytest.raises(ValueError, match=message):
            HookedTransformerConfig(**SMALL, **fields)

    def test_needs_a_vocabulary(self):
        with pytest.raises(ValueError, match=r"d_vocab must be the number.*got -1"):
            HookedTransformer({**SMALL, "d_vocab": -1})

    def test_of_its_methods_is_said(self, unchecked_shapes):
        model = HookedTransformer(SMALL)
        calls = {
            "a tokenizer": lambda: model.to_tokens("a text"),
            "instead of a tokenizer": lambda: model("a text"),
            "generation": lambda: model.generate(tokens()),
            "process_weights_": lambda: model.fold_layer_norm({}),
            "stop_at_layer=0": lambda: model.input_to_embed(tokens()),
            "from_pretrained": lambda: HookedTransformer.from_pretrained("gpt2"),
            "past_kv_cache": lambda: model(tokens(n_pos=3) % 10, past_kv_cache=3),
            "tokenizer must be None": lambda: HookedTransformer(SMALL, tokenizer="gpt2"),
        }
        for words, call in calls.items():
            with pytest.raises(ValueError, match=rf"{words}.*transformer-lens<4"):
                call()
        with pytest.raises(ValueError, match=r"return_type.*both, got 'all'"):
            model(tokens(n_pos=3) % 10, return_type="all")
        with pytest.raises(ValueError, match=r"tokens.*given.*start_at_layer"):
            model(torch.zeros(1, 3, 8), start_at_layer=0, return_type="loss")
        with pytest.raises(ValueError, match=r"attention_mask.*\[4, 3\], got \[4, 2\]"):
            model(tokens(n_pos=3) % 10, attention_mask=torch.ones(4, 2, dtype=torch.int64))

    def test_hooks_behind_a_switch_are_refused_while_it_is_off(self):
        model = HookedTransformer(SMALL)
        switches = {
            "attn.hook_result": model.set_use_attn_result,
            "hook_q_input": model.set_use_split_qkv_input,
            "hook_mlp_in": model.set_use_hook_mlp_in,
            "hook_attn_in": model.set_use_attn_in,
        }
        for name, switch in switches.items():
            with pytest.raises(AssertionError, match="Cannot add hook blocks.0"):
                model.add_hook(f"blocks.0.{name}", lambda value, hook: None)
            switch(True)
            model.add_hook(f"blocks.0.{name}", lambda value, hook: None)
            switch(False)


@pytest.fixture(params=["theirs", "ours"] if LINE == 3 else ["ours"])
def model(request):
    """A model as `build_model` makes it, of TransformerLens' class where it has one, and of ours."""
    made = build_model(ModelConfig(n_heads=2, d_vocab=110, gamma=0.5), seed=0).eval()
    if request.param == "theirs":
        return made
    ours = HookedTransformer(HookedTransformerConfig.from_dict(dict(made.cfg.to_dict())))
    ours.load_state_dict(made.state_dict())
    return ours.eval()


class TestToolsOfTransformerLens:
    """Each tool works on our model; on 3.9 on theirs too, so that the test says something."""

    def test_patching(self, model):
        clean, corrupted = (AnchorTask().sample(8, seed=seed).tokens for seed in (0, 1))

        def metric(logits):
            return logits[:, -1, 30].mean()

        logits, cache = model.run_with_cache(clean)
        for patch in (
            "resid_pre",
            "attn_out",
            "mlp_out",
            "attn_head_out_by_pos",
            "attn_head_pattern_all_pos",
        ):
            effects = getattr(patching, f"get_act_patch_{patch}")(model, corrupted, cache, metric)
            assert effects.shape[0] == 2 and effects.isfinite().all()
        everything = model.run_with_hooks(
            corrupted, fwd_hooks=[("blocks.0.hook_resid_pre", lambda value, hook: cache[hook.name])]
        )
        assert torch.equal(everything, logits)

    def test_activation_cache(self, model):
        tokens = AnchorTask().sample(4).tokens
        logits, cache = model.run_with_cache(tokens)
        parts, labels = cache.decompose_resid(return_labels=True)
        assert labels == ["embed", "pos_embed", "0_attn_out", "0_mlp_out", "1_attn_out", "1_mlp_out"]
        final = cache["blocks.1.hook_resid_post"]
        assert torch.allclose(parts.sum(0), final, atol=1e-5)
        heads = cache.stack_head_results(layer=2)  # [head, batch, pos, d_model]
        attn = sum(cache[f"blocks.{i}.hook_attn_out"] for i in (0, 1)) - model.accumulated_bias(
            2, False, False
        )
        assert torch.allclose(heads.sum(0), attn, atol=1e-5)
        answer = tokens[:, 0]
        shares = cache.logit_attrs(parts[:, :, -1], answer, pos_slice=-1)  # [part, batch]
        centred = final - final.mean(-1, keepdim=True)
        direct = (centred / cache["ln_final.hook_scale"])[:, -1] * model.W_U[:, answer].T
        assert torch.allclose(shares.sum(0), direct.sum(-1), atol=1e-4)
        residuals = cache.accumulated_resid(apply_ln=True)
        assert torch.allclose(residuals[-1] @ model.W_U + model.b_U, logits, atol=1e-4)
        neurons = cache.get_full_resid_decomposition(expand_neurons=False)
        assert torch.allclose(neurons.sum(0), final, atol=1e-4)

    def test_copies_and_pickles(self, model):
        tokens = AnchorTask().sample(4).tokens
        for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(again(tokens), model(tokens))

    def test_moving_says_so_in_the_configuration(self, model):
        tokens = AnchorTask().sample(4).tokens
        model.to(torch.float64, print_details=False)
        assert model(tokens).dtype == model.cfg.dtype == torch.float64
        assert model.to("cpu:0", print_details=False).cfg.device == "cpu:0"
        assert model.to(torch.device("cpu"), print_details=False).cfg.device == "cpu"

    def test_a_state_dict_of_an_older_version(self, model):
        """It holds the whole mask."""
        weights = model.state_dict() | {"blocks.0.attn.mask": torch.ones(9, 9, dtype=torch.bool)}
        model.load_state_dict(weights)
        assert model.blocks[0].attn.mask.shape == (0, 0)


@only_on_4
class TestToolsOfTransformerLens4:
    def test_it_is_the_models_own_class(self):
        assert library.HookedTransformer is HookedTransformer
        assert type(build_model(ModelConfig())) is HookedTransformer

    def test_protocols(self):
        from transformer_lens import model_protocol

        model = build_model(ModelConfig())
        for name in (
            "TransformerLensModel",
            "TrainableTransformerLensModel",
            "TransformerLensModelWithWeights",
        ):
            assert isinstance(model, getattr(model_protocol, name))

    def test_interchange(self, model):
        from transformer_lens.tools.analysis import (
            SubspaceInterchange,
            collect_activations,
            run_with_intervention,
        )

        (clean, other), last = (
            (AnchorTask().sample(8, seed=seed).tokens for seed in (0, 1)),
            torch.full((8,), 8),
        )
        hook = "blocks.1.hook_resid_post"
        found = collect_activations(model, hook, other, lambda x: model(x)[:, -1], positions=last)
        assert torch.allclose(found, model.run_with_cache(other)[1][hook][:, -1])
        whole = SubspaceInterchange(torch.eye(model.cfg.d_model))
        logits = run_with_intervention(
            model, hook, whole, clean, found, lambda x: model(x)[:, -1], positions=last
        )
        assert torch.allclose(logits, model(other)[:, -1], atol=1e-4)

    def test_attribution_patching(self, model):
        """Of nodes; that of edges asks for hook names of a TransformerBridge."""
        from transformer_lens.tools.analysis import attribution_patch

        clean, corrupted = (AnchorTask().sample(4, seed=seed).tokens for seed in (0, 1))
        found = attribution_patch(model, clean, corrupted, lambda logits: logits[0, -1, 30])
        assert len(found.node_scores) >= 6

    def test_logit_lens(self, model):
        from transformer_lens.tools.analysis import logit_lens

        tokens = AnchorTask().sample(4).tokens
        found = logit_lens(model, tokens)
        assert torch.allclose(found.values[-1], model(tokens)[:, -1], atol=1e-5)

    def test_patching_in_training_mode_names_the_remedy(self, model):
        tokens = AnchorTask().sample(4).tokens
        _, cache = model.run_with_cache(tokens)
        with pytest.raises(Exception, match=r"model\.eval\(\)"):
            patching.get_act_patch_resid_pre(model.train(), tokens, cache, lambda logits: logits.mean())

    def test_direct_logit_attribution(self, model):
        from transformer_lens.tools.analysis import direct_logit_attribution

        tokens = AnchorTask().sample(4).tokens
        found = direct_logit_attribution(model, tokens, answer_tokens=torch.full((4,), 30))
        assert found.labels[:2] == ["embed", "pos_embed"]


def test_transformer_is_what_the_library_lacks():
    assert {*library.__all__} == {*transformer_lens_4.__all__}

"""A state dict of any HookedTransformer is measured as the model in memory."""

import dataclasses
import json
import warnings

import pytest
import torch
from foreign_checkpoints import TINY, WHOLE, write_bare
from known_models import only_on_3, user_built

from anchorlens import AnchorTask, CheckpointError, classify, evaluate, open_checkpoint, probes
from anchorlens.files.model_input import resolve
from anchorlens.models.gamma import initial_weights
from anchorlens.probes.shared.contract import given_for

SMALL = {"n_layers": 2, "d_model": 16, "d_head": 8, "d_mlp": 32, "n_ctx": 9, "d_vocab": 110}
KINDS = {
    "rotary": {"positional_embedding_type": "rotary"},
    "shortformer": {"positional_embedding_type": "shortformer"},
    "no norms": {"normalization_type": None, "act_fn": "silu"},
    "parallel": {"parallel_attn_mlp": True},
}
TOKENS = AnchorTask().sample(64).tokens


def written(folder, model, **more):
    """Its state dict, and its configuration with the task, as docs/your_own_checkpoint.md says."""
    torch.save(model.state_dict(), folder / "w.pt")
    with (folder / "c.json").open("w") as file:
        json.dump({**model.cfg.to_dict(), "task": {"seq_len": 9}, **more}, file, default=str)
    return folder / "w.pt", folder / "c.json"


@pytest.mark.filterwarnings("ignore:.*not used:UserWarning")
@pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
def test_from_its_file_as_in_memory(tmp_path, fields):
    model = user_built(**SMALL | fields)
    path, config = written(tmp_path, model)
    assert torch.equal(resolve(path, config=config).model(TOKENS), model(TOKENS))
    found = evaluate(path, config=config, n_noise=2)
    assert found.measures == evaluate(model, AnchorTask(), n_noise=2).measures
    verdict = classify(path, config=config, even_underfit=False)
    assert verdict.phase == classify(model, AnchorTask(), even_underfit=False).phase
    assert verdict.subject.path == str(path) and len(verdict.subject.sha256) == 64
    assert not any("not used" in warning for warning in verdict.warnings)
    given = resolve(path, config=config)
    assert probes.stable_rank(given).to_dict() == probes.stable_rank(model).to_dict()
    first, second = probes.v_similarity(given), probes.v_similarity(model, AnchorTask())
    assert first.to_dict() == second.to_dict()
    with pytest.raises(
        CheckpointError,
        match=r"must be a Checkpoint.*another model",
    ):
        open_checkpoint(path, config=config)


@pytest.mark.filterwarnings("ignore:.*not used:UserWarning")
@pytest.mark.parametrize("fields", [{}, {"d_vocab_out": 112}, {"d_vocab_out": 59}])
def test_without_norms_it_is_a_checkpoint_of_the_plain_variant(tmp_path, fields):
    model = user_built(**SMALL | {"normalization_type": None, "act_fn": "relu"} | fields)
    path, config = written(tmp_path, model)
    if fields.get("d_vocab_out") == 59:
        with pytest.raises(CheckpointError, match=r"d_vocab_out.*at least 110.*got 59"):
            resolve(path, config=config)
        config = model.cfg  # without the task
    given = resolve(path, config=config)
    assert torch.equal(given.model(TOKENS), model(TOKENS))
    if fields.get("d_vocab_out") == 59:
        assert given.task is None
        return
    assert given.checkpoint is not None and not any("variant" in note for note in given.notes)
    config_of_it = given.checkpoint.model_config
    assert (config_of_it.variant, config_of_it.activation) == ("plain", "relu")
    assert config_of_it.d_vocab_out == fields.get("d_vocab_out")
    expected = evaluate(model, AnchorTask(), n_noise=2).measures
    assert evaluate(path, config=tmp_path / "c.json", n_noise=2).measures == expected


def test_weights_with_norms_are_not_of_the_plain_variant(tmp_path):
    torch.save(initial_weights(TINY, 0), tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="every weight must be.*got 'blocks.0.ln1.w'"):
        resolve(tmp_path / "w.pt", config={"model": {"variant": "plain", "act_fn": "relu"}})


def test_the_table_task_alone_suffices_for_the_norms_of_gpt2(tmp_path):
    torch.save(initial_weights(TINY, 0), tmp_path / "w.pt")
    whole = resolve(tmp_path / "w.pt", config={"model": {"variant": "gpt2", "act_fn": "gelu"}})
    opened = resolve(tmp_path / "w.pt", config={"task": {"seq_len": 9}})
    assert torch.equal(opened.model(TOKENS), whole.model(TOKENS))
    assert "variant gpt2 with act_fn gelu is assumed" in opened.notes[0]
    for name, model in {
        "postnorm": initial_weights(dataclasses.replace(TINY, variant="postnorm"), 0),
        "no_norms": user_built(**SMALL | {"normalization_type": None}).state_dict(),
    }.items():
        torch.save(model, tmp_path / f"{name}.pt")
        with pytest.raises(CheckpointError, match="must come with its whole configuration"):
            resolve(tmp_path / f"{name}.pt", config={"task": {"seq_len": 9}})


def test_a_model_without_norms_and_our_tables(tmp_path):
    """Names and shapes do not decide whether norms were folded or never there: the variant does."""
    model = user_built(**SMALL | {"normalization_type": None, "act_fn": "relu"})
    torch.save(model.state_dict(), tmp_path / "w.pt")
    (tmp_path / "c.toml").write_text("[model]\nact_fn = 'relu'\nvariant = 'plain'\n[task]\nseq_len = 9")
    plain = resolve(tmp_path / "w.pt", config=tmp_path / "c.toml")
    assert torch.equal(plain.model(TOKENS), model(TOKENS)) and not plain.notes
    folded = resolve(tmp_path / "w.pt", config={"model": {"variant": "gpt2", "act_fn": "relu"}})
    assert folded.model.cfg.normalization_type == "LN"
    assert any("assumed to be folded into other weights" in note for note in folded.notes)


@only_on_3
@pytest.mark.filterwarnings("ignore:.*not used:UserWarning")
@pytest.mark.parametrize("fields", [{}, {"positional_embedding_type": "rotary"}], ids=["ours", "rotary"])
def test_weights_folded_after_their_configuration_are_read_alike_by_all(tmp_path, fields):
    model = user_built(**SMALL | {"act_fn": "gelu", "normalization_type": "LN"} | fields)
    with torch.no_grad():
        for block in model.blocks:
            block.ln1.w += 0.3
    _, config = written(tmp_path, model)
    expected = model(TOKENS).log_softmax(-1)
    model.process_weights_()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    given = resolve(tmp_path / "w.pt", config=config)
    assert torch.allclose(given.model(TOKENS).log_softmax(-1), expected, atol=1e-4)
    assert any("they are assumed to be folded" in note for note in given.notes)
    assert probes.stable_rank(given).to_dict() == probes.stable_rank(model).to_dict()


@pytest.mark.filterwarnings("ignore:.*not used:UserWarning")
@pytest.mark.parametrize("fields", [{"normalization_type": "LN"}, KINDS["rotary"]], ids=["ours", "rotary"])
def test_without_a_task_the_papers_is_taken_aloud_and_only_where_one_is_needed(tmp_path, fields):
    model = user_built(**SMALL | {"act_fn": "gelu"} | fields)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    given = {"config": model.cfg}
    with pytest.warns(UserWarning, match="no task was named"):
        assert evaluate(tmp_path / "w.pt", **given, n_noise=2).options["task"] == AnchorTask().describe()
    assert any("the papers' own" in w for w in classify(tmp_path / "w.pt", **given).warnings)
    of_weights = given_for(probes.embedding_pca, tmp_path / "w.pt", **given)
    assert of_weights.task is None and not any("the papers' own" in note for note in of_weights.notes)
    assert probes.embedding_pca(of_weights).to_dict() == probes.embedding_pca(model).to_dict()


def test_a_model_that_is_too_small_for_the_papers_task_is_measured_where_no_task_is_needed(tmp_path):
    model = user_built(**SMALL | {"n_ctx": 3, "d_vocab": 114, "act_fn": "relu", "normalization_type": "LN"})
    torch.save(model.state_dict(), tmp_path / "w.pt")
    given = resolve(tmp_path / "w.pt", config=model.cfg)
    assert given.task is None and probes.stable_rank(given).to_dict() == probes.stable_rank(model).to_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="the task of w.pt must be given"):
            evaluate(given)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (
            lambda weights: {"embed.W_E": weights["embed.W_E"].T.contiguous()},
            "every weight must be a weight of .* with the transposed shape",
        ),
        (
            lambda weights: {"x_embed": weights["embed.W_E"]},
            "every weight must be a weight of a HookedTransformer, got 'x_embed'",
        ),
    ],
)
@pytest.mark.parametrize("config", [None, {"model": "Transformer", "lr": 0.001}], ids=["alone", "theirs"])
def test_names_alone_make_no_hookedtransformer(tmp_path, change, cause, config):
    """As in the public files of several papers on grokking, with or without their configuration."""
    weights = initial_weights(TINY, 0)
    torch.save(weights | change(weights), tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=rf"{cause}.*evaluate\(model, task\)"):
        resolve(tmp_path / "w.pt", config=config)


def test_sizes_that_weights_do_not_fix_are_bounded(tmp_path):
    model = user_built(**SMALL | KINDS["rotary"])
    path, config = written(tmp_path, model, n_ctx=10**9)
    with pytest.raises(CheckpointError, match=r"n_ctx.*<= 16777216, got 1000000000"):
        resolve(path, config=config)


def test_a_task_of_the_caller_and_one_of_the_file(tmp_path):
    path, config = written(tmp_path, user_built(**SMALL | KINDS["no norms"]))
    with pytest.raises(ValueError, match="task must be the task of config or None"):
        resolve(path, AnchorTask(key_max=80), config=config)
    bare = write_bare(tmp_path, config=json.dumps({**WHOLE, "act_fn": "silu"}))
    assert resolve(bare.path, AnchorTask(key_max=80), config=bare.config).task.key_max == 80


def test_a_note_of_many_fields_is_short_and_safe_to_print(tmp_path):
    fields = WHOLE | {f"x\x1b[31m{k}": 1 for k in range(5000)}
    torch.save(initial_weights(TINY, 0), tmp_path / "w.pt")
    [note] = [note for note in resolve(tmp_path / "w.pt", config=fields).notes if "not used: x" in note]
    assert len(note) < 2000 and note.isprintable()

"""A checkpoint of the weights of other software: tensors taken by name, fields not used, one precision."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anchorlens.extras.importers.vocabulary import in_order_of
from anchorlens.files import BLOBS, PAPERS_TASK, Checkpoint, LoadedModel, Settings, check_whole
from anchorlens.models import ModelConfig, empty_transformer, is_frozen, model_with
from anchorlens.safe import CheckpointError, check_inside, reading
from anchorlens.tasks import AnchorTask, Task, check_memory
from anchorlens.texts import safe_repr, safe_text

if TYPE_CHECKING:
    from anchorlens.models import HookedTransformer

_MOST_NAMED = 1000
"""The largest number of characters of the fields in a note."""
BUFFERS = (".attn.mask", ".attn.IGNORE", ".attn.rotary_sin", ".attn.rotary_cos")
"""The ends of the names of a HookedTransformer's tensors that are not parameters."""
WAYS = (
    "--model FILE.py:build with --train-data DATA on the command line, or with the model in Python "
    "classify(model, training_set=(x, y)), evaluate(model, task) or hooked_from(module, names=...)"
)
"""The ways to measure a model whose weights have names of their own."""
_NOT_ARCHITECTURE = (
    *("model_name", "tokenizer_name", "tokenizer_prepends_bos", "trust_remote_code", "default_prepend_bos"),
    *("from_checkpoint", "checkpoint_index", "checkpoint_label_type", "checkpoint_value", "n_params"),
    *("init_weights", "init_mode", "initializer_range", "seed", "device", "n_devices", "dtype"),
    *("load_in_4bit", "quantization_method", "_name_or_path", "architectures", "transformers_version"),
    *("attn_pdrop", "embd_pdrop", "resid_pdrop", "summary_first_dropout", "dropout", "torch_dtype"),
    *("bos_token_id", "eos_token_id", "id2label", "label2id", "use_cache", "return_dict"),
    *("chunk_size_feed_forward", "is_encoder_decoder", "output_attentions", "output_hidden_states"),
    *("summary_proj_to_labels", "summary_type", "summary_use_proj"),
)
"""The fields of a HookedTransformerConfig or config.json that do not affect what the model computes."""


def taken(tensors: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Return the tensors of these names and shapes, which must be all except buffers.

    Raises:
        ValueError: If a tensor is missing, has another shape or does not hold floats, or another is no
            buffer.
    """
    for name, shape in shapes.items():
        if name not in tensors:
            raise ValueError(f"{name} is missing")
        tensor = tensors[name]
        if list(tensor.shape) != [*shape]:
            raise ValueError(f"{name} must have shape {[*shape]}, got {list(tensor.shape)}. Correct it")
        if not tensor.dtype.is_floating_point:
            raise ValueError(
                f"{name} must hold floating point numbers, got {tensor.dtype}. Save the tensor as floats"
            )
    check_known(name for name in tensors if name not in shapes)
    return {name: tensors[name] for name in shapes}


def check_known(others: Iterable[str], buffers: tuple[str, ...] = BUFFERS) -> None:
    """Check that the names of tensors that are no parameters are those of buffers, by their ends.

    Raises:
        ValueError: If a name is that of another tensor.
    """
    if unknown := [name for name in others if not name.endswith(buffers)]:
        raise ValueError(
            "every weight must be a parameter of an architecture that anchorlens can read, got "
            f"{safe_repr(unknown[0])}. Correct the configuration, or give the class: {WAYS}"
        )


def shape_of(tensors: Mapping[str, Tensor], name: str, n_dims: int) -> torch.Size:
    """Return the shape of a tensor with this number of dimensions.

    Raises:
        ValueError: If the tensor is missing, or has another number of dimensions.
    """
    if name not in tensors or tensors[name].ndim != n_dims:
        raise ValueError(
            f"the weights must contain {name} with {n_dims} dimensions, got "
            f"{tensors[name].ndim if name in tensors else 'no tensor of this name'}. Use other weights"
        )
    return tensors[name].shape


def check_sizes(fields: Mapping[str, Any], sizes: Mapping[str, Any], where: str) -> None:
    """Check that fields which are given are the sizes of the weights.

    Raises:
        ValueError: If a field has another size.
    """
    for name, size in sizes.items():
        if fields.get(name) not in (None, size):
            raise ValueError(
                f"{name} must be {size} as in the weights, got {safe_repr(fields[name])} in {where}. Correct "
                f"or omit {name}"
            )


def config_beside(file: Path, *folders: Path) -> Settings:
    """Read the config.json that belongs to a weights file.

    Raises:
        CheckpointError: If config.json is missing or unreadable, or a link leads out of the model's
            folder.
    """
    for folder in folders:
        with reading(folder):
            check_inside(folder, folder / "config.json", BLOBS)
        if (folder / "config.json").is_file():
            return Settings.read(folder / "config.json")
    raise CheckpointError(
        file, f"the folder {folders[0]} must hold config.json, got none. Put config.json of this run there"
    )


def not_used(config: Settings, used: Iterable[str]) -> list[str]:
    """Return a list with a note on the fields that have a value, may matter and are not used, if any."""
    given = {name for name, value in config.values.items() if value is not None}
    left = sorted(given - {*used, *_NOT_ARCHITECTURE})
    return [f"{config.path}: not used: {safe_text(', '.join(left), _MOST_NAMED)}"] if left else []


def broken_rule(values: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]]) -> str | None:
    """Return the rule for the first field whose value is not allowed, and this value, or None.

    Args:
        values: the fields.
        allowed: a map from each field to its allowed values. The first one counts for a missing field.
    """
    for name, choices in allowed.items():
        if (value := values.get(name, choices[0])) not in choices:
            return f"{name} must be {' or '.join(map(repr, choices))}, got {safe_repr(value)}"
    return None


def in_one_precision(weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Convert the weights to float64 if a weight is float64, else to float32, and note any conversion."""
    dtypes = {weight.dtype for weight in weights.values()}
    dtype = torch.float64 if torch.float64 in dtypes else torch.float32
    names = ", ".join(sorted(str(one).removeprefix("torch.") for one in dtypes))
    note = f"its weights are {names}: they are read as {str(dtype).removeprefix('torch.')}"
    cast = {name: weight.to(dtype).contiguous() for name, weight in weights.items()}
    return cast, [note] if dtypes - {dtype} else []


def papers_task(d_vocab: int, n_ctx: int) -> tuple[AnchorTask | None, list[str]]:
    """Return the papers' task with a note, or None for a model that cannot read this task."""
    task = AnchorTask()
    return (task, [PAPERS_TASK]) if task.d_vocab <= d_vocab and task.seq_len <= n_ctx else (None, [])


def imported(
    kind: str,
    config: ModelConfig,
    task: Task | None,
    weights: Mapping[str, Tensor],
    *,
    vocabulary: Mapping[str, Any] | None = None,
    notes: Iterable[str] = (),
    **fields: Any,
) -> LoadedModel:
    """Make a checkpoint of imported weights, in float32 or float64, with notes for the user.

    Without a task, anchorlens assumes the papers' task if the model can read this task, and otherwise returns
    only the model. A vocabulary maps words of the task to tokens of the model. With a vocabulary, the
    function renumbers the model's tokens.

    Raises:
        ValueError: If the weights do not fit the configuration, or the model is too small for the task.
    """
    given = list(weights.values())
    weights, cast = in_one_precision(weights)
    notes = (*notes, *cast)
    for name, weight in weights.items():
        if is_frozen(config, name) and weight.count_nonzero():
            raise ValueError(
                f"{name} must be zero for the variant {config.variant}, which lacks this bias, got other "
                "values. Use another variant"
            )
    if task is None:
        task, noted = papers_task(min(config.d_vocab, config.n_answers), config.n_ctx)
        if task is None and vocabulary is None:
            check_memory(config, AnchorTask(), 0, given)
            model = model_with(config, weights).eval()
            return LoadedModel(notes=notes, in_memory=model, kind=kind, why="it has no task")
        task, notes = task or AnchorTask(), (*notes, *noted)
    if vocabulary is not None:
        weights, spelled = in_order_of(task, weights, vocabulary)
        notes = (*notes, *spelled)
        config = dataclasses.replace(config, d_vocab=len(weights["embed.W_E"]))
    checkpoint = Checkpoint(config, task, weights, **fields)
    check_whole(checkpoint)
    train = checkpoint.train_config
    check_memory(config, task, train.n_samples if train else 0, given)
    return LoadedModel(checkpoint, task, notes, kind=kind)


def architecture_fields() -> set[str]:
    """Return the names of the fields of a HookedTransformerConfig that affect what the model computes."""
    from anchorlens.models import HookedTransformerConfig

    return {field.name for field in dataclasses.fields(HookedTransformerConfig)} - {*_NOT_ARCHITECTURE}


def model_of(cfg: Mapping[str, Any], weights: Mapping[str, Tensor]) -> HookedTransformer:
    """Build the HookedTransformer of any architecture that a HookedTransformerConfig describes.

    The function does not load a file or set a seed. The function ignores fields for the origin,
    initialisation, device and tokenizer of the model.

    Args:
        cfg: the fields of a HookedTransformerConfig. The function ignores unknown fields.
        weights: the state dict of the model, in any precision.

    Returns:
        The model on the CPU in evaluation mode, in float64 if a weight is float64, else in float32.

    Raises:
        ValueError: If the weights do not fit the fields, or the fields contradict each other.
        TypeError: If a field is missing or has the wrong type. Some wrong fields raise a KeyError or another
            error instead.
    """
    known = architecture_fields()
    fields = {name: value for name, value in cfg.items() if name in known}
    try:
        with torch.device("meta"):  # takes no memory, whatever the fields say
            shapes = {name: tuple(p.shape) for name, p in empty_transformer(**fields).named_parameters()}
    except AssertionError as error:
        raise ValueError(
            f"the configuration must be a valid HookedTransformerConfig, got an error: {error}. Correct it"
        ) from None
    values, _ = in_one_precision(taken(weights, shapes))
    model = empty_transformer(**fields, dtype=next(iter(values.values())).dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(values[name])
    return model

"""Tiny checkpoints of every kind that can be read, written without a library of theirs."""

import argparse
import collections
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import safetensors.torch
import torch

from anchorlens.files.checkpoint import Checkpoint, save_checkpoint
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import initial_weights
from anchorlens.tasks.two_anchor.task import AnchorTask

TINY = ModelConfig(n_layers=1, n_heads=2, d_model=8, d_head=4, d_mlp=12, d_vocab=110, gamma=0.5)


@dataclass(frozen=True)
class Written:
    """A checkpoint on the disk."""

    path: Path
    """What to open."""
    files: tuple[Path, ...]
    """The files it consists of, the weights first."""
    config: Path | None = None
    """The configuration to give along."""


OURS = "[model]\nvariant = 'gpt2'\nact_fn = 'gelu'\ngamma = 0.5\n"
"""The table of a configuration that describes `TINY`."""
WHOLE = {
    **{"act_fn": "gelu", "normalization_type": "LN", "positional_embedding_type": "standard", "eps": 1e-5},
    **{"attention_dir": "causal", "use_attn_scale": True, "use_local_attn": False},
    **{"parallel_attn_mlp": False, "scale_attn_by_inverse_layer_idx": False},
}
"""The fields of the HookedTransformerConfig of `TINY` that its weights do not determine."""


def write_own(folder, suffix=".pt", checkpoint=None):
    path = folder / f"ckpt{suffix}"
    save_checkpoint(path, checkpoint or Checkpoint(TINY, AnchorTask(), initial_weights(TINY, 0)))
    return Written(path, (path,))


def write_bare(folder, suffix=".pt", config=f"{OURS}[task]\nregime = 'conflict'\n", weights=None, **model):
    """A HookedTransformer's state dict and a TOML file with our tables."""
    path, config_path = folder / f"bare{suffix}", folder / "bare.toml"
    weights = weights or initial_weights(ModelConfig(**{**TINY.to_dict(), **model}), 0)
    if suffix == ".pt":
        torch.save(weights, path)
    else:
        safetensors.torch.save_file(weights, path)
    config_path.write_text(config)
    return Written(path, (path, config_path), config_path)


RECORDS = {
    "args": argparse.Namespace(lr=1e-3, betas=(0.9, 0.98), out=PurePosixPath("out")),
    "device": torch.device("cpu"),
    "loss": np.float64(0.5),
    "losses": np.arange(6.0).reshape(2, 3),
    "counts": collections.Counter("aab"),
    "pairs": collections.defaultdict(list, {(3, 4): [{1, 2}, frozenset({3})]}),
}
"""Objects that are read as plain data."""


def write_records(folder, protocol=2):
    """A HookedTransformer's state dict, and beside it what people save."""
    written = write_bare(folder)
    content = {"model": torch.load(written.path), **RECORDS}
    torch.save(content, written.path, pickle_protocol=protocol)
    return written


def _random(shapes):
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def write_released(folder, step=700, **changes):
    """A run folder in the layout of the papers' released code: two heads of 4, width 8."""
    config = {
        "data_size": 1000,
        "seq_len": 9,
        "data_min": 20,
        "data_max": 100,
        "batch_size": 10,
        "seed": 4,
        "target": "composition",
        "model": "GPT2_init_for_diff_part_prenorm",
        "vocab_size": 110,
        "max_pos": 20,
        "d_model": 8,
        "d_feedforward": 12,
        "d_k": 4,
        "d_v": 4,
        "n_layers": 1,
        "n_heads": 2,
        "lr": 0.001,
        "weight_decay": 0.01,
        "embedding_std": 0.5,
        "qk_std": 0.5,
        "vo_std": 0.6,
        "mlp_std": 0.5,
    } | changes
    attention, mlp = "decoder.layers.0.dec_self_attn", "decoder.layers.0.pos_ffn"
    shapes = {"embedding.tgt_emb.weight": (110, 8), "embedding.pos_emb.weight": (20, 8)}
    shapes |= {f"{attention}.W_{x}.weight": (8, 8) for x in "QKV"}
    shapes |= {f"{attention}.W_{x}.bias": (8,) for x in "QKV"}
    shapes |= {f"{attention}.fc.weight": (8, 8), f"{attention}.fc.bias": (8,)}
    shapes |= {f"{mlp}.fc.0.weight": (12, 8), f"{mlp}.fc.0.bias": (12,)}
    shapes |= {f"{mlp}.fc.2.weight": (8, 12), f"{mlp}.fc.2.bias": (8,)}
    shapes |= {
        f"{m}layernorm.{x}": (8,) for m in (f"{attention}.", f"{mlp}.", "") for x in ("weight", "bias")
    }
    shapes |= {"projection.weight": (110, 8), "projection.bias": (110,)}
    (folder / "model").mkdir(parents=True, exist_ok=True)
    path = folder / f"model/model_{step}.pt"
    torch.save(_random(shapes), path)
    (folder / "config.json").write_text(json.dumps(config))
    return Written(folder, (path, folder / "config.json"))


def write_hugging_face(folder, file="model.safetensors", prefix="transformer.", tensors=None, **changes):
    """A folder of a GPT-2 with two heads of 4, width 8, embeddings tied."""
    config = {
        "model_type": "gpt2",
        "n_embd": 8,
        "n_layer": 1,
        "n_head": 2,
        "n_positions": 16,
        "vocab_size": 110,
        "n_inner": 12,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    } | changes
    shapes = {"wte.weight": (110, 8), "wpe.weight": (16, 8)}
    shapes |= {"h.0.attn.c_attn.weight": (8, 24), "h.0.attn.c_attn.bias": (24,)}
    shapes |= {"h.0.attn.c_proj.weight": (8, 8), "h.0.attn.c_proj.bias": (8,)}
    shapes |= {"h.0.mlp.c_fc.weight": (8, 12), "h.0.mlp.c_fc.bias": (12,)}
    shapes |= {"h.0.mlp.c_proj.weight": (12, 8), "h.0.mlp.c_proj.bias": (8,)}
    shapes |= {f"{norm}.{x}": (8,) for norm in ("h.0.ln_1", "h.0.ln_2", "ln_f") for x in ("weight", "bias")}
    weights = {f"{prefix}{name}": tensor for name, tensor in _random(shapes).items()} | (tensors or {})
    folder.mkdir(parents=True, exist_ok=True)
    if file.endswith(".safetensors"):
        safetensors.torch.save_file(weights, folder / file)
    else:
        torch.save(weights, folder / file)
    (folder / "config.json").write_text(json.dumps(config))
    return Written(folder, (folder / file, folder / "config.json"))


def write_nano(folder):
    """A nanoGPT with two heads of 4, width 8, without biases."""
    shapes = {"wte.weight": (110, 8), "wpe.weight": (16, 8), "ln_f.weight": (8,)}
    shapes |= {"h.0.ln_1.weight": (8,), "h.0.attn.c_attn.weight": (24, 8), "h.0.attn.c_proj.weight": (8, 8)}
    shapes |= {"h.0.ln_2.weight": (8,), "h.0.mlp.c_fc.weight": (32, 8), "h.0.mlp.c_proj.weight": (8, 32)}
    weights = {f"transformer.{name}": tensor for name, tensor in _random(shapes).items()}
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 16, "vocab_size": 110, "bias": False}
    torch.save({"model": weights, "model_args": sizes, "iter_num": 3}, folder / "ckpt.pt")
    return Written(folder / "ckpt.pt", (folder / "ckpt.pt",))


def rewritten_zip(data, change, compression=zipfile.ZIP_STORED):
    """A zip with `change(name, content) -> (name, content)` applied to every entry, its checksums right."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(result, "w", compression) as new:
        for name in old.namelist():
            new.writestr(*change(name, old.read(name)))
    return result.getvalue()

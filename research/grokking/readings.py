"""Writes grokking_files.md beside it: readings of the probe fourier in public files, beside reference values.

    python research/grokking/readings.py ../shared/data/grokking

The folder holds the files of the table in the page, by the names there. A run takes seconds.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
import torch
from torch import Tensor

from anchorlens.extras.grokking.fourier import fourier
from anchorlens.extras.grokking.task import ModularTask
from anchorlens.models.hooks import last_logits
from anchorlens.models.library import HookedTransformer, HookedTransformerConfig
from anchorlens.safe.tensors import read_tensors

TEMPLATE = Path(__file__).with_name("grokking_files.md.jinja")
PAGE = Path(__file__).with_name("grokking_files.md")
PIZZA_RATE = 0.004066910851478034
"""Part of the attention of the pizza that is a softmax (`attn_coeff`); the rest is a constant 1."""


class Run(NamedTuple):
    """A public file, how it is read, and what others have measured of it."""

    file: str
    sha256: str
    source: str
    read: Callable[[Mapping[str, Tensor]], HookedTransformer]
    task: ModularTask
    reference: Mapping[str, str]


def hooked(weights: Mapping[str, Tensor], **more: Any) -> HookedTransformer:
    """The HookedTransformer of weights that are transposed, of one layer without LayerNorm."""
    n_heads, d_head, d_model = weights["blocks.0.attn.W_Q"].shape
    n_ctx, d_vocab = len(weights["pos_embed.W_pos"]), weights["unembed.W_U"].shape[1]
    sizes = {"n_layers": 1, "n_heads": n_heads, "d_head": d_head, "d_model": d_model, "n_ctx": n_ctx}
    sizes |= {"d_mlp": len(weights["blocks.0.mlp.b_in"]), "d_vocab": d_vocab, "d_vocab_out": d_vocab}
    config = HookedTransformerConfig(
        **sizes, act_fn="relu", normalization_type=None, device="cpu", init_weights=False, **more
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        model = HookedTransformer(config).eval()
    state = {name: torch.zeros_like(weight) for name, weight in model.state_dict().items() if ".b_" in name}
    for name, weight in weights.items():
        if name.endswith(("W_K", "W_Q", "W_V")):
            state[name] = weight.mT
        elif name.endswith("W_O"):
            state[name] = weight.T.reshape(n_heads, d_head, d_model)
        elif name.endswith(("W_E", "W_in", "W_out")):
            state[name] = weight.T
        elif not name.endswith("mask"):
            state[name] = weight
    model.load_state_dict(state, strict=False)
    return model


def pizza(weights: Mapping[str, Tensor]) -> HookedTransformer:
    """A run whose attention is nearly the constant 1, and whose second number has an embedding of its own."""
    model = hooked(weights, attention_dir="bidirectional")
    p = model.cfg.d_vocab // 2
    first, second = model.W_E[:p], model.W_E[p:]

    def of_its_own(tensor: Tensor, *, hook: object) -> Tensor:
        numbers = (tensor[:, 1, None] == first).all(dim=-1).int().argmax(dim=-1)
        return torch.stack([tensor[:, 0], second[numbers]], dim=1)

    def nearly_constant(tensor: Tensor, *, hook: object) -> Tensor:
        return tensor * PIZZA_RATE + 1 - PIZZA_RATE

    model.add_hook("hook_embed", of_its_own)
    model.add_hook("blocks.0.attn.hook_pattern", nearly_constant)
    return model


BETWEEN = "answer share, centred over pairs only"
FIVE = "proportion of the five largest frequencies"
MEASURES = "mechanistic-interpretability-grokking/progress-measures-paper, saved_runs/"
RUNS = (
    Run(
        "progress_measures/mod_addition_no_wd.pth",
        "1612a43d",
        MEASURES,
        hooked,
        ModularTask(modulus=113),
        {
            "accuracy": "1.0000",
            "explained": "0.958",
            "key frequencies": "36, 52",
            "answer_share": "0.969",
            "embedding_gini": "0.461",
        },
    ),
    Run(
        "progress_measures/low_precision_mod_addition.pth",
        "cfcbcb16",
        MEASURES,
        hooked,
        ModularTask(modulus=113),
        {"accuracy": "0.9995", FIVE: "0.634", "answer_share": "0.906", BETWEEN: "0.906"},
    ),
    Run(
        "pizza/model_18c9ev5v5p.pt",
        "c0c4f9ff",
        "fjzzq2002/pizza, code/save/",
        pizza,
        ModularTask(modulus=59, tokens="a b"),
        {
            "explained": "0.992",
            "distance_irrelevance": "0.174",
            "gradient_symmetry": "0.994 (another pizza model)",
        },
    ),
)


def measured(folder: Path, run: Run) -> dict[str, float | str | None]:
    """Our readings of a file.

    Raises:
        ValueError: the file is another than the one that the reference values are of.
    """
    content = read_tensors(folder / run.file)
    if not content.sha256.startswith(run.sha256):
        got = content.sha256[:8]
        raise ValueError(f"{run.file} must have the SHA-256 {run.sha256}..., got {got}. Download it again.")
    model = run.read(content.values.get("model", content.values))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the model has hooks of yours", UserWarning)
        found = fourier(model, run.task)
    batch = run.task.sequences(run.task.pairs)
    logits = last_logits(model, batch.tokens)
    return {
        "accuracy": (logits.argmax(dim=-1) == batch.targets).double().mean().item(),
        "key frequencies": ", ".join(map(str, sorted(found.key_frequencies))),
        FIVE: float(np.sort(np.asarray(found.shares))[-5:].sum()),
        BETWEEN: between(logits[:, : run.task.modulus].double().numpy(), batch.targets.numpy()),
        **found.numbers(),
    }


def between(logits: np.ndarray, answers: np.ndarray) -> float:
    """The answer share of logits that are centred over pairs only, not over answers."""
    values = logits - logits.mean(axis=0)
    of_class = np.stack([values[answers == answer].mean(axis=0) for answer in np.unique(answers)])
    return float(np.square(of_class[answers]).mean() / np.square(values).mean())


def page(folder: Path) -> str:
    """The text of grokking_files.md."""
    rows, files = [], []
    for run in RUNS:
        found = measured(folder, run)
        files.append(f"| `{run.file.split('/')[-1]}` | {run.source} | `{run.sha256}` |")
        for name, reference in run.reference.items():
            value, name_in_code = found[name], name if " " in name or name == "accuracy" else f"`{name}`"
            digits = len(reference.split()[0].partition(".")[2])
            ours = f"{value:.{digits}f}" if isinstance(value, float) else value
            rows.append(f"| `{run.file.split('/')[-1]}` | {name_in_code} | {reference} | {ours} |")
    return jinja2.Template(TEMPLATE.read_text(encoding="utf-8")).render(files=files, rows=rows)


def main() -> None:
    """Read the command line, measure, write."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    given.out.write_text(page(given.folder) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

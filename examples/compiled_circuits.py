"""Transformers whose circuit is known: RASP programs of the two-anchor task, compiled to weights.

    pip install '.[compiled]'                   # tracr, which needs JAX
    python examples/compiled_circuits.py        # writes tests/data/compiled/*.safetensors again

Each program below is compiled by tracr (Lindner et al., arXiv 2301.05062) to a causal transformer without
LayerNorm, cleared of neurons, heads and directions that reach no answer, and written as the weights of a
HookedTransformer. Reading them back needs neither tracr nor JAX:

    >>> from examples.compiled_circuits import load  # doctest: +SKIP
    >>> circuit = load("composer")  # doctest: +SKIP
    >>> circuit.model, circuit.task  # doctest: +SKIP

Only nonzero weights are stored, by their index in the flattened tensor. The file's metadata holds the
configuration, the task, what the program answers to a pair that is never trained, and the attention edges
that it uses. research/ground_truth/ground_truth.md shows what every probe reads of them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from anchorlens import AnchorTask
from anchorlens.extras.importers.checkpoints import model_of
from anchorlens.tasks.shared.evaluator import check_capacity

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

FOLDER = Path(__file__).parents[1] / "tests/data/compiled"
TASK = AnchorTask(key_min=20, key_max=35)
"""Sixteen keys keep the tables small, and let every probe ask; everything else is the papers' task."""
SHIFTS = dict(TASK.anchors)
KEYS = set(TASK.keys.tolist())
NONE = 0
"""What a table gives where it is not asked."""
LOGIT = 10.0
"""Logit of the answer; all others are 0."""
ROOM = 80
"""Positions that tracr compiles for; it gives a head as many dimensions, and a value needs up to 65."""


class Circuit(NamedTuple):
    """A compiled model, its task, and what is known of it."""

    model: HookedTransformer
    """In evaluation mode, float32."""
    task: AnchorTask
    """What its program answers."""
    about: Mapping[str, Any]
    """`name`, `what` (in words), `edges` (see `Program`), `cfg`, and `unseen`, what it answers to an unseen
    pair: pair -> key -> token."""

    def answers(self, tokens: torch.Tensor) -> torch.Tensor:
        """What the program says to these sequences, whatever the weights do: [batch]."""
        said = []
        for row in tokens.tolist():
            at = next(i for i, token in enumerate(row) if token in self.task.anchors)
            key, pair = row[at - 1], (row[at], row[at + 1])
            unseen = self.about["unseen"].get(f"{pair[0]},{pair[1]}")
            said.append(unseen[str(key)] if unseen else self.task.inferential_target(key, pair))
        return torch.tensor(said, device="cpu")


def names(folder: Path = FOLDER) -> list[str]:
    """Every circuit that is stored."""
    return sorted(path.stem for path in folder.glob("*.safetensors"))


def load(name: str, task: AnchorTask | None = None, folder: Path = FOLDER) -> Circuit:
    """A stored circuit; it needs neither tracr nor JAX.

    Args:
        name: one of `names()`.
        task: what it will be asked; its own where None.
        folder: where it lies.

    Raises:
        ValueError: there is none of that name, or it is of another task.
    """
    path = folder / f"{name}.safetensors"
    if not path.is_file():
        raise ValueError(f"a compiled circuit must be one of {names(folder)}, got {name!r}")
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["circuit"])
        weights = {}
        for key, shape in about["shapes"].items():
            flat = torch.zeros(int(np.prod(shape)), device="cpu")
            flat[file.get_tensor(f"{key}.index").long()] = file.get_tensor(f"{key}.value")
            weights[key] = flat.reshape(shape)
    own = AnchorTask.from_dict(about["task"])
    if task is not None and task != own:
        raise ValueError(
            f"the circuit {name!r} answers the task {_short(own)} and no other, got {_short(task)}; "
            f"take load({name!r}).task"
        )
    model = model_of(about["cfg"], weights)
    check_capacity(model, own)
    return Circuit(model, own, about)


def _short(task: AnchorTask) -> str:
    return f"of keys {task.key_min}..{task.key_max} with anchors {list(task.anchors)}"


# ---------------------------------------------------------------------------------------------------------
# the programs, in RASP


@dataclass(frozen=True)
class Program:
    """A RASP program of the task, and what it is known to do."""

    what: str
    """In words."""
    write: Callable[[Any], tuple[Any, Sequence[str]]]
    """rasp -> the program, and the names of what the unembedding reads."""
    edges: Sequence[tuple[int, str, str]]
    """The attention edges that carry key and anchors: (layer, to, from), of the places key, anchor 1,
    anchor 2, last, where the second anchor is not the last token. Edges that only say where to look are not
    among them."""
    unseen: Callable[[int, tuple[int, int]], int] | None = None
    """(key, pair) -> its answer to a pair that is never trained; None where it composes."""


class Words:
    """What the programs are written with."""

    def __init__(self, rasp: Any) -> None:
        """Give the pieces that all of them share."""
        self.rasp = rasp
        self.before = self.shifted(-1, "before")
        self.first = self.table("first", self.before, rasp.tokens, lambda x, a: x in KEYS and a in SHIFTS)
        self.second = self.table("second", self.before, rasp.tokens, lambda x, a: x in SHIFTS and a in SHIFTS)

    def shifted(self, by: int, name: str) -> Any:
        """The token so many places away."""
        rasp = self.rasp
        select = rasp.Select(rasp.indices, rasp.indices, lambda k, q: k == max(q + by, 0))
        return rasp.Aggregate(select, rasp.tokens).named(name)

    def table(self, name: str, one: Any, other: Any, of: Callable[[Any, Any], Any]) -> Any:
        """A function of two values at the same place; what it gives as a number."""
        return self.rasp.SequenceMap(lambda x, y: int(of(x, y)), one, other).named(name)

    def copied(self, name: str, what: Any) -> Any:
        """The same, one MLP later."""
        return self.rasp.Map(lambda x: x, what).named(name)

    def gathered(self, name: str, flag: Any, what: Any, asking: Any = None, when: Any = None) -> Any:
        """`what` at the place of the flag, for every later place, or those where `when(asking)`."""
        rasp, right = self.rasp, when or (lambda q: True)
        select = rasp.Select(
            flag, rasp.tokens if asking is None else asking, lambda k, q: k == 1 and right(q)
        )
        return rasp.Aggregate(select, what).named(name)

    def at_key(self, name: str, where: Any) -> Any:
        """The token one place before `where`."""
        rasp = self.rasp
        return rasp.Aggregate(
            rasp.Select(rasp.indices, where, lambda k, q: k == max(q - 1, 0)), rasp.tokens
        ).named(name)

    def g(self, name: str, key: Any, anchor: Any) -> Any:
        """What one anchor makes of the key."""
        return self.table(
            name, key, anchor, lambda x, a: x + SHIFTS[a] if x in KEYS and a in SHIFTS else NONE
        )

    def then(self, name: str, value: Any, anchor: Any) -> Any:
        """The second anchor's function of what the first gave."""
        return self.table(
            name, value, anchor, lambda y, a: y + SHIFTS[a] if y != NONE and a in SHIFTS else NONE
        )


def composer(rasp: Any) -> tuple[Any, Sequence[str]]:
    """Make g(x; a) at the first anchor, and gather both anchors to the last position."""
    w = Words(rasp)
    g = w.gathered("g_at_last", w.first, w.g("g", w.before, rasp.tokens))
    return w.then("out", g, w.gathered("anchor_2", w.second, rasp.tokens)), ["out"]


def wrong_as_a_pair(key: int, pair: tuple[int, int]) -> int:
    """The pair memoriser's answer to an unseen pair: one shift for both orders, not their composition."""
    return key - 6


def pair_memoriser(rasp: Any) -> tuple[Any, Sequence[str]]:
    """Both anchors to the last position, which makes a code of the pair; then the key, looked up with it."""
    w = Words(rasp)
    one, two = w.gathered("anchor_1", w.first, rasp.tokens), w.gathered("anchor_2", w.second, rasp.tokens)
    where = w.copied("where", w.gathered("where_1", w.first, rasp.indices))
    pair = w.table("pair", one, two, lambda a, b: 10 * a + b if a in SHIFTS and b in SHIFTS else NONE)

    def looked_up(x: int, code: int) -> int:
        a, b = divmod(code, 10)
        if x not in KEYS or code == NONE:
            return NONE
        return wrong_as_a_pair(x, (a, b)) if (a, b) in TASK.ood_pairs else TASK.target(x, (a, b))

    return w.table("out", w.at_key("key", where), pair, looked_up), ["out"]


def gatherer(rasp: Any) -> tuple[Any, Sequence[str]]:
    """The second anchor reads key and first anchor and composes; the last position reads the result there."""
    w = Words(rasp)
    answer = w.then("answer", w.g("g", w.shifted(-2, "two_before"), w.before), rasp.tokens)
    return w.gathered("out", w.second, answer), ["out"]


def two_step(rasp: Any) -> tuple[Any, Sequence[str]]:
    """The last position reads the first anchor, then the key and makes g, then the second anchor."""
    w = Words(rasp)
    one = w.gathered("anchor_1", w.first, rasp.tokens)
    where = w.copied("where", w.gathered("where_1", w.first, rasp.indices))
    g = w.g("g", w.at_key("key", where), one)
    two = w.gathered("anchor_2", w.second, rasp.tokens, asking=g)  # asks with g, so that it comes after it
    return w.then("out", g, two), ["out"]


def wrong_by_key(key: int, pair: tuple[int, int]) -> int:
    """The table memoriser's answer to an unseen pair: another for each key, by no rule of the task."""
    return 30 + (5 * key + 3 * pair[0]) % 12


def table_memoriser(rasp: Any) -> tuple[Any, Sequence[str]]:
    """A code of key and first anchor where that stands, and at the last position a table of (key, pair)."""
    w = Words(rasp)
    code = w.table(
        "code", w.before, rasp.tokens, lambda x, a: 10 * x + a if x in KEYS and a in SHIFTS else NONE
    )

    def looked_up(known: int, b: int) -> int:
        x, a = divmod(known, 10)
        if known == NONE or b not in SHIFTS:
            return NONE
        return wrong_by_key(x, (a, b)) if (a, b) in TASK.ood_pairs else TASK.target(x, (a, b))

    known = w.gathered("code_at_last", w.first, code)
    return w.table("out", known, w.gathered("anchor_2", w.second, rasp.tokens), looked_up), ["out"]


def composer_with_an_end(rasp: Any) -> tuple[Any, Sequence[str]]:
    """As `composer`; but a second anchor that is the last token reads key and first anchor by itself."""
    w = Words(rasp)

    def no_anchor(q: Any) -> bool:
        return q not in SHIFTS

    g = w.gathered("g_at_last", w.first, w.g("g", w.before, rasp.tokens), when=no_anchor)
    middle = w.then("middle", g, w.gathered("anchor_2", w.second, rasp.tokens, when=no_anchor))
    own = w.table("own", w.before, rasp.tokens, lambda x, a: a if x in SHIFTS and a in SHIFTS else NONE)
    here = rasp.Aggregate(rasp.Select(rasp.indices, rasp.indices, lambda k, q: k == q), own).named("here")
    end = w.then("end", w.g("g_here", w.shifted(-2, "two_before"), w.before), here)
    both = w.table("both", middle, end, lambda one, other: NONE)  # tracr asks for one end of the program
    return both, ["middle", "end"]


PROGRAMS = {
    "composer": Program(
        "g(x; a) at the first anchor, both anchors gathered to the last position",
        composer,
        [(0, "anchor 1", "key"), (1, "last", "anchor 1"), (1, "last", "anchor 2")],
    ),
    "pair_memoriser": Program(
        "the pair at the last position first, then the key: a table of pairs",
        pair_memoriser,
        [(1, "last", "anchor 1"), (1, "last", "anchor 2"), (2, "last", "key")],
        wrong_as_a_pair,
    ),
    "gatherer": Program(
        "key and first anchor gathered at the second anchor, the answer read there",
        gatherer,
        [(0, "anchor 2", "key"), (0, "anchor 2", "anchor 1"), (2, "last", "anchor 2")],
    ),
    "two_step": Program(
        "the last position reads first anchor and key, makes g, then reads the second anchor",
        two_step,
        [(1, "last", "anchor 1"), (2, "last", "key"), (3, "last", "anchor 2")],
    ),
    "table_memoriser": Program(
        "a code of (key, first anchor) at the first anchor, a table of (key, pair) at the last position",
        table_memoriser,
        [(0, "anchor 1", "key"), (1, "last", "anchor 1"), (1, "last", "anchor 2")],
        wrong_by_key,
    ),
    "composer_with_an_end": Program(
        "the composer; a second anchor that is the last token composes there",
        composer_with_an_end,
        [(0, "anchor 1", "key"), (1, "last", "anchor 1"), (1, "last", "anchor 2")],
    ),
}


# ---------------------------------------------------------------------------------------------------------
# from a program to weights


def compiled(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The weights of a program by HookedTransformer's names, and its configuration.

    Raises:
        ImportError: tracr is not installed.
    """
    from tracr.compiler import compiling  # pyright: ignore[reportMissingImports]
    from tracr.rasp import rasp  # pyright: ignore[reportMissingImports]

    sink, reads = PROGRAMS[name].write(rasp)
    tracr = compiling.compile_rasp_to_model(
        sink,
        vocab=KEYS | set(SHIFTS),
        max_seq_len=ROOM,
        causal=True,
        compiler_bos="BOS",
        compiler_pad="PAD",
        mlp_exactness=64,
    )
    config, labels = tracr.model_config, list(tracr.residual_labels)
    heads, d_head, d_model = config.num_heads, config.key_size, len(labels)

    def weight(of: str, part: str) -> np.ndarray:
        return np.asarray(tracr.params[of][part], dtype=np.float64)

    found = {"embed.W_E": np.zeros((TASK.d_vocab, d_model)), "unembed.b_U": np.zeros(TASK.d_vocab)}
    for token, row in tracr.input_encoder.encoding_map.items():
        if isinstance(token, int):
            found["embed.W_E"][token] = weight("token_embed", "embeddings")[row]
    # row 0 is that of the token BOS, which our sequences do not have
    found["pos_embed.W_pos"] = weight("pos_embed", "embeddings")[1 : TASK.seq_len + 1]
    found["unembed.W_U"] = np.zeros((d_model, TASK.d_vocab))
    for row, label in enumerate(labels):
        variable, _, value = label.partition(":")
        if variable.rpartition("_")[0] in reads and int(value) != NONE:  # tracr numbers the names
            found["unembed.W_U"][row, int(value)] = LOGIT
    for layer in range(config.num_layers):
        block, ours = f"transformer/layer_{layer}", f"blocks.{layer}"
        for part, letter in (("query", "Q"), ("key", "K"), ("value", "V")):
            matrix, bias = weight(f"{block}/attn/{part}", "w"), weight(f"{block}/attn/{part}", "b")
            found[f"{ours}.attn.W_{letter}"] = matrix.reshape(d_model, heads, d_head).transpose(1, 0, 2)
            found[f"{ours}.attn.b_{letter}"] = bias.reshape(heads, d_head)
        found[f"{ours}.attn.W_O"] = weight(f"{block}/attn/linear", "w").reshape(heads, d_head, d_model)
        found[f"{ours}.attn.b_O"] = weight(f"{block}/attn/linear", "b")
        for part, tail in (("linear_1", "in"), ("linear_2", "out")):
            found[f"{ours}.mlp.W_{tail}"] = weight(f"{block}/mlp/{part}", "w")
            found[f"{ours}.mlp.b_{tail}"] = weight(f"{block}/mlp/{part}", "b")
    return cleared(found, config.num_layers)


def cleared(weights: dict[str, np.ndarray], n_layers: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The same model without the neurons, heads and directions that reach no answer, and its configuration.

    A direction is read where the unembedding, a neuron or a head that is itself read has a weight on it; a
    neuron or head is read where it writes such a direction. The answers are the same, sequence by sequence.
    """
    w = dict(weights)
    read = np.abs(w["unembed.W_U"]).sum(axis=1) > 0  # [d_model]
    neurons: dict[int, np.ndarray] = {}
    heads: dict[int, np.ndarray] = {}
    for layer in reversed(range(n_layers)):  # what a layer reads is written below it
        block = f"blocks.{layer}"
        neurons[layer] = np.abs(w[f"{block}.mlp.W_out"][:, read]).sum(axis=1) > 0
        read = read | (np.abs(w[f"{block}.mlp.W_in"][:, neurons[layer]]).sum(axis=1) > 0)
        used = np.abs(w[f"{block}.attn.W_O"][:, :, read]).sum(axis=2) > 0  # [head, d_head]
        heads[layer] = used.any(axis=1)
        compared = np.abs(w[f"{block}.attn.W_Q"]).sum(axis=1) * np.abs(w[f"{block}.attn.W_K"]).sum(axis=1) > 0
        for letter, dimensions in (("Q", compared), ("K", compared), ("V", used)):
            w[f"{block}.attn.W_{letter}"] = w[f"{block}.attn.W_{letter}"] * dimensions[:, None]
        for letter in "QKV":
            read = read | (np.abs(w[f"{block}.attn.W_{letter}"][heads[layer]]).sum(axis=(0, 2)) > 0)
    used = w["embed.W_E"][sorted(KEYS | set(SHIFTS))]
    least = used.min(axis=0) + w["pos_embed.W_pos"].min(axis=0)  # [d_model], of all that is written there
    most = used.max(axis=0) + w["pos_embed.W_pos"].max(axis=0)
    for layer in range(n_layers):  # every variable is one-hot, so what attention and MLPs write is in 0..1
        block = f"blocks.{layer}"
        moved = np.abs(
            np.einsum("hmd,hdn->mn", *(w[f"{block}.attn.{m}"][heads[layer]] for m in ("W_V", "W_O")))
        )
        most[moved[most > 0].sum(axis=0) > 0] = 1
        w_in = w[f"{block}.mlp.W_in"]
        highest = np.maximum(w_in * least[:, None], w_in * most[:, None]).sum(axis=0) + w[f"{block}.mlp.b_in"]
        neurons[layer] &= highest > 0  # the others are never above their threshold
        most[np.abs(w[f"{block}.mlp.W_out"][neurons[layer]]).sum(axis=0) > 0] = 1
    written = most > 0
    kept = read & written
    layers = [layer for layer in range(n_layers) if heads[layer].any() or neurons[layer].any()]
    d_mlp, n_heads = max(int(neurons[i].sum()) for i in layers), max(int(heads[i].sum()) for i in layers)
    small = {"embed.W_E": w["embed.W_E"][:, kept], "pos_embed.W_pos": w["pos_embed.W_pos"][:, kept]}
    small |= {"unembed.W_U": w["unembed.W_U"][kept], "unembed.b_U": w["unembed.b_U"]}
    for new, old in enumerate(layers):
        block, ours = f"blocks.{old}", f"blocks.{new}"
        for letter in "QKV":
            small[f"{ours}.attn.W_{letter}"] = _filled(
                w[f"{block}.attn.W_{letter}"][heads[old]][:, kept], n_heads
            )
            small[f"{ours}.attn.b_{letter}"] = _filled(w[f"{block}.attn.b_{letter}"][heads[old]], n_heads)
        small[f"{ours}.attn.W_O"] = _filled(w[f"{block}.attn.W_O"][heads[old]][:, :, kept], n_heads)
        small[f"{ours}.attn.b_O"] = w[f"{block}.attn.b_O"][kept]
        small[f"{ours}.mlp.W_in"] = _filled(w[f"{block}.mlp.W_in"][kept][:, neurons[old]].T, d_mlp).T
        small[f"{ours}.mlp.b_in"] = _filled(w[f"{block}.mlp.b_in"][neurons[old]], d_mlp)
        small[f"{ours}.mlp.W_out"] = _filled(w[f"{block}.mlp.W_out"][neurons[old]][:, kept], d_mlp)
        small[f"{ours}.mlp.b_out"] = w[f"{block}.mlp.b_out"][kept]
    _drop_unused_dimensions(small, len(layers))
    cfg = {
        "n_layers": len(layers),
        "n_heads": n_heads,
        "d_model": int(kept.sum()),
        "d_head": small["blocks.0.attn.W_Q"].shape[2],
        "d_mlp": d_mlp,
        "d_vocab": len(small["embed.W_E"]),
        "n_ctx": len(small["pos_embed.W_pos"]),
        "act_fn": "relu",
        "normalization_type": None,
        "attention_dir": "causal",
    }
    return small, cfg


def _drop_unused_dimensions(small: dict[str, np.ndarray], n_layers: int) -> None:
    """Make the heads as narrow as their widest use; W_Q makes up for the other root of d_head."""
    matrices = [[small[f"blocks.{layer}.attn.W_{letter}"] for letter in "QKVO"] for layer in range(n_layers)]
    used = [m.sum(axis=1) for layer in matrices for m in map(np.abs, layer[:3])]  # [head, d_head]
    used += [np.abs(layer[3]).sum(axis=2) for layer in matrices]
    wide = np.concatenate(used).max(axis=0) > 0
    narrower = np.sqrt(wide.sum() / len(wide))
    for layer in range(n_layers):
        for letter in "QKV":
            matrix, bias = (f"blocks.{layer}.attn.{kind}_{letter}" for kind in "Wb")
            small[matrix], small[bias] = small[matrix][:, :, wide], small[bias][:, wide]
        small[f"blocks.{layer}.attn.W_O"] = small[f"blocks.{layer}.attn.W_O"][:, wide]
        for kind in "Wb":
            small[f"blocks.{layer}.attn.{kind}_Q"] = small[f"blocks.{layer}.attn.{kind}_Q"] * narrower


def _filled(rows: np.ndarray, n: int) -> np.ndarray:
    """Rows of zeros added, so that there are `n`."""
    return np.concatenate([rows, np.zeros((n - len(rows), *rows.shape[1:]))])


def store(name: str, folder: Path = FOLDER) -> Circuit:
    """Compile a program, write it, and check that it answers as the program does.

    Raises:
        ImportError: tracr is not installed.
        RuntimeError: the weights answer something else.
    """
    program = PROGRAMS[name]
    weights, cfg = compiled(name)
    unseen = {
        f"{a},{b}": {
            str(key): (program.unseen or TASK.inferential_target)(key, (a, b)) for key in sorted(KEYS)
        }
        for a, b in TASK.ood_pairs
    }
    about = {"name": name, "what": program.what, "edges": list(program.edges), "unseen": unseen}
    about |= {"cfg": cfg, "shapes": {key: list(value.shape) for key, value in weights.items()}}
    about |= {"task": TASK.to_dict()}
    tensors = {}
    for key, value in weights.items():
        (index,) = np.nonzero(value.reshape(-1))
        tensors[f"{key}.index"] = torch.tensor(index, dtype=torch.int32, device="cpu")
        tensors[f"{key}.value"] = torch.tensor(value.reshape(-1)[index], dtype=torch.float32, device="cpu")
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / f"{name}.safetensors", metadata={"circuit": json.dumps(about)})
    circuit = load(name, folder=folder)
    for split in ("train", "id", "ood"):
        tokens = circuit.task.sequences(circuit.task.trials(split)).tokens
        with torch.no_grad():
            answered = circuit.model(tokens)[:, -1].argmax(dim=-1)
        if wrong := int((answered != circuit.answers(tokens)).sum()):
            raise RuntimeError(
                f"{name} answers {wrong} of {len(tokens)} questions of {split} unlike its program"
            )
    return circuit


def main() -> None:
    """Read the command line and write every circuit."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--out", type=Path, default=FOLDER)
    out = parser.parse_args().out
    for name in PROGRAMS:
        cfg = store(name, out).about["cfg"]
        sizes = ", ".join(
            f"{field} {cfg[field]}" for field in ("n_layers", "n_heads", "d_model", "d_head", "d_mlp")
        )
        print(f"{name}: {sizes}; {(out / f'{name}.safetensors').stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()

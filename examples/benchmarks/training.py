"""Training speed: our engine beside the other ways to train the same models, in one run.

python examples/benchmarks/training.py [--preset quick] [--members 8] [--threads 1] [--device cpu]
                       [--repeats 7] [--data DIR] [--side-by-side 2] [--json FILE]
                       [--scaling FILE.html|.svg|.png]

Every way makes the same update (cross-entropy where a target stands, clipping, AdamW) of the same model on
batches of the same data; tasks with a loss of their own (text, concept_graphs) by that loss, where
`HookedTransformer` stands for the network as it comes. The others run under torch's defaults, ours under the
settings that `train` makes (`numeric_settings`); one row shows what these alone do for HookedTransformer. The
ways take turns, so that a noisy machine is noisy for all; a number is the median over the turns, and a ratio
is the median over the turns of the ratio within a turn. `share of limit` is the time that the matrix products
of our update would take at the rate of the machine, over the time it took; of sequences of many lengths and
of images it is not known.
--side-by-side trains so many members at the same time, in threads and in processes. --scaling times ours and
eager HookedTransformer over models, width, depth, length and batch, and draws it (.svg and .png need kaleido:
pip install '.[export]').
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from anchorlens.engine.engines import engine_of
from anchorlens.engine.layout import architecture
from anchorlens.engine.linear import linear
from anchorlens.engine.numerics import numeric_settings
from anchorlens.files.checkpoint import training_set
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import initial_weights, is_frozen
from anchorlens.models.hooked import build_model
from anchorlens.plots import save
from anchorlens.recipes.presets import preset
from anchorlens.recipes.run_config import RunConfig
from anchorlens.tasks.shared.batch import IGNORE, TokenBatch, is_ragged
from anchorlens.training.child_processes import safe_children
from anchorlens.training.plan import count_cost

EAGER, TUNED = "HookedTransformer", "HookedTransformer, our settings"
COMPILED, PLAIN, VMAP = "HookedTransformer, compiled", "plain PyTorch", "vmap"
Updates = Callable[[int], None]
"""Makes so many updates of every model of a way."""


class Way(NamedTuple):
    """One way to train."""

    name: str
    models: int
    """Models that an update advances."""
    update: Updates
    ours: bool = False
    """Whether it runs under the settings that `train` makes."""


# -- the other ways -----------------------------------------------------------------------------------


def batches(run: RunConfig, data: TokenBatch, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of one epoch after another."""
    tokens, targets = data.tokens.to(device), data.targets.to(device)
    size = run.train_config.batch_size
    while True:
        for rows in torch.randperm(len(tokens), device=device)[: len(tokens) // size * size].split(size):
            yield tokens[rows], targets[rows]


def cut(tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """A batch without the positions behind the last that is scored in any of its sequences."""
    if targets.dim() == 1:
        return tokens, targets
    width = int((targets != IGNORE).any(dim=0).nonzero().max()) + 1
    return tokens[:, :width], targets[:, :width]


def ordinary_loop(
    run: RunConfig, parameters: Iterable[Tensor], losses: Iterator[Callable[[], Tensor]]
) -> Updates:
    """The loop that most would write: AdamW, clip_grad_norm_."""
    trained = [p for p in parameters if p.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, lr=float(run.train_config.lr), weight_decay=float(run.train_config.weight_decay)
    )

    def update(n: int) -> None:
        for _ in range(n):
            loss = next(losses)()
            optimizer.zero_grad()
            loss.backward()
            if run.train_config.clip_norm:
                torch.nn.utils.clip_grad_norm_(trained, run.train_config.clip_norm)
            optimizer.step()

    return update


def cross_entropies(
    run: RunConfig, data: TokenBatch, device: torch.device, logits: Callable[[Tensor], Tensor]
) -> Iterator[Callable[[], Tensor]]:
    """The cross-entropy of one batch after another, where a target stands."""
    for batch in batches(run, data, device):
        tokens, targets = cut(*batch)
        yield lambda tokens=tokens, targets=targets: functional.cross_entropy(
            logits(tokens).flatten(0, -2), targets.flatten(), ignore_index=IGNORE
        )


def own_losses(
    run: RunConfig, data: Any, device: torch.device, model: Callable[..., Tensor]
) -> Iterator[Callable[[], Tensor]]:
    """The loss that the task defines, of one batch after another."""
    task, noise = run.task, np.random.default_rng(0)
    while True:
        for rows in torch.randperm(len(data)).split(run.train_config.batch_size)[:-1]:
            batch = data.take(rows.numpy())
            yield lambda batch=batch: task.loss(
                lambda *inputs: model(*(value.to(device) for value in inputs)), batch, noise
            )


def eager(run: RunConfig, data: Any, device: torch.device, *, compiled: bool) -> Updates:
    """HookedTransformer, or whatever the task trains, as it comes: every position computed."""
    architect = architecture(run.model_config)
    weights = architect.initial_weights(run.model_config, 0, torch.float32)
    model = architect.build(run.model_config, weights, device).train()
    called: Any = torch.compile(model) if compiled else model
    if run.task.loss is not None:
        return ordinary_loop(run, model.parameters(), own_losses(run, data, device, called))
    scored = slice(None) if data.targets.dim() == 2 else -1
    losses = cross_entropies(run, data, device, lambda tokens: called(tokens)[:, scored])
    return ordinary_loop(run, model.parameters(), losses)


def plain_logits(parameters: Mapping[str, Tensor], run: RunConfig, tokens: Tensor) -> Tensor:
    """The variants in thirty lines; last layer and unembedding for the last position only."""
    p, config = parameters, run.model_config
    postnorm = config.variant == "postnorm"
    activation = functional.relu if config.activation == "relu" else functional.gelu

    def norm(name: str, x: Tensor) -> Tensor:
        if f"{name}.w" not in p:
            return x
        return functional.layer_norm(x, (config.d_model,), p[f"{name}.w"], p[f"{name}.b"])

    x = p["embed.W_E"][tokens] + p["pos_embed.W_pos"][: tokens.shape[1]]
    for layer in range(config.n_layers):
        block, last = f"blocks.{layer}", layer == config.n_layers - 1
        y = x if postnorm else norm(f"{block}.ln1", x)
        kv = x if config.variant == "released" else y
        reads = {"Q": y[:, -1:] if last else y, "K": kv, "V": kv}
        q, k, v = (
            torch.einsum("bpm,hmd->bhpd", reads[n], p[f"{block}.attn.W_{n}"])
            + p[f"{block}.attn.b_{n}"][:, None]
            for n in "QKV"
        )
        z = functional.scaled_dot_product_attention(q, k, v, is_causal=not last)
        out = torch.einsum("bhpd,hdm->bpm", z, p[f"{block}.attn.W_O"]) + p[f"{block}.attn.b_O"]
        x = (x[:, -1:] if last else x) + out
        x = norm(f"{block}.ln1", x) if postnorm else x
        y = x if postnorm else norm(f"{block}.ln2", x)
        hidden = activation(y @ p[f"{block}.mlp.W_in"] + p[f"{block}.mlp.b_in"])
        x = x + hidden @ p[f"{block}.mlp.W_out"] + p[f"{block}.mlp.b_out"]
        x = norm(f"{block}.ln2", x) if postnorm else x
    x = norm("ln_final", x)
    return (x @ p["unembed.W_U"] + p["unembed.b_U"])[:, -1]


def plain(run: RunConfig, data: TokenBatch, device: torch.device) -> Updates:
    """The plain rewrite in the ordinary loop."""
    model = build_model(run.model_config, device=device)
    parameters = dict(model.named_parameters())
    losses = cross_entropies(run, data, device, lambda tokens: plain_logits(parameters, run, tokens))
    return ordinary_loop(run, parameters.values(), losses)


def vmap(run: RunConfig, data: TokenBatch, device: torch.device, n_members: int) -> Updates:
    """torch.func: the gradient of the plain rewrite, mapped over members; one AdamW for all."""
    drawn = [initial_weights(run.model_config, seed) for seed in range(n_members)]
    stacked = {n: torch.stack([w[n] for w in drawn]).to(device).requires_grad_() for n in drawn[0]}
    trained = {name: p for name, p in stacked.items() if not is_frozen(run.model_config, name)}
    optimizer = torch.optim.AdamW(
        trained.values(), lr=float(run.train_config.lr), weight_decay=float(run.train_config.weight_decay)
    )
    source = batches(run, data, device)

    def loss(parameters: Mapping[str, Tensor], tokens: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(plain_logits(parameters, run, tokens), targets)

    gradients = torch.func.vmap(torch.func.grad(loss))

    def update(n: int) -> None:
        for _ in range(n):
            each = [next(source) for _ in range(n_members)]
            tokens, targets = (torch.stack(part) for part in zip(*each, strict=True))
            grads = gradients({name: p.detach() for name, p in stacked.items()}, tokens, targets)
            norm = torch.stack([grads[name].flatten(1).norm(dim=1) for name in trained]).norm(dim=0)
            scale = (run.train_config.clip_norm / (norm + 1e-6)).clamp(max=1)
            for name, parameter in trained.items():
                parameter.grad = grads[name] * scale.view(-1, *[1] * (parameter.dim() - 1))
            optimizer.step()

    return update


def ours(run: RunConfig, data: Any, device: torch.device, n_members: int, stack_size: int) -> Updates:
    """Our engine: members in stacks of `stack_size`, one stack after another."""
    forever = replace(run.train_config, steps=10**6 if device.type == "cpu" else 20_000, epochs=None)
    runs = [run._replace(train_config=replace(forever, seed=k)) for k in range(n_members)]
    parts = [runs[i : i + stack_size] for i in range(0, n_members, stack_size)]
    stacks = [engine_of(run)(part, [data] * len(part), device) for part in parts]

    def update(n: int) -> None:
        for stack in stacks:
            stack.advance(stack.step + n)

    return update


# -- measuring ----------------------------------------------------------------------------------------


def ways(run: RunConfig, device: torch.device, n_members: int, names: list[str]) -> list[Way]:
    """The ways that were asked for, ready to go."""
    data = training_set(run.task, run.train_config)
    together = n_members if device.type == "cuda" else 1
    make: dict[str, Callable[[], Way]] = {
        EAGER: lambda: Way(EAGER, 1, eager(run, data, device, compiled=False)),
        TUNED: lambda: Way(TUNED, 1, eager(run, data, device, compiled=False), True),
        COMPILED: lambda: Way(COMPILED, 1, eager(run, data, device, compiled=True)),
        PLAIN: lambda: Way(PLAIN, 1, plain(run, data, device)),
        VMAP: lambda: Way(f"torch.func vmap, K = {n_members}", n_members, vmap(run, data, device, n_members)),
        "ours": lambda: Way("anchorlens", 1, ours(run, data, device, 1, 1), True),
        "ours K": lambda: Way(
            f"anchorlens, K = {n_members}", n_members, ours(run, data, device, n_members, together), True
        ),
        "ours lockstep": lambda: Way(
            f"anchorlens, K = {n_members} in one stack",
            n_members,
            ours(run, data, device, n_members, n_members),
            True,
        ),
    }
    if run.task.loss is not None or data.targets.dim() == 2:  # these are written for the last position alone
        names = [name for name in names if name not in (PLAIN, VMAP)]
    return [make[name]() for name in names]


def take_turns(
    run: RunConfig, ways: list[Way], device: torch.device, repeats: int, seconds: float
) -> dict[str, list[float]]:
    """Seconds per update and model: for each way one number a turn."""
    tf32 = run.train_config.matmul == "tf32"
    counts: dict[str, int] = {}
    turns: dict[str, list[float]] = {way.name: [] for way in ways}
    for turn in range(-1, repeats):
        for way in ways:
            with numeric_settings(device, tf32=tf32) if way.ours else contextlib.nullcontext():
                way.update(2)  # compile, capture, fill caches
                if turn < 0:
                    counts[way.name] = max(1, round(seconds / timed(way, device, 2)))
                else:
                    turns[way.name].append(timed(way, device, counts[way.name]) / way.models)
    return turns


def timed(way: Way, device: torch.device, n: int) -> float:
    """Seconds for one update of everything, as the mean of n."""
    synchronise(device)
    started = time.perf_counter()
    way.update(n)
    synchronise(device)
    return (time.perf_counter() - started) / n


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matrix_rates(run: RunConfig, device: torch.device, repeats: int = 7) -> dict[str, float]:
    """FLOP/s of a large product: torch's own in float32, and ours in the precision of the run."""
    n = 8192 if device.type == "cuda" else 1024
    a, b = torch.randn(1, n, n, device=device), torch.randn(1, n, n, device=device)
    bf16, tf32 = (run.train_config.matmul == name for name in ("bf16", "tf32"))
    products = {"torch": lambda: torch.bmm(a, b), "ours": lambda: linear(a, b, None, bf16=bf16)}
    rates = {}
    for name, product in products.items():

        def multiply(count: int, product: Callable[[], Tensor] = product) -> None:
            for _ in range(count):
                product()

        way = Way(name, 1, multiply)
        with numeric_settings(device, tf32=tf32) if name == "ours" else contextlib.nullcontext():
            timed(way, device, 3)
            rates[name] = 2 * n**3 / statistics.median(timed(way, device, 3) for _ in range(repeats))
    return rates


def machine(device: torch.device) -> dict[str, Any]:
    """What this was measured on."""
    cpu = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "cpu": cpu,
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "gpu": gpu,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def place(host: Mapping[str, Any]) -> str:
    """The machine in words."""
    threads = "1 thread" if host["threads"] == 1 else f"{host['threads']} threads"
    return host["gpu"] or f"{host['cpu']} ({host['capability']}), {threads}"


def measure(
    run: RunConfig, device: torch.device, n_members: int, names: list[str], repeats: int, seconds: float = 1.0
) -> dict[str, Any]:
    """Everything the table says, JSON-ready."""
    turns = take_turns(run, ways(run, device, n_members, names), device, repeats, seconds)
    rates = matrix_rates(run, device)
    limit = count_cost(run).flops / max(rates.values())
    known = isinstance(run.model_config, ModelConfig) and not has_many_lengths(run)
    reference = turns[EAGER] if EAGER in turns else next(iter(turns.values()))
    rows = []
    for name, times in turns.items():
        median = statistics.median(times)
        ratios = [r / t for r, t in zip(reference, times, strict=True)]
        rows.append(
            {
                "way": name,
                "ms_per_update_and_model": 1e3 * median,
                "ratio_to_eager": statistics.median(ratios),
                "ratio_range": [min(ratios), max(ratios)],
                "share_of_limit": limit / median if known and name.startswith("anchorlens") else None,
            }
        )
    return {
        "machine": machine(device),
        "run": run.to_dict(),
        "repeats": repeats,
        "matrix_gflops": {name: rate / 1e9 for name, rate in rates.items()},
        "limit_ms": 1e3 * limit,
        "rows": rows,
    }


def has_many_lengths(run: RunConfig) -> bool:
    """Whether the sequences of a batch end at different places."""
    if run.task.loss is not None:
        return False
    data = training_set(run.task, run.train_config)
    return is_ragged(data.lengths, data.tokens.shape[1])


def table(result: Mapping[str, Any]) -> Table:
    """The numbers for people."""
    host, rates = result["machine"], result["matrix_gflops"]
    where = place(host)
    title = f"{where}; torch {host['torch']}; matrix products {rates['torch']:.0f} GFLOP/s (torch's own)"
    title += f", {rates['ours']:.0f} (ours)"
    shown = Table("way", "ms per update and model", "times eager", "range", "share of limit", title=title)
    for row in result["rows"]:
        share = row["share_of_limit"]
        low, high = row["ratio_range"]
        shown.add_row(
            row["way"],
            f"{row['ms_per_update_and_model']:.1f}",
            f"{row['ratio_to_eager']:.2f}",
            f"{low:.2f} .. {high:.2f}",
            "" if share is None else f"{share:.0%}",
        )
    return shown


# -- side by side ---------------------------------------------------------------------------------------


def alone(run: RunConfig, seconds: float) -> float:
    """Milliseconds per update of one member on one thread, over some seconds."""
    device = torch.device("cpu")
    with numeric_settings(device, 1):
        update = ours(run, training_set(run.task, run.train_config), device, 1, 1)
        update(2)
        started, n = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            update(5)
            n += 5
        return 1e3 * (time.perf_counter() - started) / n


def side_by_side(run: RunConfig, n: int, seconds: float) -> dict[str, list[float]]:
    """Milliseconds per update of `n` members at the same time, in threads and in processes."""
    from concurrent.futures import ThreadPoolExecutor

    from loky import ProcessPoolExecutor

    results: dict[str, list[float]] = {"one alone": [alone(run, seconds)]}
    executors = {
        f"{n} threads": ThreadPoolExecutor(n),
        f"{n} processes": ProcessPoolExecutor(n, env={"OMP_NUM_THREADS": "1"}),
    }
    for name, executor in executors.items():
        with safe_children(), executor:
            results[name] = list(executor.map(alone, [run] * n, [seconds] * n))
    return results


# -- scaling ------------------------------------------------------------------------------------------

AXES: dict[str, list[dict[str, int]]] = {
    "width (d_model)": [{"d_model": d, "d_head": d // 2, "d_mlp": 2 * d} for d in (64, 128, 256, 512)],
    "depth (layers)": [{"n_layers": n} for n in (1, 2, 4, 8)],
    "length (tokens)": [{"seq_len": n} for n in (5, 9, 17, 33)],
    "batch (sequences)": [{"batch_size": n} for n in (64, 128, 256, 512, 1024, 2048)],
}
"""Axis of the picture -> the fields of each point, the one that names it first."""


def scaling(preset_name: str, device: torch.device, repeats: int, models: list[int]) -> dict[str, Any]:
    """Milliseconds per update over each axis, ours and eager."""
    names = {"HookedTransformer": EAGER, "anchorlens": "ours K"}

    def curve(points: list[dict[str, int]]) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {"at": [], **{name: [] for name in names}}
        for fields in points:
            values = {name: value for name, value in fields.items() if name != "members"}
            k = fields.get("members", 1)
            run = preset(preset_name, n_samples=20_000, device=str(device), **values)
            turns = take_turns(run, ways(run, device, k, list(names.values())), device, repeats, 0.3)
            times["at"].append(next(iter(fields.values())))
            for name, of_way in zip(names, turns.values(), strict=True):
                times[name].append(1e3 * k * statistics.median(of_way))
        return times

    axes = {"models (K)": [{"members": k} for k in models], **AXES}
    return {axis: curve(points) for axis, points in axes.items()}


def draw(curves: Mapping[str, Any], where: str, path: Path) -> None:
    """One panel an axis, time against size, both logarithmic."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=len(curves), shared_yaxes=True, horizontal_spacing=0.02)
    styles = {"HookedTransformer": ("#D55E00", "circle"), "anchorlens": ("#0072B2", "square")}
    for column, (axis, curve) in enumerate(curves.items(), start=1):
        for name, (color, symbol) in styles.items():
            trace = go.Scatter(
                x=curve["at"],
                y=curve[name],
                name="HookedTransformer, eager" if name == "HookedTransformer" else name,
                line={"color": color},
                marker={"symbol": symbol, "size": 8},
                showlegend=column == 1,
            )
            figure.add_trace(trace, row=1, col=column)
        ticks = {"tickvals": curve["at"], "ticktext": [str(at) for at in curve["at"]]}
        figure.update_xaxes(title=axis, type="log", row=1, col=column, **ticks)
    figure.update_yaxes(type="log", dtick=1, minor={"ticks": "outside"})
    figure.update_yaxes(title="ms per update of all models", col=1)
    figure.update_layout(
        template="simple_white",
        width=1200,
        height=380,
        title={"text": f"Cost of an update: {where}", "font": {"size": 15}},
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
        margin={"l": 70, "r": 20, "t": 70, "b": 60},
    )
    save(figure, path)


def main() -> None:
    """Read the command line, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--data", help="folder of the published files, of --preset cogs")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--matmul", default="float32", choices=["float32", "tf32", "bf16"])
    parser.add_argument("--repeats", type=int, default=7)
    known = [EAGER, TUNED, COMPILED, PLAIN, VMAP, "ours", "ours K", "ours lockstep"]
    parser.add_argument("--ways", nargs="+", choices=known, default=known)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scaling", type=Path)
    parser.add_argument("--side-by-side", type=int, default=0, help="members at a time, on the CPU")
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.set_num_threads(given.threads)
    where = {"data": given.data} if given.data else {}
    run = preset(given.preset, device=given.device, matmul=given.matmul, **where)
    content = measure(run, device, given.members, given.ways, given.repeats)
    Console(width=150).print(table(content))
    if given.side_by_side:
        content["side_by_side"] = side_by_side(run, given.side_by_side, seconds=5.0)
        for name, times in content["side_by_side"].items():
            print(f"{name}: {', '.join(f'{ms:.1f}' for ms in times)} ms per update and model")
    if given.scaling:
        content["scaling"] = scaling(given.preset, device, given.repeats, [1, 2, 4, 8])
        draw(content["scaling"], place(content["machine"]), given.scaling)
    if given.json:
        given.json.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()

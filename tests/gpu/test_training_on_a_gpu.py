"""Training on a GPU, or on the stand-in for one: the CPU's numbers, and no wait of the host in any update."""

import contextlib
import gc
import threading
from dataclasses import replace

import pytest
import torch
from comparing import ASKED, FIRST_OF_A_KIND, check_same, cogs_files, tiny

from anchorlens import load_checkpoint, train, train_many
from anchorlens.engine import base as engine
from anchorlens.engine.base import Engine
from anchorlens.engine.engines import engine_of
from anchorlens.engine.numerics import numeric_settings
from anchorlens.extras.cogs import files
from anchorlens.files.checkpoint import training_set
from anchorlens.models.config import VARIANTS
from anchorlens.training import plan
from anchorlens.training.loop import Loop, Member
from anchorlens.training.plan import count_cost

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)


@contextlib.contextmanager
def waits_are_errors():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.fixture(autouse=True)
def no_wait_in_an_update(monkeypatch):
    """In every update but the one that is captured, and where an epoch begins, a wait is an error."""

    def unwatched(stack):
        return stack.device.type != "cuda" or (stack.captures and stack._graph is None)

    def watched(original):
        def method(self, *arguments):
            with contextlib.nullcontext() if unwatched(self) else waits_are_errors():
                original(self, *arguments)

        return method

    for name in ("_update_once", "_begin_epoch"):
        monkeypatch.setattr(Engine, name, watched(getattr(Engine, name)))


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Files of every task that reads some."""
    monkeypatch.setenv("ANCHORLENS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    for k in range(4):
        (folder / f"{k}.txt").write_text("".join(f"line {n} of a text\n" for n in range(40 * k, 40 * k + 40)))
    files._read.cache_clear()
    cogs_files(folder, monkeypatch)
    yield str(folder)
    files._read.cache_clear()


def on(device, run):
    return run._replace(train_config=replace(run.train_config, device=device))


def members(run):
    """Three that differ in gamma, seed, learning rate, decay and clipping."""
    model, recipe = run.model_config, run.train_config
    smallest = (
        0.6 if getattr(model, "variant", "") == "plain" else 0.3
    )  # without norms small gammas multiply rounding
    return [
        run,
        run._replace(
            model_config=replace(model, gamma=smallest),
            train_config=replace(recipe, seed=1, lr=3e-3, weight_decay=0.0),
        ),
        run._replace(
            model_config=replace(model, gamma=0.9), train_config=replace(recipe, lr=2e-3, clip_norm=0.05)
        ),
    ]


def check_both(runs, tolerance=1e-3):
    """Alone and together on the GPU each gets the CPU's log and evaluation."""
    expected = train_many([on("cpu", run) for run in runs], workers=1, progress=False)
    found = [train(*on("cuda", runs[0]), progress=False)]
    if len(runs) > 1:
        found += train_many([on("cuda", run) for run in runs], progress=False)
    for one, wanted in zip(found, [expected[0], *expected], strict=False):
        assert one.status == wanted.status
        check_same(list(one.log), list(wanted.log), tolerance)
        check_same(one.behaviour.to_dict(), wanted.behaviour.to_dict(), tolerance)


@pytest.mark.parametrize("name", ASKED)
def test_every_preset_and_three_together_of_every_task_and_variant(name, data):
    run = tiny(name, data)
    check_both(members(run) if name in FIRST_OF_A_KIND else [run])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n_layers", [1, 2])
def test_every_variant_in_double_precision(variant, n_layers):
    check_both(members(tiny(variant=variant, n_layers=n_layers, dtype="float64")), tolerance=1e-7)


def test_a_loss_of_its_own_in_double_precision(data):
    check_both(members(tiny("text", data, dtype="float64")), tolerance=1e-7)


@pytest.mark.parametrize(
    "fields",
    [
        {"weight_decay": "0.1 0.2:0.6=1.0..0.5", "lr": "0.001 0.4:0.8=0.003"},
        {"weight_decay_qk": 0.5, "weight_decay_mlp": "0 0.4:1=0.7"},
        {"rescale": "all=0.5@0 qk=2@3"},
        {"weight_noise": "W_Q=0.5@2", "freeze": "vo@0.5:1", "max_rank": "W_Q=2@0:0.5"},
        {"penalty": "nuclear:qk=0.01@0.4:0.8 stable_rank:W_in=0.1"},
        {"optimizer": "adam", "weight_decay_qk": "0.5 0:0.4=0"},
        {"optimizer": "muon", "weight_decay": 0.5},
    ],
    ids=["windows", "parts", "rescale", "held", "penalty", "adam", "muon"],
)
def test_what_a_recipe_changes_on_the_way(fields):
    check_both(members(tiny(dtype="float64", **fields)), tolerance=1e-7)


def test_products_in_bf16():
    check_both(members(tiny(matmul="bf16")), tolerance=1e-2)


def test_products_in_tf32():
    runs = members(tiny())
    exact = train_many([on("cpu", run) for run in runs], workers=1, progress=False)
    tf32 = [
        run._replace(train_config=replace(run.train_config, matmul="tf32", device="cuda")) for run in runs
    ]
    seen = []
    found = train_many(tf32[:1], progress=False)
    with numeric_settings(CUDA, tf32=True):
        seen.append(torch.get_float32_matmul_precision())
        found += train_many(tf32[1:], progress=False)
    assert seen == ["high"]
    for one, other in zip(found, exact, strict=True):
        check_same(list(one.log), list(other.log), 2e-2)


def stack_of(runs, device=CUDA):
    return engine_of(runs[0])(runs, [training_set(run.task, run.train_config) for run in runs], device)


def test_updates_are_one_graph_that_is_replayed():
    stack = stack_of(members(tiny()))
    stack.advance(2)
    graph = stack._graph
    stack.advance(5)
    assert graph is not None and stack._graph is graph
    if hasattr(graph, "replays"):  # the stand-in counts them
        assert graph.replays == 5


def test_training_may_go_on_behind_its_last_step():
    """As when a plan measures for longer than expected: the rate stays what it was at the end."""
    cpu, gpu = stack_of([tiny()], torch.device("cpu")), stack_of([tiny()])
    assert tiny().train_config.total_steps == 5
    check_same(gpu.advance(9), cpu.advance(9), 1e-4)


@pytest.mark.parametrize("name", ["quick", "text"])
@pytest.mark.parametrize(("first", "then"), [("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")])
def test_a_killed_run_goes_on(name, first, then, data, tmp_path, monkeypatch):
    run = tiny(name, data, dtype="float64", steps=8, log_every=1, eval_every=8, state_every_seconds=1e-9)
    expected = train(*on("cpu", run), progress=False)

    class Killed(Exception):
        pass

    def die(self, trajectory, show, advance=Loop._advance):
        if self.stack.step == 5:
            raise Killed
        advance(self, trajectory, show)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Loop, "_advance", die)
        train(*on(first, run), out=tmp_path / "run", progress=False)
    found = train(*on(then, run), out=tmp_path / "run", resume=True, progress=False)
    check_same(list(found.log), list(expected.log), 1e-7)
    stored = replace(load_checkpoint(tmp_path / "run" / "ckpt.pt"), task=run.task)
    check_same(stored.evaluate(device="cuda").to_dict(), expected.behaviour.to_dict(), 1e-7)


def test_a_stack_is_resumed_and_a_member_that_diverges_touches_no_other(tmp_path):
    runs = [on("cuda", run) for run in members(tiny())]
    runs[1] = runs[1]._replace(train_config=replace(runs[1].train_config, lr=1e38))
    outs = [tmp_path / str(k) for k in range(3)]
    first = train_many(runs, outs=outs, progress=False)
    assert [result.status for result in first] == ["finished", "diverged", "finished"]
    alone = train_many(runs[::2], progress=False)
    for found, wanted in zip(first[::2], alone, strict=True):
        check_same(list(found.log), list(wanted.log), 1e-3)
    again = train_many(runs, outs=outs, resume=True, progress=False)
    for found, wanted in zip(again, first, strict=True):
        check_same(found.behaviour.to_dict(), wanted.behaviour.to_dict(), 1e-3)


class TestASecondGpu:
    @pytest.fixture(autouse=True)
    def two(self):
        if torch.cuda.device_count() < 2:
            pytest.skip("one GPU here")

    def test_trains_after_the_first_and_before_it(self):
        expected = train(*on("cpu", tiny()), progress=False)
        for device in ("cuda:0", "cuda:1", "cuda:0"):
            found = train(*on(device, tiny()), progress=False)
            check_same(list(found.log), list(expected.log), 1e-4)
        on_second = train(*on("cuda:1", tiny()), progress=False).model
        assert (on_second.cfg.device, str(on_second.W_E.device)) == ("cuda:1",) * 2
        assert on_second(torch.zeros(1, 9, dtype=torch.int64)).device == torch.device("cuda:1")


def test_threads_capture_one_after_the_other(monkeypatch):
    """While one records its graph, another that wants to waits; a third may ask for numbers meanwhile."""
    slow, other = stack_of([tiny()]), stack_of([tiny(seed=1)])
    for stack in (slow, other):
        stack._begin_epoch(0)
    waiting, update, n_updates = threading.Thread(target=other._capture), slow._update, []
    number, asked = torch.ones(1, device=CUDA), []
    asking = threading.Thread(target=lambda: asked.append(number.item()))

    def noticed():
        n_updates.append(1)
        if len(n_updates) == 4:  # the one that is recorded
            asking.start()
            asking.join()
            waiting.start()
            waiting.join(timeout=0.2)
            assert waiting.is_alive() and engine._CAPTURING.locked() and other._graph is None
        update()

    monkeypatch.setattr(slow, "_update", noticed)
    slow._capture()
    waiting.join()
    assert asked == [1]
    for stack in (slow, other):
        alone = stack_of(stack.runs)
        check_same(stack.advance(3), alone.advance(3), 1e-6)


class TestMemory:
    def test_is_given_back(self):
        train_many([on("cuda", run) for run in members(tiny())], progress=False)
        gc.collect()  # of what tests before it left
        before = torch.cuda.memory_allocated()  # with what cuBLAS keeps
        train_many([on("cuda", run) for run in members(tiny())], progress=False)
        assert torch.cuda.memory_allocated() == before

    def test_of_members_that_have_ended_is_a_row_each(self):
        runs = [tiny(seed=seed, steps=40, log_every=1, eval_every=40) for seed in range(8)]
        together = [Member(run, training_set(run.task, run.train_config), None) for run in runs]
        loop = Loop(together, CUDA)
        for k in range(4):
            loop._advance(set(), lambda done, text: None)
            loop._end(k, together[k], "stopped early")
        storages = {member.good[1].untyped_storage().nbytes() for member in together}
        assert storages == {4 * loop.stack.layout.size}
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        loop._shrink()  # the larger stack is gone before the smaller takes its memory
        assert len(loop.stack) == 4 and torch.cuda.max_memory_allocated() == before
        assert torch.cuda.memory_allocated() < before

    def test_of_the_host_bounds_a_stack_too(self, monkeypatch):
        run = on("cuda", tiny())
        cost = count_cost(run)
        room = {"cuda": 100 * cost.bytes, "cpu": 6.5 * (cost.data_bytes + cost.state_bytes) / plan.USABLE}
        monkeypatch.setattr(plan, "available_bytes", lambda device: room[device.type])
        assert plan.members_at_once(run, 12) == 6


def test_every_kind_of_task_is_planned(data):
    for name in ("quick", "text", "concept_graphs"):
        found = plan.training_plan([on("cuda", tiny(name, data))] * 2, seconds=0.01)
        assert found.at_once == 2 and found.seconds > 0


@pytest.mark.parametrize("name", ["quick", "text", "scan", "concept_graphs"])
def test_a_default_device_of_the_caller_changes_nothing(name, data):
    expected = train(*on("cpu", tiny(name, data)), progress=False)
    torch.set_default_device("cuda")
    try:
        found = train(*on("cuda", tiny(name, data)), progress=False)
        check_same(list(found.log), list(expected.log), 1e-3)
        check_same(found.behaviour.to_dict(), expected.behaviour.to_dict(), 1e-3)
    finally:
        torch.set_default_device(None)

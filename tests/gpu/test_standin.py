"""The stand-in for CUDA itself: it refuses what CUDA refuses, sees each wait, replays what was captured."""

import gc
import threading

import pytest
import standin_cuda
import torch
from standin_cuda import WAITS, Memory

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not standin_cuda.is_installed(), reason="there is no stand-in in this process"),
]
CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def no_waits():
    WAITS.clear()


def captured(function, **options):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        function()
    return graph


def test_tensors_say_where_they_are_and_compute_what_the_cpu_does():
    x = torch.arange(12.0).view(3, 4)
    on = x.to(CUDA).requires_grad_()
    assert on.is_cuda and on.device == CUDA and not on.is_cpu and on[1:].T.device == CUDA
    loss = (on.softmax(dim=1)[:, :2] ** 2).sum()
    expected = x.clone().requires_grad_()
    (expected.softmax(dim=1)[:, :2] ** 2).sum().backward()
    loss.backward()
    assert on.grad.device == CUDA and torch.equal(on.grad.cpu(), expected.grad)


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x, y: x + y,
        lambda x, y: x @ y,
        lambda x, y: torch.cat([x, y]),
        lambda x, y: x.to("cuda:1") + x,
        lambda x, y: y[x.long()],
        lambda x, y: torch.nn.functional.cross_entropy(x, y[:, 0].long()),
        lambda x, y: torch.nn.functional.layer_norm(x, (3,), y[0], y[1]),
    ],
)
def test_two_devices_are_refused(mixed):
    with pytest.raises(RuntimeError, match="at least two devices"):
        mixed(torch.ones(3, 3, device=CUDA), torch.ones(3, 3))
    with pytest.raises(TypeError, match="to numpy"):
        torch.ones(3, device=CUDA).numpy()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(3, device="cuda:2")


def test_numbers_and_indices_of_the_cpu_are_taken():
    x = torch.ones(3, 3, device=CUDA)
    assert (x * torch.tensor(2.0)).sum().item() == 18 and x[torch.tensor([0, 2])].shape == (2, 3)


@pytest.mark.parametrize(
    "waits",
    [
        lambda x, y: x.sum().item(),
        lambda x, y: bool(x.any()),
        lambda x, y: x.cpu(),
        lambda x, y: y.to(CUDA),
        lambda x, y: y.to(CUDA, non_blocking=True),  # of memory that is not pinned
        lambda x, y: x.copy_(y),
        lambda x, y: x[x > 0],
        lambda x, y: x.unique(),
        lambda x, y: torch.tensor([1.0], device=CUDA),
    ],
)
def test_each_wait_is_seen_and_refused_while_capturing(waits):
    x, y = torch.ones(3, 3, device=CUDA), torch.ones(3, 3)
    waits(x, y)
    assert len(WAITS) == 1
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        captured(lambda: waits(x, y))


def test_what_needs_no_wait_is_none():
    x, y = torch.zeros(3, 3, device=CUDA), torch.ones(3, 3).pin_memory()
    x.copy_(y, non_blocking=True)
    (x @ x).argmax(dim=1, keepdim=True).add_(1)
    torch.where(x > 0, x, y.to(CUDA, non_blocking=True)).index_select(0, torch.arange(2, device=CUDA))
    assert not WAITS


class TestGraphs:
    def test_capture_changes_nothing_and_replay_does_it_again_in_place(self):
        x, out = torch.ones(3, device=CUDA), torch.zeros(3, device=CUDA)
        made = []

        def work():
            made.append(x * 2)
            out.add_(made[0])

        graph = captured(work)
        assert out.tolist() == [0, 0, 0] and made[0].isnan().all()
        graph.replay()
        x.fill_(5)
        graph.replay()
        assert out.tolist() == [12, 12, 12] and made[0].tolist() == [10, 10, 10]

    def test_memory_that_is_bound_anew_after_capture_is_not_read(self):
        held = {"x": torch.ones(3, device=CUDA)}
        out = torch.zeros(3, device=CUDA)
        graph = captured(lambda: out.copy_(held["x"]))
        held["x"] = torch.full((3,), 7.0, device=CUDA)
        graph.replay()
        assert out.tolist() == [1, 1, 1]

    def test_the_default_stream_is_of_the_device_of_the_first_capture(self):
        captured(lambda: torch.ones(1, device=CUDA))
        x = torch.zeros(1, device="cuda:1")
        with torch.cuda.device("cuda:1"):
            graph = captured(lambda: x.add_(1))
            again = captured(lambda: x.add_(1), stream=torch.cuda.Stream())
        assert not graph.nodes and len(again.nodes) == 1
        assert x.tolist() == [1]  # the first was carried out instead of captured

    @pytest.mark.parametrize("mode", ["global", "thread_local"])
    def test_another_thread_may_wait_in_thread_local_mode_alone(self, mode):
        x, problems = torch.ones(3, device=CUDA), []

        def other():
            try:
                x.sum().item()
            except RuntimeError as error:
                problems.append(error)

        def work():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

        assert not captured(work, capture_error_mode=mode).nodes
        assert bool(problems) == (mode == "global")


def test_memory_is_counted_while_it_is_alive():
    gc.collect()
    before = Memory.allocated[0]
    x = torch.zeros(1000, device=CUDA)
    view = x[10:]
    assert Memory.allocated[0] - before == 4096 == torch.cuda.memory_allocated(CUDA) - before
    del x
    assert Memory.allocated[0] - before == 4096
    del view
    assert Memory.allocated[0] == before

"""CUDA graphs on the stand-in for CUDA: operations are recorded, and done again in the same memory.

Capture computes nothing, on CUDA. Here what it wrote is put back, and what it made is filled with NaN, so
that who reads it before a replay sees a wrong number.
"""

import threading

import torch
from standin_cuda import State, call, index_of, tensors_of, wait


def _storage(tensor):
    return tensor.untyped_storage()._cdata


class CUDAGraph:
    """What was launched between the beginning and the end of a capture."""

    def __init__(self) -> None:
        self.nodes = []  # (operation, arguments, options, what it made, all that it returned)
        self.replays = 0
        self._born, self._kept = set(), {}

    def before(self, func, args, kwargs) -> None:
        """Keep what stands in the memory that an operation is going to change."""
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for tensor in tensors_of(args[place] if place < len(args) else kwargs.get(argument.name)):
                if _storage(tensor) not in self._born:
                    storage = tensor.untyped_storage()
                    self._kept.setdefault(storage._cdata, (storage, storage.clone()))

    def after(self, func, args, kwargs, out) -> None:
        """Record an operation that has made or changed something."""
        given = {_storage(tensor) for tensor in tensors_of((args, kwargs))}
        new = [tensor for tensor in tensors_of(out) if _storage(tensor) not in given]
        self._born.update(_storage(tensor) for tensor in new)
        if new or func._schema.is_mutable:
            self.nodes.append((func, args, kwargs, new, out))

    def fill(self, made: torch.Tensor) -> None:
        """Record a kernel that fills a new tensor with constants."""
        self._born.add(_storage(made))
        constant = made.clone()
        self.nodes.append((lambda: constant, (), {}, [made], made))

    def begin(self) -> None:
        """Record from now on."""
        if State.graph is not None:
            raise RuntimeError("CUDA error: another capture is under way")
        State.graph, State.captured_by = self, threading.current_thread()

    def end(self) -> None:
        """Undo what capture would not have done."""
        State.graph = State.captured_by = None
        for storage, kept in self._kept.values():
            storage.copy_(kept)
        self._kept.clear()
        for *_, new, _ in self.nodes:
            for tensor in new:
                if tensor.is_floating_point():
                    tensor.detach().fill_(float("nan"))
                elif tensor.dtype != torch.bool:
                    tensor.detach().fill_(-(2**40) if tensor.dtype == torch.int64 else 1)

    def replay(self) -> None:
        """Do it all again."""
        if State.graph is not None and State.captured_by is threading.current_thread():
            raise RuntimeError("CUDA error: replay while capturing")
        self.replays += 1
        with torch.no_grad():
            for func, args, kwargs, new, out in self.nodes:
                again = call(func, args, kwargs)
                for old, fresh in zip(tensors_of(out), tensors_of(again), strict=True):
                    if any(old is each for each in new):
                        old.copy_(fresh)


class Stream:
    """A stream of a device; here everything happens in order."""

    def __init__(self, device=None) -> None:
        self.index = index_of("cuda" if device is None else device)

    def wait_stream(self, other) -> None:
        """Nothing is left to wait for."""


class graph:
    """The context in which a graph is captured, on the stream that is given or one for the whole process."""

    default_stream = None

    def __init__(self, cuda_graph, stream=None, capture_error_mode="global") -> None:
        if stream is None:
            stream = graph.default_stream = graph.default_stream or Stream()
        self.graph, self.stream, self.mode = cuda_graph, stream, capture_error_mode

    def __enter__(self) -> None:
        wait("capture")
        self.captures = self.stream.index == State.current  # else nothing of this device is captured
        if self.captures:
            State.capture_mode = self.mode
            self.graph.begin()

    def __exit__(self, *error) -> None:
        if self.captures:
            self.graph.end()


class current_device:
    """`torch.cuda.device`: what "cuda" means inside."""

    def __init__(self, device) -> None:
        self.index = index_of(device)

    def __enter__(self) -> None:
        self.before, State.current = State.current, self.index

    def __exit__(self, *error) -> None:
        State.current = self.before

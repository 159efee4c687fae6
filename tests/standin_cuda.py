"""A stand-in for CUDA where there is none: tensors that claim `cuda:N`, and whose numbers lie on the CPU.

`install()` makes `torch.device("cuda")` usable in a CPU-only torch, for the rest of the process:

* What is made there, moved there, or computed from such tensors is `OnDevice`, a wrapper around an ordinary
  tensor. `.device` says cuda:N and `.is_cuda` is true, so that code takes its branches for CUDA. Views,
  in-place operations, autograd (in a thread of its own, as CUDA's), torch.func and fused AdamW work.
* Tensors of two devices are refused where CUDA refuses them, and so is `.numpy()`.
* `WAITS` notes each wait of the host for the device, with the line of the package that waited.
* `torch.cuda.graph` records what is launched; `replay` does it again in the same memory (`standin_graphs`).
* `torch.cuda.memory_allocated` and its like count the bytes of the storages that are alive.

To C++ the device is PrivateUse1, torch's own door for backends in Python. Nothing is said of what only a GPU
has: kernels and their precision, atomics, streams that run beside each other, the allocator, speed.
"""

import contextlib
import ctypes
import functools
import pathlib
import re
import sys
import threading
import types
import warnings

import torch
from torch.utils._device import DeviceContext
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

aten = torch.ops.aten
BACKEND = "standin"
N_DEVICES, TOTAL_BYTES = 2, 80 * 2**30
WAITS: list[str] = []
"""What the host waited for, and where, in order."""
CONSTRAINTS = pathlib.Path(__file__).parents[1] / "constraints.txt"


class State:
    """What CUDA keeps for the process."""

    current = 0
    """The device that "cuda" means."""
    last = 0
    """The device of the last operation, which is that of what C++ makes on behalf of a tensor."""
    graph = None
    """What is being captured, by which thread, and in which mode."""
    captured_by = None
    capture_mode = "global"
    sync = "default"


def why_not() -> str | None:
    """Why there can be no stand-in in this process; None where there can be one."""
    pinned = re.search(r"^torch==(\S+)", CONSTRAINTS.read_text(), re.MULTILINE)[1]
    if torch.cuda.is_available():
        return "there is a real GPU, on which the tests marked gpu run with all the others"
    if torch.version.cuda is not None or torch.__version__.split("+")[0] != pinned:
        return f"the stand-in for CUDA wants the CPU build of torch {pinned}, and this is {torch.__version__}"
    return None


# -- waits and memory ---------------------------------------------------------------------------------------


def wait(what: str) -> None:
    """Note that the host waits, or refuse where CUDA does."""
    WAITS.append(f"{what} at {_where()}")
    if State.sync == "error":
        raise RuntimeError(f"called a synchronizing CUDA operation: {WAITS[-1]}")
    if State.graph is not None and (State.capture_mode == "global" or recording() is not None):
        raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing: {WAITS[-1]}")


def recording():
    """The graph that this thread captures; the autograd engine's thread works for the one that captures."""
    ours = State.captured_by is threading.current_thread()
    return State.graph if ours or isinstance(threading.current_thread(), threading._DummyThread) else None


def _where() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if "/anchorlens/" in name and "site-packages" not in name:
            return f"{name.rsplit('/anchorlens/', 1)[1]}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "?"


class Memory:
    """Bytes of the storages that are alive, by device, in blocks of 512 as CUDA's allocator gives them."""

    allocated, peak = [0] * N_DEVICES, [0] * N_DEVICES
    _held: dict[int, int] = {}

    def __init__(self, inner: torch.Tensor, index: int) -> None:
        """Hold the storage of a tensor for as long as this is alive."""
        storage = inner.untyped_storage()
        self.key, self.index, self.bytes = storage._cdata, index, -(-storage.nbytes() // 512) * 512
        held = self._held.setdefault(self.key, 0)
        self._held[self.key] += 1
        if not held:
            self.allocated[index] += self.bytes
            self.peak[index] = max(self.peak[index], self.allocated[index])

    def __del__(self) -> None:
        self._held[self.key] -= 1
        if not self._held[self.key]:
            del self._held[self.key]
            self.allocated[self.index] -= self.bytes


# -- tensors ------------------------------------------------------------------------------------------------


def index_of(device) -> int | None:
    """Which of our devices is meant; None where it is another or none."""
    if isinstance(device, int):
        device = torch.device("cuda", device)
    elif isinstance(device, str):
        device = torch.device(device)
    if device is None or device.type not in ("cuda", BACKEND):
        return None
    index = State.current if device.index is None else device.index
    if index >= N_DEVICES:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return index


class OnDevice(torch.Tensor):
    """A tensor that says cuda:N; `_inner` has its numbers."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor, index: int):
        assert type(inner) in (torch.Tensor, torch.nn.Parameter) and inner.device.type == "cpu"
        if inner.is_inference() != torch.is_inference_mode_enabled():  # a view of an ordinary one is ordinary
            with torch.inference_mode(inner.is_inference()):
                return cls.__new__(cls, inner, index)
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device(BACKEND, 0),  # one queue of the autograd engine for all
        )
        made._inner, made._index, made._memory = inner, index, Memory(inner, index)
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: torch.device("cuda", self._index))
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    def get_device(self):
        return self._index

    def new_tensor(self, data, **options):
        return torch.tensor(data, **{"dtype": self.dtype, "device": self.device, **options})

    def tolist(self):
        wait("tolist")
        return self._inner.tolist()

    def numpy(self, *, force=False):
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first")

    def __array__(self, dtype=None, copy=None):
        return self.numpy()

    def untyped_storage(self):
        return self._inner.untyped_storage()

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            with torch.no_grad():
                made = self.detach().clone()
            parameter = getattr(self, "_is_param", False)
            memo[id(self)] = torch.nn.Parameter(made) if parameter else made
            memo[id(self)].requires_grad_(self.requires_grad)
        return memo[id(self)]

    def __repr__(self):
        return f"OnDevice({self._inner!r}, {self.device})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


_tensor_to = torch.Tensor.to


def to(self, *args, device=None, dtype=None, other=None, non_blocking=False, copy=False, **kwargs):
    """`Tensor.to`, from and to our devices too."""
    for value in (*args, *([] if other is None else [other])):
        if isinstance(value, torch.Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, bool):
            non_blocking = value
        elif value is not None:
            device = value
    device = torch.device("cuda", device) if isinstance(device, int) else device
    device = torch.device(device) if isinstance(device, str) else device
    dtype, index = dtype or self.dtype, index_of(device)
    ours = isinstance(self, OnDevice)
    here = self._index if ours else None
    options = {"dtype": dtype, "copy": copy, "non_blocking": non_blocking, **kwargs}
    if self.device.type == BACKEND or (ours and (device is None or device.type == BACKEND or index == here)):
        # the first is one of ours in the wrapping of torch.func
        if ours and dtype == self.dtype and not copy and not kwargs:
            return self
        stays = device is None or index is not None
        return _tensor_to(self, device=torch.device(BACKEND, 0) if stays else device, **options)
    if index is None:
        return _tensor_to(self, device=device or self.device, **options)
    if self.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError("the stand-in has no gradient of a copy to another device")
    if not ours and not (non_blocking and getattr(self, "_pinned", False)):
        wait("copy from the host")
    inner = self._inner if ours else self
    return OnDevice(_tensor_to(inner.detach(), dtype).clone(memory_format=torch.preserve_format), index)


def mapped(change, tree):
    """What an operation takes or returns, with every tensor changed."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, tuple | list):
        return type(tree)([mapped(change, part) for part in tree])
    if isinstance(tree, dict):
        return {name: mapped(change, part) for name, part in tree.items()}
    return tree


def tensors_of(tree) -> list[torch.Tensor]:
    """Every tensor in what an operation takes or returns."""
    found = []
    mapped(found.append, tree)
    return found


# -- what an operation does ---------------------------------------------------------------------------------

_ACROSS = {aten.copy_.default, aten._to_copy.default}
_INDEXED = {
    aten.index.Tensor,
    aten.index_put_.default,
    aten.index_put.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
    aten._unsafe_index_put.default,
}
_TAKE_SCALARS = {
    aten.where.self,
    aten.fill_.Tensor,
    aten.masked_fill_.Tensor,
    aten.masked_fill.Tensor,
    aten.index_fill_.int_Tensor,
    aten.lerp.Tensor,
}
"""They take a number from the CPU too, though torch does not tag them as pointwise."""
_WAIT = {
    *("_local_scalar_dense", "nonzero", "masked_select", "equal", "bincount", "repeat_interleave"),
    *("unique_dim", "_unique2", "_unique", "unique_consecutive"),
    *("_linalg_svd", "_linalg_eigh", "linalg_eig", "linalg_lstsq", "linalg_qr", "_linalg_slogdet"),
}


def _check(func, ours, others, args, kwargs) -> None:
    """Refuse devices that do not go together."""
    if func in _ACROSS:
        return
    if func in _INDEXED:  # indices may lie on the CPU
        others = [
            x for x in (args[0], *args[2:]) if isinstance(x, torch.Tensor) and not isinstance(x, OnDevice)
        ]
        others = [x for x in others if x.dim() > 0 or x is args[0]]
    elif torch.Tag.pointwise in func.tags or func in _TAKE_SCALARS or "::_foreach" in func.name():
        others = [x for x in others if x.dim() > 0]
    found = {str(x.device) for x in (*ours, *others)}
    if isinstance(kwargs.get("generator"), torch.Generator):
        found.add("the CPU's generator")
    if len(found) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(sorted(found))}! (operation {func.name()})"
        )
    if func in (aten._fused_adamw_.tensor_lr, aten._fused_adamw_.default):
        numbers = [*args[5], *(kwargs.get(name) for name in ("found_inf", "grad_scale"))]
        if any(x is not None and (not isinstance(x, OnDevice) or x.dtype != torch.float32) for x in numbers):
            raise RuntimeError("fused AdamW wants its steps and found_inf in float32 on the device")


def _note_waits(func, others, args, kwargs) -> None:
    name, device = func.name().split("::")[1].split(".")[0], kwargs.get("device")
    if name in _WAIT:
        wait(name)
    elif func in _INDEXED and others and any(x is y for x in others for y in args[1]):
        wait("index from the host")
    elif func in _INDEXED and any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1]):
        wait("boolean mask")
    elif func is aten.copy_.default and others:
        non_blocking = kwargs.get("non_blocking") or len(args) > 2 and args[2]
        if not (non_blocking and getattr(others[0], "_pinned", False)):
            wait("copy from the host" if isinstance(args[0], OnDevice) else "copy to the host")
    elif func is aten._to_copy.default and device is not None and device.type == "cpu":
        wait("copy to the host")


@functools.cache
def _is_composite(func) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


def call(func, args, kwargs):
    """An operation on the CPU; the caller's autocast of the CPU is not the device's."""
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        return func(*args, **kwargs)


def run(func, args, kwargs):
    """One operation: checked, done on the CPU, its results wrapped."""
    if torch.is_inference_mode_enabled() and _is_composite(func):  # there nothing has taken it apart yet
        return func.decompose(*args, **kwargs)
    tensors = tensors_of((args, kwargs))
    ours = [x for x in tensors if isinstance(x, OnDevice)]
    if ours:
        others = [x for x in tensors if not isinstance(x, OnDevice)]
        _check(func, ours, others, args, kwargs)
        _note_waits(func, others, args, kwargs)
        State.last = ours[0]._index
    device, index = kwargs.get("device"), State.last
    leaves = func in _ACROSS | _INDEXED and bool(args) and not isinstance(args[0], OnDevice)  # for the CPU
    if device is not None:
        if device.type != BACKEND:
            there = index_of(device)
            leaves, index = there is None, index if there is None else there
        kwargs = {**kwargs, "device": device if leaves else torch.device("cpu"), "pin_memory": None}
        kwargs = {name: value for name, value in kwargs.items() if value is not None}
    inner_args, inner_kwargs = mapped(lambda x: x._inner if isinstance(x, OnDevice) else x, (args, kwargs))
    graph = recording() if ours else None
    if graph is not None:
        graph.before(func, inner_args, inner_kwargs)
    out = call(func, inner_args, inner_kwargs)
    if graph is not None:
        graph.after(func, inner_args, inner_kwargs, out)
    if leaves:
        return out if device is not None else args[0] if func._schema.is_mutable else out
    known = {id(x._inner): x for x in ours}

    def wrapped(x):
        mine = known.get(id(x))
        if mine is None:
            return OnDevice(x, index)
        if mine.shape != x.shape or mine.stride() != x.stride():
            mine.data = OnDevice(x, mine._index)
        return mine

    return mapped(wrapped, out)


# -- installation -------------------------------------------------------------------------------------------

_FACTORIES = ("arange", "linspace", "eye", "empty", "zeros", "ones", "full", "rand", "randn", "randint")
_COPIES = ("tensor", "as_tensor", "scalar_tensor")


def _default_device():
    modes = torch.overrides._get_current_function_mode_stack()
    return next((mode.device for mode in reversed(modes) if isinstance(mode, DeviceContext)), None)


def _factory(name: str):
    original, copies = getattr(torch, name), name in _COPIES

    @functools.wraps(original)
    def made(*args, device=None, pin_memory=False, requires_grad=False, **kwargs):
        index = index_of(_default_device() if device is None else device)
        options = {**kwargs, **({"requires_grad": True} if requires_grad else {})}
        if index is None:
            plain = original(*args, **options, **({} if device is None else {"device": device}))
            if pin_memory:
                plain._pinned = True
            return plain
        if copies and isinstance(args[0], OnDevice):
            return args[0].to(torch.device("cuda", index), kwargs.get("dtype"))
        if isinstance(kwargs.get("generator"), torch.Generator):
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        if copies:
            wait(f"{name} from the host")
        with torch._C._DisableFuncTorch():
            inner = original(*args, device="cpu", **kwargs)
            inner = inner.detach().clone() if copies else inner
        if recording() is not None:
            recording().fill(inner)
        made = OnDevice(inner, index)
        return made.requires_grad_() if requires_grad else made

    return made


def _fallback(op, *args, **kwargs):
    with torch._C._AutoDispatchBelowAutograd():
        return run(op, args, kwargs)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    copied = tensor.clone()
    copied._pinned = True
    return copied


class _Backend(types.ModuleType):
    """What torch looks up of the renamed backend."""

    is_available = is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: N_DEVICES)
    current_device = staticmethod(lambda: State.current)
    _is_in_bad_fork = staticmethod(lambda: False)
    manual_seed_all = staticmethod(lambda seed: None)
    _lazy_init = staticmethod(lambda: None)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16, torch.float16])


_LIBRARIES = []


def install() -> None:
    """Make cuda usable in this process, for good; before any tensor is made."""
    import standin_graphs as graphs
    import torch.amp.autocast_mode
    import transformer_lens  # noqa: F401

    assert why_not() is None and not _LIBRARIES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _setup_privateuseone_for_python_backend(BACKEND, _Backend(BACKEND))
    # C++ asks the guard of the device type: where Python says cuda, that of our device answers
    c10 = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 21).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    guards[1] = guards[20]
    for key in ("CUDA", "PrivateUse1"):
        _LIBRARIES.append(torch.library.Library("_", "IMPL"))
        _LIBRARIES[-1].fallback(_fallback, key)
    for name in (*_FACTORIES, *_COPIES):
        setattr(torch, name, _factory(name))
    torch.Tensor.to = to
    torch.Tensor.cpu = lambda self: self.to("cpu")
    torch.Tensor.cuda = lambda self, device=None: self.to("cuda" if device is None else device)
    torch.Tensor.pin_memory = _pinned
    torch.__future__.set_swap_module_params_on_conversion(True)

    def allocated(device=None):
        return Memory.allocated[index_of("cuda" if device is None else device)]

    for name, value in {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: N_DEVICES,
        "current_device": lambda: State.current,
        "set_device": lambda device: setattr(State, "current", index_of(device)),
        "set_sync_debug_mode": lambda mode: setattr(State, "sync", mode),
        "synchronize": lambda device=None: wait("synchronize"),
        "empty_cache": lambda: None,
        "get_device_name": lambda device=None: "stand-in",
        "mem_get_info": lambda device=None: (TOTAL_BYTES - allocated(device), TOTAL_BYTES),
        "memory_allocated": allocated,
        "memory_reserved": allocated,
        "max_memory_allocated": lambda device=None: Memory.peak[
            index_of("cuda" if device is None else device)
        ],
        "reset_peak_memory_stats": lambda device=None: Memory.peak.__setitem__(slice(None), Memory.allocated),
        "Stream": graphs.Stream,
        "CUDAGraph": graphs.CUDAGraph,
        "graph": graphs.graph,
        "device": graphs.current_device,
        "current_stream": lambda device=None: graphs.Stream(device),
        "stream": lambda stream: contextlib.nullcontext(),
    }.items():
        setattr(torch.cuda, name, value)
    torch.amp.autocast_mode.amp_definitely_not_available = lambda: False
    # HookedTransformer asserts that its input is of the type torch.Tensor and of no other
    library = sys.modules["transformer_lens.HookedTransformer"]
    library.type = lambda x: torch.Tensor if type(x) is OnDevice else type(x)


def is_installed() -> bool:
    """Whether this process has the stand-in."""
    return bool(_LIBRARIES)

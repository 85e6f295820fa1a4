"""``torch.compile`` with inductor. Where the process can touch the device's memory, inductor's C++ kernels run on it,
as work of the current stream. Elsewhere kernels are generated in the device's language: :mod:`chorus_device.codegen`.

Inductor asks ``torch.<name>`` for a :class:`Scheduling` at its first use. That loads this module, which registers the
rest. A kernel is inductor's kernel for the CPU, with an entry point that takes its arguments from an array. The program
around the kernels passes it to :func:`launch`.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import hashlib
import inspect
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch._inductor import custom_graph_pass
from torch._inductor.codegen.common import register_backend_for_device, register_device_op_overrides
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen as Wrapper
from torch._inductor.codegen.wrapper import SubgraphPythonWrapperCodegen as Subgraph
from torch._inductor.scheduler import BaseSchedulerNode
from torch._inductor.virtualized import V

from chorus_device import dynamo, namespace
from chorus_device._device import c, name
from chorus_device._operators import native_operators
from chorus_device.codegen import eager

VARIABLE = "CHORUS_COMPILED_KERNELS"

_launch = c().launch
_constant: dict[str, int] = {}  # of the kernels of the program that's being written, by name


def launch(kernel: Any, title: str, constant: int, *arguments: Any) -> None:
    """Enqueue a compiled kernel on the current stream of its tensors' device. It only reads the tensors whose bits are
    set in ``constant``."""
    try:
        address = kernel.address
    except AttributeError:
        address = kernel.address = ctypes.cast(kernel, ctypes.c_void_p).value
    _launch(address, title, constant, *arguments)


def entered(source: str) -> tuple[str, int]:
    """The source of inductor's kernel for the CPU, ``async_compile.cpp_pybinding(types, r'''...''')``, with an entry
    point added that takes its arguments from an array. The number has a bit for each argument that it only reads."""
    found = re.match(r"async_compile\.cpp_pybinding\((\[.*?\]), r?'''\n", source, re.DOTALL)
    if found is None:
        raise NotImplementedError(f"{name()}: inductor writes its kernels in a way that is not known: {source[:200]}")
    types: list[str] = ast.literal_eval(found[1])
    code = source[found.end() :].rstrip().removesuffix("''')")
    code, n = re.subn(r'(extern "C"[^(;{]*\s)kernel\(', r"\1body(", code, count=1)
    if n != 1:
        raise NotImplementedError(f"{name()}: inductor's kernel has a name that is not known: {code[:200]}")
    taken = ", ".join(
        f"static_cast<{t}>(*static_cast<void**>(from[{i}]))" if "*" in t else f"*static_cast<{t}*>(from[{i}])"
        for i, t in enumerate(types)
    )
    constant = sum(1 << i for i, t in enumerate(types[:64]) if t.startswith("const ") and "*" in t)
    return f"async_compile.cpp(r'''\n{code}\nextern \"C\" void kernel(void** from) {{ body({taken}); }}\n''')", constant


class Own:
    """The parts of the program around the kernels that differ from the CPU's."""

    _own = False  # whether the kernels being written are the device's, not the CPU's
    _streams = False  # whether the program uses the user's streams

    @contextlib.contextmanager
    def of_device(self) -> Iterator[None]:
        self._own = True
        try:
            yield
        finally:
            self._own = False

    def write_header(self) -> None:
        super().write_header()  # type: ignore[misc]
        imports: Any = self.imports  # type: ignore[attr-defined]
        imports.splice("from chorus_device.inductor import launch as launch_on_stream\n")
        imports.splice("from chorus_device.codegen.launching import Source\n")

    def define_kernel(self, kernel_name: str, kernel_body: str, *args: Any, **kwargs: Any) -> Any:
        body = kernel_body
        if self._own:
            body, _constant[kernel_name] = entered(kernel_body)
        return super().define_kernel(kernel_name, body, *args, **kwargs)  # type: ignore[misc]

    def make_allocation(self, name: str, device: torch.device, *args: Any, **kwargs: Any) -> str:
        made: str = super().make_allocation(name, device, *args, **kwargs)  # type: ignore[misc]
        return made.replace(f"device='{device.type}'", f"device='{device}'")  # another device may be current

    def generate_kernel_call(self, kernel_name: str, call_args: Any, **kwargs: Any) -> None:
        if self._own:
            kwargs["device"] = torch.device(name())
        super().generate_kernel_call(kernel_name, call_args, **kwargs)  # type: ignore[misc]

    def _generate_kernel_call_helper(self, kernel_name: str, call_args: Any, **kwargs: Any) -> None:
        device = kwargs.get("device")
        if device is None or device.type != name():
            super()._generate_kernel_call_helper(kernel_name, call_args, **kwargs)  # type: ignore[misc]
            return
        given = ", ".join(map(str, call_args))
        self.writeline(f"launch_on_stream({kernel_name}, {kernel_name!r}, {_constant[kernel_name]}, {given})")  # type: ignore[attr-defined]

    def codegen_cuda_stream_enter(self, *args: Any, **kwargs: Any) -> Any:
        """Enter the user's stream for a part of the program. Inductor declares streams where it makes a device current,
        which it does only for its built-in devices."""
        if not self._streams:
            from torch._inductor.stream_utils import get_stream_name  # in PyTorch versions with such programs

            self._streams = True
            write: Any = self.writeline  # type: ignore[attr-defined]
            write(f"{get_stream_name(0)} = torch.accelerator.current_stream()")
            for i, given in V.graph.scheduler.stream_idx_to_user_obj_idx.items():
                objects = "torch._dynamo.graph_bytecode_inputs.get_external_object_by_index"
                write(f"{get_stream_name(i)} = {objects}({given})")
        return super().codegen_cuda_stream_enter(*args, **kwargs)  # type: ignore[misc]


class PythonWrapperCodegen(Own, Wrapper):
    @staticmethod
    def create(is_subgraph: bool, subgraph_name: Any, parent_wrapper: Any, partition_signatures: Any = None) -> Any:
        if not is_subgraph:
            return PythonWrapperCodegen()  # type: ignore[no-untyped-call]
        return OwnSubgraph(subgraph_name, parent_wrapper, partition_signatures)


class OwnSubgraph(Own, Subgraph):
    pass


class CppWrapperCodegen(Wrapper):
    """Not supported: the program around the kernels is in Python."""

    @staticmethod
    def create(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{name()}: torch.compile has no program in C++ around the kernels (cpp_wrapper)")


class Scheduling(CppScheduling):
    _ordered: bool | None = None  # whether the program uses events or streams of the user's

    def codegen_node(self, node: Any) -> None:
        with V.graph.set_current_device(torch.device("cpu")):  # these are the CPU's kernels
            super().codegen_node(node)

    def ready_to_flush(self) -> bool:
        """Whether to write kernels immediately: if the program may record an event after them, or continue on another
        stream. Nodes for these have no device, so PyTorch wouldn't flush before them."""
        if self._ordered is None:
            scheduler = V.graph.scheduler
            self._ordered = any(n.get_device() is None for n in scheduler.nodes) or bool(
                getattr(scheduler, "_multi_stream_nodes", False)
            )
        return self._ordered or bool(super().ready_to_flush())  # type: ignore[no-untyped-call]

    def flush(self) -> None:
        program: Any = V.graph.wrapper_code
        with program.of_device():
            super().flush()  # type: ignore[no-untyped-call]


def is_cpu(node: BaseSchedulerNode) -> bool:
    """Whether a fused node becomes a kernel like the CPU's."""
    device = node.get_device()
    return device is not None and (device.type == "cpu" or (device.type == name() and not generated()))


def generated() -> bool:
    """Whether kernels are generated in the language of the device, and not in C++ for the host's processor: if
    ``CHORUS_COMPILED_KERNELS`` says so, or if it's empty and the process can't touch the device's memory."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen not in ("", "device", "host"):
        raise ValueError(f"{VARIABLE} is {chosen!r}: it may be device or host")
    return chosen == "device" if chosen else _untouchable()


@functools.cache
def _untouchable() -> bool:
    """Whether the device compiles kernels, and the process can't touch its memory."""
    return bool(native_operators()) and not namespace.get_device_properties().host_access


class Chosen:
    """A class, since inductor asks of what class a device's scheduling is."""

    def __new__(cls, scheduler: Any) -> Any:
        kind: Any = Scheduling
        if generated():
            from chorus_device.codegen.scheduling import Scheduling as Generated

            kind = Generated
        return kind(scheduler)


class Overrides(CpuDeviceOpOverrides):
    def set_device(self, device_idx: int) -> str:
        return f"torch.accelerator.set_device_index({device_idx})"

    def synchronize(self) -> str:
        return "torch.accelerator.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.accelerator.device_index({device_idx})"


class CacheKey(getattr(custom_graph_pass, "CustomGraphModulePass", object)):  # type: ignore[misc]
    """Changes nothing in graphs. Its ``uuid`` is a part of the keys of inductor's caches on disk. So a program isn't
    used that is from another version of these modules, has the other kind of kernels, or is divided for another number
    of multiprocessors."""

    def __call__(self, graph: torch.fx.GraphModule) -> None:
        pass

    def uuid(self) -> str:
        here = pathlib.Path(__file__)
        count = dynamo.processors() if namespace.is_initialized() else 0  # inductor asks for the CPU's graphs, too
        key = hashlib.sha256(f"{generated()} {count}".encode())
        for file in (here, pathlib.Path(dynamo.__file__), *sorted(here.with_name("codegen").glob("*.py"))):
            key.update(file.read_bytes())
        return key.hexdigest()


setattr(BaseSchedulerNode, "is_cpu", is_cpu)  # noqa: B010
key = "device_custom_pass"
passes: Any = {key: CacheKey()} if key in inspect.signature(register_backend_for_device).parameters else {}
register_backend_for_device(name(), Chosen, PythonWrapperCodegen, CppWrapperCodegen, **passes)
register_device_op_overrides(name(), Overrides())
eager.install(generated)

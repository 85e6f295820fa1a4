"""Which operators become one kernel: inductor decides, and indexes have one dimension."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._inductor import config
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from chorus_device.codegen import types
from chorus_device.codegen.kernel import NAME, Kernel

log = logging.getLogger("torch._inductor.chorus")  # TORCH_LOGS=+inductor shows it


class Scheduling(SIMDScheduling):
    kernel_type = Kernel

    def codegen_node(self, node: Any) -> None:
        scheduler: Any = self.scheduler
        nodes = [n for n in node.get_nodes() if n.get_name() not in scheduler.removed_ops]
        lacking = next(filter(None, map(_lacking, nodes)), "")
        if not lacking:
            super().codegen_node(node)
            return
        log.info("%s: on the host, as generated kernels have no %s", ", ".join(n.get_name() for n in nodes), lacking)
        self._on_host(nodes)

    def _on_host(self, nodes: Sequence[Any]) -> None:
        """Write each node as a kernel for the host's processor."""
        from chorus_device.inductor import Scheduling as Host

        make: Any = Host
        host = make(self.scheduler)
        for node in nodes:
            node.group = (node.group[0], host.group_fn(node._sizes))
            host.codegen_node(node)
            host.flush()
        self.free_buffers_in_scheduler()

    @classmethod
    def get_backend_features(cls, device: torch.device) -> Any:
        return OrderedSet([BackendFeature.INPLACE_BUFFERS])

    @classmethod
    def get_tiling_and_scores(
        cls, node_schedule: Any, numel: Any, reduction_numel: Any = sympy.S.One, coalesce_analysis: Any = None
    ) -> Any:
        return cls.create_tiling([numel], [reduction_numel]), None

    def define_kernel(self, src_code: str, node_schedule: Sequence[Any], kernel: Kernel) -> str:
        program = V.graph.wrapper_code
        known: dict[str, str] = program.src_to_kernel
        if src_code not in known:
            fused = get_fused_kernel_name(node_schedule, config.triton.descriptive_names)
            name = f"chorus_{fused}"
            known[src_code] = variable = f"{name}_{program.next_kernel_suffix()}"
            text = src_code.replace(NAME, name)
            origins, details = get_kernel_metadata(node_schedule, program)
            body = f"Source({name!r}, {kernel.rows}, {kernel.checked}, r'''\n{text}''')"
            program.define_kernel(variable, body, f"{origins}\n{details}", gpu=False)
        return known[src_code]


_NONE = {"frexp", "scan", "sort", "bucketize", "device_assert_async", "dot", "inline_asm_elementwise", "halide_clamp"}


def _lacking(node: Any) -> str:
    """The thing that a node has and generated kernels haven't, or an empty text."""
    for dependence in (*node.read_writes.reads, *node.read_writes.writes):
        if not types.supported(V.graph.get_dtype(dependence.name)):
            return f"elements of {V.graph.get_dtype(dependence.name)}"
    body = node._body
    for block in (body.root_block, *body.subblocks.values()):
        for call in block.graph.nodes:
            values = (*call.args, *call.kwargs.values())
            for dtype in values:
                if isinstance(dtype, torch.dtype) and not types.supported(dtype):
                    return f"elements of {dtype}"
            if call.target in _NONE:
                return str(call.target)
            if call.target == "store" and "atomic_add" in values:
                (written,) = {w.name for w in node.read_writes.writes}
                if V.graph.get_dtype(written) not in types.ADDED:
                    return f"atomic addition of {V.graph.get_dtype(written)}"
            if call.target == "reduction" and "online_softmax_reduce" in values:
                return "online softmax"
    return ""

"""Which operators become one kernel: inductor decides, and indexes have one dimension."""

from __future__ import annotations

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

from chorus_device.codegen.kernel import NAME, Kernel


class Scheduling(SIMDScheduling):
    kernel_type = Kernel

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

"""Kernels of ``torch.compile`` in the language of the device's own kernels, docs/kernels.md, which the driver compiles:
inductor's schedule with a :class:`~chorus_device.codegen.kernel.Kernel` of ours on its SIMD base.

Module ``types`` has the types of C, and how values are converted. Module ``expressions`` writes indexes, and
``operators`` operators on values. Module ``kernel`` writes loads, stores, loops and reductions. Module ``scheduling``
says which operators become one kernel. Module ``launching`` runs kernels; the compiled program imports it.
"""

"""Measures the backend beside Gloo, in the same processes: ``python -m chorus.bench``.

Prints Markdown tables. Every number is the median of several samples, and samples of the different
kinds take turns. A sample of a collective is the time of some calls in sequence on the slowest rank.

=============  ==========================================================================
collectives    ``torch.distributed``'s functions, on ordinary and on shared memory
peers          all-reduce beside vLLM's and DeepSpeed's for CPUs, where ``--peers`` has them
ddp            a training step of a small transformer with DistributedDataParallel
inference      the all-reduces of a tensor-parallel inference step
layer          the cost of Python: from the call to the library
=============  ==========================================================================
"""

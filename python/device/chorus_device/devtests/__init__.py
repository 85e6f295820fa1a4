"""PyTorch's tests for all types of device, on one device of its key PrivateUse1: ``python -m chorus_device.devtests``.

The parts: ``programs`` has test programs that need no more than PyTorch's wheel, and PyTorch's own take their place if
a checkout is given. ``worker`` is a process that runs tests of one program, and ``shards`` has several of these run
all of them. ``state`` keeps what they find, from which ``logs``, ``page`` and ``table`` write the reports.
"""

"""Hooks that are ready for use: a flight recorder, a log of operations, and a check for NaNs.

::

    recorder = hooks.FlightRecorderHook(max_entries=1024)
    recorder.register_with_comm(comm)
    ...
    recorder.dump_file(comm.get_rank())   # for PyTorch's torchfrtrace
"""

from chorus.torchcomms.hooks import _debug
from chorus.torchcomms.hooks._clog import clog
from chorus.torchcomms.hooks.fr import FlightRecorderHook
from chorus.torchcomms.hooks.nan_check import NanCheckHook

__all__ = ["FlightRecorderHook", "NanCheckHook", "clog"]

_debug.register()

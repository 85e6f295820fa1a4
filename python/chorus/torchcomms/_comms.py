"""All names of the interface in one module, including those that only other libraries use."""

from chorus.torchcomms import *
from chorus.torchcomms import __all__ as _public
from chorus.torchcomms._backend_wrapper import _BackendWrapper
from chorus.torchcomms._hook_args import *
from chorus.torchcomms._hook_args import __all__ as _of_hooks

__all__ = [*_public, *_of_hooks, "_BackendWrapper"]

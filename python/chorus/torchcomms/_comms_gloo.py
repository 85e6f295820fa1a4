"""The backend's class under its name in the original torchcomms, for programs that look for it."""

from chorus.torchcomms._native import NativeBackend as TorchCommGloo

__all__ = ["TorchCommGloo"]

"""The class of the backend under its original's name, for programs that look for it."""

from chorus.torchcomms._native import NativeBackend as TorchCommGloo

__all__ = ["TorchCommGloo"]

"""A communicator as a process group of torch.distributed."""

from __future__ import annotations

from chorus.process_group import ProcessGroup
from chorus.torchcomms._native import NativeBackend
from chorus.torchcomms.comm import MemAllocator, TorchComm


class _BackendWrapper(ProcessGroup):
    """The process group of a communicator, which both share: shutting it down finalizes the communicator."""

    def __init__(self, comm: TorchComm) -> None:
        impl = comm.get_backend_impl()
        if not isinstance(impl, NativeBackend):
            raise TypeError(f"{comm!r}: a backend written in Python can't be a process group")
        super().__init__(impl.comm, None, comm.get_options().timeout)
        self._torchcomm = comm

    def get_comm(self) -> TorchComm:
        """The communicator."""
        return self._torchcomm

    def get_mem_allocator(self) -> MemAllocator:
        """The communicator's."""
        return self._torchcomm.get_mem_allocator()

    def shutdown(self) -> None:
        """End this rank's part; nothing if that has happened."""
        if not self.comm.finalized:
            self._torchcomm.finalize()

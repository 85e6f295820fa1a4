"""TorchFT's process group over Chorus.

    from chorus.torchft import ProcessGroupChorus

    manager = torchft.Manager(pg=ProcessGroupChorus(), ...)

TorchFT's manager makes a new communicator for each quorum. The error of an operation names the rank that was lost, a
replica's rank in its quorum, as soon as the loss is noticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torchft.process_group
from torch._C._distributed_c10d import Store

from chorus import backend

if TYPE_CHECKING:
    from chorus.process_group import ProcessGroup


class ProcessGroupChorus(torchft.process_group.ProcessGroupWrapper):
    """Takes the place of ``torchft.ProcessGroupGloo``, for all tensors that a group of the backend ``chorus`` takes."""

    _pg: ProcessGroup | None

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        return backend.make_group(store, rank, world_size, self._timeout, "torchft")

    def abort(self, errored: bool = True) -> None:
        """Break the group of the last quorum, and free it."""
        group = self._pg
        super().abort(errored)
        if group is not None:
            group.shutdown()

    def shutdown(self) -> None:
        """End this rank's part, after the operations issued before."""
        group = self._pg
        super().shutdown()
        if group is not None:
            group.shutdown()

    def errored(self) -> Exception | None:
        """Why the group is broken; None if it isn't."""
        return self._pg.failure if self._pg is not None else None

    def getBackendName(self) -> str:
        return "torchft-chorus"

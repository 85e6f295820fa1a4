"""A TCP port for a server that another process will open."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A port that nobody listens on, below those that the kernel gives out by itself.

    One that the kernel gave out and that was closed again may be given to the next
    program that asks, before the server has it.
    """
    lowest, end = 10000, 32768  # many a well-known service is below; Linux' default, other systems begin higher
    with contextlib.suppress(OSError), open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        end = int(file.read().split()[0])
    for _ in range(100):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("", random.randrange(lowest, end) if end > lowest else 0))
            return int(s.getsockname()[1])
    raise OSError("no free port")

"""A TCP port for a server that another process will open."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A port without a listener, below the kernel's ephemeral ports.

    The kernel may give an ephemeral port that was closed to the next program that asks,
    before the server has bound it.
    """
    lowest, end = 10000, 32768  # many well-known services are below; Linux's default, other systems begin higher
    with contextlib.suppress(OSError), open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        end = int(file.read().split()[0])
    for _ in range(100):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("", random.randrange(lowest, end) if end > lowest else 0))
            return int(s.getsockname()[1])
    raise OSError("no free port")

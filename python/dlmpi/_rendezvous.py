"""An address and a port of rank 0 where the other ranks find a TCP store.

The port is bound at once and stays ours until the process ends, so that no other job takes it in
between; the address is one that every other node has reached. Knows no torch.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

from dlmpi.launch import LaunchError
from dlmpi.placement import Place

__all__ = ["SETTING", "candidates", "meet", "reachable"]

#: The address of rank 0 to give to the others, for networks where a trial is not wanted.
SETTING = "DLMPI_MASTER_ADDR"
PATIENCE = 3.0
MOST = 16

#: Sockets that hold ports: bound, not listening. A store binds beside one, since both say
#: SO_REUSEADDR; nobody else is given the port.
_held: list[socket.socket] = []


def _bind() -> socket.socket:
    """Return a socket bound to a free port on all interfaces."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            both = socket.socket(socket.AF_INET6)
            both.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            both.bind(("::", 0))
            return both
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("", 0))
    return one


def _beside(port: int) -> socket.socket:
    """Return a listening socket on a port that is held."""
    other = socket.socket(_held[-1].family)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if other.family == socket.AF_INET6:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    other.bind(("", port))
    other.listen(128)
    return other


def _interface_addresses() -> list[str]:
    found = []
    with suppress(ImportError, OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
        import fcntl

        for _, name in socket.if_nameindex():
            with suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR
                found.append(socket.inet_ntoa(answer[20:24]))
    return found


def candidates() -> list[str]:
    """Return the addresses of this machine, the likeliest first, none of them loopback."""
    found: list[str] = []
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        # Connecting a datagram socket sends nothing: it asks the routing table.
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))
            found.append(probe.getsockname()[0])
    with suppress(OSError):
        infos = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        found += [str(info[4][0]) for info in infos]
    found += _interface_addresses()
    own = (a for a in dict.fromkeys(found) if not a.startswith(("127.", "fe80:")) and a != "::1")
    return list(own)[:MOST]


def reachable(address: str, port: int, token: bytes, patience: float = PATIENCE) -> bool:
    """Whether the one who knows the token answers there: another node may have that address too."""
    with suppress(OSError), socket.create_connection((address, port), patience) as connection:
        connection.settimeout(patience)
        answer = b""
        while len(answer) < len(token) and (part := connection.recv(len(token))):
            answer += part
        return answer == token
    return False


def _answer(listener: socket.socket, token: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # closed: the trial is over
        with connection, suppress(OSError):
            connection.sendall(token)


def _trial(world: Any, here: Place, addresses: list[str], port: int) -> str:
    """Let one rank of each other node try every address; return the first that all reached."""
    token = world.bcast(secrets.token_bytes(16) if world.Get_rank() == 0 else None, root=0)
    listener = _beside(port) if world.Get_rank() == 0 else None
    if listener is not None:
        threading.Thread(target=_answer, args=(listener, token), daemon=True).start()
    world.Barrier()
    trying = here.node_rank > 0 and here.local_rank == 0
    reached = [not trying or reachable(address, port, token) for address in addresses]
    everyone = [all(row) for row in zip(*world.allgather(reached), strict=True)]
    if listener is not None:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for address, good in zip(addresses, everyone, strict=True):
        if good:
            return address
    raise LaunchError(
        f"no address of rank 0 is reached by all nodes; tried {', '.join(addresses) or 'none'}. "
        f"Set {SETTING} to one that is, or let the firewall pass connections between nodes"
    )


def meet(world: Any, here: Place) -> tuple[str, str]:
    """Agree on an address and a port of rank 0; collective over `world`."""
    offer: tuple[str, str, list[str]] = ("", "", [])
    if world.Get_rank() == 0:
        port = os.environ.get("MASTER_PORT", "")
        if not port:
            _held.append(_bind())
            atexit.register(_held[-1].close)
            port = str(_held[-1].getsockname()[1])
        address = os.environ.get("MASTER_ADDR") or os.environ.get(SETTING, "")
        if not address and here.num_nodes == 1:
            address = "127.0.0.1"
        offer = (address, port, candidates() if not address else [])
    address, port, addresses = world.bcast(offer, root=0)
    if not address:
        address = _trial(world, here, addresses, int(port))
    return address, port

"""A right call of every method of the drop-in's table, and what may not stand in each argument.

The methods and their parameters are read from the table itself (`dlmpi._bound.NATIVE`), so a new
row is swept without a change here, or fails for want of a right value.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from dlmpi import MPI
from dlmpi._bound import NATIVE
from support import hostile_values as wrong
from support.hostile_values import Make

#: Elements of a block, and what outputs hold before a call.
N, POISON = 4, -77.0
RECEIVED = ("recvbuf", "result", "outbuf")
RANKS = ("dest", "source", "root", "target_rank")
TAGS = ("tag", "sendtag", "recvtag")
#: How the message of a collective's side is divided, by its verb: what is sent, what is received.
DIVIDED = {
    "gather": ("whole", "blocks"),
    "gatherv": ("whole", "vector"),
    "scatter": ("blocks", "whole"),
    "scatterv": ("vector", "whole"),
    "allgather": ("whole", "blocks"),
    "allgatherv": ("whole", "vector"),
    "alltoall": ("blocks", "blocks"),
    "alltoallv": ("vector", "vector"),
    "alltoallw": ("types", "types"),
    "reduce_scatter": ("blocks", "whole"),
    "reduce_scatter_block": ("blocks", "whole"),
}
#: Sides that nobody looks at elsewhere: of these no rank is like the others.
AT_ROOT = {
    "gather": "recvbuf",
    "gatherv": "recvbuf",
    "scatter": "sendbuf",
    "scatterv": "sendbuf",
    "reduce": "recvbuf",
}


class Place:
    """One communicator with all that methods are called on, and the ranks to speak with."""

    def __init__(self, comm: Any, path: str):
        self.comm = comm
        self.to, self.source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        self.topology = comm.Create_cart([comm.size], periods=[True])
        self.memory = np.full(2 * N, POISON)
        self.window = MPI.Win.Create(self.memory, 8, comm=comm)
        self.window.Fence()
        self.file = MPI.File.Open(comm, path, MPI.MODE_RDWR | MPI.MODE_CREATE)
        # Open MPI 5.0.11 hangs in a non-blocking read at the end of a file.
        self.file.Set_size(1 << 20)
        #: Messages under way to those who match them.
        self.sent: list[MPI.Request] = []
        self.objects = {
            "Comm": comm,
            "Intracomm": comm,
            "Topocomm": self.topology,
            "Win": self.window,
            "File": self.file,
            "Datatype": MPI.DOUBLE,
        }

    def free(self) -> None:
        MPI.Request.Waitall(self.sent)
        self.window.Fence()
        self.window.Free()
        self.file.Close()
        self.topology.Free()


class Call:
    """One method at one place."""

    def __init__(self, place: Place, owner: str, name: str):
        self.place, self.owner, self.name = place, owner, name
        parameters = inspect.signature(NATIVE[owner][name]).parameters
        self.parameters = [parameter for parameter in parameters if parameter != "self"]
        self.peers = 2 if "eighbor" in name else place.comm.size

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"

    @property
    def verb(self) -> str:
        """The operation, whatever its form."""
        verb = self.name.removesuffix("_init").removeprefix("Neighbor_").removeprefix("Ineighbor_")
        return verb.removeprefix("I").lower()

    def received(self, parameter: str) -> bool:
        """Whether this message is written."""
        writes = self.verb in ("recv", "precv", "get", "rget", "bcast", "isendrecv_replace")
        writes |= self.verb.startswith("read") or self.verb.endswith("_replace")
        return parameter in RECEIVED or (parameter in ("buf", "origin") and writes)

    def kind(self, parameter: str) -> str:
        """How a message is divided: whole, blocks, vector, types; one element; bytes."""
        if self.name in ("Fetch_and_op", "Compare_and_swap"):
            return "single"
        if self.owner == "Datatype":
            packed = (parameter == "outbuf") == self.name.startswith("Pack")
            return "bytes" if packed else "whole"
        sides = DIVIDED.get(self.verb, ("whole", "whole"))
        return sides[parameter == "recvbuf"]

    def size(self, parameter: str) -> int:
        """Elements of a right message."""
        kind = self.kind(parameter)
        return {"bytes": 8 * N + 16, "whole": N, "single": 1}.get(kind, N * self.peers)

    def tensor(self, parameter: str, *, torchy: bool = False) -> Any:
        n = self.size(parameter)
        if self.kind(parameter) == "bytes":
            return np.zeros(n, np.uint8)
        values = np.full(n, POISON) if self.received(parameter) else np.arange(float(n))
        if self.name == "Compare_and_swap":
            values = values.astype(np.int64)
        return torch.from_numpy(values) if torchy else values

    def right(self, parameter: str, *, torchy: bool = False) -> Any:
        place, peers = self.place, self.peers
        simple = {
            "dest": place.to,
            "source": place.source,
            "root": 0,
            "target_rank": place.to,
            "tag": 3,
            "sendtag": 3,
            "recvtag": 3,
            "op": MPI.SUM,
            "info": MPI.INFO_NULL,
            "status": MPI.Status(),
            "recvcounts": [N] * peers,
            "partitions": 2,
            "target": None,
            "target_disp": 0,
            "offset": 8 * N * place.comm.rank,
            "position": 0,
            "datarep": "external32",
            "comm": place.comm,
        }
        if parameter in simple:
            return simple[parameter]
        tensor = self.tensor(parameter, torchy=torchy)
        if self.kind(parameter) == "vector":
            return [tensor, [N] * peers]
        if self.kind(parameter) == "types":
            return [tensor, [N] * peers, [8 * N * i for i in range(peers)], [MPI.DOUBLE] * peers]
        return tensor

    def arguments(self, *, torchy: bool = False) -> dict[str, Any]:
        return {name: self.right(name, torchy=torchy) for name in self.parameters}

    def wrong(self, parameter: str) -> dict[str, Make]:
        """What may not stand in this argument, on any rank."""
        size = self.place.comm.size
        if size > 1 and parameter == AT_ROOT.get(self.verb):
            return {}
        if parameter in RANKS:
            far = {"size": size, "far": size + 1000, "-2^63": -(2**63)}
            return wrong.numbers(**wrong.BELOW, **far)
        if parameter in TAGS:
            return wrong.numbers(**wrong.BELOW)
        rows = wrong.BY_NAME.get(parameter)
        if rows is not None:
            return rows
        if parameter == "recvcounts":
            return wrong.counts_alone(N, self.peers)
        rows = dict(wrong.NO_MESSAGES)
        kind, n, tensor = self.kind(parameter), self.size(parameter), self.tensor(parameter)
        if self.received(parameter) and self.verb != "bcast":  # whose root sends
            rows |= wrong.READ_ONLY
        if kind in ("whole", "single"):
            rows |= wrong.counted(tensor, n)
        elif kind == "vector":
            rows |= wrong.listed(tensor, n, self.peers)
        elif kind == "types":
            rows |= wrong.typed(tensor, n, self.peers)
        elif kind == "bytes":
            for name in wrong.BYTES_ALL_THE_SAME:
                del rows[name]
        if parameter not in ("sendbuf", "recvbuf", "buf") or self.verb.endswith("recv"):
            rows["None"] = lambda: None  # elsewhere IN_PLACE or BOTTOM
        if "op" in self.parameters:
            rows["another Datatype"] = lambda: [tensor, MPI.FLOAT]
        return rows


#: Native methods without a tensor, or without another rank: tests/mpi/test_lanes_*.py has them.
OTHERS = ("Mprobe", "Flush", "Flush_local", "Flush_all", "Flush_local_all", "Reduce_local")


def calls(place: Place) -> Iterator[Call]:
    """Every method of the table that moves tensors."""
    for owner, methods in NATIVE.items():
        for name in methods:
            if name not in OTHERS:
                yield Call(place, owner, name)


def bare(call: Call, arguments: dict[str, Any]) -> Any:
    """Make the call, on a message that was matched for it, or after what it ends was begun. What
    is left over when it fails is ended."""
    place = call.place
    if call.owner == "Message":
        sent = place.comm.Isend(np.arange(4.0), place.to, 9)
        message = place.comm.Mprobe(place.source, 9)
        place.sent.append(sent)
        try:
            return getattr(message, call.name)(**arguments)
        except Exception:
            message.Recv(np.zeros(N))
            raise
    on = place.objects[call.owner]
    if not call.name.endswith("_end"):
        return getattr(on, call.name)(**arguments)
    begin, buf = call.name.replace("_end", "_begin"), call.tensor("buf")
    getattr(on, begin)(*([0] if "_at_" in begin else []), buf)
    try:
        return getattr(on, call.name)(**arguments)
    except Exception:
        getattr(on, call.name)(buf)
        raise


def perform(call: Call, arguments: dict[str, Any]) -> None:
    """Make a right call to its end, with a peer for messages."""
    place, verb = call.place, call.verb
    if "partitions" in arguments:
        partitioned(call, arguments["buf"])
        return
    others = []
    persistent = call.name.endswith("_init")
    if verb in ("send", "ssend", "bsend", "rsend") and not persistent:
        others.append(place.comm.Irecv(np.zeros(N), place.source, 3))
        place.comm.Barrier()  # a ready send's receive is there
    if verb == "recv" and call.owner == "Comm" and not persistent:
        others.append(place.comm.Isend(np.arange(4.0), place.to, 3))
    result = bare(call, arguments)
    if call.name.endswith("_begin"):
        getattr(place.file, call.name.replace("_begin", "_end"))(arguments["buf"])
    if isinstance(result, MPI.Prequest):
        result.Free()
    elif isinstance(result, MPI.Request):
        result.Wait()
    MPI.Request.Waitall(others)
    if call.owner == "Win":
        place.window.Fence()


def partitioned(call: Call, buf: Any) -> None:
    """Both sides, since Open MPI tells the other one when a request is made. It loses their first
    message where another thread drives MPI, which the engine does by now."""
    if "Open MPI" in MPI.Get_library_version():
        return
    place, other = call.place, np.arange(4.0)
    send, recv = (buf, other) if call.verb == "psend" else (other, buf)
    requests = [
        place.comm.Precv_init(recv, 2, place.source, 5),
        place.comm.Psend_init(send, 2, place.to, 5),
    ]
    MPI.Prequest.Startall(requests)
    requests[1].Pready_range(0, 1)
    MPI.Request.Waitall(requests)
    for request in requests:
        request.Free()


def dead(place: Place, call: Call) -> Iterator[tuple[str, Any]]:
    """What this method may be called on when there is nothing."""
    if call.owner in ("Comm", "Intracomm"):
        freed = MPI.COMM_SELF.Dup()
        freed.Free()
        yield "a freed communicator", freed
    elif call.owner == "Topocomm":
        freed = MPI.COMM_SELF.Create_cart([1])
        freed.Free()
        yield "a freed topology", freed
    elif call.owner == "Win":
        yield "WIN_NULL", MPI.Win(MPI.WIN_NULL)
    elif call.owner == "File":
        yield "FILE_NULL", MPI.File(MPI.FILE_NULL)
    elif call.owner == "Message":
        yield "MESSAGE_NULL", MPI.Message(MPI.MESSAGE_NULL)
    elif call.owner == "Datatype":
        yield "DATATYPE_NULL type", MPI.Datatype(MPI.DATATYPE_NULL)
        yield "a freed type", MPI.Datatype(wrong.freed())

"""Every name of ``mpi4py.MPI``, with communicators whose buffer methods take any tensor.

``COMM_WORLD`` and ``COMM_SELF`` are instances of the subclasses in :mod:`dlmpi.comm`, and so are
the communicators that they make. The classes are mpi4py's own, so ``isinstance``, pickling and
third-party code go on working; but for those that programs make objects of by class methods
(communicators, windows, files, messages, requests), which are subclasses of mpi4py's and pass for
these.
"""

from typing import TYPE_CHECKING

from dlmpi import _attached, _standin, _start
from dlmpi import comm as _comm
from dlmpi import datatypes as _datatypes
from dlmpi import memory as _memory
from dlmpi import operations as _operations
from dlmpi import requests as _requests

if TYPE_CHECKING:
    from mpi4py.MPI import *  # noqa: F403

#: What belongs to this module itself and not to what it offers.
_OWN = frozenset(globals())

globals().update({name: value for name, value in vars(_comm.mpi).items() if name not in _OWN})

globals().update(_standin.PREDEFINED)
globals().update(_attached.module())

COMM_WORLD: _comm.Intracomm = _comm.predefined("COMM_WORLD")  # type: ignore[no-redef]
COMM_SELF: _comm.Intracomm = _comm.predefined("COMM_SELF")  # type: ignore[no-redef]

Comm = _comm.Comm  # type: ignore[misc]
Intracomm = _comm.Intracomm  # type: ignore[misc]
Cartcomm = _comm.Cartcomm  # type: ignore[misc]
Graphcomm = _comm.Graphcomm  # type: ignore[misc]
Distgraphcomm = _comm.Distgraphcomm  # type: ignore[misc]
Intercomm = _comm.Intercomm  # type: ignore[misc]
Win = _memory.Win  # type: ignore[misc]
File = _memory.File  # type: ignore[misc]
Message = _memory.Message  # type: ignore[misc]
Op = _operations.Op  # type: ignore[misc]
Session = _attached.Session  # type: ignore[misc]
Datatype = _datatypes.Datatype  # type: ignore[misc]
Request = _requests.Request  # type: ignore[misc]
Prequest = _requests.Prequest  # type: ignore[misc]
pickle = _comm.pickle  # type: ignore[misc]

_start.finish(globals())

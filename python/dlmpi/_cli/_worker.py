"""The main module of a worker process whose parent runs under `python -m dlmpi run`.

multiprocessing (spawn, forkserver) imports this one in place of the script, so that the script's
`from mpi4py import MPI` meets the drop-in there, too, which is off in a child of a rank.
"""

from dlmpi._cli import _dropin
from dlmpi._cli._program import Program

if __name__ == "__mp_main__":
    _program = Program.of_parent()
    if _program is not None:
        _dropin.install()
        _code, _names = _program.load()
        globals().update({name: value for name, value in _names.items() if value is not None})
        exec(_code, globals())

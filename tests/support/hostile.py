"""Wrong arguments for every method of the drop-in, one at a time: a program for a few ranks.

What must hold for each: a Python exception on the calling rank, of a kind that says what is wrong;
nothing sent, no output written, no tensor held; and the right call works afterwards. The case
under way is written down first, so that a crash or a hang names it. Ranks make the same calls.

    mpiexec -n 2 python -m support.hostile FOLDER SEED
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from dlmpi import MPI
from support.hostile_calls import Call, Place, bare, calls, dead, perform
from support.hostile_values import Make

#: Seconds that one case may take: then the process is ended, and the last case named.
HANGS = 20.0
#: Cases with several wrong arguments, drawn for each method.
DRAWN = 12
#: The tag of messages that show that nothing stands between them.
GREETING = 77
SAYS = (TypeError, ValueError, BufferError, OverflowError, NotImplementedError)
CLASSES = frozenset(
    getattr(MPI, f"ERR_{name}")
    for name in (
        *("ARG", "BUFFER", "COMM", "COUNT", "DISP", "FILE", "INFO", "OP", "RANK", "REQUEST"),
        *("ROOT", "TAG", "TYPE", "WIN", "RMA_RANGE"),
    )
)


def says(error: BaseException, case: str) -> bool:
    """Whether it says what is wrong with the argument, as mpi4py or we would."""
    if isinstance(error, MPI.Exception):
        return error.Get_error_class() in CLASSES
    # mpi4py's of a Datatype that it does not know.
    return isinstance(error, SAYS) or (isinstance(error, KeyError) and "type" in case)


class Sweep:
    """The cases of one place, and what was wrong about them."""

    def __init__(self, log: Any, place: Place, rng: np.random.Generator):
        self.log, self.place, self.rng = log, place, rng
        self.cases = 0

    def begin(self, case: str) -> None:
        self.cases += 1
        self.log.write(f"{case}\n")
        signal.setitimer(signal.ITIMER_REAL, HANGS)

    def all(self) -> None:
        for call in calls(self.place):
            title = f"{self.place.comm.size}: {call}"
            self.begin(f"{title}: right")
            perform(call, call.arguments())
            rows = [
                (name, f"{name}: {what}", make)
                for name in call.parameters
                for what, make in call.wrong(name).items()
            ]
            for row in rows:
                self.attempt(call, [row], f"{title} {row[1]}")
            for _ in range(DRAWN if rows else 0):
                some = self.rng.choice(len(rows), size=3)
                drawn = {rows[at][0]: rows[at] for at in some}
                words = ", ".join(row[1] for row in drawn.values())
                self.attempt(call, list(drawn.values()), f"{title} {words}")
            self.begin(f"{title}: right again")
            perform(call, call.arguments(torchy=call.owner != "Datatype"))

    def attempt(self, call: Call, wrong: list[tuple[str, str, Make]], case: str) -> None:
        """One call with wrong arguments."""
        self.begin(case)
        arguments = call.arguments()
        tensors = {
            name: value[0] if isinstance(value, list) else value
            for name, value in arguments.items()
            if name not in {row[0] for row in wrong}
        }
        tensors = {name: value for name, value in tensors.items() if isinstance(value, np.ndarray)}
        before = {name: value.copy() for name, value in tensors.items()}
        counts = {name: sys.getrefcount(value) for name, value in tensors.items()}
        for name, _, make in wrong:
            arguments[name] = make()
        try:
            result = bare(call, arguments)
        except Exception as error:
            if not says(error, case):
                self.log.write(f"WRONG {case}: {type(error).__name__}: {error!r:.500}\n")
        else:
            self.log.write(f"WRONG {case}: taken: {result}\n")
            sys.exit(f"taken: {case}")  # what was begun could meet anything
        for name, tensor in tensors.items():
            if not np.array_equal(tensor, before[name]):
                self.log.write(f"WRONG {case}: wrote {name}\n")
            if sys.getrefcount(tensor) != counts[name]:
                self.log.write(f"WRONG {case}: holds {name}\n")
        if self.cases % 8 == 0:
            self.undisturbed(case)

    def undisturbed(self, case: str) -> None:
        """Up to this case nothing was sent and no receive waits. The peer's messages are all here
        after one greeting, and before the next it sends none."""
        self.greet(case)
        if self.place.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG):
            status = MPI.Status()
            self.place.comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            if status.tag != GREETING:
                self.log.write(f"WRONG {case}: sent a message, or one before\n")
        self.greet(case)

    def greet(self, case: str) -> None:
        place, out = self.place, np.zeros(2, np.int64)
        sent = place.comm.Issend(np.array([self.cases, 7]), place.to, GREETING)
        place.comm.Recv(out, place.source, GREETING)
        sent.Wait()
        if out.tolist() != [self.cases, 7]:
            self.log.write(f"WRONG {case}: the next message is {out}\n")

    def dead(self) -> None:
        """Right calls on what is null or was freed."""
        for call in calls(self.place):
            for name, thing in dead(self.place, call):
                case = f"{self.place.comm.size}: {call} on {name}"
                self.begin(case)
                try:
                    getattr(thing, call.name)(**call.arguments())
                except Exception as error:
                    if not says(error, case):
                        self.log.write(f"WRONG {case}: {type(error).__name__}: {error}\n")
                else:
                    self.log.write(f"WRONG {case}: taken\n")


def main(folder: Path, seed: int) -> None:
    """Sweep a communicator of this rank alone, and one of all ranks."""
    MPI.Attach_buffer(np.zeros(1 << 16, np.uint8))
    world = MPI.COMM_WORLD
    with (folder / f"hostile.{world.rank}").open("w", buffering=1) as log:
        places = [(MPI.COMM_SELF, f"{folder}/alone.{world.rank}")] if world.rank == 0 else []
        if world.size > 1:
            places.append((world, f"{folder}/together"))
        for parent, path in places:
            comm = parent.Dup()
            place = Place(comm, path)
            sweep = Sweep(log, place, np.random.default_rng([seed, comm.size]))
            sweep.all()
            sweep.dead()
            place.free()
            comm.Free()
            log.write(f"{sweep.cases} cases\n")
        signal.setitimer(signal.ITIMER_REAL, 0)
        log.write("end\n")
    world.Barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

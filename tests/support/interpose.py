"""A library, preloaded, that makes MPI functions fail on demand: what it wraps is read from the
table of `mpi-runtime`, so every function that dlmpi looks up is in it.

Only calls out of dlmpi's own extension module count; mpi4py's pass through. A call that is made to
fail does nothing and returns MPI_ERR_OTHER. From Python: :class:`Faults`, in a process with the
library in it.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TABLE = Path(__file__).resolve().parents[2] / "crates/mpi-runtime/src/table.rs"
ROW = re.compile(r'^ +\w+ = c"(MPI_\w+)" \(([^)]*(?:<H>[^)]*)?)\)( -> c_double)?;', re.MULTILINE)
C_TYPES = {"c_int": "int", "Big": "long long", "H": "HANDLE", "c_double": "double"}
#: Says nothing that could go wrong.
NEVER_FAIL = ("MPI_Wtime",)

SOURCE = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const NAMES[] = {%(names)s};
enum { FUNCTIONS = sizeof NAMES / sizeof *NAMES };
static atomic_long calls[FUNCTIONS];
static atomic_int target = -1, left, fired;

int inject_functions(void) { return FUNCTIONS; }
const char *inject_name(int which) { return NAMES[which]; }
long inject_calls(int which) { return atomic_load(&calls[which]); }
int inject_fired(void) { return atomic_load(&fired); }

/* Which function fails at its `nth` call from now on, with MPI_ERR_OTHER; -1: none. */
void inject_arm(int which, int nth) {
    atomic_store(&target, -1);
    atomic_store(&left, nth);
    atomic_store(&fired, 0);
    atomic_store(&target, which);
}

/* The first call of a function may be made before anybody could arm it: INJECT="MPI_Send 1". */
__attribute__((constructor)) static void from_environment(void) {
    const char *given = getenv("INJECT");
    size_t length = given ? strcspn(given, " ") : 0;
    for (int which = 0; given && which < FUNCTIONS; which++)
        if (strlen(NAMES[which]) == length && !strncmp(given, NAMES[which], length)) {
            inject_arm(which, atoi(given + length));
        }
}

static int ours(void *caller) {
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "/dlmpi/_native");
}

static int fails(int which, void *caller) {
    if (!ours(caller)) return 0;
    atomic_fetch_add(&calls[which], 1);
    if (atomic_load(&target) != which || atomic_fetch_sub(&left, 1) != 1) return 0;
    atomic_store(&fired, 1);
    return 1;
}
"""
WRAPPER = """
%(result)s %(name)s(%(parameters)s) {
    static _Atomic(void *) real;
    if (fails(%(index)d, __builtin_return_address(0))) return ERROR_CODE;
    if (!real) real = dlsym(RTLD_NEXT, "%(name)s");
    return ((%(result)s (*)(%(types)s))real)(%(arguments)s);
}
"""


def rows() -> Iterator[tuple[str, list[str], str]]:
    """Every function of the table: its name, the C types of its parameters, and of its result."""
    for name, parameters, result in ROW.findall(TABLE.read_text()):
        types = [one.strip() for one in parameters.split(",") if one.strip()]
        yield name, [C_TYPES.get(one, "void *") for one in types], "double" if result else "int"


def build(venv: Path, folder: Path) -> Path:
    """Compile it for the MPI of an environment."""
    mpi = library_of(venv)
    symbols = subprocess.run(
        [venv / "bin/python", "-c", EXPORTED, str(mpi), *(name for name, _, _ in rows())],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    there = [row for row in rows() if row[0] in symbols and row[0] not in NEVER_FAIL]
    # MPI_ERR_OTHER, as mpi.h of the library has it.
    handle, error = ("int", 15) if mpi.suffix == ".12" else ("void *", 16)
    text = f"typedef {handle} HANDLE;\nenum {{ ERROR_CODE = {error} }};\n"
    text += SOURCE % {"names": ", ".join(f'"{name}"' for name, _, _ in there)}
    for index, (name, types, result) in enumerate(there):
        text += WRAPPER % {
            "index": index,
            "name": name,
            "result": result,
            "parameters": ", ".join(f"{kind} a{i}" for i, kind in enumerate(types)) or "void",
            "types": ", ".join(types) or "void",
            "arguments": ", ".join(f"a{i}" for i in range(len(types))),
        }
    return compiled(venv, folder, "faulty_mpi", text)


def library_of(venv: Path) -> Path:
    """The file of an environment's MPI."""
    (mpi,) = (path for path in venv.glob("lib/libmpi.so.*") if path.suffix[1:] in ("12", "40"))
    return mpi


def compiled(venv: Path, folder: Path, name: str, text: str) -> Path:
    """A library of this C text, which comes before the MPI of an environment."""
    mpi = library_of(venv)
    source, library = folder / f"{name}.c", folder / f"lib{name}.so"
    source.write_text(text)
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O0", "-o", str(library)]
    # Nothing in it names a symbol of the MPI; it must be there all the same, for RTLD_NEXT.
    command += ["-Wl,--no-as-needed"]
    command += [str(source), str(mpi), f"-Wl,-rpath,{mpi.parent}", "-ldl"]
    subprocess.run(command, check=True)
    return library


EXPORTED = """\
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
print(*(name for name in sys.argv[2:] if hasattr(library, name)))
"""


class Faults:
    """The library in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.inject_name.restype = ctypes.c_char_p
        self._library.inject_calls.restype = ctypes.c_long
        count = self._library.inject_functions()
        self.names = [self._library.inject_name(i).decode() for i in range(count)]

    def calls(self) -> dict[str, int]:
        """How often dlmpi has called each function until now."""
        return {name: self._library.inject_calls(i) for i, name in enumerate(self.names)}

    @contextmanager
    def failing(self, name: str, nth: int) -> Iterator[None]:
        """In the block the `nth` call of a function fails."""
        self._library.inject_arm(self.names.index(name), nth)
        try:
            yield
        finally:
            self._library.inject_arm(-1, 0)

    def fired(self) -> bool:
        """Whether the call that was asked for has failed, as long as the block lasts."""
        return bool(self._library.inject_fired())

"""A Python program as `python` itself would find it: a file, `-m module`, `-c command` or `-`.

Knows how to find and execute code as the main module; nothing of MPI.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import runpy
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

__all__ = ["MAIN", "Program"]

#: Tells a worker process which program its parent runs.
MAIN = "DLMPI_RUN_MAIN"


class _Spec(ModuleSpec):
    """What multiprocessing looks at to make the main module of a worker: our own module there."""

    _package = ""

    @property
    def parent(self) -> str:
        return self._package


class Program:
    """One program, by kind ("file", "module", "command") and name or text."""

    def __init__(self, kind: str, what: str) -> None:
        self.kind = kind
        self.what = what

    @classmethod
    def parse(cls, arguments: list[str]) -> tuple[Program, list[str]]:
        """Take the program from the front of the arguments, and return what is left for it."""
        first, *rest = arguments
        if first in ("-m", "-c"):
            if not rest:
                raise ValueError(f"{first} needs an argument")
            return cls("module" if first == "-m" else "command", rest[0]), rest[1:]
        if first == "-":
            return cls("command", sys.stdin.read()), rest
        if first.startswith("-"):
            raise ValueError(f"no option {first}")
        if not Path(first).exists():
            raise ValueError(f"no file {first}")
        return cls("file", first), rest

    @classmethod
    def of_parent(cls) -> Program | None:
        """Return the program that the parent of this worker process runs."""
        text = os.environ.get(MAIN, "")
        return cls(*json.loads(text)) if text else None

    def announce(self) -> None:
        """Tell the workers that this process may start."""
        what = str(Path(self.what).resolve()) if self.kind == "file" else self.what
        os.environ[MAIN] = json.dumps([self.kind, what])

    @property
    def argv0(self) -> str:
        """Return what `sys.argv[0]` is for this program."""
        return self.what if self.kind == "file" else "-m" if self.kind == "module" else "-c"

    def _is_bundle(self) -> bool:
        """Whether the file is a folder or an archive with a `__main__.py` in it."""
        return self.kind == "file" and not _is_source(self.what)

    def load(self) -> tuple[CodeType, dict[str, Any]]:
        """Return the code and the names that its main module has at the start."""
        if self.kind == "command":
            return compile(self.what, "<string>", "exec", dont_inherit=True), {"__package__": None}
        if self.kind == "file":
            with io.open_code(str(Path(self.what).resolve())) as source:
                text = compile(source.read(), self.what, "exec", dont_inherit=True)
            return text, {"__file__": self.what, "__package__": None}
        name = self.what
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
            spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec else None
        code: CodeType | None = loader.get_code(name) if hasattr(loader, "get_code") else None
        if spec is None or code is None:
            raise ModuleNotFoundError(f"No module named {self.what!r} that can be run", name=name)
        return code, {"__file__": spec.origin, "__package__": spec.parent}

    def run(self, worker: str) -> None:
        """Execute as `__main__`; multiprocessing will make workers by the module `worker`."""
        sys.path[0:1] = [self._folder()]
        if self._is_bundle():
            runpy.run_path(self.what, run_name="__main__")
            return
        code, names = self.load()
        main = ModuleType("__main__")
        spec = _Spec(worker, None, origin=names.get("__file__"))
        spec._package = names["__package__"] or ""
        main.__dict__.update(names, __spec__=spec, __builtins__=__builtins__)
        if names.get("__file__"):
            sys.argv[0] = names["__file__"]
        sys.modules["__main__"] = main
        self.announce()
        exec(code, main.__dict__)

    def _folder(self) -> str:
        if self.kind != "file" or self._is_bundle():
            return os.getcwd() if self.kind == "module" else ""
        return str(Path(self.what).resolve().parent)


def _is_source(name: str) -> bool:
    path = Path(name)
    with path.open("rb") if path.is_file() else io.BytesIO(b"PK") as start:
        return start.read(2) != b"PK"

"""The command line: finds the command and hands it the rest.

Each module of this package that has a `main(arguments)` is a command, and the first line of its
docstring is its help. Nothing here starts MPI.
"""

from __future__ import annotations

import ast
import pkgutil
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

__all__ = ["commands", "main"]


def commands() -> dict[str, str]:
    """Return the names of the commands, and what each one does, without importing them."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        spec = find_spec(f"{__name__}.{module.name}")
        if module.name.startswith("_") or spec is None or spec.origin is None:
            continue
        text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
        found[module.name] = text.splitlines()[0].removesuffix(".") if text else ""
    return found


def _usage() -> str:
    lines = [f"  {name:<11} {what[:1].lower()}{what[1:]}" for name, what in commands().items()]
    return "\n".join(["usage: python -m dlmpi COMMAND [arguments]", "", *lines])


def main(arguments: list[str] | None = None) -> int:
    """Run the command named by the first argument; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if arguments else 2
    command, *rest = arguments
    if command in ("-V", "--version"):
        from dlmpi import __version__

        print(f"dlmpi {__version__}")
        return 0
    if command not in commands():
        print(f"python -m dlmpi: no command {command!r}\n\n{_usage()}", file=sys.stderr)
        return 2
    return int(import_module(f"{__name__}.{command}").main(rest) or 0)

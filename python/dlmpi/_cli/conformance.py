"""Show how each installed array library fares with dlmpi, case by case.

    python -m dlmpi conformance [PRODUCER ...] [--leaks] [--json] [--failures]

One child process per producer, so that libraries don't meet and a crash is a result. Exit code 1
when a case came out otherwise than the table says. With --leaks, each kind of call that a case
allows, and several that fail, are made two thousand times; how many that were, and what they leave
behind, is reported.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from importlib.util import find_spec

from dlmpi._conformance import judge, table

__all__ = ["main"]

TURNS = 2_000


def main(arguments: list[str]) -> int:
    """Print the table for what is installed; return 1 if anything is wrong."""
    known = table.producers()
    parser = argparse.ArgumentParser("python -m dlmpi conformance", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("producer", nargs="*", choices=[[], *known], help=", ".join(known))
    parser.add_argument("--leaks", action="store_true", help="repeat each call 2 000 times")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--failures", action="store_true", help="print only what is wrong")
    options = parser.parse_args(arguments)
    if find_spec("numpy") is None:
        parser.error("the right answers come from NumPy; install it")
    names = options.producer or [name for name in known if known[name].installed()]
    turns = TURNS if options.leaks else 0
    results = {name: judge.judge(known[name], judge.DEADLINE, turns) for name in names}
    if options.json:
        print(json.dumps({name: result.facts() for name, result in results.items()}, indent=1))
    else:
        _show(results, options.failures)
    return 0 if all(result.right() for result in results.values()) else 1


def _show(results: dict[str, judge.Result], failures: bool) -> None:
    for name, result in results.items():
        print(f"{name} {result.version}")
        for row in result.rows:
            if not failures or row.verdict in judge.WRONG:
                words = f"  {row.words}" if row.words else ""
                print(f"  {row.verdict:<9} {row.case}{words}")
        if result.words:
            print(f"  {result.words}")
        counted = Counter(row.verdict for row in result.rows)
        print("  " + ", ".join(f"{count} {verdict}" for verdict, count in counted.items()))
        if result.worked or result.failed:
            print(f"  {result.worked:,} calls that worked and {result.failed:,} that failed")

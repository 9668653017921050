"""Runs mpi4py's own test suite in this rank and writes what became of each test.

    mpiexec -n 2 python -m dlmpi run runner.py FOLDER REPORT [--arrays] [options of main.py]

FOLDER is the folder `test` of mpi4py's source distribution; REPORT gets the rank appended. With
`--arrays` the suite's array back ends are replaced by those of `arrays.py`. The suite's program is
used as it is; knows nothing of which tests may fail. A test that hangs ends the process with the
tracebacks of its threads: LIMIT seconds are the limit for one test.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import unittest
from pathlib import Path

LIMIT = 240.0


class Record(unittest.TextTestResult):
    """Remembers the outcome of every test, the worst one of its sub-tests."""

    ORDER = ("passed", "skipped", "failed")

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.tests: dict[str, tuple[str, str]] = {}

    def _put(self, test, outcome, words=""):
        name = getattr(test, "test_case", test).id()
        known = self.tests.get(name)
        if known is None or self.ORDER.index(outcome) > self.ORDER.index(known[0]):
            self.tests[name] = (outcome, words)

    def startTest(self, test):
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        super().startTest(test)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._put(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._put(test, "skipped", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._put(test, "failed", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        super().addError(test, err)
        self._put(test, "failed", self._exc_info_to_string(err, test))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            words = f"{subtest._subDescription()}\n{self._exc_info_to_string(err, test)}"
            self._put(test, "failed", words)


class Runner(unittest.TextTestRunner):
    """Writes the record after the run."""

    resultclass = Record
    report: Path

    def run(self, test):
        result = super().run(test)
        self.report.write_text(json.dumps(result.tests))
        return result


def main() -> None:
    folder, report, *options = sys.argv[1:]
    from mpi4py import MPI

    sys.path.insert(0, folder)
    os.chdir(folder)
    sys.dont_write_bytecode = True
    arrayimpl = importlib.import_module("arrayimpl")
    # Host memory that calls itself a GPU's, which mpi4py believes. We ask the driver for it: were
    # they kept, every loop would end at the first of them.
    fakes = [cls for cls in arrayimpl.ArrayBackends if cls.__name__.startswith("FakeGPU")]
    for cls in fakes:
        arrayimpl.ArrayBackends.remove(cls)
    if options[:1] == ["--arrays"]:
        del options[0]
        import arrays  # beside this file

        arrays.install(arrayimpl)
    Runner.report = Path(f"{report}.{MPI.COMM_WORLD.Get_rank()}.json")
    program = importlib.import_module("main")
    sys.argv = [program.__file__, "--no-builddir", *options]
    program.main(module=None, testRunner=Runner)


if __name__ == "__main__":
    main()

"""`python -m dlmpi`: the command line."""

from dlmpi._cli import main

if __name__ == "__main__":
    raise SystemExit(main())

"""The conformance table: what every DLPack producer must get, one row per case.

The rows are data, `cases/*.toml`, one file per producer:

| key | meaning |
| --- | --- |
| `name` | what the case is |
| `make` | an expression that makes the tensor |
| `send` | the dtype as which it must travel, or `SomeError: pattern` |
| `want` | an expression for its elements in C order; without it 0, 1, 2, 3 of that dtype |
| `recv` | `ok`, or `SomeError: pattern` |
| `sum` | the same for `Allreduce` with SUM |
| `run`, `expect` | statements instead of a tensor; `ok` (the default), or `SomeError: pattern` |
| `since`, `until` | first version of the producer with the case, and first without |
| `needs` | an expression that must be true, else the case is left out |

A file begins with `module` (what must be importable), `prelude` (statements), `read` (an expression
for what the tensor `x` holds) and defaults of `recv` and `sum` for rows that travel.
"""

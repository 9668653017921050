# The verbs. The work is done by the scripts in ci/, each with its duty in its first lines.
PYTHON ?= python3
STAGES ?=

.PHONY: help demo rust-demo crates test compat platforms mutations gpu wheel lint clean

help:
	@echo 'make demo    build dlmpi and train a torch model on two ranks with it'
	@echo 'make rust-demo  the Rust examples at 2 and 3 ranks on both MPIs; fetches libtorch'
	@echo 'make crates  packages, oldest Rust, AddressSanitizer and Miri, for who changes the crates'
	@echo 'make test    every check and test, on MPICH and on Open MPI (STAGES="lint mpi" for some)'
	@echo 'make compat  the conformance table on old and heavy array libraries; takes gigabytes and an hour'
	@echo 'make platforms  other MPIs, old mpi4py, Slurm, uv, a conda-style prefix (needs make test first)'
	@echo 'make mutations  break each wait for a GPU in turn and see a test fail; takes half an hour'
	@echo 'make gpu     tests and measurements on a machine with a GPU, with its own torch and CuPy'
	@echo 'make lint    format, lints, types and layering rules only'
	@echo 'make wheel   one abi3 wheel in dist/'
	@echo 'make clean   remove what the other verbs made'
	@echo 'PYTHON=python3.12 names another interpreter (3.11 or newer) for any of them.'

demo:
	@$(PYTHON) ci/demo

rust-demo:
	@$(PYTHON) ci/rust-demo

crates:
	@$(PYTHON) ci/crates

test:
	@$(PYTHON) ci/test $(STAGES)

compat:
	@$(PYTHON) ci/compat
	@$(PYTHON) ci/venvs.py test && $(PYTHON) ci/exam.py all

platforms: wheel
	@$(PYTHON) ci/platforms --write

mutations:
	@$(PYTHON) ci/mutations --write

gpu: wheel
	@$(PYTHON) ci/gpu

lint:
	@$(PYTHON) ci/test lint

wheel:
	@$(PYTHON) ci/wheel

clean:
	rm -rf .venv .venv-openmpi .venv-tch dist out target rust-apps/target .mypy_cache .pytest_cache .ruff_cache

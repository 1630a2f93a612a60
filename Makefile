# Everything happens in .venv: `make serve` and `make test` need only Python 3.11 or newer and make.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.PHONY: install serve test demo lint bench constraints clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Sooner needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

serve: install
	$(BIN)/sooner serve $(ARGS)

test: install
	$(BIN)/pytest $(ARGS)

demo: install
	$(BIN)/sooner demo $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install
	$(BIN)/python benchmarks/bench_queue.py
	$(BIN)/python benchmarks/bench_preemption.py
	$(BIN)/python benchmarks/bench_server.py

# After a change of dependencies: pin what a fresh resolution gives.
constraints:
	rm -rf .venv
	: > constraints.txt
	$(MAKE) install
	$(BIN)/pip freeze --exclude-editable > constraints.txt

clean:
	rm -rf .venv dist build

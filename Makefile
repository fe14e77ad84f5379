# `make` lists the targets. `make demo` and `make test` are all that a newcomer needs: each sets up first.

PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCH_LOWEST ?= torch==2.6.0
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
LOCK := requirements/dev.txt
SANITIZE := build/sanitize
TIME ?= 60
SEED ?=
# Python compiles modules when it first imports them; pip would compile all, one after the other.
INSTALL = $(BIN)/python -m pip install --quiet --no-compile
RESOLVE = $(BIN)/uv pip compile --quiet --extra demo --extra report --extra cpu
DEMO ?= demo
XFORMC := $(BIN)/xformc
CXX_SOURCES = $(shell git ls-files '*.cc' '*.h' '*.hpp' '*.c')
# On a machine with a GPU and no network, the Python that is there; nothing is installed for these.
ON_GPU = PYTHONPATH=src:.:$$PYTHONPATH timeout -k 10 535 $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
# A process on each core, of one thread: the models of tests are too small for more.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist worksteal

# Tests start hundreds of processes, each of which would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup kernels check fix lock test test-matrix test-lowest test-sanitize test-aarch64 fuzz fuzz-libxformc demo zoo bench test-gpu bench-gpu docs site clean

help:  ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 15

setup: $(VENV)/.ready  ## make .venv with everything, and the kernels; quick when that is done
	@$(XFORMC) kernels --check >/dev/null 2>&1 || \
		{ echo "building the kernels: once for each version of their sources, a minute or two"; $(MAKE) --silent kernels; } || \
		echo "WARNING: there are no kernels, so tests of target native will be skipped. Mend the error above," \
			"then run: make kernels" >&2

# The versions and hashes are those of the lock, if the index has them. TORCH chooses the build of PyTorch (CPU or CUDA).
$(VENV)/.ready: pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: Python 3.11 or newer is required; try: make setup PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' || \
		{ echo "error: Python has no ensurepip; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	@echo "setting up $(VENV): once, a few minutes"
	@$(PYTHON) -m venv --clear $(VENV)
	$(INSTALL) --no-deps --require-hashes --requirement $(LOCK) || \
		echo "WARNING: the package index lacks a version of the lock; taking others that pyproject.toml allows" >&2
	$(INSTALL) $(TORCH) 'pip>=25.1'
	$(INSTALL) --group dev --editable '.[demo,report,cpu]'
	$(BIN)/python -m pip check
	@touch $@

# For Python 3.11 and newer, with what PyTorch needs, but not PyTorch and CUDA: TORCH says which build of it is installed.
lock: setup  ## write requirements/dev.txt for pyproject.toml; UPGRADE=1 takes the newest versions
	echo '$(firstword $(TORCH))' | $(RESOLVE) - pyproject.toml --group dev --universal --python-version 3.11 \
		--no-emit-package torch --excludes requirements/not-locked.txt --generate-hashes $(if $(UPGRADE),--upgrade) \
		--custom-compile-command 'make lock' --output-file $(LOCK) >/dev/null

kernels: $(VENV)/.ready  ## build what engines of target native need, or say why not
	@$(XFORMC) kernels

fix: setup  ## mend what ruff can, and format Python and C++
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_SOURCES)

check: setup  ## ruff, clang-format, pyright and pytest
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CXX_SOURCES)
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(PYTEST)

test: setup  ## pytest
	$(PYTEST)

# Training and kernels choose by the processor; these two say what, and the choice of this one is in `test`: without
# VNNI that is AVX2, and only trainings are left. Only the files with the mark are read, of imports and exports none.
MATRIX = $(PYTEST) -m processor $$(grep -rl --include='*.py' 'mark\.processor' $(1))
test-matrix: setup  ## the tests that depend on the processor, as if on others: their precisions and instructions
	XFORMC_KERNELS_ISA=portable $(call MATRIX,tests/compiler tests/test_specs.py)
	@grep -qw avx2 /proc/cpuinfo || echo "WARNING: no AVX2 here: the kernels for it are NOT TESTED in this run" >&2
	XFORMC_TRAIN_PRECISION=$$(grep -qwE "amx_bf16|avx512_bf16" /proc/cpuinfo && echo float32 || echo bfloat16) \
		XFORMC_KERNELS_ISA=$$(grep -owm1 avx2 /proc/cpuinfo) \
		$(call MATRIX,$$(grep -qwE "avx512_vnni|avx_vnni" /proc/cpuinfo && echo tests/compiler tests/runtime tests/trainer || echo tests/trainer))

# libxformc with AddressSanitizer and UndefinedBehaviorSanitizer, which end the process at the first mistake that they see,
# and then with ThreadSanitizer. Python loads them before all else; its own memory and ONNX Runtime's, which is kept until
# the end, is not counted as lost. The native tests run beside a fake ONNX Runtime that is checked as well.
SANITIZED = $(BIN)/cmake -S tests/native -DCMAKE_BUILD_TYPE=Sanitize -B
test-sanitize: export ASAN_OPTIONS = detect_leaks=0
test-sanitize: export UBSAN_OPTIONS = print_stacktrace=1
test-sanitize: export TSAN_OPTIONS = die_after_fork=0
test-sanitize: setup  ## the tests of libxformc, in builds that check memory, arithmetic and threads
	$(SANITIZED) $(SANITIZE) -DCMAKE_CXX_FLAGS='-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined'
	$(BIN)/cmake --build $(SANITIZE) --parallel
	XFORMC_KERNELS=$(SANITIZE)/libxformc.so \
		LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" \
		$(PYTEST) tests/runtime/test_kernels_*.py tests/runtime/cpp/test_hostile_files.py
	XFORMC_NATIVE_TESTS=$(SANITIZE) ASAN_OPTIONS=detect_leaks=1 $(PYTEST) tests/runtime/cpp/test_native.py
	$(SANITIZED) $(SANITIZE)/threads -DCMAKE_CXX_FLAGS='-O1 -g -fsanitize=thread'
	$(BIN)/cmake --build $(SANITIZE)/threads --parallel
	XFORMC_NATIVE_TESTS=$(SANITIZE)/threads $(PYTEST) tests/runtime/cpp/test_native.py

test-aarch64: setup  ## the kernels for 64-bit ARM in an emulator; says what it lacks for that
	PYTHON=$(BIN)/python tests/aarch64/run

# The fuzzers in C++ take Clang, for libFuzzer; what they find lies in build/fuzz.
CLANG ?= clang++
FUZZ := build/fuzz
FUZZER = mkdir -p $(FUZZ)/$(1) && XFORMC_FUZZ_ENGINES=$(FUZZ)/engines XFORMC_ONNXRUNTIME=$(FUZZ)/libfake_onnxruntime.so \
	$(FUZZ)/fuzz_$(1) -max_total_time=$(TIME) $(SEED:%=-seed=%) -timeout=20 -max_len=4096 -rss_limit_mb=4096 -print_funcs=0 \
	-artifact_prefix=$(FUZZ)/$(1)- $(FUZZ)/$(1) tests/fuzz/corpus/$(1)
fuzz: setup  ## xformc's operators and libxformc with hostile inputs, each for TIME=60 seconds (SEED=1: always the same ones)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.operators --seconds $(TIME) $(SEED:%=--seed %)
	@if command -v $(CLANG) >/dev/null; then $(MAKE) --silent fuzz-libxformc; else \
		echo "WARNING: no $(CLANG) here: libxformc is NOT FUZZED in this run, its operators are" >&2; fi

fuzz-libxformc:
	$(BIN)/cmake -S tests/fuzz -B $(FUZZ) -DCMAKE_CXX_COMPILER=$(CLANG)
	$(BIN)/cmake --build $(FUZZ) --parallel
	rm -rf $(FUZZ)/engines && PYTHONPATH=src:tests $(BIN)/python -m native.engines $(FUZZ)/engines
	$(call FUZZER,manifest)
	$(call FUZZER,tokenizer)
	$(call FUZZER,calls)
	$(call FUZZER,wav)

# In an environment of its own. Old versions warn of what newer ones changed, so warnings are no errors here.
test-lowest: setup  ## the tests with the lowest versions that pyproject.toml allows; PYTHON=python3.11 TORCH_LOWEST=...
	$(PYTHON) -m venv --clear $(LOWEST)
	mkdir -p build
	echo torch >build/not-lowest.txt
	$(RESOLVE) pyproject.toml --group test --resolution lowest-direct --python $(LOWEST)/bin/python \
		--excludes build/not-lowest.txt --output-file build/lowest.txt >/dev/null
	$(LOWEST)/bin/python -m pip install --quiet --no-deps --requirement build/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet $(TORCH_LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --no-deps --editable .
	$(LOWEST)/bin/python -m pip check
	PYTEST_ADDOPTS='-W default' $(subst $(BIN),$(LOWEST)/bin,$(PYTEST))

demo: setup  ## train, build, certify and use a small Transformer: numbers in English words to German
	rm -rf $(DEMO)/data $(DEMO)/run
	$(XFORMC) corpus numbers --output $(DEMO)/data
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

docs: setup  ## write docs/reference.md, the README's picture, and specs/schema.json
	$(BIN)/python -m xformc.compiler.explain.reference docs/reference.md
	$(XFORMC) draw transformer_base --output docs/images/transformer_base.svg
	$(XFORMC) schema --output specs/schema.json

site: setup $(VENV)/.site  ## build the documentation in build/site; a warning or a broken link fails
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs build/site
	@echo build/site/index.html

$(VENV)/.site: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

clean:  ## remove .venv, the demo and build leavings
	rm -rf $(VENV) $(LOWEST) $(DEMO) build dist src/*.egg-info

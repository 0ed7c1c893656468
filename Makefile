# Each target sets up what it needs, by itself; all of them work on a fresh clone.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo venv kernels check format test test-cpus test-fast test-system test-faults \
  test-kubernetes lock audit clean

PY := .venv/bin/python
NATIVE := $(wildcard cifar10/kernels/*.h cifar10/kernels/*.cc)
# --no-compile: Python compiles what is imported, which is a third of it.
PIP_INSTALL := $(PY) -m pip install -qq --disable-pip-version-check --no-compile
# A lock has the version and the hashes of every package; pip refuses a file with another hash.
hashes = $(if $(filter %.lock,$(1)),--require-hashes --only-binary :all:)
export PYTHONDONTWRITEBYTECODE :=
DEMO := --data-dir demo/data --output-dir demo/output \
  --num-layers 8 --train-epochs 4 --train-batch-size 64

# What the venv was made from; empty if it is half made, or if its Python is gone.
INSTALLED := $(shell $(PY) -c 'print(open(".venv/.installed").read())' 2>/dev/null)
REQUIREMENTS ?= $(or $(INSTALLED),requirements.lock)
DEV := requirements-dev$(suffix $(REQUIREMENTS))
# What the locks are for. Elsewhere pip would skip all that they hold, and not say so.
MACHINES := x86_64$(if $(findstring -gpu,$(REQUIREMENTS)),, aarch64)
PLATFORM ?= $(shell uname -s)-$(shell uname -m)
COVERED := $(filter %.txt $(MACHINES:%=Linux-%),$(REQUIREMENTS) $(PLATFORM))

help:
	@echo 'make demo         train a small network end to end: two and a half minutes with set-up (Zen 3)'
	@echo 'make venv         set up .venv; with REQUIREMENTS=requirements-gpu.lock: for NVIDIA GPUs'
	@echo 'make kernels      compile convolutions for CPUs, as venv, demo and tests do, too'
	@echo 'make check        format, lint, types'
	@echo 'make test         the tests: four minutes on two cores (Zen 3); ARGS="-k name" picks some'
	@echo 'make test-cpus    what depends on the CPU, with fewer instructions and without oneDNN: minutes'
	@echo 'make test-fast    those of the launcher, data_prep and settings, without TensorFlow: minutes'
	@echo 'make test-system  those with containers, a browser or long runs; needs Debian and root'
	@echo 'make test-kubernetes  jobs on a real Kubernetes; the first time, 13 minutes to build it; Debian, root'
	@echo 'make test-faults  breaks real jobs in many ways: up to half an hour; Debian, root; docs/faults.md'
	@echo 'make format       let ruff mend format and lint'
	@echo 'make lock         write the locks anew; ARGS=--upgrade takes newer versions, too'
	@echo 'make audit        whether known vulnerabilities concern what the locks install'
	@echo 'make clean        remove .venv, caches and the demo; data/ and output/ stay'

# As a master, a worker and a ps on this machine. Run it again at any time: finished work is kept,
# and a stopped training goes on.
demo: kernels
	$(PY) -m data_prep --source synthetic --out demo/data
	$(PY) -m launch up --on local --workers 1 --ps 1 -- $(DEMO)
	@echo
	@echo 'These were drawn shapes. To get CIFAR-10 itself:'
	@echo '  $(PY) -m data_prep download --out .                  # 170 MB'
	@echo '  $(PY) -m data_prep --source cifar-10-python.tar.gz   # 6 seconds'
	@echo 'Training on it, and about how long that takes on two cores of an AMD EPYC, Zen 3 (Zen 4):'
	@echo '  $(PY) cifar10_main.py --recipe resnet20 --output-dir resnet20'
	@echo '      # 16 minutes (6), to an accuracy of 82 %'
	@echo '  $(PY) cifar10_main.py --recipe fast --output-dir fast'
	@echo '      # 23 minutes (12), 90 %'
	@echo '  $(PY) cifar10_main.py --train-batch-size=128'
	@echo '      # 80,000 steps of ResNet-44: 10 hours (5)'

venv: kernels

# Where they cannot be had, it says why; all works without them.
kernels: .venv/.installed
	@$(PY) -m cifar10.kernels.build || true

# The first Python that fits and can make a venv; `make venv PYTHON=/path/to/python3.11` names one.
# In a venv that is active, it is the one that the venv was made with: .venv itself may go away.
# (There, _base_executable is that one from Python 3.11 on only.)
FITS := import sys; (3, 9) <= sys.version_info < (3, 12) or sys.exit(1)
WHICH := import ensurepip, os; $(FITS); \
  print(sys.executable if sys.prefix == sys.base_prefix else os.path.realpath(sys._base_executable))
PYTHON ?= $(shell for name in python3.11 python3.10 python3.9 python3 python; do \
  $$name -c '$(WHICH)' 2>/dev/null && break; done)
# Where there is none, uv has one or downloads one. Its own ones can make a venv, with pip.
UV_PYTHON := UV_PYTHON_PREFERENCE=only-managed uv python
FIND := $(UV_PYTHON) find --system 3.11

# The stamp comes last, so that a venv whose making was stopped is made anew.
.venv/.installed: $(REQUIREMENTS) $(if $(filter %.txt,$(REQUIREMENTS)),requirements.txt)
	@test -n '$(COVERED)' || { echo >&2 "$(REQUIREMENTS) is for Linux on $(MACHINES), and this is\
	 $(PLATFORM); to install without hashes: make venv REQUIREMENTS=$(REQUIREMENTS:.lock=.txt)"; exit 2; }
	@python="$(PYTHON)"; \
	if test -z "$$python" && command -v uv >/dev/null; then \
	  echo 'No Python 3.9, 3.10 or 3.11 that can make a venv is on PATH: uv provides 3.11.'; \
	  $(FIND) >/dev/null 2>&1 || $(UV_PYTHON) install 3.11; python="$$($(FIND))"; \
	elif test -z "$$python"; then \
	  case "$$(python3 -c '$(FITS)' >/dev/null 2>&1 && echo fits)" in \
	    fits) way='On Debian: apt-get install python3-venv. Elsewhere,' ;; \
	    *) way='Install uv (https://docs.astral.sh/uv/), and make gets Python 3.11 by it. Or' ;; esac; \
	  echo >&2 "No Python 3.9, 3.10 or 3.11 that can make a venv is on PATH. $$way\
	 name one: make PYTHON=/path/to/python3.11"; exit 2; fi; \
	echo "Setting up .venv from $(REQUIREMENTS): one to two minutes, once."; \
	rm -rf .venv; "$$python" -m venv .venv
	@$(PIP_INSTALL) $(call hashes,$(REQUIREMENTS)) -r $(REQUIREMENTS)
	@cp $(REQUIREMENTS) $@.lock
	@printf '%s' '$(REQUIREMENTS)' > $@

ifneq ($(INSTALLED),$(REQUIREMENTS))
.PHONY: .venv/.installed
endif

.venv/.installed-dev: .venv/.installed $(DEV)
	@echo 'Adding the tools of $(DEV).'
	@$(PIP_INSTALL) $(call hashes,$(DEV)) -r $(DEV)
	@touch $@

check: .venv/.installed-dev
	.venv/bin/clang-format --dry-run --Werror $(NATIVE)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

format: .venv/.installed-dev
	.venv/bin/clang-format -i $(NATIVE)
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

# Two processes on the two cores of CI; a third one's start and imports cost more than it gains.
test: .venv/.installed-dev kernels
	$(PY) -m pytest -m 'not system' --ignore tests/system --ignore tests/outside \
	  --numprocesses 2 --dist loadfile --durations 10 --durations-min 5 $(ARGS)

# What depends on the CPU, with each limit of instructions that this CPU has.
CPU_TESTS := tests/cifar10/ops/test_kernels.py tests/cifar10/ops/test_normalisation.py \
  tests/cifar10/ops/test_layers.py tests/cifar10/step/test_devices.py \
  tests/reference/test_training_step.py
LIMITS := from cifar10 import kernels as k; k.load(); \
  print(*k.LIMITS[:k.LIMITS.index(k.instructions()) + 1])

test-cpus: .venv/.installed-dev kernels
	limits="$$($(PY) -c '$(LIMITS)')"; for limit in $$limits; do for onednn in 1 0; do \
	  echo "CIFAR10_KERNELS_ISA=$$limit TF_ENABLE_ONEDNN_OPTS=$$onednn"; \
	  CIFAR10_KERNELS_ISA=$$limit TF_ENABLE_ONEDNN_OPTS=$$onednn $(PY) -m pytest -q \
	    -m 'not system' --numprocesses 2 --dist loadfile $(CPU_TESTS) $(ARGS); \
	done; done

test-fast: .venv/.installed-dev
	$(PY) -m pytest -m 'not slow and not system' --numprocesses 2 --dist loadfile \
	  tests/launch tests/data_prep tests/cifar10/config $(ARGS)

# The files that have the mark; to import the others takes each process ten seconds longer.
SYSTEM_TESTS = $(shell grep -rlF mark.system --include 'test_*.py' tests)

# Three processes, since most of these tests wait.
test-system: .venv/.installed-dev kernels
	testbeds/install_packages.sh
	$(PY) -m pytest -m system --override-ini testpaths='$(SYSTEM_TESTS)' --timeout 900 \
	  --numprocesses 3 --dist loadfile $(ARGS)

# The servers stay in a cache folder, ~/.cache/cifar10-kubernetes or what KUBERNETES_TESTBED names.
test-kubernetes: .venv/.installed-dev kernels
	testbeds/install_packages.sh
	testbeds/kubernetes.sh build
	$(PY) -m pytest -m system --timeout 900 tests/system/test_real_kubernetes.py $(ARGS)

test-faults: .venv/.installed-dev kernels
	testbeds/install_packages.sh
	$(PY) -m tests.faults $(ARGS)

# $(1): the set of requirements; $(2): the machines, as a marker; $(3): further flags.
define lock
	@printf '[tool.uv]\nenvironments = ["%s and %s and %s and (%s)"]\n' "python_version < '3.12'" \
	  "sys_platform == 'linux'" "platform_python_implementation == 'CPython'" "$(2)" > .venv/lock/pyproject.toml
	$(PY) -m uv pip compile --quiet --project .venv/lock --universal --python-version 3.9 \
	  --generate-hashes --only-binary :all: --custom-compile-command 'make lock' \
	  $(ARGS) $(3) $(1).txt --output-file $(1).lock
endef
X86_64 := platform_machine == 'x86_64'

lock: .venv/.installed-dev
	@mkdir -p .venv/lock
	$(call lock,requirements,$(X86_64) or platform_machine == 'aarch64')
	$(call lock,requirements-dev,$(X86_64) or platform_machine == 'aarch64',-c requirements.lock)
	$(call lock,requirements-gpu,$(X86_64),-c requirements.lock)

audit: .venv/.installed-dev
	$(PY) -m pip_audit --strict --disable-pip --require-hashes $(ARGS) \
	  $(foreach lock,$(wildcard *.lock),--requirement $(lock)) \
	  $(addprefix --ignore-vuln ,$(shell sed -n 's/^\([A-Z][^ ]*\) ..*/\1/p' .ci/accepted-advisories.txt))

clean:
	rm -rf .venv demo cifar10/kernels/built .mypy_cache .pytest_cache .ruff_cache

# Daily work. `make` alone lists the targets. Nothing but Python 3.11 to 3.13 (with venv and pip) and make is needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WHEEL_VENV := .venv-wheel
SCRATCH := .wheel-test
# The Triton of $(VENV) is the newest supported one (requirements-ci.txt); tests run on these too, the oldest first.
TRITON_VERSIONS := 3.2.0 3.6.0
TRITON_DIRS := $(TRITON_VERSIONS:%=.venv-triton/%)
# Up to 3.6, Triton's interpreter turns one-element arrays into numbers, which numpy 2.4 refuses.
TRITON_NUMPY := numpy<2.4
# Packages whose loaders read exported tables, for tests that hand them one. Their dependencies are left out.
CONSUMERS := fla-core==0.5.2 fla-core==0.6.0 flag-gems==5.0.2
CONSUMER_DIRS := $(CONSUMERS:%=.venv-consumers/%)
JOBS ?= 2

empty :=
space := $(empty) $(empty)
export TUNER_TEST_TRITON_DIRS := $(subst $(space),:,$(addprefix $(CURDIR)/,$(TRITON_DIRS)))
export TUNER_TEST_CONSUMERS := $(subst $(space),:,$(addprefix $(CURDIR)/,$(CONSUMER_DIRS)))
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install demo test lint format format-check types tests wheel-test clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-14s %s\n", $$1, $$2}'

install: $(VENV)/.done ## Make .venv and install this project into it, editable, with what its tests need

demo: install ## Tune two small problems without a GPU (or with one), and print the winners
	@export TUNER_DB=$${TUNER_DB:-sqlite:///$(CURDIR)/demo.db}; set -ex; \
	$(BIN)/tuner tune softmax --shape rows=512,cols=4096 --dtype bf16 --trials 12; \
	$(BIN)/tuner tune attention_fwd --shape batch=1,heads=2,q_len=512,kv_len=512,head_dim=64 --dtype bf16 --causal --trials 8; \
	$(BIN)/tuner best softmax --estimated --shape rows=512,cols=4096 --dtype bf16; \
	$(BIN)/tuner best attention_fwd --estimated --shape batch=1,heads=2,q_len=512,kv_len=512,head_dim=64 --dtype bf16 --causal

test: lint format-check types wheel-test ## What CI runs: lint, format, types, then the whole suite on the built wheel

lint: install ## ruff check
	$(BIN)/ruff check .

format: install ## Rewrite files as ruff formats them
	$(BIN)/ruff format .

format-check: install ## Fail where `make format` would change something
	$(BIN)/ruff format --check .

types: install ## mypy --strict on the package
	$(BIN)/mypy

tests: install ## The suite on the checkout, which is quicker than wheel-test; ARGS are pytest's
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# The tests are copied out of the checkout, and -P keeps the current folder off the path, so that `tuner` can only be the
# wheel. Its environment sees the libraries of $(VENV), but not the editable install: a folder that a .pth file names is
# searched, and the .pth files in it are not read.
wheel-test: install $(TRITON_DIRS:%=%/.done) $(CONSUMER_DIRS:%=%/.done) ## Build sdist and wheel, install the wheel, and run the suite against it
	rm -rf dist $(WHEEL_VENV) $(SCRATCH)
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv --without-pip $(WHEEL_VENV)
	$(BIN)/python -m pip --python $(WHEEL_VENV)/bin/python install --quiet --no-deps dist/*.whl
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
		> "$$($(WHEEL_VENV)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/libraries.pth"
	mkdir -p $(SCRATCH)
	cp -r tests pyproject.toml $(SCRATCH)/
	cd $(SCRATCH) && TUNER_CHECKOUT=$(CURDIR) OMP_NUM_THREADS=1 $(CURDIR)/$(WHEEL_VENV)/bin/python -P -m pytest -n $(JOBS) --dist worksteal $(ARGS)

clean: ## Remove environments and build products
	rm -rf .venv .venv-wheel .venv-triton .venv-consumers $(SCRATCH) dist build

$(VENV)/.done: pyproject.toml requirements-ci.txt
	$(PYTHON) -c "import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else 'Python 3.11 to 3.13 is needed: set PYTHON')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements-ci.txt
	$(BIN)/python -m pip install --quiet --constraint requirements-ci.txt --editable '.[dev]'
	touch $@

.venv-triton/%/.done: $(VENV)/.done
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --no-deps --target $(@D) triton==$* '$(TRITON_NUMPY)'
	touch $@

.venv-consumers/%/.done: $(VENV)/.done
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --no-deps --target $(@D) '$*' einops packaging
	touch $@

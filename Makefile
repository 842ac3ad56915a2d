# Every target sets up what it needs in .venv; when nothing changed that costs nothing.
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
JOBS ?= 2

# Many tests start processes, each of which would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

JAVA := $(shell find src/spark-catalog -name "*.java")

$(INSTALLED): pyproject.toml requirements.lock scripts/install.sh scripts/build_catalog.py $(JAVA)
	@./scripts/install.sh $(VENV)
	@touch $@

.PHONY: install
install: $(INSTALLED) ## set up .venv with the locked versions

.PHONY: demo
demo: $(INSTALLED) ## show the whole story on a new lake in ./demo-lake
	@$(BIN)/python scripts/demo.py demo-lake

# Spark's tests share one JVM, so they run by themselves, one after the other.
.PHONY: test
test: $(INSTALLED) ## run the tests
	$(BIN)/pytest -q -n $(JOBS) --dist loadgroup -m "not proof and not spark"
	$(BIN)/pytest -q -m "spark and not proof"

.PHONY: check
check: $(INSTALLED) ## lint, format, prose, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m scripts.prose
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.installed-bench: $(INSTALLED) requirements-bench.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements-bench.lock
	@touch $@

# One that fails does not keep the others from running.
.PHONY: bench
bench: $(VENV)/.installed-bench ## run the benchmarks, each beside its peer
	@failed=; for file in benchmarks/[a-z]*.py; do \
	  echo "== $$file"; began=$$(date +%s); \
	  $(BIN)/python $$file || failed="$$failed $$file"; \
	  echo "-- $$file took $$(($$(date +%s) - began)) s"; \
	done; [ -z "$$failed" ] || { echo "failed, so that their results are older ones:$$failed"; exit 1; }

# One proof may take hours; one that hangs still ends.
PATIENT := --timeout=21600 -o faulthandler_timeout=22000

.PHONY: proof
proof: export ANABRANCH_PROOF_LOG := $(CURDIR)/proof.jsonl
proof: $(INSTALLED) ## run the slow proofs, which takes hours: the whole suite on S3, long random runs
	@rm -f $(ANABRANCH_PROOF_LOG)
	@failed=; \
	$(BIN)/pytest -q -n $(JOBS) --proof $(PATIENT) -m "not spark" || failed=yes; \
	$(BIN)/pytest -q --proof $(PATIENT) -m spark || failed=yes; \
	$(BIN)/python scripts/proof_figures.py $(ANABRANCH_PROOF_LOG); [ -z "$$failed" ]

.PHONY: docs
docs: $(INSTALLED) ## write the reference from the code, and build the guide as a site in ./site
	@$(BIN)/python -m scripts.reference
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: format
format: $(INSTALLED) ## rewrite the code as `check` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: lock
lock: ## resolve the newest allowed versions into requirements.lock
	@./scripts/lock.sh

.PHONY: clean
clean: ## remove .venv, caches and the lakes that the demo made
	@for lake in demo-lake*/; do if [ -f "$$lake.made-by-make-demo" ]; then rm -rf "$$lake"; fi; done
	rm -rf $(VENV) site .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

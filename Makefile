SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test it soak lint openapi bench install dist record

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z%-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Start hapax and show every event, copies included
	@echo "Building and starting hapax on http://127.0.0.1:4272 (stop with Ctrl-C)."
	@echo "When it is up, send it one message five times from a second terminal:"
	@echo
	@echo "    target/quick/hapax trigger whatsapp.text --times 5"
	@echo
	cargo run --profile quick -- listen

# Cargo prints one count per test binary; the last line adds them up, and pipefail keeps cargo's verdict.
count := awk '{ print; fflush() } /^test result:/ { passed += $$4; failed += $$6; ignored += $$8 } \
	END { printf "\n%d passed, %d failed, %d ignored\n", passed, failed, ignored }'

test: ## Run every test and print how many ran
	@tests/install-servers.sh
	@tests/install-clients.sh
	@if cargo nextest --version >/dev/null 2>&1; then \
		cargo test --workspace --doc && cargo nextest run --workspace; \
	else \
		cargo test --workspace --no-fail-fast 2>&1 | $(count); \
	fi

# A crate by the name of its folder.
crate = $(if $(filter hapax hapax-server,$*),$*,hapax-$*)

test-%: ## Run the tests inside one crate: make test-domain
	cargo nextest run -p $(crate) --lib

lint-%: ## Lint one crate: make lint-domain
	cargo clippy -p $(crate) --all-targets -- -D warnings

it: ## Run one part of the integration tests: make it FILTER=storm
	@tests/install-servers.sh
	@tests/install-clients.sh
	cargo nextest run -p hapax-server --test it $(FILTER)

# What is long by nature has a short form in `make test` and its full form here. The numbers may be set from outside.
soak: export HAPAX_SOAK ?= 1
soak: export HAPAX_SEQUENCES ?= 2000
soak: export HAPAX_POWER_CUTS ?= 200
soak: ## Run the long forms of the tests: 2,000 random sequences per store, 200 power cuts (hours)
	@tests/install-servers.sh
	@tests/install-clients.sh
	cargo nextest run --workspace --profile soak

lint: ## Check formatting, lints, house rules, and where dependencies come from; any warning is an error
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --quiet -p hapax-server --test tidy

openapi: ## Write docs/openapi.json anew, after a change to the API
	HAPAX_WRITE_OPENAPI=1 cargo nextest run -p hapax-gateway --lib the_document_in_docs

bench: ## Measure this machine: accept, copies, delivery and sending against a bare server
	cargo run --release -- bench

install: ## Install the hapax command for this user
	cargo install --path crates/hapax-server --locked

dist: ## Make a release in target/dist (tarball, Debian package, SBOM) and try it
	deploy/dist.sh

record: ## Record `hapax demo` for the README anew (docs/images/demo.svg)
	cargo build --profile quick
	docs/record.py docs/images/demo.svg target/quick/hapax demo --seconds 20

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test lint bench install

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Start hapax and show every event, copies included
	@echo "Building and starting hapax on http://127.0.0.1:4272 (stop with Ctrl-C)."
	@echo "When it is up, send it one message five times from a second terminal:"
	@echo
	@echo "    target/release/hapax trigger whatsapp.text --times 5"
	@echo
	cargo run --release -- listen

# Cargo prints one count per test binary; the last line adds them up, and pipefail keeps cargo's verdict.
count := awk '{ print; fflush() } /^test result:/ { passed += $$4; failed += $$6; ignored += $$8 } \
	END { printf "\n%d passed, %d failed, %d ignored\n", passed, failed, ignored }'

test: ## Run every test and print how many ran
	@tests/install-servers.sh
	@if cargo nextest --version >/dev/null 2>&1; then \
		cargo test --all-features --doc && cargo nextest run --all-features; \
	else \
		cargo test --all-features --no-fail-fast 2>&1 | $(count); \
	fi

lint: ## Check formatting and lints; any warning is an error
	cargo fmt --check
	cargo clippy --all-targets --all-features -- -D warnings

bench: ## Measure this machine: accept, copies and delivery against a server that stores nothing
	cargo run --release -- bench

install: ## Install the hapax command for this user
	cargo install --path . --locked

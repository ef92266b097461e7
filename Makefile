# Two commands to remember: `make run` and `make test`. `make help` lists all.
# Nothing here wipes `target/`: every command builds on what is there.

CARGO ?= cargo
# Two jobs: linking more at once needs more memory than small machines have.
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help preflight build test

help: ## Print this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

preflight: ## Check that Rust 1.85 or newer and a linker are here
	@.ci/preflight

build: preflight ## Build target/release/cambium and target/release/kvzone
	$(CARGO) build -j$(JOBS) --release

# What is quick to fail goes first; the suites go last, so that their closing
# lines are what is left on the screen.
test: preflight ## Run everything that continuous integration runs
	$(CARGO) fmt --all --check
	$(CARGO) clippy -j$(JOBS) --workspace --all-targets -- -D warnings
	$(CARGO) xtask tidy
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc -j$(JOBS) --quiet --workspace --no-deps --document-private-items
	$(CARGO) test -j$(JOBS) --workspace

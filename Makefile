# Two commands to remember: `make run` and `make test`. `make help` lists all.
# Nothing here wipes `target/`: every command builds on what is there.

CARGO ?= cargo
# Two jobs: linking more at once needs more memory than small machines have.
JOBS ?= 2
# The documents are for those who work on the code too: private modules have
# pages, and public essays may link to them.
RUSTDOCFLAGS := -D warnings -A rustdoc::private_intra_doc_links

.DEFAULT_GOAL := help
# Where `make install` puts the C libraries; DESTDIR goes before it.
PREFIX ?= /usr/local
MDBOOK := 0.5.4

.PHONY: help preflight build install uninstall run cluster test docs pages packages wheel soak bench peers

help: ## Print this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

preflight: ## Check that Rust 1.89 or newer and a linker are here
	@.ci/preflight

build: preflight ## Build target/release/cambium, cambium-server and kvzone
	$(CARGO) build -j$(JOBS) --release

install: preflight ## Install libcambium, libcambium_leveldb, headers and cambium.pc under PREFIX
	$(CARGO) build -j$(JOBS) --release --package cambium-ffi --package cambium-leveldb
	scripts/install.sh "$${CARGO_TARGET_DIR:-target}/release" "$(abspath $(PREFIX))" "$(DESTDIR)"

uninstall: ## Take away what `make install` put under PREFIX
	scripts/install.sh --remove "$(abspath $(PREFIX))" "$(DESTDIR)"

# The main job on real input: a tree of this machine's files goes into a store.
run: preflight ## Import up to 1 GiB of /usr; look up, list, check, kill and resume; compare stores
	JOBS=$(JOBS) scripts/run.sh

cluster: preflight ## Run three nodes on this machine, kill one under load, and hold every acknowledged write against them
	CARGO=$(CARGO) JOBS=$(JOBS) scripts/cluster.sh

# What is quick to fail goes first; the suites go last, so that their closing
# lines are what is left on the screen. Clippy has compiled the examples.
test: preflight ## Run everything that continuous integration runs
	$(CARGO) fmt --all --check
	$(CARGO) clippy -j$(JOBS) --workspace --all-targets -- -D warnings
	$(CARGO) xtask tidy
	CARGO=$(CARGO) JOBS=$(JOBS) .ci/features
	CARGO=$(CARGO) JOBS=$(JOBS) .ci/targets
	RUSTDOCFLAGS="$(RUSTDOCFLAGS)" $(CARGO) doc -j$(JOBS) --quiet --workspace --no-deps --document-private-items
	RUSTDOCFLAGS="$(RUSTDOCFLAGS)" $(CARGO) doc -j$(JOBS) --quiet --package cambium-testkit --features suites --no-deps
	$(CARGO) test -j$(JOBS) --workspace --lib --bins --tests
	$(CARGO) test -j$(JOBS) --workspace --doc
	.ci/installed "$${CARGO_TARGET_DIR:-target}/debug/deps"
	CARGO=$(CARGO) JOBS=$(JOBS) .ci/packages "$${CARGO_TARGET_DIR:-target}/debug" "$${CARGO_TARGET_DIR:-target}/debug/deps"
	STRESS_BUILT=1 .ci/stress

# mdBook is built once; `make test` checks links and examples without it.
docs: preflight ## Build the book in target/book/html
	@[ -x target/mdbook/bin/mdbook ] || $(CARGO) install mdbook --version $(MDBOOK) --locked -j$(JOBS) --root target/mdbook
	$(CARGO) xtask tidy
	rm -rf target/book
	$(CARGO) xtask book target/book
	target/mdbook/bin/mdbook build target/book

pages: preflight ## Write man pages and completions of the programs to target/pages
	$(CARGO) build -j$(JOBS) --profile test --package cambium-cli
	CARGO=$(CARGO) JOBS=$(JOBS) scripts/pages.sh "$${CARGO_TARGET_DIR:-target}/debug" target/pages

# The server's own crate stays as fast as in a release; the last step, over all crates, is for size.
packages: pages ## Build Debian packages in target/packages
	$(CARGO) build -j$(JOBS) --profile program --package cambium-cli --package kvzone
	$(CARGO) rustc -j$(JOBS) --profile program --package cambium-server --bin cambium-server -- -C opt-level=s
	$(CARGO) build -j$(JOBS) --release --package cambium-ffi --package cambium-leveldb
	rm -rf target/packages
	scripts/packages.sh "$${CARGO_TARGET_DIR:-target}/program" "$${CARGO_TARGET_DIR:-target}/release" \
	    target/pages target/packages

wheel: preflight ## Build the Python package's wheel and source distribution in target/wheels
	JOBS=$(JOBS) scripts/wheel.sh target/wheels

soak: preflight ## Run the suites with larger bounds, stores under stress, and unsafe code under AddressSanitizer
	JOBS=$(JOBS) .ci/soak

peers: ## Fetch the stores to compare with into target/peers
	@scripts/peers.sh

# On a machine that does other work, believe ratios more than rates.
bench: preflight peers ## Measure every kind of work, each store: docs/matrix.md with its chart
	CARGO=$(CARGO) JOBS=$(JOBS) scripts/bench.sh

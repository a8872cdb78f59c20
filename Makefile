# The commands of this project. `make test` is what CI runs; it installs what it needs.

# The cargo-deny that a fresh machine gets.
DENY := 0.20.2

# Broken links between the documents of the code are errors; --document-private-items reads all of them.
DOC := RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --no-deps --locked --document-private-items

.PHONY: test check fix tools demo bench simulation

# Everything that CI runs: formatting, lints, every test, the demo on real processes, dependency rules.
test: tools
	cargo fmt --check
	cargo clippy --all-targets --locked -- -D warnings
	$(DOC)
	cargo test --locked
	cargo build --release --locked
	cargo run --release --locked -- demo --json > target/demo.json
	$(MAKE) simulation
	cargo bench --locked --bench routing -- --smoke
	cargo deny check --hide-inclusion-graph bans licenses sources

# The quick loop.
check:
	cargo fmt --check
	cargo clippy --all-targets --locked
	$(DOC)
	cargo test --lib --locked

# Writes what can be written: formatting, generated documents, golden files of new kinds.
fix:
	cargo fmt
	REACH_FIX=1 cargo test --lib --test golden -- --skip properties

# What a fresh machine may lack: a C linker for Rust, Python for the examples of docs/agents-and-callbacks.md (their test
# says so and is skipped without it), and cargo-deny for the dependency rules. Everything else comes with cargo.
tools:
	@command -v cc >/dev/null || { command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq gcc libc6-dev; }
	@command -v python3 >/dev/null || ! command -v apt-get >/dev/null || apt-get install -y -qq python3 || true
	@command -v cargo >/dev/null || { echo "Rust 1.95 or newer is needed: see rustup.rs"; exit 1; }
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || rustup component add rustfmt clippy
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked --version $(DENY) cargo-deny

# The long form of the simulation: 200,000 task lives, 20,000 cuts; SIM_SEEDS for more.
simulation:
	SIM_SEEDS=$${SIM_SEEDS:-2500} SIM_CUT_SEEDS=$${SIM_CUT_SEEDS:-60} cargo test --release --locked --test simulation -- --nocapture

demo:
	cargo run --release -- demo

bench:
	cargo run --release -- bench

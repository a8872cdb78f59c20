# The commands of this project. `make test` is what CI runs; it installs what it needs.
.PHONY: test check fix tools demo bench simulation

# Everything that CI runs: formatting, lints, every test, the demo on real processes, dependency rules.
test: tools
	cargo fmt --check
	cargo clippy --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --no-deps --locked --document-private-items
	cargo test --locked
	cargo build --release --locked
	cargo run --release --locked -- demo --json > target/demo.json
	$(MAKE) simulation
	cargo bench --locked --bench routing -- --smoke
	@if command -v cargo-deny >/dev/null; then cargo deny check bans licenses sources; else echo "cargo-deny is not installed: dependency rules not checked"; fi

# The quick loop.
check:
	cargo fmt --check
	cargo clippy --all-targets --locked
	cargo test --lib --locked

# Writes what can be written: formatting, generated documents, golden files of new kinds.
fix:
	cargo fmt
	REACH_FIX=1 cargo test --lib --test golden -- --skip properties

# What a fresh machine may lack: a C linker for Rust, and Python for the examples of docs/agents-and-callbacks.md (their
# test says so and is skipped without it). Everything else comes with cargo.
tools:
	@command -v cc >/dev/null || { command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq gcc libc6-dev; }
	@command -v python3 >/dev/null || ! command -v apt-get >/dev/null || apt-get install -y -qq python3 || true
	@command -v cargo >/dev/null || { echo "Rust 1.95 or newer is needed: see rustup.rs"; exit 1; }
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || rustup component add rustfmt clippy

# The long form of the simulation: 200,000 task lives, 20,000 cuts; SIM_SEEDS for more.
simulation:
	SIM_SEEDS=$${SIM_SEEDS:-2500} SIM_CUT_SEEDS=$${SIM_CUT_SEEDS:-60} cargo test --release --locked --test simulation -- --nocapture

demo:
	cargo run --release -- demo

bench:
	cargo run --release -- bench

# Two commands do all the set-up: `make demo` and `make test`.

CARGO ?= cargo
OUT = $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test build lint doc sim mutants xdp soak hostile fuzz package papers bench loc

# With PROFILE=dev the demo runs what the tests are built from: one build in place of two, for machines that start from
# nothing each time.
PROFILE ?= release
DEMO = -p pathcall-cli -p pathcall-demo -p pathcall-testbed \
  -p wordcount -p training -p monitor -p lock -p vote -p lookup -p rays -p proxy -p kv -p photos
ifeq ($(PROFILE),dev)
BIN = $(OUT)/debug
else
BIN = $(OUT)/release
endif

# Every ability shown, no root: first on hosts with links of 100 Mbit/s, in a user namespace where the system allows it,
# then on the loopback; results compared, tables, pictures. As root, TESTBED=1 shows map, and all at once, with every
# party on a host of its own, on links of 1 Gbit/s.
TESTBED ?=
BED = demo$(shell echo $$PPID)
demo:
ifeq ($(PROFILE),dev)
	$(MAKE) build
else
	$(CARGO) build --release $(DEMO)
endif
	$(BIN)/pathcall \
	  $(if $(TESTBED),testbed up --name $(BED) --hosts 6 --rate 1gbit -- $(BIN)/pathcall) \
	  demo $(if $(TESTBED),--testbed $(BED))

# One build for all tests, with every feature; the kernel's program is left out, and so it is said, where what it
# takes is lacking.
FEATURES = pathcall-rpc/otel,pathcall-rpc/quic,pathcall-rpc/gzip,pathcall-rpc/mutants,pathcall-endpoint/mutants,pathcall-cli/opencl,pathcall-cli/cuda,pathcall-sim/mutants,pathcall-conformance/mutants,pathcall-function-testing/mutants
XDP_FEATURES = pathcall-xdp/planted,pathcall-live/kernel,pathcall-element/xdp,pathcall-cli/xdp
WHOLE = --workspace --features $(FEATURES)$(shell bpf/lacking && echo ,$(XDP_FEATURES))

# Programs and tests in one: tests run programs of other packages, too, and `cargo test` builds none of those.
build:
	$(CARGO) build $(WHOLE) --bins --tests

test: build
	$(CARGO) test $(WHOLE)
	$(CARGO) test --release -p pathcall-program --test main instructions -- --nocapture
	$(MAKE) sim SEEDS=1000

# Where Clippy is the compiler (RUSTC_WORKSPACE_WRAPPER, as in .ci/run), its lints come with every build.
lint:
	$(CARGO) fmt --all --check
	cd papers && $(CARGO) fmt --all --check
ifndef RUSTC_WORKSPACE_WRAPPER
	$(CARGO) clippy $(WHOLE) --all-targets -- -D warnings
	cd papers && $(CARGO) clippy $(PAPERS) --all-targets -- -D warnings
endif

# The documentation of all crates; a link that leads nowhere, or a block that is no Rust, fails.
doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(WHOLE) --no-deps

# Faulty networks from seeds; every result is checked. A seed of all abilities at one time is as dear as one of each.
SEEDS ?= 2000
sim: build
	for ability in map delegate clone function place; do \
	  $(OUT)/debug/pathcall-sim $$ability --seeds $(SEEDS) || exit; done
	$(OUT)/debug/pathcall-sim all --seeds $$((($(SEEDS) + 9) / 10))

# Mistakes planted in the code, one at a time: the simulator catches each, and so does the comparison of
# executions those that are in the switch program. `make test` has them, too.
mutants:
	$(CARGO) test $(WHOLE) --test main mutants

# The switch program in the kernel: held to the reference on a million frames, and run as an element. `make test` has it,
# too, with fewer frames.
xdp: build
	bpf/lacking
	FRAMES=1000000 $(CARGO) test -p pathcall-xdp --features planted
	$(CARGO) test $(WHOLE) --test main xdp:: live:: kernel

# The same as sim, more of it, for hours with SEEDS=1000000; then, for SOAK_S seconds each, delegated calls on servers
# that are killed, and everything together on a testbed (root), where all but the caller and the front is killed:
# memory, descriptors, threads and the kernel's tables stay flat. `make test` has a short one of each.
SOAK_S ?= 600
soak: SEEDS = 10000
soak: build sim
	PATHCALL_SOAK_S=$(SOAK_S) $(CARGO) test $(WHOLE) --test alone soak -- --nocapture
	PATHCALL_SOAK_S=$(SOAK_S) $(CARGO) test $(WHOLE) --test main nothing_grows -- --nocapture

# Honest callers beside a client that knows the protocol and lies, replays, floods and holds, for HOSTILE_S seconds with
# tokens, and as many without. PATHCALL_HOSTILE_SEED names another seed. `make test` has a short one of each.
HOSTILE_S ?= 3600
hostile: build
	PATHCALL_HOSTILE_S=$(HOSTILE_S) $(CARGO) test $(WHOLE) --test main beside_a_hostile_client -- --nocapture --test-threads 1

# Every parser, the program and the endpoints, fuzzed for SECONDS each; a C++ compiler is needed.
SECONDS ?= 10
fuzz:
	SECONDS_EACH=$(SECONDS) fuzz/run

# What a registry would get of the crates that are published, built from that alone. Cargo takes packages for unchanged as
# long as their version and the path of the folder are the same: the folder's path names what is in it.
PUBLISHED = $(foreach manifest,$(shell grep -L '^publish = false' crates/*/Cargo.toml), \
  -p $(shell grep -m1 -o '"pathcall[a-z0-9-]*"' $(manifest)))
CONTENT = $(shell git rev-parse --short HEAD^{tree} 2>/dev/null || date +%s)
package:
	mkdir -p $(OUT)
	ln -sfn . $(OUT)/tree-$(CONTENT)
	CARGO_TARGET_DIR=$(abspath $(OUT))/tree-$(CONTENT) CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_LTO=off \
	  $(CARGO) package $(PUBLISHED)

# The papers' applications, models and figures: a workspace of its own (papers/Cargo.toml).
PAPERS = --workspace --features pathcall-models/mutants$(shell bpf/lacking && echo ,pathcall-bench/xdp)
papers:
	cd papers && $(CARGO) test $(PAPERS)

# Figures beside their peers: all of them, or FIGURE=name (`--list` names them). Those on testbeds take root;
# XDP=1 adds the rows of the element in the kernel; RECORD=1 keeps the rows in bench/, of which docs/figures.md is made.
# OpenCL on the processor (PoCL) gets one of its cores.
FIGURE ?=
XDP ?=
RECORD ?=
bench:
ifneq ($(filter never-slower,$(or $(FIGURE),never-slower)),)
	$(CARGO) build --release $(DEMO)
endif
	cd papers && POCL_MAX_PTHREAD_COUNT=1 $(CARGO) run --release -p pathcall-bench $(if $(XDP),--features xdp) -- \
	  $(if $(RECORD),--record ../bench) $(FIGURE)

# Network lines of code of the applications, beside the paper's Table 4.
loc:
	apps/loc.sh

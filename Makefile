# Two commands do all the set-up: `make demo` and `make test`.

CARGO ?= cargo
SEEDS ?= 2000
OUT = $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test lint doc sim mutants xdp soak fuzz loc bench

# With PROFILE=dev demonstration and simulations run what the tests were built from, unoptimised but for the hot parts: one
# build in place of two, for machines that start from nothing each time.
PROFILE ?= release
PARTS = -p pathcall -p wordcount -p training -p monitor -p lock -p vote -p lookup -p rays -p proxy -p kv -p photos
ifeq ($(PROFILE),dev)
BIN = $(OUT)/debug
BUILD = $(CARGO) test --workspace --features $(ALL_FEATURES) --no-run
else
BIN = $(OUT)/release
BUILD = $(CARGO) build --release $(PARTS)
endif

# The main job on embedded defaults, no root: everything on loopback, results compared, a table. As root,
# TESTBED=1 shows map, and all at once, with every party on a host of its own, on links of 1 Gbit/s.
TESTBED ?=
BED = demo$(shell echo $$PPID)
demo:
	$(BUILD)
	$(BIN)/pathcall \
	  $(if $(TESTBED),testbed up --name $(BED) --hosts 6 --rate 1gbit -- $(BIN)/pathcall) \
	  demo $(if $(TESTBED),--testbed $(BED))

# One build for all tests, with every feature; the kernel's program is left out, and so it is said, where what it
# takes is lacking.
FEATURES = pathcall-rpc/otel,pathcall-sim/mutants,pathcall-conformance/mutants,pathcall-function/mutants
XDP_FEATURES = pathcall-xdp/planted,pathcall-live/kernel,pathcall-element/xdp,pathcall/xdp,pathcall-bench/xdp
ALL_FEATURES = $(FEATURES)$(shell bpf/lacking && echo ,$(XDP_FEATURES))

test: lint
	$(CARGO) test --workspace --features $(ALL_FEATURES)
	$(CARGO) test --release -p pathcall-program --test instructions -- --nocapture
	$(MAKE) sim SEEDS=1000

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --features $(ALL_FEATURES) --all-targets -- -D warnings

# The documentation of all crates; a link that leads nowhere, or a block that is no Rust, fails.
doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --features $(ALL_FEATURES)

# Faulty networks from seeds; every result is checked. A seed of all abilities at one time is as dear as one of each.
sim:
	$(BUILD)
	$(BIN)/pathcall sim map --seeds $(SEEDS)
	$(BIN)/pathcall sim delegate --seeds $(SEEDS)
	$(BIN)/pathcall sim clone --seeds $(SEEDS)
	$(BIN)/pathcall sim function --seeds $(SEEDS)
	$(BIN)/pathcall sim place --seeds $(SEEDS)
	$(BIN)/pathcall sim all --seeds $$((($(SEEDS) + 9) / 10))

# Mistakes planted in the code, one at a time: the simulator catches each, and so does the comparison of
# executions those that are in the switch program. `make test` has them, too.
mutants:
	$(CARGO) test --workspace --features $(ALL_FEATURES) --test main mutants
	$(CARGO) test --workspace --features $(ALL_FEATURES) --test mutants --test p4

# The switch program in the kernel: held to the reference, and run as an element. `make test` has it, too.
xdp:
	bpf/lacking
	$(CARGO) build --workspace --bins --features $(ALL_FEATURES)
	$(CARGO) test --workspace --features $(ALL_FEATURES) --test cost --test differ --test fib --test function --test packets \
	  --test objects --test passing --test planted --test processors --test veth --test xdp --test live
	$(CARGO) test --workspace --features $(ALL_FEATURES) --test main program_in_the_kernel

# The same as sim, more of it, for hours with SEEDS=1000000; then, for SOAK_S seconds each, delegated calls on servers
# that are killed, and everything together on a testbed (root), where all but the caller and the front is killed:
# memory, descriptors, threads and the kernel's tables stay flat. `make test` has a short one of each.
SOAK_S ?= 600
soak: SEEDS = 10000
soak: sim
	PATHCALL_SOAK_S=$(SOAK_S) $(CARGO) test --release -p pathcall-rpc --test soak -- --nocapture
	$(CARGO) build --workspace --bins --features $(ALL_FEATURES)
	PATHCALL_SOAK_S=$(SOAK_S) $(CARGO) test --workspace --features $(ALL_FEATURES) --test soak nothing_grows -- --nocapture

# Every parser, the program and the endpoints, fuzzed for SECONDS each; a C++ compiler is needed.
SECONDS ?= 10
fuzz:
	SECONDS_EACH=$(SECONDS) fuzz/run

# Network lines of code of the applications, beside the paper's Table 4.
loc:
	apps/loc.sh

# Figures beside their peers: all of them, or FIGURE=name (`--list` names them). Those on testbeds take root;
# XDP=1 adds the rows of the element in the kernel. OpenCL on the processor (PoCL) gets one of its cores.
FIGURE ?=
XDP ?=
bench:
	POCL_MAX_PTHREAD_COUNT=1 $(CARGO) run --release -p pathcall-bench $(if $(XDP),--features xdp) -- $(FIGURE)

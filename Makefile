# Two commands do all the set-up: `make demo` and `make test`.

CARGO ?= cargo
SEEDS ?= 2000

.PHONY: demo test lint sim loc

# The main job on embedded defaults, no root: everything on loopback, results compared, a table.
demo:
	$(CARGO) build --release -p pathcall -p wordcount -p training -p monitor -p lock
	$(or $(CARGO_TARGET_DIR),target)/release/pathcall demo

test: lint
	$(CARGO) test --workspace
	$(MAKE) sim

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# Faulty networks from seeds; every result is checked.
sim:
	$(CARGO) build --release -p pathcall
	$(or $(CARGO_TARGET_DIR),target)/release/pathcall sim map --seeds $(SEEDS)

# Network lines of code of the applications, beside the paper's Table 4.
loc:
	apps/loc.sh

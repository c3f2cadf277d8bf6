# The front of the build: CMake does the work. `make help` lists the targets.
BUILD  ?= build
PREFIX ?= /usr/local
TARGET ?= all
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
MAKEFLAGS += --no-print-directory
CMAKE  = cmake -S . -B
# Two slots for each core and one for a test that waits (CMakeLists.txt).
CTEST  = ctest --output-on-failure -j$(shell expr 2 \* $(JOBS) + 1) --test-dir

all:            ## the program, at build/orthant
	@command -v cmake >/dev/null && pkg-config --exists yaml-0.1 jansson oniguruma libxxhash zlib libzstd || \
	  { echo "something to build with is missing: run 'make deps' first" >&2; exit 1; }
	@$(CMAKE) $(BUILD) >$(BUILD).log || { cat $(BUILD).log; exit 1; }
	@sed -n 's/^-- \(comm back ends\)/\1/p' $(BUILD).log; rm -f $(BUILD).log
	@cmake --build $(BUILD) -j$(JOBS) --target $(TARGET)

deps:           ## installs what building, testing and the demo need (Debian, Ubuntu)
	@tools/deps.sh build test demo

test:           ## sets up (MPI too), builds, runs all tests
	@tools/deps.sh build test mpi
	@$(MAKE) all
	$(CTEST) $(BUILD)

demo:           ## trains a small GPT on real text; TEXT=file for your own
	@tools/deps.sh build demo
	@$(MAKE) all TARGET=orthant
	@ORTHANT=$(BUILD)/orthant tools/demo.sh "$(TEXT)"

asan:           ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer (TESTS="-I 1,,3": a third of them)
	@tools/deps.sh build test
	@$(CMAKE) $(BUILD)-asan -DORTH_SANITIZE=address,undefined >/dev/null
	@cmake --build $(BUILD)-asan -j$(JOBS)
	ASAN_OPTIONS=handle_abort=1 ORTH_CHECK_SECONDS=60 ORTH_AGAIN_DRAWS=20 ORTH_AGAIN_CASES=2 ORTH_AGAIN_SETS=2 $(CTEST) $(BUILD)-asan $(TESTS)

tsan:           ## communicators, products, layouts and runs of train under ThreadSanitizer
	@tools/deps.sh build test
	@$(CMAKE) $(BUILD)-tsan -DORTH_SANITIZE=thread >/dev/null
	@cmake --build $(BUILD)-tsan -j$(JOBS) --target orthant test_comm test_gemm test_layouts test_layouts_cp
	$(CTEST) $(BUILD)-tsan -R '^test_(comm|gemm)$$'
	ORTH_LAYOUTS=24 $(BUILD)-tsan/test_layouts 'random_layouts*'
	tools/tsan_runs.sh $(BUILD)-tsan

soak: all       ## 2,000 random layouts against one rank (LAYOUTS=n for another number), 240 over processes, 200 disturbed runs, 600 faults, 100 calls of each op, every call of the system failing once, the resident set of 300 runs, 10,000 steps in flat memory, 2,000 bounds of plans, 200 searches, 200 layouts under ThreadSanitizer, all tests under AddressSanitizer, Arm, fuzzing; many hours
	ORTH_OPS_DRAWS=100 $(BUILD)/test_ops
	ORTH_LAYOUTS=$(or $(LAYOUTS),2000) $(BUILD)/test_layouts
	ORTH_LAYOUTS=100 $(BUILD)/test_layouts_cp
	ORTH_MPI_LAYOUTS=30 $(BUILD)/test_mpi
	ORTH_RESIDENT=300 ORTH_STEPS=10000 $(BUILD)/test_resident
	ORTH_AGAIN_CASES=300 ORTH_AGAIN_DRAWS=5000 ORTH_AGAIN_SETS=32 $(BUILD)/test_recompute_auto
	ORTH_BOUNDS=2000 $(BUILD)/test_bounds
	ORTH_SPACES=200 $(BUILD)/test_search
	ORTH_CHUNK_CASES=300 $(BUILD)/test_recompute
	ORTH_ALARMS=200 $(BUILD)/test_watchdog
	ORTH_FAULTS=400 $(BUILD)/test_train_faults
	ORTH_FAULTS=all $(BUILD)/test_faults
	@$(MAKE) tsan
	ORTH_LAYOUTS=200 $(CTEST) $(BUILD)-tsan -R '^test_layouts'
	@$(MAKE) asan arm-check fuzz

arm-check:      ## the kernel tests of a build for 64-bit Arm, under qemu (downloads 100 MB once)
	@tools/deps.sh build arm
	@tools/arm_check.sh $(BUILD)-arm

globals: all    ## fails if the library keeps writable state at file scope
	@tools/globals.sh $(BUILD)/liborthant_lib.a

fuzz:           ## each fuzz target for SECONDS (default 60)
	@tools/deps.sh build dev
	@tools/fuzz.sh $(BUILD)-fuzz $(or $(SECONDS),60)

hf-check: all   ## folders of Transformers and of Orthant, read and computed by both (sets up PyTorch outside of this tree, several GB)
	@tools/hf_check.sh $(BUILD)

lint:           ## static checks
	@tools/deps.sh build dev
	@tools/lint.sh

readme-check: all ## runs the commands and tables of README and docs; UPDATE=1 writes what they print
	@tools/deps.sh demo docs
	BUILD=$(BUILD) tools/readme_check.py $(if $(UPDATE),--update) README.md $(shell grep -lE '^```console|made by: |figures of: |<!-- run -->' docs/*.md)

deb:            ## a Debian package in build-deb/
	@tools/deps.sh build deb
	@tools/deb.sh $(BUILD)-deb

deb-check: deb  ## installs that package in a bare Debian root and trains there (as root)
	@tools/deb_check.sh $(BUILD)-deb/*.deb

bench:          ## measures this machine; tables in bench/results/
	@tools/deps.sh build bench
	@$(MAKE) all
	@bench/run.sh $(BUILD)

bench-peers:    ## the same beside PyTorch, tokenizers and llm.c, set up outside of this tree
	@tools/deps.sh build bench
	@$(MAKE) all
	@bench/peers.sh $(BUILD)

install: all    ## program, manual page, completion, docs/ and configs/ under PREFIX (and DESTDIR)
	cmake --install $(BUILD) --prefix $(PREFIX)

clean:          ## removes all build folders
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz $(BUILD)-deb $(BUILD)-arm

help:           ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 14

.PHONY: all deps test demo asan tsan soak arm-check globals fuzz lint readme-check hf-check deb deb-check bench bench-peers install clean help

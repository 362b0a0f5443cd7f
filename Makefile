# make demo        what Yore does, shown on a real source tree, with a crash in the middle
# make test        everything that can be tested here, in under 40 minutes on two cores
# make campaign-X  one system campaign (tests/system/X.sh), going on for BUDGET seconds where it can
# make install     after `make`: program, helpers of mount(8) and fsck(8), man pages, completions, systemd units
# make deb         a Debian package of all that
#
# BACKEND=ext4 runs a campaign on ext4 instead, which proves the campaign. SEED=n replays one. ENGINE=journal runs it on
# volumes of that engine, JOURNAL=elsewhere with their logs on a file of their own.

SHELL := /bin/bash
BUDGET ?= 60
CARGO ?= cargo
HOST = $(shell rustc -vV | sed -n "s/^host: //p")
export RUSTDOCFLAGS ?= -D warnings
# What is kept for the next build costs a whole run time and gigabytes, and saves it nothing.
export CARGO_INCREMENTAL ?= 0

# What hangs is shown, ended, and a failure with a name: $(LIMITED) SECONDS NAME COMMAND.
LIMITED := python3 scripts/limited.py

CAMPAIGNS := $(patsubst tests/system/%.sh,%,$(filter-out tests/system/run.sh,$(wildcard tests/system/*.sh)))

.PHONY: all demo test deps debug layers format lint unit crash mutations mutations-1 mutations-2 doc system \
	system-snapshot system-engines package clean campaign-fuzz campaign-ordered symbols install uninstall deb \
	$(CAMPAIGNS:%=campaign-%)

all:
	$(CARGO) build --release --locked

# The same with symbols, for perf and backtraces: target/release-with-symbols/yore.
symbols:
	$(CARGO) build --profile release-with-symbols --locked

demo:
	$(LIMITED) 1800 demo scripts/demo.sh

test: deps layers format lint doc unit crash mutations system package

deps:
	scripts/install-deps.sh test

layers:
	python3 scripts/check-layers.py --self-test
	python3 scripts/check-layers.py
	python3 scripts/check-comments.py --self-test
	python3 scripts/check-comments.py
	python3 scripts/check-words.py --self-test
	python3 scripts/check-words.py
	python3 scripts/check-docs.py --self-test
	python3 scripts/check-docs.py

format:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# Doctests are part of it.
unit:
	$(LIMITED) --self-test
	python3 scripts/run-tests.py --self-test
	python3 scripts/run-tests.py

# Link-time optimisation costs the tests more time than it saves them; what fails shows a backtrace.
crash mutations campaign-ordered: export CARGO_PROFILE_RELEASE_LTO = false
crash mutations campaign-ordered: export CARGO_PROFILE_RELEASE_STRIP = none
crash mutations campaign-ordered: export CARGO_PROFILE_RELEASE_DEBUG = line-tables-only

# One release build serves both: mutations are in it, and each is off until a test asks for it.
MUTATIONS := --release --locked -p yore-crash -p yore-meta --features yore-crash/mutations
# Most of them work on one thread, so they run in two lanes, which take about as long as each other.
LANE_1 := engine_mutations ordered_mutations late_data
LANE_2 := journal_mutations elsewhere_mutations mutations spans ordered_random online_mutations cold_queries intent
LANES := $(patsubst %,--test %,$(LANE_1) $(LANE_2))

# States that crashes could leave. A failure prints the line that replays it (docs/TESTING.md).
CRASH_STATES ?= 50000
# A second for 100 states, and more: usually it is one for a thousand.
STATES := $(LIMITED) $$(( 900 + $(CRASH_STATES) / 100 )) crash-states target/release/yore-crash
crash:
	$(CARGO) test $(MUTATIONS) $(LANES) --no-run
	$(STATES) run --states $(CRASH_STATES)
	for durability in async group sync; do \
		$(STATES) run --engine journal --durability $$durability \
			--seed 1000000 --states $$(($(CRASH_STATES) / 20)) || exit 1; \
		$(STATES) run --engine journal --durability $$durability --elsewhere \
			--seed 2000000 --states $$(($(CRASH_STATES) / 20)) || exit 1; \
	done
	$(STATES) expunge --seed 5000000 --states $$(($(CRASH_STATES) / 5))
	$(STATES) run --elsewhere --seed 3000000 --states $$(($(CRASH_STATES) / 20))
	for engine in soft-updates sync; do \
		$(STATES) run --engine $$engine --seed 4000000 --states $$(($(CRASH_STATES) / 20)) || exit 1; \
	done

# Crashes of the engines that order changes, for BUDGET seconds; SEED=n begins elsewhere. Then these engines are made
# wrong, one way after the other, and the random crashes must find it.
SEED ?= 0
campaign-ordered:
	$(CARGO) test $(MUTATIONS) $(LANES) --no-run
	for engine in soft-updates sync; do \
		$(LIMITED) $$(( $(BUDGET) + 900 )) $$engine target/release/yore-crash campaign --engine $$engine \
			--seed $(SEED) --seconds $$(( $(BUDGET) / 2 )) || exit 1; \
	done
	ORDERED_MUTATIONS=all $(LIMITED) 7200 ordered-mutations \
		$(CARGO) test $(MUTATIONS) --test ordered_random random_crashes_find_a_wrong_order

# Engines that are wrong on purpose: the crash tests must find each of them.
mutations:
	$(CARGO) clippy -p yore-crash -p yore-meta --features yore-crash/mutations --all-targets --locked -- -D warnings
	$(CARGO) test $(MUTATIONS) $(LANES) --no-run
	$(MAKE) -j2 --output-sync mutations-1 mutations-2

mutations-1 mutations-2: mutations-%:
	$(LIMITED) 2400 $@ $(CARGO) test $(MUTATIONS) $(LANE_$*:%=--test %)

doc:
	$(CARGO) doc --workspace --no-deps --locked

# The program that the unit tests have: `cargo build -p yore-cli` builds it once more, because alone it asks
# fewer features of libraries. It is a debug build, so that lock order and other assertions are on.
debug:
	$(CARGO) test --workspace --locked --no-run --quiet

system package: export YORE := $(abspath $(or $(CARGO_TARGET_DIR),target))/debug/yore

system: debug
	@if [ "$$(id -u)" = 0 ] && [ -c /dev/fuse ]; then \
		$(MAKE) -j2 --output-sync system-snapshot system-engines; \
	elif [ "$(CI)" = true ]; then \
		echo 'FAILED: the system tests need root and /dev/fuse, and CI=true forbids skipping them' >&2; exit 1; \
	elif [ -w /dev/fuse ]; then \
		echo 'SKIPPED: most system tests, for they need root; those that do not:'; \
		PROFILE=debug tests/system/run.sh commands refusals corners fsx sqlite kill; \
	else \
		echo 'SKIPPED: the system tests, for there is no /dev/fuse to open here; but for the library commands:'; \
		PROFILE=debug tests/system/run.sh commands; \
	fi

# Two lanes, for campaigns wait for disks, kernels and clocks as much as they work.
system-snapshot:
	PROFILE=debug tests/system/run.sh

system-engines:
	PROFILE=debug ENGINE=journal OPERATIONS=20000 ROUNDS=4 tests/system/run.sh pjdfstest fsx kill
	PROFILE=debug ENGINE=journal JOURNAL=elsewhere OPERATIONS=20000 ROUNDS=4 tests/system/run.sh fsx kill
	PROFILE=debug ENGINE=soft-updates OPERATIONS=8000 ROUNDS=4 tests/system/run.sh pjdfstest fsx kill
	PROFILE=debug ENGINE=sync OPERATIONS=1000 ROUNDS=2 tests/system/run.sh fsx kill

# The Debian package, made of the debug binary that the other tests have built, unpacked, installed and removed below a
# directory of its own.
package: debug
	$(LIMITED) 900 package tests/package.sh

include packaging/install.mk

# libFuzzer on each target for a third of BUDGET, from the committed corpus; what it finds is kept in fuzz/found, and
# inputs that fail in fuzz/artifacts. The stable compiler instruments when told that it may; no sanitizer is used.
campaign-fuzz:
	set -e; mkdir -p fuzz/found fuzz/artifacts; cd fuzz; \
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1" \
	$(CARGO) build --release --target $(HOST) --target-dir target --locked; \
	for target in format mount log; do mkdir -p found/$$target; \
		target/$(HOST)/release/$$target -max_total_time=$$(( $(BUDGET) / 3 )) -max_len=8192 -timeout=60 -rss_limit_mb=2048 \
			-artifact_prefix=artifacts/$$target- found/$$target corpus/$$target; \
	done

$(CAMPAIGNS:%=campaign-%): campaign-%:
	BUDGET=$(BUDGET) tests/system/run.sh $*

clean:
	$(CARGO) clean

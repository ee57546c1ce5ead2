# The whole set-up: `make demo` and `make test` install what is missing, build, and run.
# The build itself is CMake's (CMakePresets.json); everything here is a name for a few commands.
JOBS ?= $(shell nproc)
CMAKE_ARGS ?=
TEXT ?=
PREFIX ?= /usr/local

BUILD := build/release
configure = cmake --preset release $(CMAKE_ARGS) >/dev/null
require_tests = $(foreach p,GTest rapidcheck,-DCMAKE_REQUIRE_FIND_PACKAGE_$(p)=ON)
ctest = ctest --test-dir $(BUILD) --output-on-failure --no-label-summary --parallel $(JOBS)

.PHONY: help demo build install test bench format lint verify clean

help:
	@echo 'make demo    train a small transformer (about a minute on two fast cores), generate,'
	@echo '             measure (TEXT=file)'
	@echo 'make build   build the command line ($(BUILD)/volta) and the libraries'
	@echo 'make install install program, library, manual pages, completion (PREFIX=$(PREFIX))'
	@echo 'make test    build everything and run the tests'
	@echo 'make bench   build and run the benchmarks'
	@echo 'make format  format the sources          make lint  run clang-tidy on src'
	@echo 'make verify  all that a pull request must pass, however long it takes'
	@echo 'make clean   delete build/'

demo: build
	@scripts/demo $(if $(TEXT),'$(TEXT)')

build:
	@scripts/bootstrap build
	@$(configure)
	@cmake --build $(BUILD) --target volta volta_static volta_shared --parallel $(JOBS)

install: build
	@cmake --install $(BUILD) --prefix '$(PREFIX)'

test:
	@scripts/bootstrap test
	@$(configure) $(require_tests)
	@cmake --build $(BUILD) --parallel $(JOBS)
	@$(ctest)

bench:
	@scripts/bootstrap bench
	@$(configure)
	@cmake --build $(BUILD) --target bench volta --parallel $(JOBS)
	@scripts/run_bench

format:
	@scripts/bootstrap ci
	@scripts/format

lint:
	@scripts/bootstrap ci
	@scripts/lint

verify:
	@VOLTA_CI_MINUTES=100000 VOLTA_CI_HARD_MINUTES=100000 .ci/run
	@.ci/run workflows
	@.ci/run abi
	@.ci/run guard

clean:
	@rm -rf build

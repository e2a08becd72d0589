# make                the programs, in build/
# make demo           evaluate and explain a few plans of real models
# make test           every test; the last line counts them
# make test-matrix    every plan of the executor's matrix in fp32, not a covering set
# make bench          speed, as ratios within one run
# make bench-exec     the executor's speed, beside PyTorch's where PYTHON=... has torch
# make accuracy       calibrate this machine, predict plans never used to fit, run them, and
#                     what is left (20 minutes on a quiet machine; PLANS=20 STEPS=5 shorter)
# make accuracy-public    predictions beside published training throughput
# make fuzz           every parser under libFuzzer, FUZZ_SECONDS=60 each (clang)
# make install        into PREFIX=/usr/local, below DESTDIR= if given
# make deps           install what building and testing need (Debian, Ubuntu)
# make gpu-check STAGE=all    what only a machine with a GPU can tell (tests/gpu/check.sh): build, kernels,
#                     parity, memory, calibrate, accuracy, torch; OUT=build/gpu-check keeps it
# make clean
#
# SAN=1 builds in build-san/ under AddressSanitizer and UBSan: make SAN=1 test.  TSAN=1 in
# build-tsan/ under ThreadSanitizer: make TSAN=1, then B=build-tsan tests/mpi/test_sanitized.sh.
# B=DIR builds in DIR.  demo and test install by themselves what is missing.

VERSION := 0.1.0
B       := $(if $(SAN),build-san,$(if $(TSAN),build-tsan,build))
PREFIX  ?= /usr/local
MPICC   ?= mpicc
FUZZ_SECONDS ?= 60

# -O3: plans with contention are 14 % faster than with -O2 (make bench).
CFLAGS ?= $(if $(SAN)$(TSAN),-O1,-O3) -g

# -ffp-contract=off: a prediction must not depend on whether the machine that
# makes it fuses multiply and add.  No -Werror: a newer compiler's new warning
# should not stop a user; tests/test_architecture.sh fails on any that is left.
FLAGS  := -std=c17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wshadow -Wconversion \
          -Wstrict-prototypes -Wno-string-conversion -Wno-enum-enum-conversion \
          -Wno-enum-float-conversion -ffp-contract=off -I. -I$B -MMD -MP
ifdef SAN
FLAGS  += -fsanitize=address,undefined -fno-sanitize-recover=all
endif
ifdef TSAN
FLAGS  += -fsanitize=thread
endif
ifdef FUZZER
FLAGS  += -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
endif

MAINS    := $(wildcard sim/dpxplan.c exec/dpxrun.c calib/dpxcal.c reports/dpxreport.c)
PROGRAMS := $(addprefix $B/,$(basename $(notdir $(MAINS))))
# These need a launcher, a GPU or several machines.
ELSEWHERE := tests/gpu/% tests/lab/%
TESTS    := $(patsubst %.c,$B/%,$(filter-out $(ELSEWHERE),$(wildcard tests/*/test_*.c)))
# Programs under mpirun: the scripts beside them start them.
MPITESTS := $(patsubst %.c,$B/%,$(wildcard tests/mpi/mpi_*.c tests/bench/exec_*.c))
SCRIPTS  := $(wildcard tests/test_*.sh tests/*/test_*.sh)
FUZZERS  := $(patsubst %.c,$B/%,$(wildcard tests/fuzz/fuzz_*.c))
BENCHES  := $(patsubst %.c,$B/%,$(wildcard tests/bench/bench_*.c))

all: $(PROGRAMS) $B/model.a $B/sim.a $(if $(wildcard exec/*.c),$B/exec.a)

# One archive per library.  The link lines are the architecture: model needs
# nobody, and only what runs for real needs MPI.  An archive depends on its
# folder as well, so that a deleted source leaves it.
objs  = $(patsubst %,$B/%.o,$(filter-out $(MAINS) exec/dpxrun%.c sim/dpxplan%.c,$(wildcard $1/*.c))) $(wildcard $1)
bench = $B/calib/bench%
$B/model.a:   $(call objs,model)
$B/sim.a:     $(call objs,sim)
$B/exec.a:    $(call objs,exec)
$B/store.a:   $(filter-out $(bench),$(call objs,calib))
$B/bench.a:   $(filter $(bench) calib,$(call objs,calib))
$B/reports.a: $(call objs,reports)

$B/dpxplan:   $(patsubst %,$B/%.o,$(wildcard sim/dpxplan*.c)) $B/sim.a $B/store.a $B/model.a
$B/dpxrun:    $(patsubst %,$B/%.o,$(wildcard exec/dpxrun*.c)) $B/exec.a $B/sim.a $B/store.a $B/model.a
$B/dpxcal:    $B/calib/dpxcal.c.o      $B/bench.a $B/exec.a $B/store.a $B/model.a
$B/dpxreport: $B/reports/dpxreport.c.o $B/reports.a $B/sim.a $B/store.a $B/model.a
$(TESTS):     $B/%: $B/%.c.o           $(if $(wildcard reports/*.c),$B/reports.a) $B/sim.a $B/store.a $B/model.a
$(MPITESTS):  $B/%: $B/%.c.o           $B/exec.a $B/sim.a $B/store.a $B/model.a
$(BENCHES):   $B/%: $B/%.c.o           $B/sim.a $B/model.a
$(FUZZERS):   $B/%: $B/%.c.o           $B/sim.a $B/model.a

ACCURACY := $(patsubst %,$B/tests/accuracy/%,$(basename $(notdir $(wildcard tests/accuracy/accuracy_plans.c tests/accuracy/accuracy_table.c))))
$(ACCURACY):  $B/%: $B/%.c.o           $B/sim.a $B/store.a $B/model.a

$B/tests/accuracy/accuracy_public: $B/tests/accuracy/accuracy_public.c.o \
    $B/tests/accuracy/public_rows.c.o $B/sim.a $B/store.a $B/model.a
$B/tests/sim/test_accuracy_public: $B/tests/accuracy/public_rows.c.o

$(TESTS): LIBS = -lcmocka
ifdef FUZZER
$(FUZZERS): LIBS = -fsanitize=fuzzer
else
$(FUZZERS): $B/tests/fuzz/replay.c.o
endif
# What runs for real: MPI, oneDNN, threads.  Tests of exec/ are told by their folder.
REAL := $(filter $B/dpxrun $B/dpxcal,$(PROGRAMS)) $(filter $B/tests/exec/%,$(TESTS)) $(MPITESTS)
$(filter $B/tests/exec/%,$(TESTS)): $B/exec.a
$(REAL): private CC := $(MPICC)
$(REAL): LIBS += -ldnnl -fopenmp -pthread
REALOBJ := $B/exec/%.c.o $B/calib/dpxcal.c.o $B/calib/bench%.c.o $B/calib/bench.c.o $B/tests/exec/%.c.o $B/tests/mpi/%.c.o $B/tests/bench/exec_%.c.o
$(REALOBJ): private CC := $(MPICC)
$(REALOBJ): private FLAGS += -fopenmp -pthread

# V=1 shows the commands.
Q = $(if $V,,@echo '  $@';)

$(PROGRAMS) $(TESTS) $(MPITESTS) $(BENCHES) $(FUZZERS) $(ACCURACY) $B/tests/accuracy/accuracy_public:
	$Q$(CC) $(FLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) \
	    $(patsubst %,$B/%.a,$(filter $(patsubst $B/%.a,%,$(filter %.a,$^)),reports bench exec sim store model)) \
	    $(if $(wildcard calib/*.c),-lsqlite3) $(if $(wildcard reports/*.c),-lz) -ljansson -lyaml $(LIBS) -lm
# What the compiler says is kept beside the object, where the tests look for it.
$B/%.c.o: %.c Makefile
	@mkdir -p $(@D)
	$Q$(CC) $(FLAGS) $(CFLAGS) -c -o $@ $< 2>$@.warn || { cat $@.warn >&2; exit 1; }; cat $@.warn >&2
$B/%.a:
	@mkdir -p $(@D)
	$Qrm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

# --version: the commit too, where there is one.  Rewritten only on change.
$B/model/opts.c.o: $B/version.h
$B/version.h: FORCE
	@mkdir -p $(@D)
	@git=$$(test -e .git && git describe --always --dirty 2>/dev/null); \
	echo "#define DPX_VERSION \"$(VERSION)$${git:+ ($$git)}\"" >$@.new; \
	cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# In two steps, since what the second needs may be installed by the first.
# -k: a test that does not compile must not hide the results of the others.
test:
	@tools/install-deps.sh build test
	@$(MAKE) --no-print-directory -k test-programs; B=$B tests/run.sh $$? $(TESTS) $(FUZZERS) $(SCRIPTS)
# Counts what is given to MPI, whoever calls it: preloaded by tests/mpi/*.sh.
$B/tests/mpi/pmpi_count.so: tests/mpi/pmpi_count.c
	@mkdir -p $(@D)
	$Q$(MPICC) -shared -fPIC -std=c17 -D_POSIX_C_SOURCE=200809L -O2 -o $@ $< -pthread

test-programs: $(patsubst %,$B/tests/mpi/pmpi_count.so,$(wildcard tests/mpi/pmpi_count.c)) all $(TESTS) $(MPITESTS) $(FUZZERS) $(BENCHES)

demo:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory all
	@B=$B demo/demo.sh

bench:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory all $(BENCHES) $(filter %/exec_gemm,$(MPITESTS))
	@B=$B tests/bench/run.sh $(BENCHES)
	@B=$B tests/bench/exec.sh

bench-exec:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory all $(filter %/exec_gemm,$(MPITESTS))
	@B=$B tests/bench/exec.sh

test-matrix:
	@tools/install-deps.sh build test
	@$(MAKE) --no-print-directory test-programs
	@B=$B tests/mpi/test_matrix.sh plain

accuracy:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory all $(ACCURACY)
	@B=$B tests/accuracy/accuracy_run.sh

accuracy-public:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory $B/tests/accuracy/accuracy_public
	@$B/tests/accuracy/accuracy_public

# Nothing is installed for it: the machine may have no network.
gpu-check:
	@B=$B MAKE='$(MAKE)' OUT='$(OUT)' EMU='$(EMU)' MPI='$(MPI)' tests/gpu/check.sh $(or $(STAGE),all)
# The tests of a device run where only a compiler is: a small stand-in for cmocka.
$B/tests/gpu/%.c.o: private FLAGS += -Itests/gpu/bare

fuzz:
	@tools/install-deps.sh build fuzz
	@$(MAKE) --no-print-directory B=$B/fuzz CC=clang FUZZER=1 $(patsubst $B/%,$B/fuzz/%,$(FUZZERS))
	@tests/fuzz/run.sh $(FUZZ_SECONDS) $(patsubst $B/%,$B/fuzz/%,$(FUZZERS))

# Manual pages and completion: each program prints its own, from its option tables.
SHARE := $(PROGRAMS:$B/%=$B/share/man/man1/%.1) $(PROGRAMS:$B/%=$B/share/bash-completion/completions/%) \
         $(PROGRAMS:$B/%=$B/share/zsh/site-functions/_%)
print_as = @mkdir -p $(@D) && $< --help-format=$1 >$@
$B/share/man/man1/%.1: $B/%
	$(call print_as,man)
$B/share/bash-completion/completions/%: $B/%
	$(call print_as,bash)
$B/share/zsh/site-functions/_%: $B/%
	$(call print_as,zsh)

install: all $(SHARE)
	install -d $(DESTDIR)$(PREFIX)/bin
	install $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	for f in $(SHARE:$B/%=%); do install -D -m 644 $B/$$f $(DESTDIR)$(PREFIX)/$$f || exit 1; done
	for f in $(wildcard calib/measured/*.json); do \
	    install -D -m 644 $$f $(DESTDIR)$(PREFIX)/share/dpx/measured/$${f##*/} || exit 1; done

deps:
	@tools/install-deps.sh build test fuzz
help:
	@sed '/^#/!Q; s/^#//; s/^ //' Makefile
clean:
	rm -rf build build-san build-tsan

.PHONY: all test test-programs test-matrix demo bench bench-exec accuracy accuracy-public gpu-check fuzz install deps help clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(shell find $B -name '*.d' 2>/dev/null)

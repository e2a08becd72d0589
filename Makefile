# make                the programs, in build/
# make demo           evaluate and explain a few plans of real models
# make test           every test; the last line counts them
# make test-matrix    the executor's matrix: the whole covering set, on 6 and 8 ranks too, every plan in fp32, and an asynchronous device
# make test-bits      a simulator built with fused multiply-add predicts the same, bit for bit
# make test-grid      every plan over meshes of a tiny model, 500 plans whose messages are late, every rank of meshes killed and stopped
# make test-sanitized dpxrun and plans over meshes under AddressSanitizer, UBSan and ThreadSanitizer
# make test-library   libdpx and its threads, under AddressSanitizer and ThreadSanitizer, too
# make engine-check   57 plans run by PyTorch, DeepSpeed, accelerate, torchtitan and megatron-core on 2 and 4 CPU ranks: collectives, losses and bytes
#                     are those predicted (PYTHON=... has these, transformers, peft, torchao, bitsandbytes; 30 minutes; tests/engine/)
# make engine-check-124m  GPT-2 124M so by DDP, FSDP2 and DeepSpeed's ZeRO-2 (10 GB, 5 minutes)
# make test-124m      GPT-2 124M by every strategy and dialect, two steps on two ranks, and over meshes on four (13 GB, 3 GB of
#                     disk, 30 minutes)
# make offload-demo   GPT-2 1.5B with AdamW on two ranks in 10 GiB of memory, from files (32 GB of disk, 4 to 10 minutes)
# make quant-losses   losses of 200 steps of a model of 10 million parameters with ZeRO++'s codes and without, and their plot (2 minutes)
# make lab-wire       what fewer bytes between two emulated nodes bring, predicted and measured, at 4 Gbit/s to 100 Mbit/s (root, 25 minutes)
# make lab-overlap    how much communication compute hides on two emulated nodes, and hybrid against flat sharding, in seconds (root, 2 minutes)
# make lab-failures   ranks on two emulated nodes killed by a seeded clock for ten minutes: goodput beside dpxplan bill's, nothing lost (root, 25 minutes)
# make bench          speed, as ratios within one run
# make bench-eval     instructions of evals, a sweep, calls of libdpx and small searches beside those kept in
#                     tests/bench/eval.txt (valgrind); KEEP=1 keeps these
# make bench-search   the hardest searches: seconds, memory, instructions (valgrind; COUNT=0 without)
# make bench-exec     the executor's speed, beside PyTorch's where PYTHON=... has torch
# make accuracy       calibrate this machine, predict plans never used to fit, run them, and
#                     what is left (20 minutes on a quiet machine; PLANS=20 STEPS=5 shorter;
#                     LAB=1: on two emulated nodes, root); then plans with TP, CP and PP, and with offload
# make accuracy-public    predictions beside published training throughput
# make accuracy-pages     the same as the tables of docs/evidence/ (minutes)
# make fuzz           every parser under libFuzzer, FUZZ_SECONDS=60 each (clang)
# make fits           what comes with dpx of real GPUs, calib/measured/, from its samples in tests/calib/measured/
# make pages          write what the examples of README.md and docs/ print, draw docs/gallery/, write docs/reference/
# make words          every command of every page at 80 and 120 columns: lines too wide, codes without words, long sentences (2 minutes)
# make compare BASE=COMMIT    does the working tree change any figure or schedule of 4000 plans, or any program of 370?
# make family-check   every built-in family beside transformers' own code, recorded: products, attention, memory (PYTHON=...; 30 minutes)
# make zoo            70 modules that are no family: recorded, planned, beside PyTorch's trackers (PYTHON=... has torch, transformers, torchvision, diffusers, timm)
# make newcomer       from the file of a GPT to the GPUs that suffice, and of a U-Net to its batch, with the seconds (PYTHON=... has torch, diffusers)
# make page           the planner in a browser: build/dpx.html, one file (emcc; page/README.md)
# make bench-page     an eval and a search by the page's library, beside the native one's, as ratios (emcc, node)
# make install        into PREFIX=/usr/local, below DESTDIR=; LIBDIR=PREFIX/lib, PYTHONDIR=PREFIX/share/dpx/python; STRIP= keeps debug information
# make uninstall      take away what make install put there
# make wheel          build/wheel/dpxplan-VERSION-*.whl: dpxplan, dpx.py and libdpx for pip, without a compiler
# make everywhere-check   wheel and debs where nothing is, install, 500 answers by their schemas, MCP, the notebook, 82 exports by their tools
#                         (PYTHON=, PYTHON_AXOLOTL= ...), manifests (CRDS=), Slurm, the Containerfile (BASE=IMAGE); what a machine lacks is counted as skipped
# make slurm-check        two nodes of Slurm on this machine: exported jobs, srun --mpi=pmix (root; packages slurm-wlm, munge)
# make schemas            docs/schemas from what dpxplan prints; ANSWERS=FOLDER: and from what tests kept there, which ANSWERS=FOLDER TEST.sh does
# make dist           the sources of HEAD as an archive
# make deb            Debian packages of HEAD in build/deb/: dpx, libdpx0, libdpx-dev, python3-dpx, and dpx-cuda where nvcc is there
# make deps           install what building and testing need (Debian, Ubuntu)
# make cuda-check     what nvcc made is complete: devices, no spills, no warnings; nothing is run
# make carry          sqlite3, jansson, yaml and zlib of this machine in carry/, for one without them
# make gpu-check STAGE=all    what only a machine with a GPU can tell (tests/gpu/check.sh): build, kernels,
#                     parity, memory, calibrate, accuracy, torch; OUT=build/gpu-check keeps it
# make clean
#
# SAN=1 builds in build-san/ under AddressSanitizer and UBSan: make SAN=1 test.  TSAN=1 in
# build-tsan/ under ThreadSanitizer, with matrix products of our own: it does not see what oneDNN reads.
# B=DIR builds in DIR.  demo and test install by themselves what is missing.
#
# Where nvcc and NCCL are found, dpxrun and dpxcal have CUDA: CUDA_HOME=, NCCL_HOME= say where,
# CUDA=0 leaves it out.  EMU=1 builds in build-emu/ against an emulator of CUDA on the host (tests).
# WASM=1 builds libdpx for a browser in build-wasm/: emcc, one thread, no database, no gzip.
# On a bare machine with one GPU: MPI=0 without MPI (one rank), DNNL=0 without oneDNN (the host's matrix
# products are then slow), URING=0 without io_uring (by itself where liburing is not there: files are then
# read and written by threads), CARRY=carry with the libraries of `make carry`.

VERSION := 0.2.0
B       := $(if $(SAN),build-san,$(if $(TSAN),build-tsan,$(if $(EMU),build-emu,$(if $(WASM),build-wasm,build))))
# Where rooms come from that know no device: the emulator's build has those of the build without it.
H       := $(if $(SAN)$(TSAN)$(FUZZER)$(WASM),$B,$(if $(EMU),$(patsubst %-emu,%,$B),$B))
PREFIX  ?= /usr/local
# Where dpx.py goes: a folder of Python's, or one for PYTHONPATH.
PYTHONDIR ?= $(PREFIX)/share/dpx/python
LIBDIR  ?= $(PREFIX)/lib
STRIP   ?= strip
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
ifdef WASM
CC     := emcc
AR     := emar
CUDA   := 0
FLAGS  += -D_GNU_SOURCE -Wno-macro-redefined -Wno-sign-conversion -isystem $B/third/include
# Debian's emcc needs acorn, which its own node alone finds by itself.
export NODE_PATH ?= /usr/share/nodejs
else
# A shared library is made of the same objects; hidden symbols cost what static ones do.
FLAGS  += -fPIC -fvisibility=hidden
endif
ifdef SAN
FLAGS  += -fsanitize=address,undefined -fno-sanitize-recover=all
endif
ifdef TSAN
FLAGS  += -fsanitize=thread
DNNL   ?= 0
endif
ifdef FUZZER
FLAGS  += -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
endif

# ---- CUDA ----

empty :=
comma := ,
space := $(empty) $(empty)
# Not under sanitizers and fuzzers, which do not know device memory.
ifeq ($(filter-out 1,$(CUDA))$(SAN)$(TSAN)$(FUZZER)$(EMU),)
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))))
NVCC      := $(if $(CUDA_HOME),$(wildcard $(CUDA_HOME)/bin/nvcc))
cuda_libs := $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib $(CUDA_HOME)/targets/x86_64-linux/lib $(CUDA_HOME)/lib/x86_64-linux-gnu)
cuda_incs := $(wildcard $(CUDA_HOME)/include $(CUDA_HOME)/targets/x86_64-linux/include)
nccl_libs := $(if $(NCCL_HOME),$(addprefix $(NCCL_HOME)/,lib lib64),$(cuda_libs) /usr/lib/x86_64-linux-gnu /usr/lib64)
nccl_incs := $(if $(NCCL_HOME),$(NCCL_HOME)/include,$(cuda_incs) /usr/include)
# A library by its path, for Python's packages have no .so without a number.
library    = $(firstword $(foreach d,$2,$(wildcard $d/lib$1.so $d/lib$1.so.*)))
CUBLASLT  := $(call library,cublasLt,$(cuda_libs))
NCCL      := $(call library,nccl,$(nccl_libs))
NCCL_INC  := $(patsubst %/nccl.h,%,$(firstword $(wildcard $(addsuffix /nccl.h,$(nccl_incs)))))
LT_INC    := $(firstword $(wildcard $(addsuffix /cublasLt.h,$(cuda_incs))))
ifneq ($(and $(NVCC),$(LT_INC),$(NCCL_INC)),)
HAVE_CUDA := 1
else ifneq ($(NVCC)$(filter 1,$(CUDA)),)
$(warning built without CUDA: $(if $(NVCC),nvcc is there but the header of $(if $(LT_INC),NCCL (NCCL_HOME=),cuBLASLt) is not,there is no nvcc (CUDA_HOME=)))
endif
endif

ifdef HAVE_CUDA
# Later devices compile the PTX when they first see it.  Spills are warnings, and warnings fail tests.
GENCODE   := $(foreach sm,80 90,-gencode arch=compute_$(sm),code=sm_$(sm)) -gencode arch=compute_90,code=compute_90
NVCCFLAGS := -std=c++17 -O3 -lineinfo $(GENCODE) -ccbin $(CXX) -Xcompiler -Wall,-Wextra \
             -Xptxas -v,--warn-on-spills -I.
CUDA_INC  := $(addprefix -isystem ,$(filter-out /usr/include,$(NCCL_INC) $(filter-out $(NCCL_INC),$(cuda_incs))))
cudart    := $(or $(firstword $(wildcard $(addsuffix /libcudart_static.a,$(cuda_libs)))),-L$(firstword $(cuda_libs)) -lcudart)
# cuBLASLt and NCCL are loaded when they are needed (exec/cuda/loaded.h): beside a program that was built here from links to these.
CUDA_LIBS := $(cudart) -lstdc++ -ldl -lrt -pthread
KERNELS   := $(wildcard exec/cuda/*.cu)
endif
ifdef EMU
# Kernels look at arrays through other types; a 16-byte access that is not aligned traps, as on a device.
EMUFLAGS  := -fno-strict-aliasing -fsanitize=alignment -fsanitize-undefined-trap-on-error
CUDA_INC  := -Itests/emu/include -DDPX_EMU
CUDA_LIBS := -lstdc++ -lrt -pthread
KERNELS   := $(wildcard exec/cuda/*.cu)
EMULATOR  := $(filter-out tests/emu/test_%,$(wildcard tests/emu/*.cc))
endif
# -O2: without it emulated kernels take ten times as long.
CXXFLAGS  ?= $(if $(SAN)$(TSAN),-O1,-O2) -g
FLAGSXX   := -std=c++17 -Wall -Wextra -Wno-unknown-pragmas -ffp-contract=off -I. -I$B -MMD -MP

# ---- a bare machine ----

ifeq ($(MPI),0)
MPICC     := $(CC)
REALFLAGS += -DDPX_NO_MPI -Iexec/nompi
endif
ifeq ($(DNNL),0)
REALFLAGS += -DDPX_NO_DNNL -Iexec/nodnnl
else
DNNL_LIB  := -ldnnl
endif
# Files of offloaded buffers go through io_uring where liburing is there (URING=0 leaves it out), else by threads.
ifneq ($(URING),0)
URING_LIB := $(shell pkg-config --libs liburing 2>/dev/null)
URING_INC := $(if $(URING_LIB),-DDPX_URING $(shell pkg-config --cflags liburing))
REALFLAGS += $(URING_INC)
endif
ifdef CARRY
FLAGS     += -I$(CARRY)/include
NVCCFLAGS += -I$(CARRY)/include
CARRIED   := -L$(CARRY)/lib -ldl -pthread
endif
REALFLAGS += -fopenmp -pthread $(if $(KERNELS),-DDPX_CUDA $(CUDA_INC))

# The page by HTTP (dpxplan serve) where libmicrohttpd is there; else dpxplan says that it is not.
ifndef WASM
HTTPD := $(filter /%,$(shell $(CC) -print-file-name=libmicrohttpd.so 2>/dev/null))
endif

# ---- what is made ----

MAINS    := $(wildcard sim/plan/dpxplan.c exec/process/dpxrun.c calib/dpxcal.c reports/dpxreport.c)
PROGRAMS := $(addprefix $B/,$(basename $(notdir $(MAINS))))
# The number changes where a program made with the old library would not run with the new one.
SONAME   := libdpx.so.0
# Carried libraries are made for programs: a shared object cannot hold them.
LIBRARY  := $(if $(CARRY),,$B/libdpx.so)
# These need a launcher, a GPU or several machines.
ELSEWHERE := tests/gpu/% tests/lab/% tests/emu/%
TESTS    := $(patsubst %.c,$B/%,$(filter-out $(ELSEWHERE),$(wildcard tests/*/test_*.c)))
# Programs under mpirun: the scripts beside them start them.
MPITESTS := $(patsubst %.c,$B/%,$(wildcard tests/mpi/mpi_*.c tests/bench/exec_*.c))
SCRIPTS  := $(wildcard tests/test_*.sh tests/*/test_*.sh)
FUZZERS  := $(patsubst %.c,$B/%,$(wildcard tests/fuzz/fuzz_*.c))
BENCHES  := $(patsubst %.c,$B/%,$(wildcard tests/bench/bench_*.c))
# Calls of libdpx, for make bench-eval, and to compare with the page's.
CALLS    := $(if $(LIBRARY),$B/tests/bench/eval_calls $B/tests/page/answers)
COMPARE  := $(patsubst %.c,$B/%,$(wildcard tests/compare/*.c tests/recorded/*.c))
GPUTESTS := $(if $(KERNELS),$(patsubst %.c,$B/%,$(wildcard tests/gpu/*.c)))
# Against the emulator, in a build of their own; `make test` makes and runs them too.
emutests := $(sort $(basename $(wildcard tests/emu/test_*.c tests/emu/test_*.cc)))
ifdef EMU
TESTS    := $(addprefix $B/,$(emutests))
MPITESTS := $B/tests/mpi/mpi_runs
SCRIPTS  :=
FUZZERS  :=
BENCHES  :=
CALLS    :=
else ifeq ($(SAN)$(TSAN)$(FUZZER),)
EMUTESTS := $(addprefix build-emu/,$(emutests))
endif
ifeq ($(MPI),0)
MPITESTS :=
SCRIPTS  := $(filter-out tests/mpi/% tests/accuracy/%,$(SCRIPTS))
endif

all: $(PROGRAMS) $(LIBRARY) archives

# ---- rooms ----

# A room is a folder of sources and an archive of its own.  $(call room,NAME,OTHERS): the rooms whose
# headers and functions it may use, each of them above it, so that there is no circle;
# tests/test_architecture.sh holds every include and every symbol against these rows.
room = $(eval ROOMS += $(strip $1))
$(call room, base,)
$(call room, base/chart,            base)
$(call room, model/family,          base)
$(call room, model/arch,            base model/family)
$(call room, model/cluster,         base)
$(call room, model/allocator,       base)
$(call room, model/plan,            base model/family model/arch model/cluster model/allocator)
$(call room, model/program,         base model/family model/arch model/plan)
$(call room, model/schedule,        base model/arch model/cluster model/plan model/program)
$(call room, model/lower/common,    base model/family model/arch model/cluster model/plan model/program model/schedule)
$(call room, model/walk,            base model/arch model/cluster model/plan model/program model/schedule model/lower/common)
$(call room, model/framework/paper,            base model/arch model/cluster model/plan model/program model/schedule model/lower/common model/walk)
$(call room, model/framework/torch_dp,         base model/arch model/cluster model/plan model/program model/schedule model/lower/common model/walk)
$(call room, model/framework/zero_redundancy,  base model/arch model/cluster model/plan model/program model/schedule model/lower/common)
$(call room, model/framework/torch_ddp,        base model/arch model/cluster model/plan model/program model/schedule model/lower/common model/walk model/framework/zero_redundancy)
$(call room, model/framework/torch_fsdp1,      base model/arch model/cluster model/plan model/program model/schedule model/lower/common model/walk)
$(call room, model/framework/torch_fsdp2,      base model/arch model/cluster model/plan model/program model/schedule model/lower/common model/walk)
$(call room, model/framework/deepspeed,        base model/arch model/cluster model/plan model/program model/schedule model/lower/common model/walk)
$(call room, model/framework/deepspeed_012,    base model/arch model/cluster model/plan model/program model/schedule model/lower/common model/walk model/framework/deepspeed)
$(call room, model/framework/deepspeed_3,      base model/family model/arch model/cluster model/plan model/program model/schedule model/lower/common model/walk model/framework/deepspeed)
$(call room, model/framework/megatron,         base model/arch model/cluster model/plan model/program model/schedule model/lower/common model/walk)
$(call room, model/lower,           base model/cluster model/plan model/program model/schedule model/lower/common model/framework/paper model/framework/torch_dp model/framework/zero_redundancy model/framework/torch_ddp model/framework/torch_fsdp1 model/framework/torch_fsdp2 model/framework/deepspeed_012 model/framework/deepspeed_3 model/framework/megatron)
$(call room, model/memory,          base model/allocator model/cluster model/plan model/program model/schedule model/lower)
$(call room, model/exchange,        base model/family model/arch model/cluster model/plan)
$(call room, model/form,            base model/family model/arch model/cluster model/plan model/memory model/exchange)
$(call room, sim/price,             base model/family model/arch model/cluster model/plan model/program model/schedule)
$(call room, sim/clock,             base model/arch model/cluster model/plan model/program model/schedule model/memory sim/price)
$(call room, sim/search,            base model/arch model/cluster model/plan model/program model/schedule model/lower/common model/memory sim/price sim/clock)
$(call room, sim/bill,              base model/arch model/cluster model/plan model/schedule model/lower/common sim/price)
$(call room, sim/phases,            base model/arch model/cluster model/plan model/program model/schedule model/memory sim/price sim/clock)
$(call room, calib/store,           base model/cluster model/plan model/program model/schedule)
$(call room, calib/trace,           base model/schedule)
$(call room, calib/import,          base model/cluster model/plan model/program model/schedule model/lower calib/store calib/trace)
$(call room, sim/serve,             base)
$(call room, sim/plan,              base base/chart model/arch model/allocator model/cluster model/plan model/schedule model/lower model/memory model/exchange model/form sim/price sim/clock sim/search sim/bill sim/phases)
$(call room, exec/device,           base model/cluster model/schedule)
$(call room, exec/kernels,          base model/arch model/program model/schedule exec/device)
$(call room, exec/comm,             base model/schedule exec/device exec/kernels)
$(call room, exec/cuda,             base model/arch model/schedule exec/device exec/kernels exec/comm)
$(call room, exec/data,             base model/family model/arch model/cluster model/plan exec/device exec/kernels)
$(call room, exec/run,              base model/arch model/cluster model/plan model/program model/schedule model/memory exec/device exec/kernels exec/comm exec/cuda exec/data)
$(call room, exec/train,            base model/arch model/cluster model/plan model/program model/schedule model/lower model/memory exec/device exec/kernels exec/comm exec/data exec/run)
$(call room, exec/engine,           base model/family model/arch model/cluster model/plan model/schedule model/exchange exec/data)
$(call room, exec/process,          base model/arch model/cluster model/plan model/schedule model/lower model/memory exec/device exec/kernels exec/cuda exec/data exec/run exec/train exec/engine)
$(call room, calib/bench,           base model/arch model/cluster model/plan model/program model/schedule model/lower exec/device exec/kernels exec/comm exec/cuda exec/data exec/run exec/train calib/store)
$(call room, reports/page,          base base/chart calib/store)
$(call room, reports/kineto,        base model/cluster model/plan model/schedule model/lower model/memory sim/clock sim/plan calib/store calib/trace)

# With CUDA exec/cuda; without MPI or oneDNN files of the same names instead.
instead  := $(if $(filter 0,$(MPI)),$(wildcard exec/nompi/*.c)) $(if $(filter 0,$(DNNL)),$(wildcard exec/nodnnl/*.c))
replaced := $(foreach f,$(notdir $(instead)),exec/%/$f)
exec_process_more := $(filter exec/nompi/%,$(instead))
exec_kernels_more := $(filter exec/nodnnl/%,$(instead))
BUILT    := $(filter-out $(if $(KERNELS),,exec/cuda),$(ROOMS))
sources   = $(filter-out $(MAINS) $(replaced) $(if $(HTTPD),,sim/serve/http.c) exec/process/dpxrun%.c sim/plan/dpxplan%.c,$(wildcard $1/*.c)) \
            $(if $(filter exec/cuda,$1),$(KERNELS)) $($(subst /,_,$1)_more)
# An archive depends on its folder as well, so that a deleted source leaves it.
$(foreach r,$(BUILT),$(eval $B/$r.a: $(patsubst %,$B/%.o,$(call sources,$r)) $r))
$B/emu.a:     $(patsubst %,$B/%.o,$(EMULATOR))

# What programs and tests link, users before what they use.
archives_of = $(foreach r,$(filter $1,$(BUILT)),$(if $(filter exec/% calib/bench,$r),$B,$H)/$r.a)
MODEL   := $(call archives_of,base base/% model/%)
SIM     := $(call archives_of,sim/%)
STORE   := $(call archives_of,calib/store calib/trace calib/import)
EXEC    := $(call archives_of,exec/%)
BENCH   := $(call archives_of,calib/bench)
REPORTS := $(call archives_of,reports/%)
reverse  = $(if $1,$(call reverse,$(wordlist 2,99,$1)) $(firstword $1))
LINKED  := $(REPORTS) $(BENCH) $(call reverse,$(EXEC)) $B/emu.a $(call reverse,$(SIM)) $(call reverse,$(STORE)) $(call reverse,$(MODEL))
archives: $(MODEL) $(SIM) $(EXEC)
ifneq ($H,$B)
$(MODEL) $(SIM) $(STORE) $(REPORTS) &: FORCE
	@$(MAKE) --no-print-directory EMU= B=$H $(MODEL) $(SIM) $(STORE) $(REPORTS)
endif

$B/dpxplan:   $(patsubst %,$B/%.o,$(wildcard sim/plan/dpxplan*.c)) $(SIM) $(STORE) $(MODEL)
$B/dpxplan:   $B/lib/dpx.c.o
ifdef HTTPD
$B/dpxplan:   $B/page/served.c.o
$B/dpxplan: private LIBS += -ldl -pthread
$B/sim/plan/dpxplan_serve.c.o $B/tests/sim/test_http.c.o: private FLAGS += -DDPX_HTTPD
endif
$B/sim/plan/dpxplan_serve.c.o $B/tests/sim/test_http.c.o $B/sim/serve.a: $B/settings.httpd
$B/dpxrun:    $(patsubst %,$B/%.o,$(wildcard exec/process/dpxrun*.c)) $(EXEC) $(SIM) $(STORE) $(MODEL)
$B/dpxcal:    $(patsubst %,$B/%.o,$(wildcard calib/dpxcal*.c)) $(BENCH) $(EXEC) $(STORE) $(MODEL)
ifdef HAVE_CUDA
$B/dpxrun $B/dpxcal: | $B/cuda-libraries
$B/cuda-libraries: Makefile
	@mkdir -p $@
	@for l in $(CUBLASLT) $(NCCL); do \
	    so=$$(readelf -d $$l | sed -n 's/.*SONAME.*\[\(.*\)\].*/\1/p'); ln -sf $$l $@/$${so:-$${l##*/}}; done
endif
$B/dpxreport: $B/reports/dpxreport.c.o $(REPORTS) $(SIM) $(STORE) $(MODEL)
$B/$(SONAME): $B/lib/dpx.c.o $B/sim/plan/dpxplan_measured.c.o $(SIM) $(STORE) $(MODEL) lib/dpx.map
$(filter $B/tests/lib/%,$(TESTS)): $B/%: $B/%.c.o $B/libdpx.so
$(filter-out $B/tests/emu/% $B/tests/lib/%,$(TESTS)): $B/%: $B/%.c.o $(REPORTS) $(SIM) $(STORE) $(MODEL)
$B/tests/mpi/mpi_bench: $(BENCH)
# It is dpxrun, with another main().
$B/tests/mpi/mpi_runs: $(patsubst %,$B/%.o,$(wildcard exec/process/dpxrun_*.c))
$(MPITESTS) $(GPUTESTS): $B/%: $B/%.c.o $(EXEC) $(SIM) $(STORE) $(MODEL)
$(BENCHES) $(COMPARE): $B/%: $B/%.c.o   $(SIM) $(MODEL)
$(CALLS): $B/%: $B/%.c.o $B/libdpx.so
$(FUZZERS):   $B/%: $B/%.c.o           $(SIM) $(MODEL)
# Those that change documents by their structure read traces and logs too.
$(filter $B/tests/fuzz/fuzz_tree_%,$(FUZZERS)): $B/tests/fuzz/tree.c.o $(REPORTS) $(STORE)
$(addprefix $B/tests/fuzz/fuzz_,set sweep tree_phases tree_request): $B/sim/plan/dpxplan_measured.c.o $(STORE)
$(addprefix $B/tests/sim/test_,money nemo_words own_value pipeline_plan plan_source): $B/sim/plan/dpxplan_measured.c.o $(STORE)
$B/tests/fuzz/fuzz_tree_request: $B/lib/dpx.c.o

ACCURACYLISTS := $(patsubst %,$B/tests/accuracy/accuracy_%,plans parallel away)
ACCURACY := $(ACCURACYLISTS) $B/tests/accuracy/accuracy_table
$(ACCURACY):  $B/%: $B/%.c.o           $(SIM) $(STORE) $(MODEL)
$(ACCURACYLISTS): $B/tests/accuracy/accuracy_list.c.o

$B/tests/accuracy/accuracy_public: $B/tests/accuracy/accuracy_public.c.o \
    $(addprefix $B/tests/accuracy/,public_rows.c.o megatron_rows.c.o results.c.o) $(SIM) $(STORE) $(MODEL)
$B/tests/accuracy/accuracy_memory: $B/tests/accuracy/accuracy_memory.c.o \
    $B/tests/accuracy/public_rows.c.o $(SIM) $(STORE) $(MODEL)
$B/tests/sim/test_accuracy_public $B/tests/sim/test_memory_published: $(addprefix $B/tests/accuracy/,public_rows.c.o results.c.o)
$B/tests/accuracy/accuracy_offload: $B/tests/accuracy/accuracy_offload.c.o $(SIM) $(STORE) $(MODEL)

$(TESTS): LIBS = -lcmocka
$(if $(HTTPD),$(filter $B/tests/sim/test_http,$(TESTS))): LIBS += -ldl -pthread
$(filter $B/tests/lib/%,$(TESTS)) $(CALLS): LIBS += $B/$(SONAME) -Wl,-rpath,'$$ORIGIN/../..' -pthread
ifdef FUZZER
$(FUZZERS): LIBS = -fsanitize=fuzzer
else
$(FUZZERS): $B/tests/fuzz/replay.c.o
endif
# What runs for real: MPI, oneDNN, CUDA, threads.  Tests of exec/ are told by their folder.
REAL := $(filter $B/dpxrun $B/dpxcal,$(PROGRAMS)) $(filter $B/tests/exec/% $B/tests/emu/%,$(TESTS)) $(MPITESTS) $(GPUTESTS)
$(filter $B/tests/exec/%,$(TESTS)): $(EXEC)
$(foreach t,$(emutests),$(eval $B/$t: $(patsubst %,$B/%.o,$(wildcard $t.c $t.cc)) $(EXEC) $(SIM) $(STORE) $(MODEL)))
$(if $(EMU),$(REAL)): $B/emu.a
$(REAL): private CC := $(MPICC)
$(REAL): LIBS += $(DNNL_LIB) $(URING_LIB) $(CUDA_LIBS) -fopenmp -pthread
REALOBJ := $B/exec/%.c.o $B/calib/dpxcal.c.o $B/calib/bench/%.c.o $B/tests/exec/%.c.o \
           $B/tests/mpi/%.c.o $B/tests/gpu/%.c.o $B/tests/emu/%.c.o $B/tests/bench/exec_%.c.o
$(REALOBJ): private CC := $(MPICC)
$(REALOBJ): private FLAGS += $(REALFLAGS)
$(patsubst %,$B/%.o,$(wildcard exec/*/*.c calib/dpxcal.c calib/bench/*.c $(addprefix tests/,exec/*.c mpi/*.c gpu/*.c emu/*.c bench/exec_*.c))): $B/settings.real

# V=1 shows the commands.
Q = $(if $V,,@echo '  $@';)

$(PROGRAMS) $(TESTS) $(MPITESTS) $(GPUTESTS) $(BENCHES) $(CALLS) $(COMPARE) $(FUZZERS) $(ACCURACY) $(addprefix $B/tests/accuracy/accuracy_,public memory offload):
	$Q$(CC) $(FLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) \
	    $(filter $(filter %.a,$^),$(LINKED)) \
	    $(CARRIED) -lsqlite3 -lz -ljansson -lyaml $(LIBS) -lm
# Only what dpx.map names is seen from outside.
$B/$(SONAME):
	$Q$(CC) $(FLAGS) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=lib/dpx.map \
	    $(if $(SAN)$(TSAN),,-Wl$(comma)-z$(comma)defs) -o $@ $(filter %.o,$^) $(filter $(filter %.a,$^),$(LINKED)) \
	    $(CARRIED) -lsqlite3 -lz -ljansson -lyaml -pthread -lm
$B/libdpx.so: $B/$(SONAME)
	@ln -sf $(SONAME) $@
# The library for a browser.  Of the database's room it has what reads the fits that come with dpx.
WASMCALLS := search fit eval explain sweep bill phases limits list import export free version
WASMFLAGS := -sMODULARIZE=1 -sEXPORT_NAME=dpx_module -sALLOW_MEMORY_GROWTH=1 -sMAXIMUM_MEMORY=4GB -sTOTAL_STACK=8MB -sENVIRONMENT=web,worker,node -sDYNAMIC_EXECUTION=0 \
             -sALLOW_TABLE_GROWTH=1 -sEXPORTED_FUNCTIONS=$(subst $(space),$(comma),$(addprefix _dpx_,$(WASMCALLS)) _chart_answer _malloc) \
             -sEXPORTED_RUNTIME_METHODS=UTF8ToString,stringToUTF8,lengthBytesUTF8,addFunction,FS,ENV
$B/dpx.js: $B/lib/dpx.c.o $B/page/cores.c.o $B/calib/nodb/dpxplan_measured.c.o $(patsubst %,$B/calib/store/%.c.o,kept kept_file kept_columns measured_kept words) $(SIM) $(MODEL)
	$Q$(CC) $(CFLAGS) -g0 $(LDFLAGS) $(WASMFLAGS) -o $@ $(filter %.o,$^) $(filter $(filter %.a,$^),$(LINKED)) $B/third/lib/libjansson.a $B/third/lib/libyaml.a -lm
# What the compiler says is kept beside the object, where the tests look for it.
$B/%.c.o: %.c Makefile $B/settings
	@mkdir -p $(@D)
	$Q$(CC) $(FLAGS) $(CFLAGS) -c -o $@ $< 2>$@.warn || { cat $@.warn >&2; exit 1; }; cat $@.warn >&2
$B/%.cc.o: %.cc Makefile $B/settings.real
	@mkdir -p $(@D)
	$Q$(CXX) $(FLAGSXX) $(CXXFLAGS) $(CUDA_INC) -c -o $@ $< 2>$@.warn || { cat $@.warn >&2; exit 1; }; cat $@.warn >&2
# What the assembler says of each kernel (registers, spills) goes to a file of its own, for cuda-check.
$B/%.cu.o: %.cu Makefile $B/settings.real
	@mkdir -p $(@D)
ifdef EMU
	$Q$(CXX) -x c++ $(FLAGSXX) $(CXXFLAGS) $(EMUFLAGS) $(CUDA_INC) -c -o $@ $< 2>$@.warn || { cat $@.warn >&2; exit 1; }; cat $@.warn >&2
else
	$Q$(NVCC) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< >$@.said 2>&1 || { cat $@.said >&2; exit 1; }; \
	grep -E '^ptxas info|bytes stack frame' $@.said >$@.ptxas; \
	grep -vE '^ptxas info|bytes stack frame' $@.said >$@.warn; cat $@.warn >&2
endif
# Objects of another compiler, or of another choice of libraries, are no good.  Rewritten only on change.
settings      = $(CC) $(CFLAGS) $(FLAGS)
settings.httpd = $(HTTPD)
settings.real = $(MPICC) $(CXX) $(CFLAGS) $(FLAGS) $(FLAGSXX) $(CXXFLAGS) $(EMUFLAGS) $(REALFLAGS) $(CUDA_INC) $(NVCC) $(NVCCFLAGS)
$B/settings $B/settings.real $B/settings.httpd: FORCE
	@mkdir -p $(@D)
	@echo '$($(@F))' >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$B/%.a:
	@mkdir -p $(@D)
	$Qrm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

# The runners of frameworks are part of dpxrun: their lines, as C.
ENGINES := common torch torch_axes deepspeed accelerate torchtitan megatron
$B/exec/engine/engine_job.c.o: $B/exec/engine/scripts.inc
$B/exec/engine/scripts.inc: $(patsubst %,exec/engine/%.py,$(ENGINES)) Makefile
	@mkdir -p $(@D)
	@for e in $(ENGINES); do \
	    echo "static const char *const $${e}_py[] = {"; \
	    sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&\\n",/' exec/engine/$$e.py; echo 'NULL };'; done >$@.new
	@mv $@.new $@

# A file of model/family that defines NAME_family is a row FAMILY(NAME), by name.  Rewritten only on change.
$B/model/family/family.c.o: $B/model/family/list.h
$B/model/family/list.h: FORCE
	@mkdir -p $(@D); sed -n 's/^const struct family \([a-z0-9_]*\)_family = {/FAMILY(\1)/p' model/family/*.c | LC_ALL=C sort >$@.new; \
	cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# --version: the commit too, where there is one.  Rewritten only on change.
$B/base/version.c.o: $B/dpx_version.h
$B/dpx_version.h: FORCE
	@mkdir -p $(@D); git=$$(test -e .git && git describe --always --dirty 2>/dev/null); \
	echo "#define DPX_VERSION \"$(VERSION)$${git:+ ($$git)}\"" >$@.new; \
	cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# Tests are built on all cores, unless -j says otherwise.
jobs = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$$(nproc))

# In two steps, since what the second needs may be installed by the first.
# -k: a test that does not compile must not hide the results of the others.
test:
	@tools/install-deps.sh build test
	@$(MAKE) --no-print-directory $(jobs) -k test-programs; built=$$?; \
	$(if $(EMUTESTS),$(MAKE) --no-print-directory $(jobs) -k EMU=1 B=build-emu test-programs || built=1;) \
	B=$B tests/run.sh $$built $(TESTS) $(EMUTESTS) $(FUZZERS) $(SCRIPTS)
# Preloaded by tests/mpi/*.sh: pmpi_*.c stand before MPI, alloc_*.c before malloc().
PRELOADED := $(if $(filter-out 0,$(or $(MPI),1)),$(patsubst %.c,$B/%.so,$(wildcard tests/mpi/pmpi_*.c tests/mpi/alloc_*.c)))
$B/tests/mpi/pmpi_delay.so: tests/mpi/pmpi_count.c
$(PRELOADED): $B/%.so: %.c
	@mkdir -p $(@D)
	$Q$(MPICC) -shared -fPIC -std=c17 -D_POSIX_C_SOURCE=200809L -O2 -o $@ $< -pthread -ldl

test-programs: $(PRELOADED) all $(TESTS) $(MPITESTS) $(FUZZERS) $(BENCHES) $(CALLS) $(if $(SAN)$(TSAN)$(EMU),,page-if-there)

# What needs a GPU to run.
gpu-programs: all $(GPUTESTS)

cuda-check:
	@$(if $(HAVE_CUDA),$(MAKE) --no-print-directory all $(GPUTESTS),true)
	@B=$B NVCC='$(if $(HAVE_CUDA),$(NVCC))' FLAGS='$(NVCCFLAGS)' tools/cuda-check.sh $(KERNELS)

# Static libraries, and headers where the compiler finds them.
carry:
	@mkdir -p carry/include carry/lib
	@for l in sqlite3 jansson yaml z; do \
	    a=$$($(CC) -print-file-name=lib$$l.a); cp "$$a" carry/lib/ || exit 1; done
	@printf '#include <%s.h>\n' sqlite3 jansson yaml zlib | $(CC) -E -M -xc - | tr -s ' \\' '\n\n' | \
	    grep -E '/(sqlite3|sqlite3ext|jansson|jansson_config|yaml|zlib|zconf)\.h$$' | \
	    while read -r h; do cp "$$h" carry/include/ || exit 1; done
	@ls carry/include carry/lib

demo:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory all
	@B=$B demo/demo.sh
	@if command -v emcc >/dev/null; then $(MAKE) --no-print-directory page; \
	else echo 'The planner in a browser: not built, there is no emcc (apt-get install emscripten node-acorn; make page)'; fi

# The page without the library in it, as bytes of a C source.
$B/page/served.c: $(wildcard page/*) base/chart/chart.c
	@mkdir -p $(@D)
	$Qpage/make.sh served | od -v -A n -t u1 | awk 'BEGIN { print "/* generated by page/make.sh */\n#include \"page/served.h\"\nconst unsigned char served_page[] = {" } \
	    { for (i = 1; i <= NF; i++) printf "%s,", $$i; print "" } END { print "};\nconst size_t served_page_size = sizeof served_page;" }' >$@
$B/page/served.c.o: $B/page/served.c
	$Q$(CC) $(FLAGS) $(CFLAGS) -c -o $@ $<

# One file: page/make.sh says by name what is missing.
page:
	@B=$B MAKE='$(MAKE)' page/make.sh
# For the tests, which are skipped where it cannot be built.
page-if-there:
	@! command -v emcc >/dev/null || B=$B MAKE='$(MAKE)' page/make.sh || true
bench-page: page
	@$(MAKE) --no-print-directory $(CALLS)
	@B=$B tests/bench/page.sh

bench:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory all $(BENCHES) $(filter %/exec_gemm,$(MPITESTS))
	@B=$B tests/bench/run.sh $(BENCHES)
	@B=$B tests/bench/exec.sh
	@B=$B tests/bench/tcp.sh

bench-search:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory $B/dpxplan
	@B=$B tests/bench/search.sh

bench-eval:
	@tools/install-deps.sh build test
	@$(MAKE) --no-print-directory $B/dpxplan $(CALLS)
	@B=$B tests/bench/eval.sh $(if $(KEEP),--keep)

bench-exec:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory all $(filter %/exec_gemm,$(MPITESTS))
	@B=$B tests/bench/exec.sh

# libdpx and its threads, plain and under AddressSanitizer and ThreadSanitizer.
test-library:
	@tools/install-deps.sh build test
	@$(MAKE) --no-print-directory B=build all build/tests/lib/test_library
	@$(MAKE) --no-print-directory SAN=1 B=build-san build-san/tests/lib/test_library
	@$(MAKE) --no-print-directory TSAN=1 B=build-tsan build-tsan/tests/lib/test_library
	@B=build tests/run.sh 0 $(foreach b,build build-san build-tsan,$b/tests/lib/test_library) $(filter tests/lib/%,$(SCRIPTS))

# Pipelines with and without their repeats, intervals from one run and from all: a thousand plans each.
test-folds:
	@tools/install-deps.sh build test
	@$(MAKE) --no-print-directory $B/tests/sim/test_pipeline_folded $B/tests/sim/test_lanes
	@$B/tests/sim/test_pipeline_folded 1000 && $B/tests/sim/test_lanes 1000

test-sanitized:
	@tools/install-deps.sh build test
	@$(MAKE) --no-print-directory $(jobs) SAN=1 B=build-san build-san/dpxrun build-san/tests/mpi/mpi_grid
	@$(MAKE) --no-print-directory $(jobs) TSAN=1 B=build-tsan build-tsan/dpxrun build-tsan/tests/mpi/mpi_grid
	@for b in build-san build-tsan; do for what in sanitized grid; do B=$$b GRID_RANKS='1 2 3 4' tests/mpi/test_$$what.sh || bad=1; done; done; test -z "$$bad"

test-matrix:
	@tools/install-deps.sh build test
	@$(MAKE) --no-print-directory test-programs
	@for what in 'matrix.sh pairs' 'matrix.sh plain'; do B=$B tests/mpi/test_$$what || bad=1; done; \
	DPX_DEVICE_ALL=1 B=$B tests/mpi/test_device.sh && test -z "$$bad"

engine-check engine-check-124m:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory $B/dpxrun $B/dpxplan $B/dpxreport
	@. tests/engine/plans.sh && B=$B PYTHON='$(or $(PYTHON),python3)' $(if $(filter %124m,$@),ONLY="$$LARGE",ALL=1) tests/engine/test_engine.sh
	@$(if $(filter %124m,$@),,B=$B PYTHON='$(or $(PYTHON),python3)' tests/engine/test_engine_faults.sh)

test-grid:
	@tools/install-deps.sh build test
	@$(MAKE) --no-print-directory test-programs
	@for what in 'grid.sh some' 'grid.sh whole' 'grid.sh late' 'grid_faults.sh all' 'grid_files.sh gpt2 llama' 'parity.sh all'; do B=$B tests/mpi/test_$$what || bad=1; done; test -z "$$bad"

# Each is one script.
script_test-bits    := tests/sim/test_bits.sh fused
script_test-124m    := tests/mpi/strategies_124m.sh
script_offload-demo := tests/mpi/offload_demo.sh
script_quant-losses := tests/mpi/quant_losses.sh
script_lab-wire     := tests/lab/measure_wire.sh
script_lab-overlap  := tests/lab/test_lab.sh overlap
script_lab-failures := tests/lab/failures.sh
test-bits test-124m offload-demo quant-losses lab-wire lab-overlap lab-failures:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory all
	@B=$B $(script_$@)

accuracy:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory all $(ACCURACY)
	@status=0; B=$B tests/accuracy/accuracy_run.sh || status=$$?; \
	for list in $(if $(LAB)$(PARALLEL)$(OFFLOAD),,PARALLEL OFFLOAD); do env $$list=1 B=$B tests/accuracy/accuracy_run.sh || status=$$?; done; exit $$status

accuracy-public:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory $B/dpxplan $(addprefix $B/tests/accuracy/accuracy_,public memory offload)
	@$B/tests/accuracy/accuracy_public && $B/tests/accuracy/accuracy_memory && $B/tests/accuracy/accuracy_offload
	@echo 'post-training: whole steps'; B=$B python3 tests/accuracy/nemo_rl.py; echo 'prime-rl: steps and reserved memory'; B=$B python3 tests/accuracy/primerl.py
	@B=$B tests/accuracy/bill.sh

accuracy-pages:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory $(addprefix $B/tests/accuracy/accuracy_,public memory offload)
	@B=$B tools/accuracy.sh

compare:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory $B/dpxplan $(COMPARE)
	@B=$B tests/compare/compare.sh '$(BASE)' $(PLANS)
family-check newcomer zoo: %: $B/dpxplan $B/tests/recorded/compare_programs $B/tests/recorded/compare_peaks
	@B=$B PYTHON='$(or $(PYTHON),python3)' tests/recorded/$(subst -,_,$@).sh

# calib/measured/ from the samples in tests/calib/measured/.
fits:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory $B/dpxcal
	@for f in tests/calib/measured/*.json; do $B/dpxcal fit $$f calib/measured/$$(basename $$f .json).fits || exit 1; done

words:
	@tools/install-deps.sh build test
	@$(MAKE) --no-print-directory $(PROGRAMS)
	@B=$B WORDS=all tests/test_words.sh

pages:
	@tools/install-deps.sh build
	@$(MAKE) --no-print-directory $(PROGRAMS)
	@export B=$B; tools/pages.sh && tools/reference.sh

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
$B/share/man/man1/%.1: $B/% ; $(call print_as,man)
$B/share/bash-completion/completions/%: $B/% ; $(call print_as,bash)
$B/share/zsh/site-functions/_%: $B/% ; $(call print_as,zsh)

stripped = $(if $(STRIP),-s --strip-program='$(STRIP)')
install: all $(SHARE)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR)
	install $(stripped) -m 644 $B/$(SONAME) $(DESTDIR)$(LIBDIR)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libdpx.so
	install -D -m 644 LICENSE $(DESTDIR)$(PREFIX)/share/doc/dpx/LICENSE
	install -D -m 644 lib/dpx.h $(DESTDIR)$(PREFIX)/include/dpx.h
	install -D -m 644 lib/dpx.pc.in $(DESTDIR)$(LIBDIR)/pkgconfig/dpx.pc
	sed -i 's,@PREFIX@,$(PREFIX),; s,@LIBDIR@,$(LIBDIR),; s,@VERSION@,$(VERSION),' $(DESTDIR)$(LIBDIR)/pkgconfig/dpx.pc
	install -D -m 644 lib/dpxConfig.cmake $(DESTDIR)$(LIBDIR)/cmake/dpx/dpxConfig.cmake
	install -D -m 644 lib/dpx.py $(DESTDIR)$(PYTHONDIR)/dpx.py
	install -D -m 644 -t $(DESTDIR)$(PYTHONDIR)/dpx_record lib/dpx_record/*.py
	sed -i 's,^_INSTALLED = None,_INSTALLED = "$(LIBDIR)/$(SONAME)",' $(DESTDIR)$(PYTHONDIR)/dpx.py
	install $(stripped) $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	for f in $(SHARE:$B/%=%); do install -D -m 644 $B/$$f $(DESTDIR)$(PREFIX)/$$f || exit 1; done
	for f in $(wildcard calib/measured/*.fits); do \
	    install -D -m 644 $$f $(DESTDIR)$(PREFIX)/share/dpx/measured/$${f##*/} || exit 1; done

# What libdpx and dpxplan need lies beside them in it.
wheel: $B/dpxplan $B/$(SONAME)
	@tools/install-deps.sh wheel
	@python3 tools/wheel.py $B $(VERSION)

# Where people install it: what a machine lacks is counted as skipped.
everywhere-check: all wheel $(filter $B/tests/mpi/%,$(MPITESTS)) $(PRELOADED)
	@command -v dh >/dev/null && tools/deb.sh --if-new $B $(VERSION) '$(if $(HAVE_CUDA),cuda)' || echo 'debs: not made'
	@B=$B PYTHON='$(or $(PYTHON),python3)' TEST_LANES=1 TEST_TIMEOUT=1800 sh tests/run.sh 0 $(wildcard tests/everywhere/*.sh) $(wildcard tests/lib/test_[mp]*.sh)
slurm-check: all
	@B=$B tests/everywhere/slurm.sh
schemas: $B/dpxplan
	XDG_DATA_HOME=/nonexistent python3 tools/schemas.py $B/dpxplan write $(ANSWERS)

uninstall:
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/,$(SONAME) libdpx.so pkgconfig/dpx.pc cmake/dpx/dpxConfig.cmake) \
	    $(addprefix $(DESTDIR)$(PREFIX)/,share/doc/dpx/LICENSE include/dpx.h $(PROGRAMS:$B/%=bin/%) $(SHARE:$B/%=%) \
	    $(patsubst calib/%,share/dpx/%,$(wildcard calib/measured/*.fits))) $(DESTDIR)$(PYTHONDIR)/dpx.py
	rm -rf $(DESTDIR)$(PYTHONDIR)/dpx_record
	-rmdir $(DESTDIR)$(LIBDIR)/cmake/dpx $(DESTDIR)$(PREFIX)/share/dpx/measured $(DESTDIR)$(PREFIX)/share/doc/dpx $(DESTDIR)$(PYTHONDIR) \
	    $(DESTDIR)$(PREFIX)/share/dpx 2>/dev/null

deb: dist
	@tools/deb.sh $B $(VERSION) '$(if $(HAVE_CUDA),cuda)'

dist:
	@mkdir -p $B
	git archive --prefix=dpx-$(VERSION)/ -o $B/dpx-$(VERSION).tar.gz HEAD
	@echo $B/dpx-$(VERSION).tar.gz

deps:
	@tools/install-deps.sh build test fuzz more
help:
	@sed '/^#/!Q; s/^#//; s/^ //' Makefile
clean:
	rm -rf build build-san build-tsan build-emu build-wasm carry

.PHONY: all archives words test engine-check engine-check-124m family-check newcomer zoo test-programs test-library gpu-programs cuda-check gpu-check carry test-sanitized test-folds test-matrix test-grid test-bits test-124m offload-demo quant-losses lab-wire lab-overlap lab-failures demo page page-if-there bench-page bench bench-eval bench-exec bench-search \
        accuracy accuracy-public accuracy-pages compare fits pages fuzz install uninstall wheel dist deb everywhere-check slurm-check schemas deps help clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(shell find $B -name '*.d' 2>/dev/null)

# sanitized.sh -- what the sanitizers are told where $B was built with one, SAN=1 or TSAN=1; source it.  A rank's command begins
# with $sanitized: empty without any.  The files *.supp say what of Open MPI is not counted, and why.
# shellcheck shell=sh
B=${B:-build} sanitized=
if grep -qsa __tsan_init "$B/dpxrun"; then
    # What Open MPI and libgomp do, which are not instrumented, is not looked at, their locks neither: they would
    # order what nothing else orders.  libgomp: one thread.  Addresses are not randomised, for which gcc
    # 12's run time has no room on newer kernels.  Without ofi, whose locks are not ours.
    export TSAN_OPTIONS="suppressions=$PWD/tests/mpi/tsan.supp:history_size=7:halt_on_error=1:ignore_noninstrumented_modules=1"
    # All is slower: a rank that has the core for a moment only must not count as stopped.
    export DPX_TIMEOUT="${DPX_TIMEOUT:-600}"
    export OMP_NUM_THREADS=1 OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1
    sanitized='setarch -R'
elif grep -qsa __asan_init "$B/dpxrun"; then
    # Open MPI's own leaks are many: who counts leaks suppresses those (lsan.supp).
    export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
    sanitized=env
fi

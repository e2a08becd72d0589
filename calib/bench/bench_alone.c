/* bench_alone.c -- a product on rank 0 while the machine's other ranks sleep, and while all of them compute.
 *
 * Two cores of a virtual machine may be two threads of one core, and a processor clocks lower when all of its cores work: what is timed on
 * all ranks at once, as everything else here is, takes less where the others wait (sim/clock/crowd.h). */
#include "calib/bench/bench.h"

#include <math.h>
#include <mpi.h>
#include <time.h>

#include "base/fail.h"
#include "calib/store/words.h"

enum { ROUNDS = 10 };
/* Of each turn.  The others compute a little longer, so that rank 0 is never the last. */
static const double TURN_S = .05, OTHERS_S = .06;

int bench_meet_asleep(void)
{
    static const struct timespec pause = { 0, 1000 * 1000 };
    MPI_Request here;
    int done = 0;

    if (MPI_Ibarrier(MPI_COMM_WORLD, &here) != MPI_SUCCESS)
        return fail("MPI_Ibarrier failed between products");
    while (!done) {
        if (MPI_Test(&here, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return fail("MPI_Test failed between products");
        if (!done)
            nanosleep(&pause, NULL);
    }
    return 0;
}

static int keep(struct bench *b, const char *name, const double *seconds)
{
    struct series s = { .kind = SERIES_OWN, .name = name, .dtype = DT_FP32, .ranks = b->nranks, .per_node = b->per_node,
                        .threads = b->threads, .started = bench_wall_clock() };

    return bench_keep(b, &s, seconds, ROUNDS, true);
}

/* The other ranks report 0: of each round rank 0's mean counts. */
int bench_alone(struct bench *b)
{
    double together[ROUNDS] = { 0 }, alone[ROUNDS] = { 0 };

    if (b->cuda || b->nranks < 2 || b->per_node != b->nranks)
        return 0;
    for (int i = 0; i < ROUNDS; i++) {
        if (bench_meet_asleep() < 0)
            return -1;
        double s = probe_mean(b->probe, b->rank == 0 ? TURN_S : OTHERS_S);
        together[i] = b->rank == 0 ? s : 0;
        if (isnan(s) || bench_meet_asleep() < 0)
            return -1;
        if (b->rank == 0 && isnan(alone[i] = probe_mean(b->probe, TURN_S)))
            return -1;
    }
    return bench_meet_asleep() < 0 || keep(b, own_words[OWN_TOGETHER], together) < 0 || keep(b, own_words[OWN_ALONE], alone) < 0 ? -1 : 0;
}

/* bench_crowd.c -- whether other processes use the cores that are being timed, and waiting until they do not. */
#include "calib/bench/bench.h"

#include <math.h>
#include <mpi.h>
#include <time.h>

#include "base/fail.h"
#include "exec/device/lanes.h"

double bench_shortage(const struct cpu_use *since, const struct cpu_use *now, double own_s, double need)
{
    double wall = now->wall_s - since->wall_s;
    double others = wall > 0 ? (now->all_s - since->all_s - own_s) / wall : 0;

    need = fmin(need, now->cpus);       /* ranks that share processors take those that there are */
    return since->cpus > 0 && now->cpus > 0 && wall > 0 ? fmin(fmax((others + need - now->cpus) / need, 0), 1) : 0;
}

double bench_crowd(struct bench *b, const struct cpu_use *since)
{
    struct cpu_use now;
    double own, all = 0;
    MPI_Comm node;

    cpu_use_now(b->cpus, &now);
    own = now.own_s - since->own_s;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) != MPI_SUCCESS)
        return bench_max((double)NAN);
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, node);
    MPI_Comm_free(&node);
    return bench_max(b->cuda ? 0 : bench_shortage(since, &now, all, (double)b->per_node * b->threads));
}

double bench_wait_until_quiet(struct bench *b, double at_most_s, double *waited)
{
    static const struct timespec half = { 0, 500 * 1000 * 1000 };
    double from = lanes_now(), crowd, longest;
    bool said = false;

    do {
        struct cpu_use before;
        cpu_use_now(b->cpus, &before);
        nanosleep(&half, NULL);
        crowd = bench_crowd(b, &before);
        longest = bench_max(lanes_now() - from);
        if (crowd > BENCH_CROWDED && b->rank == 0 && !said && at_most_s > longest)
            fprintf(stderr, "dpxcal: other processes use %.0f %% of the cores that are to be timed; waiting for them, at most %.0f s\n",
                    100 * crowd, at_most_s);
        said = true;
    } while (crowd > BENCH_CROWDED && longest < at_most_s);
    *waited = longest;
    return crowd;
}

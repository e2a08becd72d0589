/* mpi_bench.c -- ranks whose clocks tell them different shares of the time measure the same all the same.
 *
 *     mpirun -n 2 mpi_bench DB     0, or what it complains of; where ranks decide apart, it waits for ever
 *
 * Rank 0's share is used up (then sizes are left out and warm-ups not repeated), the others' is not. */
#include <mpi.h>

#include "calib/bench/bench.h"
#include "calib/store/db.h"
#include "calib/store/series.h"

static int measure(struct bench *b)
{
    struct bench_item item = { .kind = BENCH_COLL, .dtype = DT_FP32, .op = COLL_ALL_REDUCE, .algo = ALGO_RING, .step = 3,
                               .largest = 128 << 20 };

    return bench_run(b, &item, b->rank == 0 ? 1e-6 : 0.5);
}

int main(int argc, char **argv)
{
    atomic_bool stop = false;
    struct bench b = { .threads = 1, .stop = &stop };
    struct calibration c = { .started = 1, .host = "test", .device = "cpu", .cpu = "test", .cores = 2, .source = "dpxcal",
                             .options = "{}", .dpx_version = "test" };
    int provided, rank, bad;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && (argc != 2 || !(b.db = db_open(argv[1])) || (b.calibration = calibration_begin(b.db, &c)) < 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    bad = bench_open(&b) < 0 || measure(&b) < 0;
    bench_close(&b);
    db_close(b.db);
    MPI_Finalize();
    return bad;
}

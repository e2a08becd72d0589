/* mpi_bench.c -- ranks whose clocks tell them different shares of the time measure the same all the same.
 *
 *     mpirun -n 2 mpi_bench DB     0, or what it complains of; where ranks decide apart, it waits for ever
 *
 * Rank 0's share is used up (then sizes are left out and warm-ups not repeated), the others' is not. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "calib/bench/bench.h"
#include "calib/store/db.h"
#include "calib/store/series.h"
#include "exec/kernels/half.h"

static int measure(struct bench *b)
{
    struct bench_item item = { .kind = BENCH_COLL, .dtype = DT_FP32, .op = COLL_ALL_REDUCE, .algo = ALGO_RING, .step = 3,
                               .largest = 128 << 20 };

    return bench_run(b, &item, b->rank == 0 ? 1e-6 : 0.5);
}

/* Of 4 processors and 10 s: 40 processor seconds.  Whether what others use is what the ranks need. */
static bool shortage_is_counted(void)
{
    static const struct { double all, own, need, share; } of[] = {
        { 20, 20, 2, 0 },               /* nothing but the ranks */
        { 30, 20, 2, 0 },               /* one processor for others, one idle */
        { 40, 20, 2, 0 },               /* two for others: the ranks had what they need */
        { 40, 10, 2, .5 },              /* three for others, of two that are needed one was missing */
        { 40, 8, 4, .8 },
        { 40, 40, 8, 0 },               /* eight ranks share the processors, and nobody else has any */
        { 40, 30, 8, .25 },
        { 50, 0, 4, 1 },                /* rounding of ticks gives no more than all */
    };
    const struct cpu_use since = { .wall_s = 5, .all_s = 1000, .cpus = 4 };

    for (int i = 0; i < (int)(sizeof of / sizeof *of); i++) {
        struct cpu_use now = { .wall_s = 15, .all_s = 1000 + of[i].all, .cpus = 4 };
        double share = bench_shortage(&since, &now, of[i].own, of[i].need);
        if (!(fabs(share - of[i].share) < 1e-12)) {
            printf("%g of all and %g of ours, %g needed: short of %g instead of %g\n", of[i].all, of[i].own, of[i].need,
                   share, of[i].share);
            return false;
        }
    }
    return bench_shortage(&(struct cpu_use){ 0 }, &(struct cpu_use){ .wall_s = 1 }, 0, 4) == 0;      /* not known */
}

/* Operands of every type lie in [1, 3), and end where the type's size says. */
static bool operands_are_of_their_type(void)
{
    enum { N = 1000 };
    static const enum dtype types[] = { DT_FP32, DT_BF16, DT_FP16 };
    float room[N + 1];

    for (int i = 0; i < (int)(sizeof types / sizeof *types); i++) {
        memset(room, 0xa5, sizeof room);
        bench_fill(room, types[i], N, 1, 2);
        const unsigned char *behind = (const unsigned char *)room + N * dtype_bytes(types[i]);
        float least = 3, most = 1;
        for (int at = 0; at < N; at++) {
            uint16_t half = ((const uint16_t *)room)[at];
            float v = types[i] == DT_FP32 ? room[at] : types[i] == DT_BF16 ? half_from_bf16(half) : half_from_fp16(half);
            if (!(v >= 1 && v <= 3)) {
                printf("operand %d of %s is %g\n", at, dtype_name(types[i]), (double)v);
                return false;
            }
            least = v < least ? v : least;
            most = v > most ? v : most;
        }
        if (least > 1.1F || most < 2.9F) {          /* bits of another type would lie closer together */
            printf("operands of %s lie in [%g, %g]\n", dtype_name(types[i]), (double)least, (double)most);
            return false;
        }
        if (*behind != 0xa5) {
            printf("operands of %s are longer than they should be\n", dtype_name(types[i]));
            return false;
        }
    }
    return true;
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
    bad = !shortage_is_counted() || !operands_are_of_their_type() || bench_open(&b) < 0 || measure(&b) < 0;
    bench_close(&b);
    db_close(b.db);
    MPI_Finalize();
    return bad;
}

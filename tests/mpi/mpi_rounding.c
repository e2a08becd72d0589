/* mpi_rounding.c -- in which order contributions are added, and where sums are rounded.
 *
 *     mpirun -n 4 mpi_rounding
 *
 * Contributions are arbitrary numbers, so that nearly every order has bits of its own.  Each rank adds
 * them by itself in the order that the algorithm promises, rounding where it promises to, and
 * compares bits: that all ranks have the same ones follows.  Complaints on stdout. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "exec/kernels/half.h"
#include "tests/mpi/group.h"

enum { ELEMS = 3001, PIECE = 1024 };

static int rank, n, complaints;

static enum dtype format;
static enum coll_sum sum;
static enum red_op red;

/* ---- numbers ---- */

static float premul(int r)
{
    return 0.3f + 0.17f * (float)r;
}

static float rounded(float x)
{
    return format == DT_BF16 ? half_from_bf16(half_to_bf16(x)) : x;
}

/* Of both signs and several sizes; some that only special cases get right. */
static float value(int r, int64_t i)
{
    uint32_t hash = ((uint32_t)i * 2654435761u) ^ ((uint32_t)(r + 1) * 2246822519u);
    float x = (float)(int32_t)(hash * 3266489917u) / 65536.0f;

    switch (i) {
    case 5:  return r == 1 % n ? NAN : x;
    case 6:  return r == 0 ? INFINITY : x;
    case 7:  return r == 0 ? INFINITY : -INFINITY;
    case 8:  return rounded(3e38f);         /* two of them are too large */
    case 9:  return rounded(1e-39f);        /* subnormal */
    default: return rounded(i % 3 ? x : x / 1024);
    }
}

static float contribution(int r, int64_t i)
{
    return red == RED_PREMUL_SUM ? rounded(premul(r) * value(r, i)) : value(r, i);
}

/* ---- orders ---- */

static int chunk_of(int64_t i)
{
    int64_t each = ELEMS / n, more = ELEMS % n;

    return (int)(i < more * (each + 1) ? i / (each + 1) : more + (i - more * (each + 1)) / each);
}

/* Along the ring from the rank after the chunk's own to itself. */
static float on_ring(int64_t i)
{
    int c = chunk_of(i);
    float s = contribution((c + 1) % n, i);

    for (int k = 2; k <= n; k++)
        s = rounded(s + contribution((c + k) % n, i));
    return s;
}

/* The pairs of recursive halving: what rank r holds once levels above d are added. */
static float halved(int r, int d, int64_t i)
{
    return d == n ? contribution(r, i) : rounded(halved(r, 2 * d, i) + halved(r ^ d, 2 * d, i));
}

static float in_rank_order(int64_t i, bool once)
{
    float s = contribution(0, i);

    for (int r = 1; r < n; r++)
        s = once ? s + contribution(r, i) : rounded(s + contribution(r, i));
    return s;
}

static float expected(enum coll_algo algo, int64_t i)
{
    bool once = format == DT_BF16 && sum == SUM_ONCE;
    float s;

    if (once || algo == ALGO_DIRECT || algo == ALGO_SERVER)
        s = in_rank_order(i, once);
    else
        s = algo == ALGO_RING ? on_ring(i) : halved(chunk_of(i), 1, i);
    return rounded(red == RED_AVG ? s / (float)n : s);
}

/* ---- calls ---- */

static float load(const void *from, int64_t i)
{
    return format == DT_BF16 ? half_from_bf16(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

static void compare(enum coll_algo algo, const void *got, const char *how)
{
    for (int64_t i = 0; i < ELEMS; i++) {
        float x = load(got, i), want = expected(algo, i);

        if (memcmp(&x, &want, sizeof x) == 0 || (isnan(x) && isnan(want)))
            continue;
        if (complaints++ < 8)
            printf("rank %d of %d: %s %s %s %s, %s, element %d: %a, not %a\n", rank, n, how,
                   coll_algo_name(algo), dtype_name(format), red_name(red),
                   sum == SUM_ONCE ? "once" : "each hop", (int)i, (double)x, (double)want);
    }
}

static void try_algo(struct comm *c, enum coll_algo algo)
{
    static float in[ELEMS], out[ELEMS];
    struct coll_call a = { .op = COLL_ALL_REDUCE, .dtype = format, .red = red, .algo = algo, .sum = sum,
                           .premul = (double)premul(rank), .elems = ELEMS, .send = in, .recv = out };

    for (int64_t i = 0; i < ELEMS; i++) {
        if (format == DT_BF16)
            ((uint16_t *)(void *)in)[i] = half_to_bf16(value(rank, i));
        else
            in[i] = value(rank, i);
    }
    if (comm_call(c, &a) < 0)
        complaints++;
    compare(algo, out, "out of place");
    a.recv = in;
    if (comm_call(c, &a) < 0)
        complaints++;
    compare(algo, in, "in place");
}

int main(int argc, char **argv)
{
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);

    struct test_group g = group_world(PIECE, NULL);
    for (int i = 0; i < 2 * 2 * 3; i++) {
        format = i % 2 ? DT_BF16 : DT_FP32;
        sum = i / 2 % 2 ? SUM_ONCE : SUM_EACH_HOP;
        red = i / 4 == 0 ? RED_SUM : i / 4 == 1 ? RED_AVG : RED_PREMUL_SUM;
        for (int algo = 0; algo < ALGO_LIBRARY; algo++)
            if (algo != ALGO_HALVING || (n & (n - 1)) == 0)
                try_algo(g.comm, algo);
    }
    group_close(&g);
    MPI_Finalize();
    return complaints > 0;
}

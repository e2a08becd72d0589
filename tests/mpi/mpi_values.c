/* mpi_values.c -- every collective by every algorithm, in every format it may have.
 *
 *     mpirun -n 4 mpi_values [long|cut]
 *
 * `long`: pieces of full length.  `cut`: Open MPI's own calls alone, of at most 200 bytes each, as its
 * calls of more than 2^31 - 1 bytes are cut.
 *
 * What rank r contributes at index i is a known function of both, small enough that every sum
 * is exact in every format, so each rank computes by itself what must come out.  Also: memory
 * around the outputs and the inputs stay as they were, the bytes sent are comm_traffic()'s on
 * each rank, and over all ranks what the algorithm is known to move.  Complaints on stdout. */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/kernels/half.h"
#include "tests/mpi/group.h"

enum { GUARD = 64, PIECE = 1024, MAX_CASES = 20000 };

static int rank, n, complaints, ncases;
static int64_t sent[MAX_CASES], wanted[MAX_CASES];

struct buffer { char *block, *at, *before; int64_t bytes; };

static void complain(const struct coll_call *a, bool in_place, const char *what, int64_t i, double got,
                     double want)
{
    if (complaints++ < 8)
        printf("rank %d of %d: %s %s %s %s, %s, %" PRId64 " elements, root %d%s: %s %" PRId64
               ": %.9g, not %.9g\n",
               rank, n, coll_algo_name(a->algo), coll_name(a->op), dtype_name(a->dtype), red_name(a->red),
               a->sum == SUM_ONCE ? "once" : "each hop", a->elems, a->root, in_place ? ", in place" : "",
               what, i, got, want);
}

/* ---- numbers ---- */

/* -3 ... 9; as bytes not negative. */
static double value(const struct coll_call *a, int r, int64_t i)
{
    return (double)((r * 5 + i * 7 + i / 13) % 13) - (a->dtype == DT_UINT8 ? 0 : 3);
}

/* Ranks multiply by different factors. */
static double premul(int r)
{
    return 0.5 * (r + 1);
}

static bool reduces(enum coll_op op)
{
    return op == COLL_ALL_REDUCE || op == COLL_REDUCE_SCATTER || op == COLL_REDUCE;
}

static bool divides(enum coll_op op)
{
    return op == COLL_ALL_GATHER || op == COLL_REDUCE_SCATTER || op == COLL_SCATTER || op == COLL_GATHER ||
           op == COLL_ALL_TO_ALL;
}

static void store(enum dtype t, void *base, int64_t i, double v)
{
    switch (t) {
    case DT_FP32:  ((float *)base)[i] = (float)v; break;
    case DT_FP64:  ((double *)base)[i] = v; break;
    case DT_BF16:  ((uint16_t *)base)[i] = half_to_bf16((float)v); break;
    case DT_FP16:  ((uint16_t *)base)[i] = half_to_fp16((float)v); break;
    case DT_INT32: ((int32_t *)base)[i] = (int32_t)v; break;
    case DT_INT64: ((int64_t *)base)[i] = (int64_t)v; break;
    case DT_UINT8: ((uint8_t *)base)[i] = (uint8_t)v; break;
    case DT_INT8:  ((int8_t *)base)[i] = (int8_t)v; break;
    case DT_FP8:   case NDTYPE:   abort();
    }
}

static double load(enum dtype t, const void *base, int64_t i)
{
    switch (t) {
    case DT_FP32:  return (double)((const float *)base)[i];
    case DT_FP64:  return ((const double *)base)[i];
    case DT_BF16:  return (double)half_from_bf16(((const uint16_t *)base)[i]);
    case DT_FP16:  return (double)half_from_fp16(((const uint16_t *)base)[i]);
    case DT_INT32: return ((const int32_t *)base)[i];
    case DT_INT64: return (double)((const int64_t *)base)[i];
    case DT_UINT8: return ((const uint8_t *)base)[i];
    case DT_INT8:  return ((const int8_t *)base)[i];
    case DT_FP8:   case NDTYPE:   break;
    }
    abort();
}

/* As the format can hold it. */
static double rounded(enum dtype t, double v)
{
    double box;

    store(t, &box, 0, v);
    return load(t, &box, 0);
}

static double reduced(const struct coll_call *a, int64_t i)
{
    double sum = 0, max = -1e9, min = 1e9;

    for (int r = 0; r < n; r++) {
        double v = value(a, r, i);

        max = v > max ? v : max;
        min = v < min ? v : min;
        sum += a->red == RED_PREMUL_SUM ? v * premul(r) : v;
    }
    if (a->red == RED_MAX || a->red == RED_MIN)
        return a->red == RED_MAX ? max : min;
    return rounded(a->dtype, a->red == RED_AVG ? sum / n : sum);
}

/* ---- what goes in and what comes out ---- */

static int64_t inputs(const struct coll_call *a)
{
    bool root = rank == a->root;

    switch (a->op) {
    case COLL_ALL_GATHER:
    case COLL_GATHER:    return a->elems / n;
    case COLL_BROADCAST:
    case COLL_SCATTER:   return root ? a->elems : 0;
    default:             return a->elems;
    }
}

static int64_t outputs(const struct coll_call *a)
{
    bool root = rank == a->root;

    switch (a->op) {
    case COLL_REDUCE_SCATTER:
    case COLL_SCATTER:   return a->elems / n;
    case COLL_REDUCE:
    case COLL_GATHER:    return root ? a->elems : 0;
    default:             return a->elems;
    }
}

/* Input i of this rank; of a broadcast or a scatter the root's. */
static double input(const struct coll_call *a, int64_t i)
{
    return value(a, rank, a->op == COLL_ALL_GATHER || a->op == COLL_GATHER ? i + rank * (a->elems / n) : i);
}

static double output(const struct coll_call *a, int64_t i)
{
    int64_t each = a->elems / n;

    switch (a->op) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE:         return reduced(a, i);
    case COLL_REDUCE_SCATTER: return reduced(a, i + rank * each);
    case COLL_BROADCAST:      return value(a, a->root, i);
    case COLL_ALL_TO_ALL:     return value(a, (int)(i / each), i % each + rank * each);
    case COLL_SCATTER:        return value(a, a->root, i + rank * each);
    default:                  return value(a, (int)(i / each), i);
    }
}

/* Where the smaller of the two buffers lies in the larger one when in place, in elements. */
static int64_t offset(const struct coll_call *a)
{
    return divides(a->op) ? rank * (a->elems / n) : 0;
}

static struct buffer buffer_new(int64_t bytes)
{
    struct buffer b = { .block = malloc((size_t)(bytes + 2 * GUARD)), .bytes = bytes };

    b.before = malloc((size_t)bytes + 1);
    if (!b.block || !b.before)
        abort();
    b.at = b.block + GUARD;
    memset(b.block, 0xa5, (size_t)(bytes + 2 * GUARD));
    return b;
}

static void buffer_free(struct buffer *b)
{
    free(b->block);
    free(b->before);
}

static void check_guards(const struct coll_call *a, bool in_place, const struct buffer *b)
{
    for (int64_t i = 0; i < GUARD; i++)
        if ((uint8_t)b->block[i] != 0xa5 || (uint8_t)b->at[b->bytes + i] != 0xa5)
            complain(a, in_place, "guard", i, 0, 0xa5);
}

/* What was not to be written is what it was: all of the input, but for the output in it. */
static void check_input(const struct coll_call *a, bool in_place, const struct buffer *b, int64_t size)
{
    int64_t from = in_place ? offset(a) * size : 0, to = in_place ? from + outputs(a) * size : 0;

    for (int64_t i = 0; i < b->bytes; i++)
        if ((i < from || i >= to) && b->at[i] != b->before[i])
            complain(a, in_place, "input byte", i, b->at[i], b->before[i]);
}

/* Of long outputs only some, for time; what goes wrong there goes wrong for whole pieces. */
static void check_output(const struct coll_call *a, bool in_place)
{
    int64_t step = outputs(a) > 100000 ? 37 : 1;

    for (int64_t i = 0; i < outputs(a); i += step) {
        double got = load(a->dtype, a->recv, i), want = output(a, i);

        if (got != want)
            complain(a, in_place, "output", i, got, want);
    }
}

/* ---- bytes ---- */

static int64_t log2_of(int64_t k)
{
    int64_t l = 0;

    while (k >>= 1)
        l++;
    return l;
}

/* Sent by all ranks together, by counting what each algorithm must move. */
static int64_t moved(const struct coll_call *a)
{
    int64_t full = a->elems * dtype_bytes(a->dtype), part = full / n, others = n - 1;
    bool once = a->sum == SUM_ONCE && a->dtype == DT_BF16 && reduces(a->op);
    enum coll_algo algo = once && a->algo != ALGO_SERVER ? ALGO_DIRECT : a->algo;

    switch (a->op) {
    case COLL_ALL_REDUCE:     return 2 * others * full;
    case COLL_ALL_GATHER:
    case COLL_REDUCE_SCATTER: return algo == ALGO_SERVER ? others * (full + part) : others * full;
    case COLL_BROADCAST:
    case COLL_REDUCE:
    case COLL_ALL_TO_ALL:     return others * full;
    case COLL_SCATTER:
    case COLL_GATHER:         return algo == ALGO_HALVING ? log2_of(n) * (full / 2) : others * part;
    default:                  return 0;
    }
}

static void check_bytes(struct comm *c, const struct coll_call *a, bool in_place, int64_t before, int64_t got)
{
    struct comm_traffic t = comm_traffic(a, rank, n);

    if (a->algo == ALGO_LIBRARY && t.sent < 0)
        t = (struct comm_traffic){ 0, 0 };
    else if (ncases < MAX_CASES) {
        sent[ncases] = c->sent - before;
        wanted[ncases++] = moved(a);
    }
    if (c->sent - before != t.sent)
        complain(a, in_place, "bytes sent by rank", rank, (double)(c->sent - before), (double)t.sent);
    if (c->received - got != t.received)
        complain(a, in_place, "bytes received by rank", rank, (double)(c->received - got),
                 (double)t.received);
}

/* ---- one call ---- */

static void try_call(struct comm *c, struct coll_call a, bool in_place)
{
    int64_t size = dtype_bytes(a.dtype), in = inputs(&a) * size, out = outputs(&a) * size;
    int64_t before = c->sent, got = c->received, larger = in > out ? in : out;
    struct buffer send = buffer_new(in_place ? larger : in), recv = buffer_new(in_place ? 0 : out);
    char *inside = send.at + offset(&a) * size;

    a.premul = premul(rank);
    a.send = in == 0 ? NULL : in_place && in < out ? inside : send.at;
    a.recv = out == 0 ? NULL : !in_place ? recv.at : out < in ? inside : send.at;
    for (int64_t i = 0; i < inputs(&a); i++)
        store(a.dtype, (void *)(uintptr_t)a.send, i, input(&a, i));
    memcpy(send.before, send.at, (size_t)send.bytes);
    if (comm_call(c, &a) < 0)
        complain(&a, in_place, "status", 0, -1, 0);
    check_output(&a, in_place);
    if (!in_place || in > out)
        check_input(&a, in_place, &send, size);
    check_guards(&a, in_place, &send);
    check_guards(&a, in_place, &recv);
    check_bytes(c, &a, in_place, before, got);
    buffer_free(&send);
    buffer_free(&recv);
}

static void sizes(struct comm *c, struct coll_call a, int64_t piece)
{
    int64_t whole = piece / dtype_bytes(a.dtype);
    const int64_t elems[] = { 0, 1, n - 1, n, n + 1, 1000, n * 3 * whole + 1 };

    for (size_t i = 0; i < sizeof elems / sizeof *elems; i++) {
        a.elems = divides(a.op) ? round_up(elems[i], n) : elems[i];
        a.root = (a.root + 1) % n;
        try_call(c, a, false);
        if (a.op != COLL_ALL_TO_ALL)
            try_call(c, a, true);
    }
}

static void reductions(struct comm *c, struct coll_call a)
{
    bool whole = a.dtype != DT_FP32 && a.dtype != DT_BF16 && a.dtype != DT_FP16 && a.dtype != DT_FP64;

    for (int red = RED_SUM; red <= RED_MIN; red++) {
        a.red = red;
        if (whole ? red == RED_AVG || red == RED_PREMUL_SUM : red == RED_MIN)
            continue;
        a.sum = SUM_EACH_HOP;
        sizes(c, a, PIECE);
        a.sum = SUM_ONCE;
        if (a.dtype == DT_BF16 && red != RED_MAX)
            sizes(c, a, PIECE);
    }
}

static void all_calls(struct comm *c, enum coll_algo algo)
{
    static const enum dtype formats[] = { DT_FP32, DT_BF16, DT_FP16, DT_FP64, DT_INT32, DT_INT64, DT_UINT8 };

    for (int op = 0; op <= COLL_ALL_TO_ALL; op++)
        for (size_t t = 0; t < sizeof formats / sizeof *formats; t++) {
            struct coll_call a = { .op = op, .algo = algo, .dtype = formats[t], .root = (int)t % n };

            if (op == COLL_ALL_TO_ALL && algo == ALGO_SERVER)
                continue;                       /* it has none */
            if (op == COLL_BARRIER)
                try_call(c, a, false);
            else if (reduces(op))
                reductions(c, a);
            else if (t < 2 || formats[t] == DT_UINT8)
                sizes(c, a, PIECE);
        }
}

/* Pieces as long as they may be, more than one each. */
static void long_calls(struct comm *c, enum coll_algo algo)
{
    for (int op = 0; op <= COLL_ALL_TO_ALL; op++) {
        struct coll_call a = { .op = op, .algo = algo, .dtype = DT_FP64, .red = RED_SUM, .root = n - 1 };

        a.elems = 3 * (COMM_PIECE / 8) + 1;
        if (divides(op))
            a.elems = round_up(a.elems, n);
        if (op != COLL_BARRIER && (op != COLL_ALL_TO_ALL || algo != ALGO_SERVER))
            try_call(c, a, false);
    }
}

/* Whether all ranks together sent what they must have. */
static void check_totals(void)
{
    static int64_t total[MAX_CASES];

    MPI_Allreduce(sent, total, ncases, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < ncases && rank == 0; i++)
        if (total[i] != wanted[i] && complaints++ < 8)
            printf("%d ranks, call %d: all sent %" PRId64 " bytes, not %" PRId64 "\n", n, i, total[i],
                   wanted[i]);
}

int main(int argc, char **argv)
{
    int provided;
    bool with_long = argc > 1 && strcmp(argv[1], "long") == 0, cut = argc > 1 && strcmp(argv[1], "cut") == 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);

    struct comm_args how = { .name = "world", .piece = with_long ? 0 : PIECE, .library_most = cut ? 200 : 0 };
    struct test_group g = group_as(how, 0, 1, n);

    for (int algo = cut ? ALGO_LIBRARY : 0; algo < NCOLL_ALGO; algo++)
        if (algo != ALGO_HALVING || (n & (n - 1)) == 0)
            (with_long ? long_calls : all_calls)(g.comm, algo);
    check_totals();
    group_close(&g);
    MPI_Finalize();
    return complaints > 0;
}

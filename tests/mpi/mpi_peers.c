/* mpi_peers.c -- one call of each collective by one algorithm, for witnesses outside to count.
 *
 *     mpirun -n 4 mpi_peers ring
 *
 * Rank 0 prints what every rank must send to every other, "FROM TO BYTES", by the shape of the
 * algorithm: who talks to whom, and how much of the buffer.  For Open MPI's own calls that is
 * not known; it prints "library BYTES", the least that any algorithm must move in all.
 * With `none` it opens the group and calls nothing: what that alone sends. */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mpi/group.h"

enum { PART = 12000, ROOT = 1 };        /* elements of a rank's part; more than a short message */

static int n;

/* Whether a hands down to b in the binomial tree: their numbers, counted from the root by
 * exclusive or, differ in one bit, and that one is below all of a's. */
static bool parent(int a, int b)
{
    int v = a ^ ROOT, d = a ^ b;

    return (d & (d - 1)) == 0 && (v & (2 * d - 1)) == 0;
}

static int64_t halving(enum coll_op op, int a, int b, int64_t part)
{
    int d = a ^ b;
    bool pair = (d & (d - 1)) == 0;

    switch (op) {
    case COLL_ALL_REDUCE:     return pair ? 2 * d * part : 0;
    case COLL_ALL_GATHER:
    case COLL_REDUCE_SCATTER: return pair ? d * part : 0;
    case COLL_BROADCAST:      return parent(a, b) ? n * part : 0;
    case COLL_REDUCE:         return parent(b, a) ? n * part : 0;
    case COLL_SCATTER:        return parent(a, b) ? d * part : 0;
    case COLL_GATHER:         return parent(b, a) ? d * part : 0;
    default:                  return 0;
    }
}

/* With a root there is one star, whatever its name. */
static int64_t star(enum coll_op op, int a, int b, int64_t part)
{
    switch (op) {
    case COLL_BROADCAST: return a == ROOT ? n * part : 0;
    case COLL_REDUCE:    return b == ROOT ? n * part : 0;
    case COLL_SCATTER:   return a == ROOT ? part : 0;
    case COLL_GATHER:    return b == ROOT ? part : 0;
    default:             return 0;
    }
}

static int64_t server(enum coll_op op, int a, int b, int64_t part)
{
    switch (op) {
    case COLL_ALL_REDUCE:     return a == ROOT || b == ROOT ? n * part : 0;
    case COLL_ALL_GATHER:     return a == ROOT ? n * part : b == ROOT ? part : 0;
    case COLL_REDUCE_SCATTER: return a == ROOT ? part : b == ROOT ? n * part : 0;
    default:                  return star(op, a, b, part);
    }
}

static int64_t direct(enum coll_op op, int a, int b, int64_t part)
{
    switch (op) {
    case COLL_ALL_REDUCE:     return 2 * part;
    case COLL_ALL_GATHER:
    case COLL_REDUCE_SCATTER: return part;
    default:                  return star(op, a, b, part);
    }
}

static int64_t ring(enum coll_op op, int a, int b, int64_t part)
{
    bool next = b == (a + 1) % n;

    switch (op) {
    case COLL_ALL_REDUCE:     return next ? 2 * (n - 1) * part : 0;
    case COLL_ALL_GATHER:
    case COLL_REDUCE_SCATTER: return next ? (n - 1) * part : 0;
    case COLL_BROADCAST:      return next && b != ROOT ? n * part : 0;
    case COLL_REDUCE:         return next && a != ROOT ? n * part : 0;
    default:                  return star(op, a, b, part);
    }
}

static int64_t from_to(enum coll_algo algo, enum coll_op op, int a, int b, int64_t part)
{
    if (op == COLL_ALL_TO_ALL)
        return algo == ALGO_SERVER ? 0 : part;
    switch (algo) {
    case ALGO_RING:    return ring(op, a, b, part);
    case ALGO_HALVING: return halving(op, a, b, part);
    case ALGO_DIRECT:  return direct(op, a, b, part);
    case ALGO_SERVER:  return server(op, a, b, part);
    default:           return 0;
    }
}

/* Each op with parts of its own length, so that one cannot stand for another. */
static int64_t part_of(int op)
{
    return PART + 1000 * op;
}

static void print_expected(enum coll_algo algo)
{
    int64_t least = 0;

    /* Open MPI's monitoring has its all-to-all among the messages outside of collectives. */
    for (int op = 0; op < COLL_BARRIER; op++)
        least += (n - 1) * part_of(op) * 4
                 * (op == COLL_ALL_REDUCE ? 2 : op == COLL_SCATTER || op == COLL_GATHER ? 1 : n);
    if (algo == ALGO_LIBRARY)
        printf("library %" PRId64 "\n", least);
    for (int a = 0; a < n && algo != ALGO_LIBRARY; a++)
        for (int b = 0; b < n; b++) {
            int64_t bytes = 0;

            for (int op = 0; op <= COLL_ALL_TO_ALL; op++)
                bytes += a == b ? 0 : from_to(algo, op, a, b, 4 * part_of(op));
            if (bytes > 0)
                printf("%d %d %" PRId64 "\n", a, b, bytes);
        }
}

static enum coll_algo algo_named(const char *name)
{
    for (int a = 0; a < NCOLL_ALGO; a++)
        if (strcmp(name, coll_algo_name(a)) == 0)
            return a;
    if (strcmp(name, "none") == 0)
        return NCOLL_ALGO;
    fprintf(stderr, "no algorithm is called %s\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    enum coll_algo algo = algo_named(argc > 1 ? argv[1] : "");
    int provided, failed = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &n);

    struct test_group g = group_world(0, NULL);
    float *send = calloc((size_t)(n * part_of(NCOLL)), sizeof *send);
    float *recv = calloc((size_t)(n * part_of(NCOLL)), sizeof *recv);
    if (!send || !recv)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int op = 0; op <= COLL_ALL_TO_ALL && algo < NCOLL_ALGO; op++)
        failed |= !(op == COLL_ALL_TO_ALL && algo == ALGO_SERVER) && comm_call(g.comm, &(struct coll_call){
            .op = op, .dtype = DT_FP32, .red = RED_SUM, .algo = algo, .elems = n * part_of(op), .root = ROOT,
            .send = send, .recv = recv });
    if (g.comm->rank == 0 && algo < NCOLL_ALGO)
        print_expected(algo);
    group_close(&g);
    free(send);
    free(recv);
    MPI_Finalize();
    return failed != 0;
}

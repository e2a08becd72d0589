/* mpi_messages.c -- sends and receives of one comm, side by side in threads.
 *
 *     mpirun -n 2 mpi_messages
 *
 * Both ranks begin with a send; messages are received in another order than they are sent in, by their tags;
 * many are under way at once, and beside them collectives of the same comm.  Lengths are from nothing to several
 * pieces.  Rank r's message of tag t has r * 1000 + t + i % 7 at index i.  Complaints on stdout. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "tests/mpi/group.h"

enum { PIECE = 1 << 16, MANY = 6, LONGEST = 5 * PIECE };

static int rank, complaints;
static struct test_group g;

struct message { enum coll_op op; int tag; int64_t elems; pthread_t thread; };

static void complain(const struct message *m, const char *what, double got, double want)
{
    if (complaints++ < 8)
        printf("rank %d, %s of tag %d, %lld elements: %s %g, not %g\n", rank, coll_name(m->op), m->tag,
               (long long)m->elems, what, got, want);
}

static float value(int from, int tag, int64_t i) { return (float)(from * 1000 + tag + i % 7); }

static void *carry(void *arg)
{
    struct message *m = arg;
    float *x = malloc(((size_t)m->elems + 1) * sizeof *x);
    bool sends = m->op == COLL_SEND;

    if (!x)
        MPI_Abort(MPI_COMM_WORLD, 1);
    x[m->elems] = -1;
    for (int64_t i = 0; i < m->elems; i++)
        x[i] = sends ? value(rank, m->tag, i) : -2;
    if (comm_call(g.comm, &(struct coll_call){ .op = m->op, .dtype = DT_FP32, .root = 1 - rank, .tag = m->tag,
                                               .elems = m->elems, .send = x, .recv = x }) < 0)
        complain(m, "status", -1, 0);
    for (int64_t i = 0; i < m->elems; i++)
        if (x[i] < value(sends ? rank : 1 - rank, m->tag, i) || x[i] > value(sends ? rank : 1 - rank, m->tag, i))
            complain(m, "value", (double)x[i], (double)value(sends ? rank : 1 - rank, m->tag, i));
    if (x[m->elems] > -1 || x[m->elems] < -1)
        complain(m, "what is behind it is", (double)x[m->elems], -1);
    free(x);
    return NULL;
}

static void begin(struct message *m, enum coll_op op, int tag, int64_t elems)
{
    *m = (struct message){ .op = op, .tag = tag, .elems = elems };
    if (pthread_create(&m->thread, NULL, carry, m))
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static int64_t length(int k) { return k == 0 ? 0 : k == 1 ? 1 : (int64_t)k * PIECE / 4 + k; }

/* A send is called before its receive; then each receives. */
static void both_send_first(void)
{
    for (int k = 0; k < MANY; k++) {
        struct message out, in;
        begin(&out, COLL_SEND, k, length(k));
        begin(&in, COLL_RECV, k, length(k));
        pthread_join(out.thread, NULL);
        pthread_join(in.thread, NULL);
    }
}

/* Rank 0 sends tags 0, 1, 2 ... at once; rank 1 receives them from the last to the first, one by one. */
static void tags_tell_messages_apart(void)
{
    struct message m[MANY];

    if (rank == 0)
        for (int k = 0; k < MANY; k++)
            begin(&m[k], COLL_SEND, k, length(k));
    for (int k = MANY; k-- > 0;) {
        if (rank == 1)
            begin(&m[k], COLL_RECV, k, length(k));
        pthread_join(m[k].thread, NULL);
    }
}

/* Both ways at once, and sums of the same comm meanwhile: 1 + 2 at each index. */
static void collectives_go_on_beside_them(void)
{
    static float in[LONGEST], out[LONGEST];
    struct message m[2 * MANY];

    for (int k = 0; k < MANY; k++) {
        begin(&m[2 * k], COLL_SEND, 7 * k, length(MANY - k));
        begin(&m[2 * k + 1], COLL_RECV, 7 * k, length(MANY - k));
    }
    for (int turn = 0; turn < 10; turn++) {
        struct message sum = { .op = COLL_ALL_REDUCE, .elems = LONGEST };
        for (int64_t i = 0; i < LONGEST; i++)
            in[i] = (float)(rank + 1);
        if (comm_call(g.comm, &(struct coll_call){ .op = COLL_ALL_REDUCE, .dtype = DT_FP32, .red = RED_SUM,
                                                   .elems = LONGEST, .send = in, .recv = out }) < 0)
            complain(&sum, "status", -1, 0);
        for (int64_t i = 0; i < LONGEST; i++)
            if (out[i] < 3 || out[i] > 3)
                complain(&sum, "sum", (double)out[i], 3);
    }
    for (int k = 0; k < 2 * MANY; k++)
        pthread_join(m[k].thread, NULL);
}

static void refused(const char *word, struct coll_call a)
{
    char why[200] = "";

    fail_capture(why, sizeof why);
    if (comm_call(g.comm, &a) != -1 || !strstr(why, word)) {
        complaints++;
        printf("rank %d: not refused, or not for \"%s\": %s\n", rank, word, why);
    }
    fail_capture(NULL, 0);
}

int main(int argc, char **argv)
{
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    g = group_world(PIECE, NULL);
    both_send_first();
    tags_tell_messages_apart();
    collectives_go_on_beside_them();
    refused("itself", (struct coll_call){ .op = COLL_SEND, .root = rank, .elems = 1 });
    refused("negative", (struct coll_call){ .op = COLL_SEND, .root = 1 - rank, .tag = -1, .elems = 1 });
    refused("server", (struct coll_call){ .op = COLL_ALL_TO_ALL, .algo = ALGO_SERVER });
    group_close(&g);
    MPI_Finalize();
    return complaints > 0;
}

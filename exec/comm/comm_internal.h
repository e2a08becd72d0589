/* comm_internal.h -- shared by the files of the collectives (comm_*.c).
 *
 * comm_mpi.c     opens a group, dispatches on the algorithm
 * comm_flow.c    messages in pieces, several on the way at once; waiting
 * comm_ring.c, comm_halving.c, comm_direct.c, comm_server.c     who sends what to whom, when
 * comm_exchange.c all-to-all
 * comm_message.c one rank to another
 * comm_library.c Open MPI's own calls
 * comm_reduce.c  the additions
 *
 * An algorithm is a *step function*.  The buffer is cut into pieces (piece i of every chunk
 * at once); for each piece the engine calls the function with step 0, 1, 2, ...: it deals
 * with what the step before has received and posts this step's messages.  The next step comes
 * when all of them are done, those sent as well.  Two pieces are on their way at any time, each
 * in a lane with an area of staging of its own (as long as a piece, cut in as many parts as a
 * step needs), so that one is added while another moves. */
#ifndef DPX_COMM_INTERNAL_H
#define DPX_COMM_INTERNAL_H

#include <inttypes.h>
#include <mpi.h>

#include "base/fail.h"
#include "exec/comm/comm.h"

/* Elements [at, at + elems) of the buffer. */
struct part { int64_t at, elems; };

bool comm_reduces(enum coll_op op);
bool comm_divides(enum coll_op op);
/* The algorithm that really runs: sums that are rounded once go direct. */
enum coll_algo comm_algo(const struct coll_call *a);
/* What goes to and comes from rank i in an all-to-all. */
struct coll_part comm_part(const struct coll_call *a, int n, int i);
/* Chunk c modulo n of n chunks, whose lengths differ by at most one. */
struct part comm_chunk(int64_t elems, int n, int c);

/* ---- additions: comm_reduce.c ---- */

/* dst[i] = a[i] + scale * b[i], or the maximum; scale is 1 but for RED_PREMUL_SUM, and the
 * product is rounded to the dtype.  Any of the three may be the same array. */
void reduce_add(enum dtype t, enum red_op red, void *dst, const void *a, const void *b, double scale,
                int64_t n);
void reduce_scale(enum dtype t, void *dst, const void *src, double scale, int64_t n);
void reduce_divide(enum dtype t, void *x, double by, int64_t n);
/* dst = x[0] + x[1] + ... in that order, divided by nx for RED_AVG.  dst may be any of them.
 * bf16 with SUM_ONCE is added and divided in fp32 and rounded at the end. */
void reduce_ranks(const struct coll_call *c, void *dst, const void *const *x, int nx, int64_t n);

/* ---- messages: comm_flow.c ---- */

enum { LANES = 2 };

struct mpi_comm {
    struct comm base;                   /* its `self` is this */
    MPI_Comm comm;
    const atomic_bool *stop;
    const atomic_int  *busy;            /* as comm_args has it */
    char   *staging;
    int64_t piece;                      /* bytes of a message at most */
    int64_t library_most;               /* bytes of one call of the library at most */
    MPI_Request  *requests;             /* LANES times 2 * nranks */
    const void  **x;                    /* nranks: operands of reduce_ranks() */
    int          *counts;               /* nranks: for the library */
    MPI_Op  add_bf16, max_bf16, add_fp16, max_fp16;         /* for the library, which lacks them */
    int     tags;                       /* the highest that MPI has */
    atomic_bool broken;                 /* a call failed half way: its requests are still open */
};

struct lane {
    int64_t piece;
    int     step, nrequests;
    bool    busy;
    char   *area;
    MPI_Request *requests;
};

struct flow;
/* false: the piece is done, nothing was posted. */
typedef bool step_fn(struct flow *f, struct lane *l);

struct flow {
    struct mpi_comm        *m;
    const struct coll_call *a;
    step_fn *step;
    int      rank, n, level;            /* level: which half, where an algorithm has several */
    int64_t  size;                      /* bytes of an element */
    int64_t  q, npieces;                /* elements of a piece */
    int      rc;                        /* -1 once anything failed */
    struct lane lane[LANES];
};

#define MPI_OK(call) comm_mpi_ok((call), #call)
int comm_mpi_ok(int status, const char *call);

/* Bytes of a lane's area. */
int64_t flow_area_bytes(int64_t piece, int nranks);
/* Runs `step` for all pieces of `elems` elements (the same on all ranks).  A piece is no longer
 * than a message may be, and than a part of the area when that is cut in `parts` (at most twice
 * the ranks; 1: the area is not used).  0, or -1 with the reason reported. */
int flow_run(struct flow *f, step_fn *step, int64_t elems, int parts);

/* The same for so many pieces of q elements: ranks that exchange no message in a piece need not agree on their
 * number. */
int flow_run_pieces(struct flow *f, step_fn *step, int64_t q, int64_t npieces);

/* The lane's piece of [p.at, p.at + p.elems); of chunk c. */
struct part flow_piece(const struct flow *f, const struct lane *l, struct part p);
struct part flow_chunk(const struct flow *f, const struct lane *l, int c);

/* Posted for this step.  Nothing is sent where there are no elements. */
void flow_send(struct flow *f, struct lane *l, const void *from, int64_t elems, int to);
void flow_recv(struct flow *f, struct lane *l, void *into, int64_t elems, int from);

/* Where the k-th part of the lane's area starts. */
void *flow_area(const struct flow *f, const struct lane *l, int k);
/* Element i of what the caller sends, of where it receives. */
const void *flow_mine(const struct flow *f, int64_t i);
void       *flow_into(const struct flow *f, int64_t i);
/* What this rank adds: its own elements, or `scratch` with them multiplied first. */
const void *flow_contribution(const struct flow *f, struct part p, void *scratch);
/* dst = received + this rank's own elements p. */
void flow_add(const struct flow *f, void *dst, const void *received, struct part p);
/* The sum is complete: divides it if it is an average. */
void flow_average(const struct flow *f, void *sum, int64_t elems);
void flow_copy(const struct flow *f, void *to, const void *from, int64_t elems);

/* Elements that a message may have. */
int64_t flow_longest(const struct flow *f);
/* Whether the caller wants calls to end. */
bool flow_stopped(const struct mpi_comm *m);
/* Waits for one request; 0, or -1 when stopped or failed. */
int flow_wait(struct mpi_comm *m, MPI_Request *r);

/* ---- algorithms ---- */

typedef int algorithm_fn(struct flow *f);
algorithm_fn ring_all_reduce, ring_all_gather, ring_reduce_scatter, ring_broadcast, ring_reduce;
algorithm_fn halving_all_reduce, halving_all_gather, halving_reduce_scatter, halving_broadcast,
             halving_reduce, halving_scatter, halving_gather;
algorithm_fn direct_all_reduce, direct_all_gather, direct_reduce_scatter;
/* Also direct's, and scatter and gather also the ring's: with a root there is one way. */
algorithm_fn server_all_reduce, server_all_gather, server_reduce_scatter, server_broadcast,
             server_reduce, server_scatter, server_gather;
algorithm_fn flow_barrier;
algorithm_fn exchange_in_rounds, exchange_in_pairs, exchange_at_once;
/* A send or a receive, whatever the algorithm; beside any other call. */
int message_call(struct mpi_comm *m, const struct coll_call *a);

int library_call(struct mpi_comm *m, const struct coll_call *a);
int library_open(struct mpi_comm *m);
void library_close(struct mpi_comm *m);

#endif

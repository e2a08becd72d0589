/* comm.h -- the collectives that dpxrun issues, whichever library carries them.
 *
 *     struct comm *c = comm_mpi_open(&(struct comm_args){ .ranks = r, .nranks = 4, ... });
 *     comm_call(c, &(struct coll_call){ .op = COLL_ALL_GATHER, .dtype = DT_FP32, ... });
 *     comm_close(c);
 *
 * A comm is one process group as one of its ranks sees it.  Collectives on one comm are made
 * in the same order by all its ranks, one at a time, from one thread; different comms
 * may be in use at once.  Sends and receives (COLL_SEND, COLL_RECV) may be made on it at any time from
 * any thread, each in a thread of its own while it lasts.  A backend is a file that ends in a table. */
#ifndef DPX_COMM_H
#define DPX_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "model/schedule/schedule.h"

struct comm;
struct device;
struct CUstream_st;                 /* cudaStream_t points to one */

enum coll_algo {
    ALGO_RING,              /* n-1 or 2(n-1) ring steps of 1/n: what schedules predict */
    ALGO_HALVING,           /* recursive halving and doubling; n a power of two, else refused */
    ALGO_DIRECT,            /* every rank to every rank, sums in rank order */
    ALGO_SERVER,            /* a star: through the root's own link, sums in rank order */
    ALGO_LIBRARY,           /* Open MPI's own call, a black box */
    NCOLL_ALGO
};
const char *coll_algo_name(enum coll_algo a);

/* How 16-bit sums are rounded: after each hop, as on a ring's wire, or once at the end
 * (the whole sum in fp32, by direct exchange whatever the algorithm, but for a server, which
 * sees every contribution as it is). */
enum coll_sum { SUM_EACH_HOP, SUM_ONCE };

/* elems counts the full buffer, as in struct op.  As NCCL: all_gather reads elems/n at send
 * and writes elems at recv (in place: send == recv + rank*elems/n elements); reduce_scatter
 * reads elems and writes elems/n (in place: recv == send + rank*elems/n); all_reduce, broadcast,
 * reduce may have send == recv; scatter reads elems on the root, writes elems/n; gather the
 * reverse.  all_to_all reads elems and writes the parts of the others, not in place: part i to and from
 * rank i, equal or as `parts` has them.  A send reads, a receive writes elems.  They match by the pair of
 * ranks and the tag, in order; neither returns before the other is called, and two of one pair and one
 * tag are not made at once.  all_gather, reduce_scatter, scatter, gather and an all_to_all of equal parts
 * need elems to divide by n; the other operations do not.  RED_AVG divides the sum by n,
 * RED_PREMUL_SUM multiplies each contribution by premul first (ranks may differ in it; the product is rounded to the dtype).  dtypes: FP32,
 * BF16, FP64, INT32, INT64, UINT8 (reductions of integers: RED_SUM, RED_MAX, RED_MIN, which is of these alone).
 *
 * Each sum is made along one path (but for the library's, which do not say) and then copied, so
 * that all ranks see the same bits, in every run.  An average is divided where its sum is
 * complete, before it is passed on.  With a root, direct and server are one star; scatter and
 * gather of a ring are that as well.  An all-to-all goes in rounds (ring, round i: to
 * rank + i, from rank - i; halving: with rank XOR i), or all at once (direct); a server has none. */
struct coll_call {
    enum coll_op   op;
    enum dtype     dtype;
    enum red_op    red;
    enum coll_algo algo;
    enum coll_sum  sum;
    double         premul;
    int64_t        elems;
    int            root;            /* rank in the group; of any op with ALGO_SERVER the server; of a send or
                                     * receive the other rank */
    int            tag;             /* of a send or receive, from 0 */
    const struct coll_part *parts;  /* of an all-to-all: nranks rows; NULL: equal */
    const void    *send;
    void          *recv;
    /* Of a comm of a device: send and recv are device memory, written by what is queued on `stream`
     * before, and the call queues there.  With `host` they are host memory, and the result is there
     * on return.  A host's comm looks at neither. */
    struct CUstream_st *stream;
    bool           host;
};

struct comm_ops {
    const char *name;
    int  (*call)(struct comm *c, const struct coll_call *a);
    void (*close)(struct comm *c);
};

struct comm {
    const struct comm_ops *ops;
    int rank, nranks;               /* in the group */
    void *self;                     /* the backend's */
    _Atomic int64_t sent, received; /* payload bytes since it was opened */
};

enum { COMM_PIECE = 4 << 20 };      /* messages are cut into pieces of at most so many bytes */

/* Payload bytes that one rank sends and receives in a call, exactly: what the mpi backend
 * then adds to `sent` and `received`.  -1 each for ALGO_LIBRARY, which does not say. */
struct comm_traffic { int64_t sent, received; };
struct comm_traffic comm_traffic(const struct coll_call *a, int rank, int nranks);

/* Bytes of staging that a comm of n ranks needs for any call: received pieces that are added,
 * fp32 sums of 16-bit data. */
int64_t comm_staging(int nranks);

struct comm_args {
    const int *ranks;               /* of the world, in group order; this process is one of them */
    int   nranks;
    void *staging;                  /* the caller's, comm_staging() bytes */
    const atomic_bool *stop;        /* a call that waits returns -1 soon after it is set; NULL: never */
    const atomic_int *busy;         /* how many threads of this rank compute (lanes.h): while none does, a call that waits polls, and
                                     * yields its core; NULL: unknown, so that it sleeps */
    const char *name;               /* the MPI communicator is called "dpx NAME"; NULL: "dpx" */
    int64_t piece;                  /* bytes, at most COMM_PIECE; 0: COMM_PIECE */
    int64_t library_most;           /* bytes of one of the library's calls; 0: 2^31 - 1 */
};

/* MPI must be initialised with MPI_THREAD_MULTIPLE; every rank of the world must call it for
 * the groups in the same order (MPI_Comm_create_group: only members need to).  NULL on error. */
struct comm *comm_mpi_open(const struct comm_args *a);
/* Moves nothing, counts what a ring would send: one process plays a rank of any world. */
struct comm *comm_null_open(int rank, int nranks);

/* Carries device buffers with a host's comm, which becomes its own: pieces are fetched, sent, stored
 * back.  Waits for the stream first; what it stores is queued when it returns.  `stop` as in comm_args.
 * NULL reported, and `inner` is closed. */
struct comm *comm_staged_open(struct comm *inner, struct device *d, const atomic_bool *stop);

/* 0, or -1 with the reason reported (when `stop` was set: by the code that set it).  After a call that
 * failed half way the comm refuses every other, and MPI may still write to its buffers and to
 * the staging until the process ends. */
int  comm_call(struct comm *c, const struct coll_call *a);
void comm_close(struct comm *c);    /* accepts NULL */

#endif

/* comm.c -- what all backends share: names, the checks of a call, and how many bytes each
 * rank sends, by counting. */
#include "exec/comm/comm_internal.h"

#include <assert.h>

const char *coll_algo_name(enum coll_algo a)
{
    static const char *const names[] = { "ring", "halving", "direct", "server", "library" };

    assert(a >= 0 && a < NCOLL_ALGO);
    return names[a];
}

bool comm_reduces(enum coll_op op)
{
    return op == COLL_ALL_REDUCE || op == COLL_REDUCE_SCATTER || op == COLL_REDUCE;
}

/* Each rank's part stands by itself, so that the buffer must divide. */
bool comm_divides(enum coll_op op)
{
    return op == COLL_ALL_GATHER || op == COLL_REDUCE_SCATTER || op == COLL_SCATTER || op == COLL_GATHER ||
           op == COLL_ALL_TO_ALL;
}

/* A server adds in fp32 as it is: it sees every contribution. */
enum coll_algo comm_algo(const struct coll_call *a)
{
    bool once = comm_reduces(a->op) && a->dtype == DT_BF16 && a->red != RED_MAX && a->sum == SUM_ONCE;

    return once && a->algo != ALGO_SERVER ? ALGO_DIRECT : a->algo;
}

struct part comm_chunk(int64_t elems, int n, int c)
{
    int64_t each = elems / n, more = elems % n;

    c = (c % n + n) % n;
    return (struct part){ c * each + (c < more ? c : more), each + (c < more) };
}

/* ---- bytes ---- */

/* Elements of the chunks of the 2^k ranks, all with the same higher bits, that `rank` is one of. */
static int64_t group_elems(int64_t elems, int n, int rank, int size)
{
    int first = rank & ~(size - 1);
    struct part last = comm_chunk(elems, n, first + size - 1);

    return last.at + last.elems - comm_chunk(elems, n, first).at;
}

/* Chunks differ by an element where elems does not divide, so ranks differ as well. */
static struct comm_traffic all_reduce_traffic(enum coll_algo algo, int64_t b, int r, int n, bool root)
{
    int64_t mine = comm_chunk(b, n, r).elems, both = 2 * b - mine, groups = 0;

    switch (algo) {
    case ALGO_RING:         /* all chunks but one, twice */
        return (struct comm_traffic){ both - comm_chunk(b, n, r + 1).elems,
                                      both - comm_chunk(b, n, r - 1).elems };
    case ALGO_HALVING:      /* the half not mine of what is left; back, what I have so far */
        for (int d = 1; d < n; d *= 2)
            groups += group_elems(b, n, r, d);
        return (struct comm_traffic){ b - mine + groups, b - mine + groups };
    case ALGO_DIRECT:       /* each other rank's chunk to it; mine to each other rank */
        return (struct comm_traffic){ b - mine + (n - 1) * mine, b - mine + (n - 1) * mine };
    case ALGO_SERVER:
        return root ? (struct comm_traffic){ (n - 1) * b, (n - 1) * b } : (struct comm_traffic){ b, b };
    case ALGO_LIBRARY:
    case NCOLL_ALGO:
        break;
    }
    return (struct comm_traffic){ -1, -1 };
}

/* From rank v to the 2^k ranks below it: v counts from the root by exclusive or. */
static int tree_size(int v, int n)
{
    return v ? v & -v : n;
}

static int log2_of(int n)
{
    int k = 0;

    while (n >>= 1)
        k++;
    return k;
}

static struct comm_traffic backwards(struct comm_traffic t)
{
    return (struct comm_traffic){ t.received, t.sent };
}

/* A broadcast of b elements. */
static struct comm_traffic broadcast_traffic(enum coll_algo algo, int64_t b, int r, int root, int n)
{
    int hop = (r - root + n) % n;
    struct comm_traffic t = { 0, hop ? b : 0 };

    if (algo == ALGO_RING)
        t.sent = hop < n - 1 ? b : 0;
    else if (algo == ALGO_HALVING)
        t.sent = log2_of(tree_size(r ^ root, n)) * b;
    else
        t.sent = hop ? 0 : (n - 1) * b;
    return t;
}

/* The chain of a ring runs one way only: root ... root-1 out, root+1 ... root back. */
static struct comm_traffic reduce_traffic(enum coll_algo algo, int64_t b, int r, int root, int n)
{
    int mirrored = algo == ALGO_RING ? (2 * root - r + n) % n : r;

    return backwards(broadcast_traffic(algo, b, mirrored, root, n));
}

/* A scatter of n parts of p elements; a gather is the same backwards. */
static struct comm_traffic scatter_traffic(enum coll_algo algo, int64_t p, int r, int root, int n)
{
    int size = tree_size(r ^ root, n);

    if (algo == ALGO_HALVING)
        return (struct comm_traffic){ (size - 1) * p, r == root ? 0 : size * p };
    return r == root ? (struct comm_traffic){ (n - 1) * p, 0 } : (struct comm_traffic){ 0, p };
}

/* An all-gather of n parts of p elements; a reduce-scatter is the same backwards. */
static struct comm_traffic all_gather_traffic(enum coll_algo algo, int64_t p, bool root, int n)
{
    if (algo != ALGO_SERVER)
        return (struct comm_traffic){ (n - 1) * p, (n - 1) * p };
    return root ? (struct comm_traffic){ (n - 1) * n * p, (n - 1) * p } : (struct comm_traffic){ p, n * p };
}

struct coll_part comm_part(const struct coll_call *a, int n, int i)
{
    return a->parts ? a->parts[i] : (struct coll_part){ a->elems / n, a->elems / n };
}

/* All parts but the rank's own. */
static struct comm_traffic all_to_all_traffic(const struct coll_call *a, int r, int n)
{
    struct comm_traffic t = { 0, 0 };

    for (int i = 0; i < n; i++)
        if (i != r) {
            t.sent += comm_part(a, n, i).sent;
            t.received += comm_part(a, n, i).received;
        }
    return t;
}

/* In elements. */
static struct comm_traffic traffic_elems(const struct coll_call *a, int r, int n)
{
    enum coll_algo algo = comm_algo(a);
    int64_t e = a->elems, p = e / n;

    switch (a->op) {
    case COLL_ALL_REDUCE:     return all_reduce_traffic(algo, e, r, n, r == a->root);
    case COLL_ALL_GATHER:     return all_gather_traffic(algo, p, r == a->root, n);
    case COLL_REDUCE_SCATTER: return backwards(all_gather_traffic(algo, p, r == a->root, n));
    case COLL_BROADCAST:      return broadcast_traffic(algo, e, r, a->root, n);
    case COLL_REDUCE:         return reduce_traffic(algo, e, r, a->root, n);
    case COLL_SCATTER:        return scatter_traffic(algo, p, r, a->root, n);
    case COLL_GATHER:         return backwards(scatter_traffic(algo, p, r, a->root, n));
    case COLL_ALL_TO_ALL:     return all_to_all_traffic(a, r, n);
    case COLL_SEND:           return (struct comm_traffic){ e, 0 };
    case COLL_RECV:           return (struct comm_traffic){ 0, e };
    case COLL_BARRIER:
    case NCOLL:               break;
    }
    return (struct comm_traffic){ 0, 0 };
}

struct comm_traffic comm_traffic(const struct coll_call *a, int rank, int nranks)
{
    struct comm_traffic t = { 0, 0 };
    int64_t size = dtype_bytes(a->dtype);

    if (nranks < 2 || a->op == COLL_BARRIER)
        return t;
    if (comm_algo(a) == ALGO_LIBRARY && !coll_is_message(a->op))
        return (struct comm_traffic){ -1, -1 };
    t = traffic_elems(a, rank, nranks);
    return (struct comm_traffic){ t.sent * size, t.received * size };
}

/* ---- a call ---- */

static int check_reduction(const struct coll_call *a)
{
    bool whole = a->dtype == DT_INT32 || a->dtype == DT_INT64 || a->dtype == DT_UINT8;

    if (a->red == RED_NONE)
        return fail("%s: no reduction is named", coll_name(a->op));
    if (!whole && a->red == RED_MIN)
        return fail("%s of %s: the minimum is taken of integers alone", coll_name(a->op), dtype_name(a->dtype));
    if (whole && a->red != RED_SUM && a->red != RED_MAX && a->red != RED_MIN)
        return fail("%s of %s: integers are added, or their maximum or minimum is taken, not %s",
                    coll_name(a->op), dtype_name(a->dtype), red_name(a->red));
    return 0;
}

static int check_message(const struct comm *c, const struct coll_call *a)
{
    if (a->root == c->rank)
        return fail("%s: rank %d of the group is this rank itself", coll_name(a->op), a->root);
    return a->tag < 0 ? fail("%s: the tag %d is negative", coll_name(a->op), a->tag) : 0;
}

static int check_parts(const struct comm *c, const struct coll_call *a)
{
    int64_t sum = 0;

    assert(a->send != a->recv || a->elems == 0);
    if (a->algo == ALGO_SERVER)
        return fail("all_to_all through a server: expected ring, halving, direct or library");
    for (int i = 0; a->parts && i < c->nranks; i++) {
        assert(a->parts[i].sent >= 0 && a->parts[i].received >= 0);
        sum += a->parts[i].sent;
    }
    assert(!a->parts || sum == a->elems);
    return 0;
}

static int check(const struct comm *c, const struct coll_call *a)
{
    assert(a->op >= 0 && a->op < NCOLL && a->algo >= 0 && a->algo < NCOLL_ALGO);
    if (a->op == COLL_BARRIER)
        return 0;
    assert(a->elems >= 0 && a->elems <= SIZE_LIMIT && a->root >= 0 && a->root < c->nranks);
    if (coll_is_message(a->op))
        return check_message(c, a);
    if (comm_divides(a->op) && !a->parts && a->elems % c->nranks != 0)
        return fail("%s of %" PRId64 " elements: %d ranks have equal parts, so they must divide",
                    coll_name(a->op), a->elems, c->nranks);
    if (a->algo == ALGO_HALVING && (c->nranks & (c->nranks - 1)) != 0)
        return fail("%s by halving: %d ranks are not a power of two", coll_name(a->op), c->nranks);
    if (a->op == COLL_ALL_TO_ALL)
        return check_parts(c, a);
    return comm_reduces(a->op) ? check_reduction(a) : 0;
}

int comm_call(struct comm *c, const struct coll_call *a)
{
    return check(c, a) < 0 ? -1 : c->ops->call(c, a);
}

void comm_close(struct comm *c)
{
    if (c)
        c->ops->close(c);
}

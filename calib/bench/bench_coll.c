/* bench_coll.c -- collectives by size, queued back to back as in training; of each call the rank
 * that took longest counts.  NCCL's are timed on the devices, from one call's end to the next one's.
 *
 * A message is timed by pairs, all at once as in a pipeline whose stages all have as many ranks: the first rank of a
 * pair sends, the second receives.  A send is synchronous, so that a call ends with both; a rank without a partner
 * does nothing meanwhile. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "calib/bench/bench.h"
#include "exec/device/lanes.h"

enum { MOST = 200, LEAST = 7, LEAST_SLOW = 3, SIZES = 64 };

static const int64_t SMALLEST = 1024, REGION_HOST = 64 << 20, REGION_CUDA = 512 << 20;

/* Full buffers: 2^k and 1.5 * 2^k, or every 2^step. */
static int sizes(const struct bench_item *item, int64_t out[SIZES])
{
    int n = 0;

    for (int64_t s = SMALLEST; s <= item->largest && n + 1 < SIZES; s <<= item->step ? item->step : 1) {
        out[n++] = s;
        if (!item->step && s * 3 / 2 <= item->largest)
            out[n++] = s * 3 / 2;
    }
    return n;
}

struct buffers { char *send, *recv; int64_t region; };

/* This rank of a pair: who sends, and to whom. */
static void as_message(const struct comm *comm, struct coll_call *c)
{
    c->op = comm->rank == 0 ? COLL_SEND : COLL_RECV;
    c->root = 1 - comm->rank;
}

/* Small calls move on through the buffers, as those of training do. */
static struct coll_call call_of(const struct bench_item *item, const struct comm *comm, const struct buffers *m, int64_t elems,
                                int i)
{
    int64_t span = round_up(elems * dtype_bytes(item->dtype), 4096), at = i % (m->region / span) * span;
    bool reduces = item->op == COLL_ALL_REDUCE || item->op == COLL_REDUCE_SCATTER || item->op == COLL_REDUCE;
    struct coll_call c = { .op = item->op, .dtype = item->dtype, .red = reduces ? RED_AVG : RED_NONE,
                           .algo = item->algo, .sum = SUM_EACH_HOP, .elems = elems, .send = m->send + at,
                           .recv = m->recv + at };

    if (item->op == COLL_ALL_REDUCE || item->op == COLL_BROADCAST || item->op == COLL_REDUCE)
        c.recv = m->send + at;
    if (coll_is_message(item->op))
        as_message(comm, &c);
    return c;
}

/* A call begins when the one before it has ended. */
static int repeat_queued(struct bench *b, struct comm *comm, const struct bench_item *item, const struct buffers *m,
                         int64_t elems, int n, double *s)
{
    struct bench_span span[MOST];

    if (bench_barrier() < 0)
        return -1;
    for (int i = 0; i < n; i++) {
        struct coll_call c = call_of(item, comm, m, elems, i);
        c.stream = device_cuda_stream(b->device, STREAM_GATHER);
        if (bench_begin(b, STREAM_GATHER) < 0 || comm_call(comm, &c) < 0 || bench_end(b, &span[i]) < 0)
            return -1;
    }
    if (bench_settle(b) < 0)
        return -1;
    bench_seconds(span, n, s);
    return 0;
}

/* Times between the ends of calls. */
static int repeat(struct bench *b, struct comm *comm, const struct bench_item *item, const struct buffers *m, int64_t elems, int n,
                  double *s)
{
    double from, to;

    memset(s, 0, (size_t)n * sizeof *s);
    if (comm->nranks == 1)              /* nobody to send to */
        return bench_barrier();
    if (device_async(b->device))
        return repeat_queued(b, comm, item, m, elems, n, s);
    if (bench_barrier() < 0)
        return -1;
    from = lanes_now();
    for (int i = 0; i < n; i++, from = to) {
        struct coll_call c = call_of(item, comm, m, elems, i);
        if (comm_call(comm, &c) < 0)
            return -1;
        to = lanes_now();
        s[i] = to - from;
    }
    return 0;
}

/* Ranks of a group, of which the last may be left over. */
static int group_ranks(const struct bench *b, const struct bench_item *item) { return item->group ? item->group : b->nranks; }

/* Ranks of a group that share a machine, machines being filled one after the other. */
static int64_t per_node(const struct bench *b, const struct bench_item *item)
{
    int ranks = group_ranks(b, item);
    int64_t n = item->strided ? b->per_node / (b->nranks / ranks) : b->per_node;

    return n < 1 ? 1 : n < ranks ? n : ranks;
}

/* A message has none: its two ranks are a pair. */
static const char *algorithm(const struct bench *b, const struct bench_item *item)
{
    return device_async(b->device) ? "nccl" : coll_is_message(item->op) ? SERIES_PAIR : coll_algo_name(item->algo);
}

/* *each: seconds of a call, as all ranks have it; 0 where it was known. */
static int one(struct bench *b, struct comm *comm, const struct bench_item *item, const struct buffers *m,
               int64_t bytes, double slice, double *each)
{
    int ranks = group_ranks(b, item);
    int64_t elems = round_up(bytes / dtype_bytes(item->dtype), ranks);
    struct series s = { .kind = SERIES_COLL, .name = coll_name(item->op), .dtype = item->dtype,
                        .algorithm = algorithm(b, item), .ranks = ranks,
                        .per_node = per_node(b, item), .threads = b->threads, .bytes = elems * dtype_bytes(item->dtype),
                        .started = bench_wall_clock() };
    double seconds[MOST], warm[3];
    int n, known = bench_known(b, &s);

    *each = 0;
    if (known)
        return known < 0 ? -1 : 0;
    if (repeat(b, comm, item, m, elems, 1, warm) < 0 || isnan(*each = bench_max(warm[0])))
        return -1;
    bool slow = *each > slice / LEAST;          /* then the first is as good as any: little of it is start-up */
    if (!slow && (repeat(b, comm, item, m, elems, 2, warm + 1) < 0 || isnan(*each = bench_max((warm[1] + warm[2]) / 2))))
        return -1;
    n = bench_reps(slice, *each, slow ? LEAST_SLOW : LEAST, MOST);
    if (repeat(b, comm, item, m, elems, n, seconds) < 0)
        return -1;
    return bench_keep(b, &s, seconds, n, true);
}

/* Time by size: what a byte takes and what a call takes, so that all get as many repetitions.  Over a slow
 * network the largest sizes would take all the time there is: from ENOUGH on, what does not fit is left
 * out; beyond the points the clock goes on along the last slope. */
static int sweep(struct bench *b, struct comm *comm, const struct bench_item *item, const struct buffers *m, double seconds)
{
    static const double CALL_BYTES = 256 << 10;         /* a call's latency, in bytes of that time */
    static const int64_t ENOUGH = 64 << 20;
    static const double LONGER = 1.5;                   /* items after this one have less then */
    int64_t size[SIZES];
    int n = sizes(item, size);
    double sum = 0, begun = lanes_now(), each = 0;

    for (int i = 0; i < n; i++)
        sum += CALL_BYTES + (double)size[i];
    for (int i = 0; i < n; i++) {
        double next = i > 0 ? each * (double)size[i] / (double)size[i - 1] : 0;
        double end = bench_max(lanes_now() - begun) + (1 + LEAST_SLOW) * next;
        if (isnan(end))
            return -1;
        if (size[i] > ENOUGH && end > LONGER * seconds)
            break;
        if (one(b, comm, item, m, size[i], seconds * (CALL_BYTES + (double)size[i]) / sum, &each) < 0)
            return -1;
    }
    return bench_flush(b);
}

/* This rank's group of the item; one that is left over is alone.  *staging is the caller's to free. */
static struct comm *open_group(struct bench *b, const struct bench_item *item, void **staging)
{
    int step = item->strided ? b->nranks / item->group : 1, n = 0;
    int first = item->strided ? b->rank % step : b->rank / item->group * item->group;
    int *ranks = malloc((size_t)item->group * sizeof *ranks);
    struct comm *c = NULL;

    if (!ranks)
        abort();
    while (n < item->group && first + n * step < b->nranks) {
        ranks[n] = first + n * step;
        n++;
    }
    c = bench_comm(b, ranks, n, "calibrated group", staging);
    free(ranks);
    return c;
}

int bench_coll(struct bench *b, const struct bench_item *item, double seconds)
{
    void *staging = NULL;
    struct comm *group = item->group ? open_group(b, item, &staging) : NULL, *comm = item->group ? group : b->comm;
    int64_t room = item->largest + 4096 * b->nranks, least = device_async(b->device) ? bench_operand(b, REGION_CUDA) : REGION_HOST;
    int64_t region = room > least ? room : least;
    struct buffers m = { bench_map(b, region), bench_map(b, region), region };
    int rc = -1;

    if (m.send && m.recv && comm && bench_fill_on(b, m.send, item->dtype, region / dtype_bytes(item->dtype), 1, 0) == 0)
        rc = sweep(b, comm, item, &m, seconds);
    comm_close(group);
    free(staging);
    bench_unmap(b, m.send, region);
    bench_unmap(b, m.recv, region);
    return rc;
}

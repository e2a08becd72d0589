/* test_nccl.c -- comm_nccl.c on the emulator: every collective against arithmetic, on ranks that are
 * processes; what is queued and what is waited for; ranks that are lost, and waits that end.
 *
 * Rank r's element i is (r + 1) * (i % 7 + 1): sums of four are small enough to be exact in bf16. */
#define _GNU_SOURCE
#include "tests/check.h"
#include "exec/comm/comm_internal.h"
#include "exec/cuda/comm_nccl.h"
#include "exec/device/lanes.h"
#include "exec/kernels/half.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- ranks ---- */

struct rank { int rank, n; struct device *d; struct comm *c; uint8_t id[COMM_NCCL_ID], more[2][COMM_NCCL_ID]; atomic_bool stop; };

/* In a process of its own, which ends with the status; cmocka's assertions belong to the parent's. */
typedef bool body(struct rank *r);

static void sleep_ms(long ms)
{
    struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&ts, NULL);
}

static struct comm *open_comm(struct rank *r, const uint8_t *id)
{
    return comm_nccl_open_as(&(struct comm_args){ .nranks = r->n, .stop = &r->stop, .name = "test" }, r->rank, r->d, id);
}

static _Noreturn void be_rank(struct rank *r, body *f)
{
    alarm(120);
    r->d = device_cuda_open(0);
    r->c = r->d ? open_comm(r, r->id) : NULL;
    bool good = r->c && f(r);
    comm_close(r->c);
    device_close(r->d);
    fflush(NULL);
    _exit(good ? 0 : 1);
}

/* Whether all of n ranks did well.  No thread of the emulator may be there before a fork. */
static bool on_ranks(int n, body *f)
{
    static struct rank r;
    int status, bad = 0;

    r = (struct rank){ .n = n };
    if (comm_nccl_id(r.id) < 0 || comm_nccl_id(r.more[0]) < 0 || comm_nccl_id(r.more[1]) < 0)
        return false;
    fflush(NULL);
    for (r.rank = 0; r.rank < n; r.rank++)
        if (fork() == 0)
            be_rank(&r, f);
    while (wait(&status) > 0)
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return bad == 0;
}

/* ---- arrays ---- */

static void put(void *x, enum dtype t, int64_t i, double v)
{
    switch (t) {
    case DT_FP32:  ((float *)x)[i] = (float)v; break;
    case DT_FP64:  ((double *)x)[i] = v; break;
    case DT_BF16:  ((uint16_t *)x)[i] = half_to_bf16((float)v); break;
    case DT_INT32: ((int32_t *)x)[i] = (int32_t)v; break;
    case DT_INT64: ((int64_t *)x)[i] = (int64_t)v; break;
    default:       ((uint8_t *)x)[i] = (uint8_t)v; break;
    }
}

static double get(const void *x, enum dtype t, int64_t i)
{
    switch (t) {
    case DT_FP32:  return (double)((const float *)x)[i];
    case DT_FP64:  return ((const double *)x)[i];
    case DT_BF16:  return (double)half_from_bf16(((const uint16_t *)x)[i]);
    case DT_INT32: return ((const int32_t *)x)[i];
    case DT_INT64: return (double)((const int64_t *)x)[i];
    default:       return ((const uint8_t *)x)[i];
    }
}

static double value(int rank, int64_t i) { return (rank + 1) * (double)(i % 7 + 1); }

/* ---- what a collective should give ---- */

static double premul_of(int rank) { return 0.5 * (rank + 1); }

static double reduced(const struct coll_call *a, int n, int64_t i)
{
    double sum = 0, most = 0, least = value(0, i);

    for (int r = 0; r < n; r++) {
        sum += value(r, i) * (a->red == RED_PREMUL_SUM ? premul_of(r) : 1);
        most = value(r, i) > most ? value(r, i) : most;
        least = value(r, i) < least ? value(r, i) : least;
    }
    return a->red == RED_MAX ? most : a->red == RED_MIN ? least : a->red == RED_AVG ? sum / n : sum;
}

/* Element i of what this rank receives. */
static double expected(const struct coll_call *a, const struct rank *r, int64_t i)
{
    int64_t each = a->elems / r->n;

    switch (a->op) {
    case COLL_ALL_GATHER:
    case COLL_GATHER:         return value((int)(i / each), i % each);
    case COLL_REDUCE_SCATTER: return reduced(a, r->n, r->rank * each + i);
    case COLL_SCATTER:        return value(a->root, r->rank * each + i);
    case COLL_BROADCAST:      return value(a->root, i);
    default:                  return reduced(a, r->n, i);
    }
}

/* Elements that this rank gives, gets. */
static int64_t gives(const struct coll_call *a, const struct rank *r)
{
    bool part = a->op == COLL_ALL_GATHER || a->op == COLL_GATHER;

    return part ? a->elems / r->n : a->elems;
}

static int64_t gets(const struct coll_call *a, const struct rank *r)
{
    bool part = a->op == COLL_REDUCE_SCATTER || a->op == COLL_SCATTER;
    bool idle = (a->op == COLL_REDUCE || a->op == COLL_GATHER) && r->rank != a->root;

    return idle ? 0 : part ? a->elems / r->n : a->elems;
}

static bool same(const struct coll_call *a, const struct rank *r, const void *got, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double want = expected(a, r, i), have = get(got, a->dtype, i);
        if (fabs(have - want) > 1e-6 * fabs(want)) {
            printf("%s of %lld %s on %d ranks, rank %d, element %lld: %g is not %g\n", coll_name(a->op),
                   (long long)a->elems, dtype_name(a->dtype), r->n, r->rank, (long long)i, have, want);
            return false;
        }
    }
    return true;
}

/* ---- one call ---- */

/* In place as comm.h has it; otherwise from one buffer into another. */
static bool call_and_compare(struct rank *r, struct coll_call a, bool in_place)
{
    int64_t e = dtype_bytes(a.dtype), all = a.elems * e, each = all / r->n;
    struct device *d = r->d;
    struct CUstream_st *s = device_cuda_stream(d, STREAM_GATHER);
    char *host = device_pin(d, 2 * all), *there = a.host ? host : device_map(d, 2 * all);
    char *send = there, *recv = in_place ? there : there + all;
    static int64_t mark;

    if (in_place && (a.op == COLL_ALL_GATHER || a.op == COLL_GATHER))
        send = there + r->rank * each;
    if (in_place && (a.op == COLL_REDUCE_SCATTER || (a.op == COLL_SCATTER && r->rank == a.root)))
        recv = there + r->rank * each;
    memset(host, 0, (size_t)(2 * all));
    for (int64_t i = 0; i < gives(&a, r); i++)
        put(host + (send - there), a.dtype, i, value(r->rank, i));
    a.send = send;
    a.recv = recv;
    a.premul = premul_of(r->rank);
    a.stream = s;
    bool good = (a.host || device_store(d, s, there, host, 2 * all) == 0) && comm_call(r->c, &a) == 0;
    if (good && !a.host)        /* onto another stream, by the marks, as the lanes do */
        good = device_mark(d, STREAM_GATHER, ++mark) == 0 && device_after(d, STREAM_D2H, STREAM_GATHER, mark) == 0 &&
               device_fetch(d, device_cuda_stream(d, STREAM_D2H), host, there, 2 * all) == 0 &&
               device_drain(d, device_cuda_stream(d, STREAM_D2H), NULL) == 0;
    good = good && same(&a, r, host + (recv - there), gets(&a, r));
    if (!a.host)
        device_unmap(d, there, 2 * all);
    device_unpin(d, host, 2 * all);
    return good;
}

static bool is_whole(enum dtype t) { return t == DT_INT32 || t == DT_INT64 || t == DT_UINT8; }

static bool takes(const struct coll_call *a)
{
    if (!comm_reduces(a->op))
        return a->red == RED_NONE;
    if (is_whole(a->dtype))
        return a->red == RED_SUM || a->red == RED_MAX || a->red == RED_MIN;
    return a->red != RED_NONE && a->red != RED_MIN;
}

/* Every operation, reduction and root that there is for a type. */
static bool all_ops(struct rank *r, enum dtype t, int64_t elems, bool host)
{
    static const enum red_op reds[] = { RED_NONE, RED_SUM, RED_AVG, RED_MAX, RED_PREMUL_SUM, RED_MIN };

    for (int op = 0; op <= COLL_BARRIER; op++)
        for (int k = 0; k < 6; k++)
            for (int root = 0; root < r->n; root++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    struct coll_call a = { .op = (enum coll_op)op, .dtype = t, .red = reds[k], .elems = elems * r->n,
                                           .root = root, .host = host };
                    bool rooted = op == COLL_BROADCAST || op == COLL_REDUCE || op == COLL_SCATTER || op == COLL_GATHER;
                    if (op == COLL_BARRIER || !takes(&a) || (root > 0 && !rooted))
                        continue;
                    if (!call_and_compare(r, a, in_place))
                        return false;
                }
    return true;
}

/* ---- values ---- */

static bool every_type(struct rank *r)
{
    static const enum dtype types[] = { DT_FP32, DT_BF16, DT_FP64, DT_INT32, DT_INT64, DT_UINT8 };

    for (int t = 0; t < 6; t++)
        if (!all_ops(r, types[t], 1, false) || !all_ops(r, types[t], 1001, false))
            return false;
    return true;
}

static void every_collective_gives_what_arithmetic_says(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        assert_true(on_ranks(n, every_type));
}

static bool large(struct rank *r) { return all_ops(r, DT_FP32, 400001, false); }

static void large_buffers_too(void **state)
{
    (void)state;
    assert_true(on_ranks(2, large));
}

/* 300001 doubles are several times the scratch. */
static bool from_the_host(struct rank *r)
{
    return all_ops(r, DT_FP32, 5, true) && all_ops(r, DT_BF16, 1001, true) && all_ops(r, DT_INT64, 300001, true);
}

static void host_memory_goes_through_the_scratch(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        assert_true(on_ranks(n, from_the_host));
}

static bool nothing_at_all(struct rank *r)
{
    struct coll_call a = { .op = COLL_ALL_REDUCE, .dtype = DT_FP32, .red = RED_SUM };

    return comm_call(r->c, &a) == 0 && !strcmp(r->c->ops->name, "nccl");
}

static void no_elements_are_no_call(void **state)
{
    (void)state;
    assert_true(on_ranks(2, nothing_at_all));
}

/* ---- all-to-all and messages: part (a, b) has 10 a + b + i % 10 at index i ---- */

static int64_t length(int a, int b) { return a == 1 && b == 0 ? 0 : 1000 * (a + 2 * b + 1); }

static void fill(float *x, int a, int b)
{
    for (int64_t i = 0; i < length(a, b); i++)
        x[i] = (float)(10 * a + b + i % 10);
}

static bool is_part(const float *x, int a, int b)
{
    for (int64_t i = 0; i < length(a, b); i++)
        if (x[i] < (float)(10 * a + b + i % 10) || x[i] > (float)(10 * a + b + i % 10)) {
            printf("part from %d to %d, element %lld: %g\n", a, b, (long long)i, (double)x[i]);
            return false;
        }
    return true;
}

enum { ROOM = 1 << 18 };                /* bytes: the parts of three ranks are fewer */

/* What is in `host` goes through the call on the device, and what comes is behind it. */
static bool call_between(struct rank *r, struct coll_call a, char *host, char *there)
{
    struct CUstream_st *s = device_cuda_stream(r->d, STREAM_GATHER);

    a.dtype = DT_FP32;
    a.stream = s;
    a.send = there;
    a.recv = there + ROOM;
    return device_store(r->d, s, there, host, 2 * ROOM) == 0 && comm_call(r->c, &a) == 0 &&
           device_fetch(r->d, s, host, there, 2 * ROOM) == 0 && device_drain(r->d, s, NULL) == 0;
}

static bool exchanges(struct rank *r)
{
    char *host = device_pin(r->d, 2 * ROOM), *there = device_map(r->d, 2 * ROOM);
    struct coll_part parts[3];
    struct coll_call a = { .op = COLL_ALL_TO_ALL, .parts = parts };
    float *x = (float *)host, *y = (float *)(host + ROOM);
    bool good;

    for (int i = 0; i < r->n; i++) {
        parts[i] = (struct coll_part){ length(r->rank, i), length(i, r->rank) };
        fill(x + a.elems, r->rank, i);
        a.elems += parts[i].sent;
    }
    good = call_between(r, a, host, there);
    for (int i = 0; i < r->n && good; y += parts[i++].received)
        good = is_part(y, i, r->rank);
    /* Round the ranks; the first sends before it receives, the others after. */
    for (int turn = 0; turn < 2 && good; turn++) {
        bool sends = (turn == 0) == (r->rank == 0);
        int peer = (r->rank + (sends ? 1 : r->n - 1)) % r->n;
        fill(x, r->rank, peer);
        good = call_between(r, (struct coll_call){ .op = sends ? COLL_SEND : COLL_RECV, .root = peer, .tag = 5,
                                                   .elems = sends ? length(r->rank, peer) : length(peer, r->rank) },
                            host, there) &&
               (sends || is_part((float *)(host + ROOM), peer, r->rank));
    }
    device_unmap(r->d, there, 2 * ROOM);
    device_unpin(r->d, host, 2 * ROOM);
    return good;
}

static void parts_and_messages_reach_whom_they_are_for(void **state)
{
    (void)state;
    assert_true(on_ranks(2, exchanges));
    assert_true(on_ranks(3, exchanges));
}

/* Both ranks begin with a send, each direction on a communicator and a stream of its own. */
static bool send_first(struct rank *r)
{
    struct comm *c = comm_nccl_pairs(r->c), *pair;
    char *host = device_pin(r->d, 2 * ROOM), *there = device_map(r->d, 2 * ROOM);
    struct CUstream_st *out = device_cuda_stream(r->d, STREAM_GATHER), *in = device_cuda_stream(r->d, STREAM_REDUCE);
    int peer = 1 - r->rank;
    bool good = true;

    r->c = c;                           /* closed with what it owns */
    for (int from = 0; from < 2; from++) {
        struct comm_args a = { .nranks = 2, .stop = &r->stop, .name = "pair" };
        pair = comm_nccl_open_as(&a, r->rank == from ? 0 : 1, r->d, r->more[from]);
        good = good && pair;
        comm_nccl_pair(c, r->rank == from, peer, pair);
    }
    fill((float *)host, 0, 2);          /* of another rank's numbers where it is rank 1's */
    if (r->rank == 1)
        fill((float *)host, 2, 1);
    int64_t mine = r->rank ? length(2, 1) : length(0, 2), its = r->rank ? length(0, 2) : length(2, 1);
    struct coll_call a = { .op = COLL_SEND, .dtype = DT_FP32, .root = peer, .elems = mine, .send = there, .stream = out };
    struct coll_call b = { .op = COLL_RECV, .dtype = DT_FP32, .root = peer, .elems = its, .recv = there + ROOM,
                           .stream = in };
    good = good && device_store(r->d, out, there, host, ROOM) == 0 && comm_call(c, &a) == 0 && comm_call(c, &b) == 0 &&
           device_fetch(r->d, in, host + ROOM, there + ROOM, ROOM) == 0 && device_drain(r->d, in, NULL) == 0 &&
           device_drain(r->d, out, NULL) == 0;
    good = good && is_part((float *)(host + ROOM), r->rank ? 0 : 2, r->rank ? 2 : 1);
    device_unmap(r->d, there, 2 * ROOM);
    device_unpin(r->d, host, 2 * ROOM);
    return good;
}

static void two_ranks_may_both_send_first(void **state)
{
    (void)state;
    assert_true(on_ranks(2, send_first));
}

/* ---- order ---- */

/* How far ranks have come, for all of them to see; all are 0 when they begin. */
static struct { atomic_bool returned, came; } *progress;

static void begin_anew(void)
{
    if (!progress)
        progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(progress != MAP_FAILED);
    memset(progress, 0, sizeof *progress);
}

/* Until it is set; not for ever, so that what waits for this rank ends, and is seen to have waited. */
static void await_flag(const atomic_bool *flag)
{
    for (int i = 0; i < 2000 && !atomic_load(flag); i++)
        sleep_ms(10);
}

/* Rank 1 comes when rank 0's call has returned, which does not wait for it; a barrier that the host takes part in does. */
static bool late(struct rank *r)
{
    struct coll_call queued = { .op = COLL_BARRIER, .stream = device_cuda_stream(r->d, STREAM_GATHER) }, waited = queued;

    waited.host = true;
    if (r->rank == 1) {
        await_flag(&progress->returned);
        sleep_ms(50);
        atomic_store(&progress->came, true);
    }
    if (comm_call(r->c, &queued) < 0)
        return false;
    bool early = !atomic_load(&progress->came);
    if (r->rank == 0)
        atomic_store(&progress->returned, true);
    if (comm_call(r->c, &waited) < 0)
        return false;
    return r->rank != 0 || (early && atomic_load(&progress->came));
}

static void calls_queue_and_barriers_of_the_host_wait(void **state)
{
    (void)state;
    begin_anew();
    assert_true(on_ranks(2, late));
}

/* Two groups at once, from two threads, in opposite orders of arrival. */
struct side { struct rank *r; struct comm *c; bool late, good; };

static void *one_side(void *arg)
{
    struct side *s = arg;
    struct coll_call a = { .op = COLL_BARRIER, .host = true };

    a.stream = device_cuda_stream(s->r->d, s->late ? STREAM_REDUCE : STREAM_GATHER);
    if (s->late)
        sleep_ms(50);
    s->good = true;
    for (int i = 0; i < 20 && s->good; i++)
        s->good = comm_call(s->c, &a) == 0;
    return NULL;
}

/* The second id comes over the first communicator. */
static bool side_by_side(struct rank *r)
{
    uint8_t id[COMM_NCCL_ID] = { 0 };
    struct coll_call tell = { .op = COLL_BROADCAST, .dtype = DT_UINT8, .elems = COMM_NCCL_ID, .host = true };
    pthread_t thread;

    if (r->rank == 0 && comm_nccl_id(id) < 0)
        return false;
    tell.send = tell.recv = id;
    struct comm *second = comm_call(r->c, &tell) == 0 ? open_comm(r, id) : NULL;
    if (!second)
        return false;
    struct side a = { r, r->c, r->rank == 0, false }, b = { r, second, r->rank != 0, false };
    pthread_create(&thread, NULL, one_side, &a);
    one_side(&b);
    pthread_join(thread, NULL);
    comm_close(second);
    return a.good && b.good;
}

static void groups_run_side_by_side(void **state)
{
    (void)state;
    assert_true(on_ranks(3, side_by_side));
}

/* ---- ends ---- */

/* Waits for a mark behind a collective that the others never join. */
static bool wait_for_nobody(struct rank *r, char *why, size_t size)
{
    struct coll_call a = { .op = COLL_BARRIER, .stream = device_cuda_stream(r->d, STREAM_GATHER) };

    fail_capture(why, size);
    int rc = comm_call(r->c, &a) < 0 || device_mark(r->d, STREAM_GATHER, 1) < 0 ? -1
           : device_wait(r->d, STREAM_GATHER, 1, &r->stop);
    fail_capture(NULL, 0);
    return rc == 0;
}

static bool second_is_lost(struct rank *r)
{
    char why[400] = "", again[400] = "";

    if (r->rank == 1) {
        sleep_ms(100);
        _exit(0);
    }
    if (wait_for_nobody(r, why, sizeof why) || !strstr(why, "remote process")) {
        printf("\"%s\"\n", why);
        return false;
    }
    return !wait_for_nobody(r, again, sizeof again) && strstr(again, "remote process");
}

static void a_rank_that_is_lost_ends_the_others_waits(void **state)
{
    (void)state;
    assert_true(on_ranks(3, second_is_lost));
}

static void *set_soon(void *flag)
{
    sleep_ms(100);
    atomic_store((atomic_bool *)flag, true);
    return NULL;
}

/* Rank 1 never comes to it, and is gone only when all is over. */
static bool stopped(struct rank *r)
{
    struct coll_call a = { .op = COLL_BARRIER, .host = true };
    pthread_t thread;

    if (r->rank == 1) {
        await_flag(&progress->returned);
        atomic_store(&progress->came, true);
        return true;
    }
    pthread_create(&thread, NULL, set_soon, &r->stop);
    int rc = comm_call(r->c, &a);
    bool alone = !atomic_load(&progress->came);
    pthread_join(thread, NULL);
    comm_close(r->c);                   /* what still spins on the device is aborted */
    r->c = NULL;
    atomic_store(&progress->returned, true);
    return rc == -1 && alone;
}

static void a_call_ends_when_it_is_told_to(void **state)
{
    (void)state;
    begin_anew();
    assert_true(on_ranks(2, stopped));
}

/* ---- ids ---- */

static void an_id_goes_through_a_file(void **state)
{
    char path[64], why[256];
    uint8_t made[COMM_NCCL_ID], read[COMM_NCCL_ID];

    (void)state;
    snprintf(path, sizeof path, "/tmp/dpx-test-id-%ld", (long)getpid());
    if (fork() == 0) {                  /* comes before the file does */
        bool good = comm_nccl_id_file(path, 1, NULL, read) == 0;
        printf("%s", good ? "" : "the other rank read no id\n");
        fflush(NULL);
        _exit(good ? 0 : 1);
    }
    sleep_ms(50);
    assert_int_equal(comm_nccl_id_file(path, 0, NULL, made), 0);
    int status = 1;
    wait(&status);
    assert_int_equal(status, 0);
    assert_int_equal(comm_nccl_id_file(path, 3, NULL, read), 0);
    assert_memory_equal(made, read, COMM_NCCL_ID);
    fail_capture(why, sizeof why);
    int rc = comm_nccl_id_file(path, 0, NULL, made);
    fail_capture(NULL, 0);
    unlink(path);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(why, "another run"));
}

static void several_ranks_on_a_device_must_be_asked_for(void **state)
{
    static const char apart[3][64] = { "GPU-1", "GPU-2", "GPU-3" }, shared[3][64] = { "GPU-1", "GPU-2", "GPU-1" };
    char why[256];

    (void)state;
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
    assert_int_equal(comm_nccl_sharing(apart, 3), 0);
    fail_capture(why, sizeof why);
    int rc = comm_nccl_sharing(shared, 3);
    fail_capture(NULL, 0);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(why, "ranks 0 and 2"));
    assert_non_null(strstr(why, "--comm mpi"));
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    assert_int_equal(comm_nccl_sharing(shared, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_gives_what_arithmetic_says),
        cmocka_unit_test(large_buffers_too),
        cmocka_unit_test(host_memory_goes_through_the_scratch),
        cmocka_unit_test(no_elements_are_no_call),
        cmocka_unit_test(parts_and_messages_reach_whom_they_are_for),
        cmocka_unit_test(two_ranks_may_both_send_first),
        cmocka_unit_test(calls_queue_and_barriers_of_the_host_wait),
        cmocka_unit_test(groups_run_side_by_side),
        cmocka_unit_test(a_rank_that_is_lost_ends_the_others_waits),
        cmocka_unit_test(a_call_ends_when_it_is_told_to),
        cmocka_unit_test(an_id_goes_through_a_file),
        cmocka_unit_test(several_ranks_on_a_device_must_be_asked_for),
    };
    return cmocka_run_group_tests_name("emu/nccl", tests, NULL, NULL);
}

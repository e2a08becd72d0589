/* mpi_schedule.c -- schedules written by hand, of no plan, on real ranks.
 *
 *     mpirun -n 2 mpi_schedule pipeline             two stages, four micro-steps
 *     mpirun -n 4 mpi_schedule exchange ALGORITHM   an all-to-all of unequal parts
 *     mpirun -n 2 mpi_schedule differ               ranks whose messages do not match
 *     mpirun -n 2 mpi_schedule die                  rank 1 is killed where rank 0 waits for its message
 *     mpirun -n 2 mpi_schedule stall                rank 1 never sends it
 *     mpi_schedule null                             one process plays rank 1 of the pipeline
 *
 * Each rank prints "FROM TO BYTES" of what its schedule says that it sends.  Complaints on stderr. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "exec/run/executor_internal.h"
#include "exec/run/groups.h"
#include "exec/run/order_check.h"
#include "exec/run/watchdog.h"
#include "model/arch/transformer.h"
#include "model/memory/evaluate.h"
#include "model/plan/plan_groups.h"

enum { MICRO = 4, ELEMS = 2500003 };    /* 10 MB: more than two pieces of a message */

static int rank, world, complaints;
static atomic_bool stop;
static atomic_int busy;
static struct plan p;
static struct schedules s;
static struct groups groups;
static struct executor *x;

static void complain(const char *what, int64_t i, double got, double want)
{
    if (complaints++ < 8)
        fprintf(stderr, "rank %d: %s %" PRId64 ": %.9g, not %.9g\n", rank, what, i, got, want);
}

static void must(bool yes, const char *what)
{
    if (yes)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* ---- a schedule begins, and runs ---- */

static void begin(int of)
{
    world = of;
    must(model_load("gpt2", &p.model) == 0 && cluster_load("localhost", &p.cluster) == 0, "no plan");
    p.cluster.world_size = p.cluster.gpus_per_node = of;
    p.seq = p.micro_batch = 1;
    plan_defaults(&p, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    p.kernels = KERNELS_DPX;
    s.detailed = true;
    s.rank = rank;
    s.world_size = of;
    plan_groups(&p, &s.groups);         /* GROUP_DATA is the first */
}

/* A family of instances that all have ELEMS elements of one tensor's gradient. */
static int family(const char *what, int count)
{
    int buf = sched_buf(&s, CAT_BUCKET, what, NULL, 0, count, ELEMS * 4), layout = sched_layout(&s, 0);

    sched_slice(&s, HOLDS_GRAD, DT_FP32, 0, 0, ELEMS, 0);
    sched_holds(&s, buf, layout);
    return buf;
}

static struct op *copy(enum copy_fn fn, int from, int at, int to, int into, int what)
{
    struct op *o = sched_copy(&s, STREAM_COMPUTE, PHASE_FORWARD, "copy", ELEMS * 4, ELEMS * 4);

    sched_does(&s, fn, 1);
    sched_act(&s, ACT_R, from, at, 0);
    sched_act(&s, what, to, into, 0);
    return o;
}

static struct op *message(enum stream stream, enum coll_op op, int tag, int what, int buf, int at)
{
    struct op *o = sched_message(&s, stream, PHASE_FORWARD, op, GROUP_DATA, 1 - (int)s.rank, tag, DT_FP32, ELEMS);

    sched_act(&s, what, buf, at, 0);
    return o;
}

/* What persists comes in the first schedule, which is over before anything is written there. */
static void persistent(const int *bufs, int n)
{
    sched_begin(&s, SCHED_INIT);
    sched_op(&s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model");
    for (int i = 0; i < n; i++)
        sched_act_all(&s, ACT_ALLOC, bufs[i]);
    sched_end(&s, SCHED_INIT);
    sched_begin(&s, SCHED_FIRST);
    sched_end(&s, SCHED_FIRST);
    sched_begin(&s, SCHED_STEADY);
}

static void ready(enum groups_kind kind, enum coll_algo algo)
{
    struct executor_args a = { .plan = &p, .schedules = &s, .comm = groups.comm, .stop = &stop, .busy = &busy, .threads = 1,
                               .limit = INT64_MAX };
    struct exec_step step = { .number = 1 };
    struct ledger l;
    char why[256];

    sched_end(&s, SCHED_STEADY);
    if (!schedules_check(&s, why, sizeof why))
        must(false, why);
    must(groups_open(&s, &(struct groups_args){ kind, device_host(), &stop, &busy }, &groups) == 0, "no groups");
    for (int op = 0; op < NCOLL; op++)
        a.algo[op] = algo;
    x = executor_new(&a);
    must(x && executor_map(x) == 0 && executor_run(x, SCHED_INIT, &step) == 0, "no executor");
    ledger_run(&s, &l);
    if (executor_allocated_peak(x) != l.peak.bytes)
        complain("bytes at the peak", 0, (double)executor_allocated_peak(x), (double)l.peak.bytes);
}

static float *memory(int buf, int at) { return arena_at(x->arena, x->inst[buf][at].at); }

static void step(void)
{
    struct exec_step one = { .number = 1 };

    must(executor_run(x, SCHED_STEADY, &one) == 0, "the step failed");
}

/* Calls and bytes as the schedule says, over any backend. */
static void check_counts(void)
{
    struct comm_table t;

    evaluation_comm_count(&s, SCHED_STEADY, &t);
    for (int i = 0; i < t.n; i++) {
        const struct exec_count *c = executor_count(x, t.line[i].op, t.line[i].group, t.line[i].dtype);
        if (c->count != t.line[i].count)
            complain(coll_name(t.line[i].op), 0, (double)c->count, (double)t.line[i].count);
        if (c->bytes != t.line[i].bytes)
            complain(coll_name(t.line[i].op), 1, (double)c->bytes, (double)t.line[i].bytes);
    }
    if (groups.comm[GROUP_DATA]->sent != t.sent_bytes)
        complain("bytes sent", 0, (double)groups.comm[GROUP_DATA]->sent, (double)t.sent_bytes);
}

static void end(void)
{
    executor_free(x);
    groups_close(&groups);
    schedules_free(&s);
    plan_free(&p);
}

/* ---- two stages ---- */

static int own, sum, slots, other, back;

/* Stage 0 adds its numbers to what it has, and sends that on, four times: 1, 2, 3, 4 times them.  Stage 1 adds
 * what comes: 10 times.  Two micro-steps are in flight at most.  Before that each stage sends the other its own
 * numbers, both of them first; at the end stage 1 sends its sum back. */
static void pipeline(int of_tag)
{
    uint16_t here[2], gone[2];
    int stage = (int)s.rank;
    struct op *o;

    own = family("own", 1), sum = family("sum", 1), slots = family("micro-step", 2);
    other = family("other", 1), back = family("back", 1);
    persistent((int[]){ own, sum, other, back }, 4);
    for (int i = 0; i < 2; i++)
        here[i] = sched_event(&s), gone[i] = sched_event(&s);
    message(STREAM_GATHER, COLL_SEND, 50 + stage, ACT_R, own, 0);
    message(STREAM_REDUCE, COLL_RECV, 51 - stage, ACT_W, other, 0);
    for (int i = 0; i < MICRO; i++) {
        int k = i % 2;
        if (stage == 0) {
            copy(COPY_ADD, own, 0, sum, 0, ACT_A);
            o = copy(COPY_SET, sum, 0, slots, k, ACT_W | ACT_ALLOC);
            o->wait[0] = i < 2 ? 0 : gone[k];
            o->record = here[k];
            o = message(STREAM_GATHER, COLL_SEND, of_tag + i, ACT_R | ACT_FREE, slots, k);
            o->wait[0] = here[k];
            o->record = gone[k];
        } else {
            o = message(STREAM_REDUCE, COLL_RECV, of_tag + i, ACT_W | ACT_ALLOC, slots, k);
            o->wait[0] = i < 2 ? 0 : gone[k];
            o->record = here[k];
            o = copy(COPY_ADD, slots, k, sum, 0, ACT_A);
            o->wait[0] = here[k];
            o->record = gone[k];
            sched_act(&s, ACT_FREE, slots, k, 0);
        }
    }
    if (stage == 1)
        message(STREAM_GATHER, COLL_SEND, 100, ACT_R, sum, 0)->after = AFTER(STREAM_COMPUTE);
    else
        message(STREAM_REDUCE, COLL_RECV, 100, ACT_W, back, 0);
    o = sched_op(&s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "end");
    o->after = AFTER(STREAM_COMPUTE) | AFTER(STREAM_GATHER) | AFTER(STREAM_REDUCE);
}

static float number(int of, int64_t i) { return (float)((of + 1) * 1000 + i % 100); }

static void fill(void)
{
    for (int64_t i = 0; i < ELEMS; i++) {
        memory(own, 0)[i] = number(rank, i);
        memory(sum, 0)[i] = 0;
    }
}

static void holds(const char *what, const float *got, int of, float times)
{
    for (int64_t i = 0; i < ELEMS; i++)
        if (got[i] < times * number(of, i) || got[i] > times * number(of, i))
            complain(what, i, (double)got[i], (double)(times * number(of, i)));
}

static void run_pipeline(void)
{
    begin(2);
    pipeline(0);
    ready(GROUPS_MPI, ALGO_RING);
    must(order_check(&s, MPI_COMM_WORLD) == 0, "the ranks disagree");
    fill();
    step();
    holds("other", memory(other, 0), 1 - rank, 1);
    holds("sum", memory(sum, 0), 0, rank == 0 ? 4 : 10);
    if (rank == 0)
        holds("back", memory(back, 0), 0, 10);
    check_counts();
    printf("%d %d %" PRId64 "\n", rank, 1 - rank, (int64_t)(rank == 0 ? 1 + MICRO : 2) * ELEMS * 4);
}

/* ---- unequal parts ---- */

/* Rank a sends 10 a + b + 1 hundreds of elements to rank b, but none from 2 to 1. */
static int64_t part(int a, int b) { return a == 2 && b == 1 ? 0 : 100 * (10 * (int64_t)a + b + 1); }

static void run_exchange(enum coll_algo algo)
{
    struct coll_part parts[4];
    int64_t out = 0, in = 0;

    begin(4);
    for (int i = 0; i < 4; i++) {
        parts[i] = (struct coll_part){ part(rank, i), part(i, rank) };
        out += parts[i].sent;
        in += parts[i].received;
    }
    int from = sched_buf(&s, CAT_BUCKET, "sent", NULL, 0, 1, out * 4);
    int into = sched_buf(&s, CAT_BUCKET, "received", NULL, 0, 1, in * 4);
    persistent((int[]){ from, into }, 2);
    sched_coll(&s, STREAM_GATHER, PHASE_FORWARD, COLL_ALL_TO_ALL, GROUP_DATA, DT_FP32, RED_NONE, 0);
    sched_parts(&s, parts, 4);
    sched_act(&s, ACT_R, from, 0, 0);
    sched_act(&s, ACT_W, into, 0, 0);
    sched_op(&s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "end")->after = AFTER(STREAM_GATHER);
    ready(GROUPS_MPI, algo);
    must(order_check(&s, MPI_COMM_WORLD) == 0, "the ranks disagree");
    float *x0 = memory(from, 0), *y = memory(into, 0);
    for (int b = 0; b < 4; b++)
        for (int64_t i = 0; i < parts[b].sent; i++)
            *x0++ = (float)(100000 * rank + 10000 * b + i);
    step();
    for (int a = 0; a < 4; a++)
        for (int64_t i = 0; i < parts[a].received; i++, y++)
            if (*y < (float)(100000 * a + 10000 * rank + i) || *y > (float)(100000 * a + 10000 * rank + i))
                complain("received", i, (double)*y, (double)(100000 * a + 10000 * rank + i));
    if (algo != ALGO_LIBRARY)
        check_counts();
    for (int b = 0; b < 4; b++)
        if (b != rank && part(rank, b) > 0)
            printf("%d %d %" PRId64 "\n", rank, b, part(rank, b) * 4);
}

/* ---- what goes wrong ---- */

static void run_differ(void)
{
    char why[256] = "";

    begin(2);
    pipeline(rank == 1);                /* tags one further on */
    sched_end(&s, SCHED_STEADY);
    fail_capture(why, sizeof why);
    int rc = order_check(&s, MPI_COMM_WORLD);
    fail_capture(NULL, 0);
    if (rc != -1 || (rank == 0 && !strstr(why, "ranks 0 and 1 disagree about what the first sends to the second")))
        complain(why[0] ? why : "not found", 0, rc, -1);
}

/* The watchdog follows; rank 1 is gone, or sits there, before it issues anything. */
static void run_alone(bool dies)
{
    struct watchdog *w;

    begin(2);
    pipeline(0);
    ready(GROUPS_MPI, ALGO_RING);
    w = watchdog_open(MPI_COMM_WORLD, NULL);
    must(w != NULL, "no watchdog");
    watchdog_follow(w, executor_lanes(x));
    watchdog_rest(w, false);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1 && dies)
        raise(SIGKILL);
    while (rank == 1)
        MPI_Barrier(MPI_COMM_SELF);
    step();                             /* never comes back */
}

static void run_null(void)
{
    rank = 1;
    begin(2);
    pipeline(0);
    ready(GROUPS_NULL, ALGO_RING);
    step();
    check_counts();
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    enum coll_algo algo = ALGO_RING;
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int a = 0; argc > 2 && a < NCOLL_ALGO; a++)
        if (!strcmp(argv[2], coll_algo_name((enum coll_algo)a)))
            algo = (enum coll_algo)a;
    if (!strcmp(mode, "pipeline"))
        run_pipeline();
    else if (!strcmp(mode, "exchange"))
        run_exchange(algo);
    else if (!strcmp(mode, "differ"))
        run_differ();
    else if (!strcmp(mode, "die") || !strcmp(mode, "stall"))
        run_alone(mode[0] == 'd');
    else if (!strcmp(mode, "null"))
        run_null();
    else
        must(false, "pipeline, exchange, differ, die, stall or null");
    end();
    MPI_Finalize();
    return complaints > 0;
}

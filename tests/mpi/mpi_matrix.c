/* mpi_matrix.c -- many plans run one after the other by the ranks of one launch: the same losses
 * as one rank alone, bytes and memory as predicted.
 *
 *     mpirun -n N mpi_matrix some|whole [FROM]     the plans for N ranks, from number FROM
 *
 * The reference is plain DDP of the paper on one rank, which rank 0 runs first in its own process;
 * tests/mpi/test_parity.sh holds that against PyTorch.  For each plan one line "plan NUMBER NAME",
 * then lines that say what is wrong, then "done".  The script beside it counts them.
 *
 * Bytes: the counter before MPI's calls must see, on each group's communicator, what the entries
 * of the schedules send by comm_traffic().  Memory: the arena's allocated peak is the ledger's,
 * and what stays between steps is what it says; the held peak is the same where all work is on
 * one stream, for then nothing can run ahead; else it is more than what stays, and within the
 * arena. */
#include "tests/mpi/matrix_witness.h"
#include "tests/mpi/matrix_plans.h"

#include <math.h>

#include "exec/train.h"
#include "model/evaluate.h"

enum { STEPS = 3 };

static int rank, world;
static double reference[NSUBJECTS][STEPS];
static char wrong[4000];                /* this rank's, of the plan that runs */

__attribute__((format(printf, 1, 2)))
static void complain(const char *format, ...)
{
    size_t at = strlen(wrong);
    va_list ap;

    va_start(ap, format);
    vsnprintf(wrong + at, sizeof wrong - at, format, ap);
    va_end(ap);
}

static struct train_args args_of(const struct plan *p, bool alone)
{
    return (struct train_args){ .plan = p, .seed = 5, .steps = STEPS, .warmup = 1, .lr = 3e-3, .min_lr = 1e-3,
                                .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .limit = INT64_MAX,
                                .null = alone, .threads = 1 };
}

/* ---- losses ---- */

static void run_reference(int subject)
{
    struct choice c = { .s = STRAT_DDP, .d = DIALECT_PAPER, .at = { [AXIS_SUBJECT] = subject } };
    struct plan p;
    struct train_report r;

    if (!matrix_plan(&c, &p))
        exit(2);
    struct train_args a = args_of(&p, true);
    struct train *t = train_open(&a, &(struct train_refusal){ 0 });
    for (int i = 0; i < STEPS; i++) {
        if (!t || train_step(t, false, &r) < 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
        reference[subject][i] = r.loss;
    }
    train_close(t);
}

/* bf16: weights are rounded in some recipes and not in others, activations in all. */
static double tolerance(const struct choice *c)
{
    return subjects[c->at[AXIS_SUBJECT]].t == DT_FP32 ? 1e-5 : 5e-3;
}

static void check_loss(const struct choice *c, const struct train_report *r)
{
    double want = reference[c->at[AXIS_SUBJECT]][r->step - 1];

    if (rank == 0 && !(fabs(r->loss - want) <= tolerance(c) * want))
        complain("loss of step %d is %.9g, on one rank %.9g\n", (int)r->step, r->loss, want);
}

/* ---- collectives and bytes ---- */

/* How often a schedule runs. */
static int64_t runs_of(enum sched_id id)
{
    return id == SCHED_STEADY ? STEPS - 1 : 1;
}

static void check_counts(struct train *t)
{
    struct exec_count want[NCOLL][NGROUP][NDTYPE] = { 0 };
    struct comm_table table;

    for (int id = 0; id < NSCHED; id++) {
        comm_count(train_schedules(t), (enum sched_id)id, &table);
        for (int i = 0; i < table.n; i++) {
            struct exec_count *w = &want[table.line[i].op][table.line[i].group][table.line[i].dtype];
            w->count += runs_of((enum sched_id)id) * table.line[i].count;
            w->bytes += runs_of((enum sched_id)id) * table.line[i].bytes;
        }
    }
    for (int op = 0; op < NCOLL; op++)
        for (int g = 0; g < NGROUP; g++)
            for (int d = 0; d < NDTYPE; d++) {
                const struct exec_count *got = executor_count(train_executor(t), (enum coll_op)op, (enum group)g,
                                                              (enum dtype)d), *w = &want[op][g][d];
                if (got->count != w->count || got->bytes != w->bytes)
                    complain("%s of the %s group: %d calls of %lld bytes in all, predicted %d of %lld\n",
                             coll_name((enum coll_op)op), group_name((enum group)g), (int)got->count,
                             (long long)got->bytes, (int)w->count, (long long)w->bytes);
            }
}

struct sending { int64_t bytes[NGROUP], times; int place[NGROUP]; };

static int send_of(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct sending *n = arg;
    enum group g = (enum group)o->u.coll.group;

    (void)iteration;
    if (o->kind != OP_COLL)
        return 0;
    struct coll_call call = { .op = (enum coll_op)o->u.coll.op, .dtype = (enum dtype)o->u.coll.dtype,
                              .red = (enum red_op)o->u.coll.red, .elems = o->u.coll.elems, .root = o->u.coll.root,
                              .algo = s->star ? ALGO_SERVER : ALGO_RING };
    n->bytes[g] += n->times * comm_traffic(&call, n->place[g], (int)s->group_size[g]).sent;
    return 0;
}

/* What this rank must send in each group. */
static void predict_sent(const struct schedules *s, struct sending *n)
{
    int members[64];

    memset(n, 0, sizeof *n);
    for (int g = 0; g < NGROUP; g++)
        for (int k = groups_members(s, (enum group)g, rank, members); k-- > 0; )
            if (members[k] == rank)
                n->place[g] = k;
    for (int id = 0; id < NSCHED; id++) {
        n->times = runs_of((enum sched_id)id);
        sched_walk(s, (enum sched_id)id, send_of, n);
    }
}

static void witness_all(int64_t sent[NGROUP])
{
    char name[64];

    for (int g = 0; g < NGROUP; g++) {
        snprintf(name, sizeof name, "dpx %s", group_name((enum group)g));
        sent[g] = witness_sent(name);
    }
}

static void check_sent(struct train *t, const int64_t before[NGROUP])
{
    struct sending want;
    int64_t after[NGROUP];

    predict_sent(train_schedules(t), &want);
    witness_all(after);
    for (int g = 0; g < NGROUP; g++)
        if (after[g] - before[g] != want.bytes[g])
            complain("rank %d gave MPI %lld bytes for the %s group, predicted %lld\n", rank,
                     (long long)(after[g] - before[g]), group_name((enum group)g), (long long)want.bytes[g]);
}

/* ---- memory ---- */

static bool one_stream(const struct schedules *s)
{
    for (int i = 0; i < s->nops; i++)
        if (s->ops[i].stream != STREAM_COMPUTE && s->ops[i].stream != STREAM_ISSUE)
            return false;
    return true;
}

static void check_memory(struct train *t)
{
    const struct executor *x = train_executor(t);
    const struct arena_meter *m = executor_meter(x);
    int64_t stays = 0, held = executor_held_peak(x);
    struct ledger l;

    ledger_run(train_schedules(t), &l);
    if (m->peak != l.peak.bytes || executor_allocated_peak(x) != m->peak)
        complain("rank %d allocated %lld bytes at the peak, %lld in the dry run, predicted %lld\n", rank,
                 (long long)m->peak, (long long)executor_allocated_peak(x), (long long)l.peak.bytes);
    for (int c = 0; c < NCAT; c++) {
        stays += l.persistent[c];
        if (m->live_by[c] != l.persistent[c])
            complain("rank %d keeps %lld bytes of %s, predicted %lld\n", rank, (long long)m->live_by[c],
                     category_name((enum category)c), (long long)l.persistent[c]);
    }
    if (one_stream(train_schedules(t)) && held != l.peak.bytes)
        complain("rank %d held %lld bytes at the peak, predicted %lld\n", rank, (long long)held,
                 (long long)l.peak.bytes);
    if (held < stays || held > executor_extent(x))
        complain("rank %d held %lld bytes, not between the %lld that stay and the arena's %lld\n", rank,
                 (long long)held, (long long)stays, (long long)executor_extent(x));
}

/* ---- one plan ---- */

static void run_plan(const struct choice *c)
{
    struct plan p;
    struct train_report r;
    int64_t sent[NGROUP];

    if (!matrix_plan(c, &p)) {
        complain("the plan is refused\n");
        return;
    }
    witness_all(sent);
    struct train_args a = args_of(&p, false);
    struct train *t = train_open(&a, &(struct train_refusal){ 0 });
    if (!t) {
        complain("it does not begin\n");
        return;
    }
    for (int i = 0; i < STEPS; i++) {
        if (train_step(t, false, &r) < 0) {
            complain("step %d fails\n", i + 1);
            train_close(t);
            return;
        }
        check_loss(c, &r);
    }
    check_counts(t);
    check_sent(t, sent);
    check_memory(t);
    train_close(t);
}

/* What the ranks complain of, in their order. */
static void print_wrong(void)
{
    char *all = rank == 0 ? calloc((size_t)world, sizeof wrong) : NULL;

    MPI_Gather(wrong, sizeof wrong, MPI_CHAR, all, sizeof wrong, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < world; i++)
        printf("%s", all + (size_t)i * sizeof wrong);
    free(all);
}

int main(int argc, char **argv)
{
    struct choices chosen = { 0 };
    struct plan p;
    char name[256];
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    models_load();
    matrix_choose(argc > 1 && !strcmp(argv[1], "whole"), world, &chosen);
    for (int i = 0; i < NSUBJECTS && rank == 0; i++)
        run_reference(i);
    for (int i = argc > 2 ? atoi(argv[2]) : 0; i < chosen.n; i++) {
        matrix_plan(&chosen.c[i], &p);
        matrix_words(&chosen.c[i], &p, name, sizeof name);
        if (rank == 0)
            printf("plan %d %s\n", i, name);
        fflush(stdout);
        wrong[0] = '\0';
        run_plan(&chosen.c[i]);
        print_wrong();
        if (rank == 0)
            printf("done\n");
        fflush(stdout);
    }
    free(chosen.c);
    models_free();
    MPI_Finalize();
    return 0;
}

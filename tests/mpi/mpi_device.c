/* mpi_device.c -- plans run on an asynchronous device (tests/exec/fake_device.h), collectives through
 * host memory: the losses, norms and last weights of the same ranks on the host, bit by bit, and
 * collectives and memory as predicted.  Collectives of several pieces, too.
 *
 *     mpirun -n N mpi_device LIST [FROM]      a sixth of those of mpi_matrix's list for N ranks, from number FROM
 *
 * Says what mpi_matrix says. */
#define _GNU_SOURCE
#include "tests/exec/fake_device.h"

#include "tests/mpi/matrix_check.h"
#include "tests/mpi/matrix_plans.h"

/* ---- a run, as far as its bits say ---- */

struct bits { double loss[MOST_STEPS], norm[MOST_STEPS]; uint64_t weights; };

static uint64_t hash(uint64_t h, const void *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211u;     /* FNV-1a */
    return h;
}

static int hash_param(void *arg, int tensor, int64_t from, int64_t n, const void *p, enum dtype t, bool master)
{
    uint64_t *h = arg;

    (void)master;
    *h = hash(hash(hash(*h, &tensor, sizeof tensor), &from, sizeof from), p, n * dtype_bytes(t));
    return 0;
}

static bool run_on(const struct plan *p, struct device *d, struct bits *out)
{
    struct train_args a = args_of(p, false);
    struct train_report r;

    a.device = d;
    struct train *t = train_open(&a, &(struct train_refusal){ 0 });
    memset(out, 0, sizeof *out);
    for (int i = 0; t && i < steps; i++) {
        if (train_step(t, i == steps - 1, &r) < 0) {
            train_close(t);
            return false;
        }
        out->loss[i] = r.loss;
        out->norm[i] = isnan(r.grad_norm) ? -1 : r.grad_norm;
    }
    if (t && d) {
        check_counts(t);
        check_memory(t);
    }
    bool ran = t && executor_params(train_executor(t), hash_param, &out->weights) == 0;
    train_close(t);
    return ran;
}

static void compare_plan(const struct plan *p, unsigned seed)
{
    struct device *d = fake_open(seed);
    struct bits host, device;

    if (!run_on(p, NULL, &host) || !run_on(p, d, &device))
        complain("it does not run\n");
    for (int i = 0; i < steps; i++)
        if (memcmp(&host.loss[i], &device.loss[i], sizeof host.loss[i]) != 0 ||
            memcmp(&host.norm[i], &device.norm[i], sizeof host.norm[i]) != 0)
            complain("rank %d, step %d: loss %.17g and norm %.17g, on the host %.17g and %.17g\n", rank, i + 1,
                     device.loss[i], device.norm[i], host.loss[i], host.norm[i]);
    if (host.weights != device.weights)
        complain("rank %d: the weights are others than on the host\n", rank);
    device_close(d);
}

/* Sums without rounding, where the plan can have them. */
static void compare_deterministic(struct plan *p, unsigned seed)
{
    char why[256];

    p->deterministic = true;
    p->dropout = 0;
    fail_capture(why, sizeof why);
    bool can = plan_check(p, "deterministic") == 0;
    fail_capture(NULL, 0);
    if (can)
        compare_plan(p, seed);
}

/* ---- float8 layers, which the matrix has not: their losses are no other plan's ---- */

static const struct float8_plan {
    const char *name; enum float8_recipe recipe; bool gathers, ahead; int subject; enum recompute recompute;
} float8_plans[] = {
    { "float8 layers",                                 FLOAT8_TENSORWISE,      false, false, 1, RECOMPUTE_NONE },
    { "float8 gathers",                                FLOAT8_TENSORWISE,      true,  false, 4, RECOMPUTE_NONE },
    { "float8 gathers in fp32, recomputed",            FLOAT8_TENSORWISE,      true,  false, 1, RECOMPUTE_FULL },
    { "float8 gathers, scales behind the optimizer",   FLOAT8_TENSORWISE,      true,  true,  4, RECOMPUTE_NONE },
    { "float8 layers by rows, recomputed",             FLOAT8_ROWWISE,         false, false, 4, RECOMPUTE_FULL },
    { "float8 layers by rows, weights' gradients not", FLOAT8_ROWWISE_GW_HP,   false, false, 4, RECOMPUTE_NONE },
};
enum { NFLOAT8_PLANS = sizeof float8_plans / sizeof *float8_plans };

/* _scaled_mm() asks for multiples of 16, and 2 and 3 ranks share all rows. */
static const char float8_config[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 3, \"hidden_size\": 48, \"intermediate_size\": 96,"
    " \"num_attention_heads\": 3, \"num_key_value_heads\": 3, \"vocab_size\": 48, \"max_position_embeddings\": 16,"
    " \"tie_word_embeddings\": false}";

static bool float8_plan(const struct float8_plan *f, const struct model *m, struct plan *p)
{
    struct choice c = { .s = STRAT_FSDP, .d = DIALECT_TORCH };
    char why[256];

    c.at[AXIS_SUBJECT] = f->subject;
    while (world_sizes[c.at[AXIS_WORLD]] != world)
        c.at[AXIS_WORLD]++;
    matrix_plan(&c, p);
    p->model = *m;
    p->recompute = f->recompute;
    p->float8.recipe = f->recipe;
    p->fsdp.float8_all_gather = f->gathers;
    p->fsdp.float8_precomputed = f->ahead;
    plan_resolve(p);
    fail_capture(why, sizeof why);
    bool can = plan_check(p, "float8") == 0 && can_run(p) == 0;
    fail_capture(NULL, 0);
    return can;
}

static void compare_float8(int number)
{
    json_t *j = json_loads(float8_config, 0, NULL);
    struct model m;
    struct plan p;

    if (model_from_config(j, "float8", &m) < 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    json_decref(j);
    for (int i = 0; i < NFLOAT8_PLANS; i++) {
        plan_begins(number + i, float8_plans[i].name);
        if (float8_plan(&float8_plans[i], &m, &p))
            compare_plan(&p, (unsigned)(77 * i + rank));
        else if (world > 1 || !float8_plans[i].gathers)         /* one rank gathers nothing */
            complain("the plan is refused\n");
        plan_ends();
    }
    model_free(&m);
}

/* ---- collectives in several pieces ---- */

enum { ELEMS = 2 * 3 * 2000003 };        /* 48 MB of int32, which 1, 2 and 3 ranks divide */

static struct comm *open_comm(void *staging)
{
    static int all[64];
    struct comm_args a = { .ranks = all, .nranks = world, .staging = staging, .name = "pieces" };

    for (int i = 0; i < world; i++)
        all[i] = i;
    return comm_mpi_open(&a);
}

static void fill(int32_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (int32_t)(i * 31 + rank * 1009) % 65536;
}

/* The same call with host buffers and with device buffers, which must become the same. */
static void compare_call(struct coll_call call, int32_t *send, int32_t *want, int32_t *got, struct comm *host,
                         struct comm *staged, struct device *d)
{
    int64_t bytes = ELEMS * (int64_t)sizeof *send;
    struct CUstream_st *s = device_cuda_stream(d, STREAM_REDUCE);
    char *from = device_map(d, bytes), *to = device_map(d, bytes);

    call.elems = ELEMS;
    fill(send, ELEMS);
    memset(want, 0, (size_t)bytes);
    call.send = send;
    call.recv = want;
    if (comm_call(host, &call) < 0)
        complain("rank %d: the host's call fails\n", rank);
    memset(got, 0, (size_t)bytes);
    device_store(d, s, from, send, bytes);
    device_store(d, s, to, got, bytes);
    call.send = from;
    call.recv = to;
    call.stream = s;
    if (comm_call(staged, &call) < 0)
        complain("rank %d: the staged call fails\n", rank);
    device_fetch(d, s, got, to, bytes);
    device_drain(d, s, NULL);
    if (memcmp(want, got, (size_t)bytes) != 0)
        complain("rank %d: other numbers than from the host's buffers\n", rank);
    if (host->sent != staged->sent || host->received != staged->received)
        complain("rank %d: %lld bytes sent and %lld received, the host %lld and %lld\n", rank,
                 (long long)staged->sent, (long long)staged->received, (long long)host->sent,
                 (long long)host->received);
    device_unmap(d, from, bytes);
    device_unmap(d, to, bytes);
}

/* From a to b so much more or less than equal parts that all a rank sends, and receives, is as much. */
static void compare_parts(int32_t *send, int32_t *want, int32_t *got, struct comm *host, struct comm *staged,
                          struct device *d)
{
    struct coll_part *parts = calloc((size_t)world, sizeof *parts);

    for (int i = 0; i < world; i++)
        parts[i].sent = parts[i].received = ELEMS / world + (i == rank ? -1000 * (world - 1) : 1000);
    compare_call((struct coll_call){ .op = COLL_ALL_TO_ALL, .dtype = DT_INT32, .parts = parts }, send, want, got, host,
                 staged, d);
    free(parts);
}

static void compare_calls(int number)
{
    struct device *d = fake_open(1);
    void *staging[2] = { calloc(1, (size_t)comm_staging(world) + 1), calloc(1, (size_t)comm_staging(world) + 1) };
    int32_t *x[3];
    struct comm *host = open_comm(staging[0]), *staged = comm_staged_open(open_comm(staging[1]), d, NULL);

    for (int i = 0; i < 3; i++)
        x[i] = malloc(ELEMS * sizeof *x[i]);
    for (int op = 0; op <= COLL_SEND; op++) {
        struct coll_call call = { .op = (enum coll_op)op, .dtype = DT_INT32, .red = RED_SUM, .root = world - 1 };
        plan_begins(number + op, coll_name((enum coll_op)op));
        if (op == COLL_SEND) {
            call.op = rank == 0 ? COLL_SEND : COLL_RECV;
            call.root = 1 - rank;
        }
        if (op != COLL_SEND || (rank < 2 && world > 1))
            compare_call(call, x[0], x[1], x[2], host, staged, d);
        plan_ends();
    }
    plan_begins(number + COLL_SEND + 1, "all_to_all of unequal parts");
    compare_parts(x[0], x[1], x[2], host, staged, d);
    plan_ends();
    for (int i = 0; i < 3; i++)
        free(x[i]);
    comm_close(host);
    comm_close(staged);
    free(staging[0]);
    free(staging[1]);
    device_close(d);
}

int main(int argc, char **argv)
{
    struct choices chosen = { 0 };
    struct plan p;
    char name[256];

    /* Streams that dawdle take their time: a sixth of the plans, unless all are asked for. */
    int every = getenv("DPX_DEVICE_ALL") ? 1 : 6;

    start_ranks(&argc, &argv);
    models_load();
    if (argc < 2 || !matrix_read(argv[1], world, &chosen))
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = argc > 2 ? atoi(argv[2]) : 0; i < chosen.n; i++) {
        if (i % every)
            continue;
        matrix_plan(&chosen.c[i], &p);
        matrix_words(&chosen.c[i], &p, name, sizeof name);
        plan_begins(i, name);
        compare_plan(&p, (unsigned)(1000 * i + rank));
        if (i / every % 5 == 0)
            compare_deterministic(&p, (unsigned)(1000 * i + rank));
        plan_ends();
    }
    compare_float8(chosen.n);
    compare_calls(chosen.n + NFLOAT8_PLANS);
    free(chosen.c);
    models_free();
    MPI_Finalize();
    return 0;
}

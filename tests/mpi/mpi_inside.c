/* mpi_inside.c -- a linear layer whose rows are split over two ranks, in a real step.
 *
 *     mpirun -n 2 mpi_inside
 *
 * Each rank has half of the rows of every block's q, k, v weights, and zeros in place of the others; the first has
 * the bias.  What it multiplies is a part of the product, and an all-reduce inside the block's program, behind that
 * kernel, makes it whole; so does one behind the gradient of its input, and one more where it is recomputed.  Loss and
 * gradients must be those of a rank that has all of the weights and no all-reduce.  Complaints on stdout. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "exec/run/executor_internal.h"
#include "model/lower/lower.h"
#include "model/schedule/schedule_cut.h"
#include "tests/mpi/group.h"

static const char config[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 3, \"n_embd\": 48, \"n_head\": 4, \"n_positions\": 32,"
    " \"vocab_size\": 101, \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0}";

enum { SEQ = 24, BATCH = 2 };
#define INSIDE GROUP_ROOT_RESHARD       /* none of the plans has it */

static int rank, complaints;
static atomic_bool stop;
static struct test_group both, alone;

static void must(bool yes, const char *what)
{
    if (yes)
        return;
    printf("rank %d: %s\n", rank, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* ---- one plan of one rank ---- */

struct made { double loss; float **grad; int64_t inside; };

static void make_plan(struct plan *p, enum strategy st, enum dialect d, enum recompute r)
{
    json_t *j = json_loads(config, 0, NULL);

    memset(p, 0, sizeof *p);
    must(j && model_from_config(j, "test", &p->model) == 0 && cluster_load("localhost", &p->cluster) == 0, "no plan");
    json_decref(j);
    p->cluster.world_size = p->cluster.gpus_per_node = 1;
    p->seq = SEQ;
    p->micro_batch = BATCH;
    plan_defaults(p, st, d, DT_FP32);
    p->kernels = KERNELS_DPX;
    p->recompute = r;
    p->clip = 0;
    must(plan_check(p, "test") == 0, "the plan is refused");
}

/* Behind kernel `name`, a sum over both ranks of a slot. */
static void sum_behind(struct program *g, enum piece_id piece, enum pass pass, const char *name, enum slot slot,
                       int64_t elems)
{
    const struct piece *p = &g->piece[piece];
    int k = p->nkernels[pass];

    while (k > 0 && strcmp(p->kernels[pass][k - 1].name, name))
        k--;
    if (k == 0)
        return;
    must(program_add_collective(g, piece, pass, "sum of the parts",
                                &(struct collective){ .kernel = k, .needed = k + 1, .op = COLL_ALL_REDUCE,
                                                      .group = INSIDE, .dtype = DT_FP32, .red = RED_SUM,
                                                      .stream = STREAM_TENSOR, .from = (uint8_t)slot,
                                                      .into = (uint8_t)slot, .elems = elems }) == 0, "no collective");
}

static void split(struct program *g, const struct plan *p)
{
    int64_t n = p->micro_batch * p->seq, h = p->model.hidden;

    for (int i = PIECE_BLOCK; i < PIECE_HEAD; i++) {
        sum_behind(g, (enum piece_id)i, PASS_FORWARD, "qkv", SLOT_QKV, n * 3 * h);
        sum_behind(g, (enum piece_id)i, PASS_BACKWARD, "qkv", SLOT_QKV, n * 3 * h);
        sum_behind(g, (enum piece_id)i, PASS_BACKWARD, "qkv dX", SLOT_DN, n * h);
    }
}

/* Zeros where the other rank has its half: rows of the weight, as [in, out]; the bias is the first rank's. */
static void keep_half(float *x, const struct tensor *t, const struct slice *c, int64_t width)
{
    for (int64_t i = 0; i < c->n; i++) {
        bool mine = t->is_bias ? rank == 0 : (c->from + i) / width * 2 / (t->numel / width) == rank;
        if (!mine)
            x[i] = 0;
    }
}

static void halve(struct executor *x)
{
    const struct schedules *s = x->s;
    const struct model *m = &x->p->model;

    must(m->fused_qkv, "the model has no fused q, k, v");
    for (int b = 0; b < s->nbufs; b++) {
        const struct layout *l = &s->layouts[s->bufs[b].layout];
        for (int i = 0; s->bufs[b].layout && i < s->bufs[b].count; i++)
            for (int k = 0; x->inst[b][i].live && k < l->nslices; k++) {
                const struct slice *c = &s->slices[l->slice0 + k];
                const struct tensor *t = &m->tensors[c->tensor + i * l->stride];
                if (t->role == ROLE_QKV && (c->holds == HOLDS_PARAM || c->holds == HOLDS_MASTER))
                    keep_half(arena_at(x->arena, x->inst[b][i].at + c->at), t, c, 3 * m->hidden);
            }
    }
}

static void see(void *arg, int tensor, int64_t from, int64_t n, const void *g, enum dtype t)
{
    must(t == DT_FP32, "gradients of another format");
    memcpy(((struct made *)arg)->grad[tensor] + from, g, (size_t)n * sizeof(float));
}

static void run(const struct plan *p, bool splits, struct made *out)
{
    struct comm *comm[PLAN_GROUPS];
    struct schedules s = { .detailed = true };
    struct weights *w = weights_from_seed(&p->model, 3);
    struct executor_args a = { .plan = p, .schedules = &s, .comm = comm, .stop = &stop, .threads = 1,
                               .limit = INT64_MAX, .weights = w };
    struct program g = { 0 };
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    int64_t samples[1] = { 0 };
    struct exec_step step = { .number = 1, .ids = ids, .labels = labels, .samples = samples,
                              .adamw = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1, .grad_scale = 1 },
                              .on_grad = see, .on_grad_arg = out };

    for (int i = 0; i < BATCH * SEQ; i++)
        ids[i] = i * 37 % 101, labels[i] = (i * 37 + 11) % 101;
    out->grad = calloc((size_t)p->model.ntensors, sizeof *out->grad);
    for (int t = 0; t < p->model.ntensors; t++)
        out->grad[t] = calloc((size_t)p->model.tensors[t].numel, sizeof **out->grad);
    must(program_build(p, &g) == 0, "no program");
    if (splits)
        split(&g, p);
    /* The lowering takes the program for one without collectives, until there is a group of both ranks. */
    int collectives = g.ncollectives;
    g.ncollectives = 0;
    must(lower_using(p, 0, &g, &s) == 0, "not lowered");
    s.program.ncollectives = collectives;
    int inside = plan_groups_add(&s.groups, &(struct mesh){ .order = { AXIS_PIPE, AXIS_REPLICA, AXIS_SHARD, AXIS_CONTEXT,
                                                                       AXIS_EXPERT, AXIS_TENSOR },
                                                            .size = { 1, 1, 1, 1, 1, 2 } },
                                 INSIDE, (struct group_rule){ .axes = MESH_AXIS(AXIS_TENSOR) });
    schedules_cut(&s);
    for (int i = 0; i < PLAN_GROUPS; i++)
        comm[i] = i == inside ? both.comm : alone.comm;
    atomic_store(&stop, false);         /* the executor before set it when it closed */
    struct executor *x = executor_new(&a);
    must(x && executor_map(x) == 0, "no executor");
    must(executor_run(x, SCHED_INIT, &step) == 0, "no initial weights");
    if (splits)
        halve(x);
    must(executor_run(x, SCHED_FIRST, &step) == 0, "the step failed");
    out->loss = step.loss_sum / (double)step.loss_tokens;
    out->inside = executor_count(x, COLL_ALL_REDUCE, inside, DT_FP32)->count;
    executor_free(x);
    schedules_free(&s);
    program_free(&g);
    weights_close(w);
}

static void forget(const struct plan *p, struct made *m)
{
    for (int t = 0; t < p->model.ntensors; t++)
        free(m->grad[t]);
    free(m->grad);
}

static double largest(const float *x, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

static void compare(const struct plan *p, const char *name, const struct made *whole, const struct made *parts)
{
    if (!(fabs(whole->loss - parts->loss) <= 1e-6 * whole->loss) && complaints++ < 8)
        printf("rank %d, %s: a loss of %.9g, whole %.9g\n", rank, name, parts->loss, whole->loss);
    for (int t = 0; t < p->model.ntensors; t++) {
        int64_t n = p->model.tensors[t].numel;
        double most = largest(whole->grad[t], n);
        if (!(most > 0) && complaints++ < 8)
            printf("rank %d, %s: no gradient of %s\n", rank, name, p->model.tensors[t].name);
        for (int64_t i = 0; i < n; i++)
            if (!(fabs((double)(whole->grad[t][i] - parts->grad[t][i])) <= 2e-5 * most)) {
                if (complaints++ < 8)
                    printf("rank %d, %s: gradient of %s at %d: %g, whole %g\n", rank, name, p->model.tensors[t].name,
                           (int)i, (double)parts->grad[t][i], (double)whole->grad[t][i]);
                break;
            }
    }
}

int main(int argc, char **argv)
{
    static const struct { const char *name; enum strategy s; enum dialect d; } cells[] = {
        { "ddp", STRAT_DDP, DIALECT_TORCH }, { "fsdp", STRAT_FSDP, DIALECT_TORCH }, { "zero3", STRAT_ZERO3, DIALECT_DEEPSPEED },
    };
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    both = group_open("inside", 0, 1, 2, 0, &stop);
    alone = group_open("alone", rank, 1, 1, 0, &stop);
    for (int i = 0; i < 6; i++) {
        struct made whole, parts;
        struct plan p;
        make_plan(&p, cells[i / 2].s, cells[i / 2].d, i % 2 ? RECOMPUTE_FULL : RECOMPUTE_NONE);
        run(&p, false, &whole);
        run(&p, true, &parts);
        compare(&p, cells[i / 2].name, &whole, &parts);
        if (whole.inside != 0 || parts.inside != p.model.layers * (i % 2 ? 3 : 2)) {
            complaints++;
            printf("rank %d, %s: %d all-reduces inside blocks\n", rank, cells[i / 2].name, (int)parts.inside);
        }
        forget(&p, &whole);
        forget(&p, &parts);
        plan_free(&p);
    }
    group_close(&both);
    group_close(&alone);
    MPI_Finalize();
    return complaints > 0;
}

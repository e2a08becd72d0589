/* grid_plans.h -- plans over meshes: tensor, context and pipeline parallelism with every strategy, and what may vary.
 *
 * Axes: ranks, degrees, the form of each kind of parallelism, cell of strategies and dialects, model, numbers, accumulation,
 * recompute, unit, a list of variants.  The degree of data parallelism is what the others leave.  All plans have one
 * global batch, so that one run of PyTorch is the truth for all of a model (tests/golden/parity/grid).
 *
 * A covering set has every pair of values of two axes for which a plan was found that plan_check() and can_run() accept; it
 * is put together at random, always alike.  The whole is every mesh with every form, schedule and cell. */
#ifndef DPX_TESTS_MPI_GRID_PLANS_H
#define DPX_TESTS_MPI_GRID_PLANS_H

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/can_run.h"
#include "model/plan/knob.h"
#include "model/plan/knob_rules.h"

#define GRID_GOLDEN "tests/golden/parity/grid"
enum { GRID_BATCH = 48, GRID_SEQ = 24 };

/* ---- what may vary ---- */

enum grid_axis { GRID_WORLD, GRID_TENSOR, GRID_CONTEXT, GRID_PIPELINE, GRID_TENSOR_FORM, GRID_CONTEXT_FORM, GRID_SCHEDULE, GRID_CELL,
                 GRID_MODEL, GRID_NUMBERS, GRID_ACCUMULATION, GRID_RECOMPUTE, GRID_UNIT, GRID_VARIANT, GRID_AXES };
static const char *const grid_axis_names[GRID_AXES] = {
    "ranks", "tensor", "context", "pipeline", "tensor form", "context form", "schedule", "strategy", "model", "numbers",
    "accumulation", "recompute", "unit", "variant",
};

static const int64_t grid_degrees[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
enum { GRID_TENSORS = 4, GRID_CONTEXTS = 4, GRID_PIPELINES = 8 };

static const struct { const char *name; bool sequence, loss; } grid_tensor_forms[] = {
    { "", false, false }, { "sequence", true, false }, { "loss parallel", false, true }, { "sequence, loss parallel", true, true },
};
enum { GRID_TENSOR_FORMS = sizeof grid_tensor_forms / sizeof *grid_tensor_forms };

static const struct { const char *name; enum context_method method; bool balance; } grid_context_forms[] = {
    { "all-gather", CONTEXT_ALL_GATHER, false }, { "ring", CONTEXT_RING, false }, { "ulysses", CONTEXT_ULYSSES, false },
    { "all-gather, balanced", CONTEXT_ALL_GATHER, true }, { "ring, balanced", CONTEXT_RING, true },
    { "ulysses, balanced", CONTEXT_ULYSSES, true },
};
enum { GRID_CONTEXT_FORMS = sizeof grid_context_forms / sizeof *grid_context_forms };

static const struct { const char *name; enum pipeline_kind kind; int64_t chunks; } grid_schedules[] = {
    { "1f1b", PIPELINE_1F1B, 1 }, { "gpipe", PIPELINE_GPIPE, 1 }, { "interleaved, 2 chunks", PIPELINE_INTERLEAVED, 2 },
    { "interleaved, 4 chunks", PIPELINE_INTERLEAVED, 4 }, { "looped-bfs, 2 chunks", PIPELINE_LOOPED_BFS, 2 },
    { "zb1p", PIPELINE_ZB1P, 1 }, { "zb1p, 2 chunks", PIPELINE_ZB1P, 2 }, { "zbv", PIPELINE_ZBV, 2 },
    { "dualpipev", PIPELINE_DUALPIPEV, 2 },
};
enum { GRID_SCHEDULES = sizeof grid_schedules / sizeof *grid_schedules };

static const struct { enum strategy s; enum dialect d; } grid_cells[] = {
    { STRAT_DDP, DIALECT_PAPER }, { STRAT_DP, DIALECT_PAPER }, { STRAT_ZERO1, DIALECT_PAPER }, { STRAT_ZERO2, DIALECT_PAPER },
    { STRAT_ZERO3, DIALECT_PAPER }, { STRAT_FSDP, DIALECT_PAPER }, { STRAT_DDP, DIALECT_TORCH }, { STRAT_FSDP, DIALECT_TORCH },
    { STRAT_ZERO1, DIALECT_DEEPSPEED }, { STRAT_ZERO2, DIALECT_DEEPSPEED }, { STRAT_ZERO3, DIALECT_DEEPSPEED },
};
enum { GRID_CELLS = sizeof grid_cells / sizeof *grid_cells };

static const char *const grid_models[] = { "gpt2", "gpt2-untied", "llama" };
enum { GRID_PLAINEST = 1 };             /* that which most plans take: untied, as many key-value heads as heads */
enum { GRID_MODELS = sizeof grid_models / sizeof *grid_models };

static const struct grid_numbers { const char *name; enum dtype t; double clip, dropout; } grid_numbers[] = {
    { "fp32", DT_FP32, 0, 0 }, { "fp32, clipped", DT_FP32, 0.3, 0 }, { "fp32, clipped, with dropout", DT_FP32, 0.3, 0.2 },
    { "bf16", DT_BF16, 0, 0 }, { "bf16, clipped", DT_BF16, 0.3, 0 },
};
enum { GRID_NUMBERS_N = sizeof grid_numbers / sizeof *grid_numbers };

static const int64_t grid_accumulations[] = { 1, 2, 3, 4, 6, 8 };
enum { GRID_ACCUMULATIONS = sizeof grid_accumulations / sizeof *grid_accumulations };

static const struct { const char *name; enum recompute what; int64_t interval; } grid_recomputes[] = {
    { "", RECOMPUTE_NONE, 1 }, { "recomputed", RECOMPUTE_FULL, 1 }, { "every second recomputed", RECOMPUTE_FULL, 2 },
    { "attention recomputed", RECOMPUTE_SELECTIVE, 1 },
};
enum { GRID_RECOMPUTES = sizeof grid_recomputes / sizeof *grid_recomputes };

static const struct { enum unit_kind kind; int64_t blocks; } grid_units[] = {
    { UNIT_BLOCK, 1 }, { UNIT_HALF_BLOCK, 1 }, { UNIT_BLOCKS, 2 }, { UNIT_MODEL, 1 }, { UNIT_MODULE, 1 },
};
enum { GRID_UNITS = sizeof grid_units / sizeof *grid_units };

static void grid_plain(struct plan *p)          { (void)p; }
static void grid_sync_each(struct plan *p)      { p->sync_every_micro_step = true; }
static void grid_sync_last(struct plan *p)      { p->sync_every_micro_step = false; }
static void grid_deterministic(struct plan *p)  { p->deterministic = true; }
static void grid_kept(struct plan *p)           { p->fsdp.reshard_after_forward = 0; }
static void grid_freed(struct plan *p)          { p->fsdp.reshard_after_forward = 1; }
static void grid_fewer_first(struct plan *p)    { p->parallel.first_stage_less = 1; }
static void grid_fewer_last(struct plan *p)     { p->parallel.last_stage_less = 1; }
static void grid_bucket_views(struct plan *p)   { p->ddp.gradient_as_bucket_view = true; p->ddp.bucket_cap_mb = 0.004; }
static void grid_hybrid(struct plan *p)         { p->shard_group = plan_data_ranks(p) / 2; }

static const struct { const char *name; void (*set)(struct plan *p); } grid_variants[] = {
    { "", grid_plain }, { "syncing each micro-step", grid_sync_each }, { "syncing the last micro-step", grid_sync_last },
    { "deterministic", grid_deterministic }, { "units kept after forward", grid_kept }, { "units freed after forward", grid_freed },
    { "a block fewer on the first stage", grid_fewer_first }, { "a block fewer on the last stage", grid_fewer_last },
    { "small bucket views", grid_bucket_views }, { "groups of half the ranks", grid_hybrid },
};
enum { GRID_VARIANTS = sizeof grid_variants / sizeof *grid_variants };

static const int grid_size[GRID_AXES] = {
    8, GRID_TENSORS, GRID_CONTEXTS, GRID_PIPELINES, GRID_TENSOR_FORMS, GRID_CONTEXT_FORMS, GRID_SCHEDULES, GRID_CELLS, GRID_MODELS,
    GRID_NUMBERS_N, GRID_ACCUMULATIONS, GRID_RECOMPUTES, GRID_UNITS, GRID_VARIANTS,
};
enum { GRID_MOST = 16 };                /* values of an axis */

struct grid_choice { int at[GRID_AXES]; };

/* ---- a plan ---- */

static struct model grid_model[GRID_MODELS];

/* GPT-2's dropout acts where the plan has any. */
static void grid_models_load(void)
{
    char path[256];

    for (int i = 0; i < GRID_MODELS; i++) {
        snprintf(path, sizeof path, GRID_GOLDEN "/%s/config.json", grid_models[i]);
        json_t *j = json_load_file(path, 0, NULL);
        if (j && json_object_get(j, "attn_pdrop"))
            for (const char *const *key = (const char *const[]){ "resid_pdrop", "embd_pdrop", "attn_pdrop", NULL }; *key; key++)
                json_object_set_new(j, *key, json_real(0.2));
        if (!j || model_from_config(j, grid_models[i], &grid_model[i]) < 0)
            exit(2);
        json_decref(j);
    }
}

static void grid_models_free(void)
{
    for (int i = 0; i < GRID_MODELS; i++)
        model_free(&grid_model[i]);
}

static int64_t grid_degree(const struct grid_choice *c, enum grid_axis a) { return grid_degrees[c->at[a]]; }

/* What needs no plan to be refused: ranks that do not divide, a form of what there is not. */
static bool grid_exists(const struct grid_choice *c)
{
    int64_t cut = grid_degree(c, GRID_TENSOR) * grid_degree(c, GRID_CONTEXT) * grid_degree(c, GRID_PIPELINE);
    int64_t copies = grid_degree(c, GRID_WORLD) / cut;

    return grid_degree(c, GRID_WORLD) % cut == 0 && GRID_BATCH % (copies * grid_accumulations[c->at[GRID_ACCUMULATION]]) == 0 &&
           (c->at[GRID_TENSOR] || !c->at[GRID_TENSOR_FORM]) && (c->at[GRID_CONTEXT] || !c->at[GRID_CONTEXT_FORM]) &&
           (c->at[GRID_PIPELINE] || !c->at[GRID_SCHEDULE]);
}

/* Of a choice that exists.  Model and cluster are borrowed: never plan_free() it.  False with `why` filled. */
static bool grid_plan(const struct grid_choice *c, struct plan *p, char *why, size_t size)
{
    const struct grid_numbers *n = &grid_numbers[c->at[GRID_NUMBERS]];
    enum strategy s = grid_cells[c->at[GRID_CELL]].s;
    enum dialect d = grid_cells[c->at[GRID_CELL]].d;
    struct plan before;

    memset(p, 0, sizeof *p);
    p->model = grid_model[c->at[GRID_MODEL]];
    p->cluster.world_size = p->cluster.gpus_per_node = grid_degree(c, GRID_WORLD);
    p->cluster.nodes = 1;
    p->seq = GRID_SEQ;
    plan_defaults(p, s, d, n->t);
    p->kernels = KERNELS_DPX;
    p->clip = n->clip;
    p->dropout = n->dropout;
    if (p->ds.reduce_bucket_size > 1 << 16)
        p->ds.reduce_bucket_size = 1 << 16;             /* all of the model; DeepSpeed's own is 2 GB, or two, which the arena makes real */
    p->accumulation = grid_accumulations[c->at[GRID_ACCUMULATION]];
    p->recompute = grid_recomputes[c->at[GRID_RECOMPUTE]].what;
    p->recompute_interval = grid_recomputes[c->at[GRID_RECOMPUTE]].interval;
    p->parallel.tensor = grid_degree(c, GRID_TENSOR);
    p->parallel.context = grid_degree(c, GRID_CONTEXT);
    p->parallel.pipeline = grid_degree(c, GRID_PIPELINE);
    p->parallel.sequence = grid_tensor_forms[c->at[GRID_TENSOR_FORM]].sequence;
    p->parallel.loss_parallel = grid_tensor_forms[c->at[GRID_TENSOR_FORM]].loss;
    p->parallel.context_method = grid_context_forms[c->at[GRID_CONTEXT_FORM]].method;
    p->parallel.context_balance = grid_context_forms[c->at[GRID_CONTEXT_FORM]].balance;
    p->parallel.pipeline_schedule = grid_schedules[c->at[GRID_SCHEDULE]].kind;
    p->parallel.virtual_stages = grid_schedules[c->at[GRID_SCHEDULE]].chunks;
    p->micro_batch = GRID_BATCH / (plan_batch_ranks(p) * p->accumulation);
    p->shard_group = plan_data_ranks(p);
    if (p->parallel.pipeline > 1)
        p->sync_every_micro_step = knob_usual_sync(p) > 0;
    snprintf(why, size, "DeepSpeed: with Ulysses, in fp32 (mpi_matrix.c has the others; it adds bf16 gradients up in bf16)");
    if (d == DIALECT_DEEPSPEED && (n->t != DT_FP32 || !c->at[GRID_CONTEXT]))
        return false;
    snprintf(why, size, "it is the same as another");
    if (knob_find("", "unit", CELL(s, d))) {
        p->unit = grid_units[c->at[GRID_UNIT]].kind;
        p->unit_blocks = grid_units[c->at[GRID_UNIT]].blocks;
    } else if (c->at[GRID_UNIT]) {
        return false;
    }
    before = *p;
    grid_variants[c->at[GRID_VARIANT]].set(p);
    plan_resolve(&before);
    plan_resolve(p);
    if (c->at[GRID_VARIANT] && !memcmp(&before, p, sizeof before))
        return false;
    struct fail_sink sink = fail_divert(why, size);
    bool good = plan_check(p, "grid") == 0 && can_run(p) == 0;
    fail_restore(sink);
    return good;
}

static void grid_words(const struct grid_choice *c, const struct plan *p, char *to, size_t size)
{
    char unit[32] = "", tensor[64] = "", context[64] = "", pipeline[64] = "";
    int t = c->at[GRID_TENSOR], x = c->at[GRID_CONTEXT], s = c->at[GRID_PIPELINE];
    const char *form = grid_tensor_forms[c->at[GRID_TENSOR_FORM]].name;

    if (knob_find("", "unit", CELL(p->strategy, p->dialect)))
        plan_unit_text(p, unit, sizeof unit);
    if (t)
        snprintf(tensor, sizeof tensor, ", tensor %d%s%s", (int)grid_degrees[t], *form ? " " : "", form);
    if (x)
        snprintf(context, sizeof context, ", context %d %s", (int)grid_degrees[x], grid_context_forms[c->at[GRID_CONTEXT_FORM]].name);
    if (s)
        snprintf(pipeline, sizeof pipeline, ", pipeline %d %s", (int)grid_degrees[s], grid_schedules[c->at[GRID_SCHEDULE]].name);
    snprintf(to, size, "%s/%s on %d%s%s%s, %s in %s, accumulation %d%s%s%s%s%s%s", strategy_name(p->strategy),
             dialect_name(p->dialect), (int)p->cluster.world_size, tensor, context, pipeline, grid_models[c->at[GRID_MODEL]],
             grid_numbers[c->at[GRID_NUMBERS]].name, (int)p->accumulation, *unit ? ", unit " : "", unit,
             c->at[GRID_RECOMPUTE] ? ", " : "", grid_recomputes[c->at[GRID_RECOMPUTE]].name, c->at[GRID_VARIANT] ? ", " : "",
             grid_variants[c->at[GRID_VARIANT]].name);
}

#endif

/* search_args.c -- from the options of a search to its question. */
#include "sim/plan/search_args.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "base/size.h"
#include "model/arch/sample.h"
#include "model/arch/training.h"
#include "model/exchange/export.h"
#include "model/plan/attention.h"
#include "model/plan/experts_check.h"
#include "model/plan/knob.h"
#include "sim/plan/commands.h"
#include "sim/price/gpu_rates.h"
#include "sim/search/grid.h"

const char *const search_frameworks[] = { "torch", "deepspeed", "any", "megatron", NULL };
const char *const search_strategies[] = { "dp", "ddp", "zero1", "zero2", "zero3", "fsdp", NULL };
const char *const search_dialects[] = { "paper", "torch", "torch-fsdp1", "deepspeed", "megatron", NULL };
const char *const search_recomputes[] = { "none", "selective", "modules", "full", "op", "offload", "reentrant", [NRECOMPUTE] = "all", NULL };

/* What runs in each; `any` is what runs in one of them, unless a dialect is named. */
static const uint64_t framework_dialects[] = {
    1u << DIALECT_TORCH | 1u << DIALECT_TORCH_FSDP1, 1u << DIALECT_DEEPSPEED,
    1u << DIALECT_TORCH | 1u << DIALECT_TORCH_FSDP1 | 1u << DIALECT_DEEPSPEED | 1u << DIALECT_MEGATRON, 1u << DIALECT_MEGATRON,
};

uint64_t search_framework_dialects(int framework) { return framework_dialects[framework]; }

static bool can_export(const struct plan *p, const void *target)
{
    return export_can(p, target);
}

enum dtype search_precision(const struct gpu *g)
{
    return !gpu_lacks(g, DT_BF16) ? DT_BF16 : !gpu_lacks(g, DT_FP16) ? DT_FP16 : DT_FP32;
}

static void settle(struct plan *p, const void *target)
{
    export_settle(p, target);
}

/* What the tool changes of each kind of plan that it may run. */
static void say_settled(const struct search_args *a, const struct question *q)
{
    static const struct { enum strategy s; enum dialect d; } cells[] = { { STRAT_FSDP, DIALECT_TORCH }, { STRAT_FSDP, DIALECT_TORCH_FSDP1 } };
    const struct knob *k;

    for (size_t i = 0; i < sizeof cells / sizeof *cells && a->export_to >= 0; i++) {
        struct plan p = { .model = q->model, .cluster = q->cluster, .seq = q->options.seq, .micro_batch = 1 }, was;
        plan_defaults(&p, cells[i].s, cells[i].d, q->options.precision);
        was = p;
        export_settle(&p, export_targets[a->export_to]);
        for (int row = 0; (k = knob_at(row)); row++) {
            json_t *v, *before;
            if (!(k->cells & knob_cell(&p)) || !(q->options.dialects >> cells[i].d & 1) || !(q->options.strategies >> cells[i].s & 1))
                continue;
            v = knob_write(&p, k);
            before = knob_write(&was, k);
            if (!json_equal(v, before)) {
                char key[96], *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
                knob_key_text(k, key, sizeof key);
                notes_say_once("dpx: %s of %s/%s is %s, as %s has it", key, strategy_name(cells[i].s), dialect_name(cells[i].d), text,
                               export_targets[a->export_to]);
                free(text);
            }
            json_decref(v);
            json_decref(before);
        }
    }
}

static int check(const struct search_args *a)
{
    if (a->grid && a->no_grid)
        return fail("--grid and --no-grid: one of them");
    if (a->headroom >= 1)
        return fail("--headroom %g: must be below 1", a->headroom);
    if (a->framework != FRAMEWORK_ANY && a->dialect >= 0 && !(framework_dialects[a->framework] >> a->dialect & 1))
        return fail("--dialect %s: not one of --framework %s", search_dialects[a->dialect],
                    search_frameworks[a->framework]);
    return 0;
}

/* An export to Megatron-LM asks for its plans. */
static int framework_of(const struct search_args *a)
{
    bool megatron = a->export_to >= 0 && !strcmp(export_targets[a->export_to], "megatron");

    return megatron && a->framework == FRAMEWORK_ANY && a->dialect < 0 ? FRAMEWORK_MEGATRON : a->framework;
}

/* Of that framework alone. */
static bool is_megatron(const struct search_args *a)
{
    return framework_of(a) == FRAMEWORK_MEGATRON || a->dialect == DIALECT_MEGATRON;
}

static enum kernel_set kernels_of(const struct search_args *a, const struct question *q, enum dtype precision)
{
    if (a->kernels >= 0)
        return (enum kernel_set)a->kernels;
    if (is_megatron(a))
        return precision == DT_FP32 ? KERNELS_MEGATRON_LOCAL : KERNELS_TE;
    return q->cluster.is_host ? KERNELS_DPX : attention_default(&q->model);
}

int search_args_options(const struct search_args *a, const struct model *m, const struct cluster *c, struct question *q)
{
    if (check(a) < 0)
        return EXIT_MISUSE;
    q->model = *m;
    q->cluster = *c;
    if (a->memory > 0)
        q->cluster.memory = a->memory;
    if (a->host_memory > 0)
        q->cluster.node.memory = a->host_memory;
    if (a->headroom >= 0)
        q->cluster.headroom = a->headroom;
    if (!a->in_place)
        cluster_say_assumed(&q->cluster);
    q->chosen = a->precision < 0;
    enum dtype precision = q->chosen ? search_precision(&c->gpu) : (enum dtype)a->precision;
    enum kernel_set kernels = kernels_of(a, q, precision);
    if (measured_load(a->db, precision, kernels, &q->cluster) < 0)
        return measured_status();
    q->optimizer = a->tuned.optimizer;
    q->loss = a->loss >= 0 ? (enum loss_kind)a->loss : LOSS_FP32;
    q->options = (struct search_options){
        .model = &q->model, .cluster = &q->cluster, .optimizer = &q->optimizer, .loss = a->loss >= 0 ? &q->loss : NULL, .seq = a->seq ? a->seq : search_usual_seq(m),
        .global_batch = a->global_batch ? a->global_batch : search_usual_batch(c->world_size),
        .strategies = a->strategies ? a->strategies : ~0ull,
        .dialects = a->dialect >= 0 ? 1ull << a->dialect : framework_dialects[framework_of(a)],
        .kernels = kernels, .usual_kernels = a->kernels < 0 && !c->is_host,
        .precision = precision, .micro_batch = a->micro_batch, .in_place = a->in_place, .grid = a->grid ? GRID_ONLY : GRID_NONE,
        .recompute = a->recompute < NRECOMPUTE ? 1ull << a->recompute : 0, .threads = a->threads < 1024 ? (int)a->threads : 1024,
        .accept = a->export_to >= 0 ? can_export : NULL,
        .accept_what = a->export_to >= 0 ? export_targets[a->export_to] : NULL,
        .settle = a->export_to >= 0 ? settle : NULL,
    };
    say_settled(a, q);
    return EXIT_DONE;
}

int64_t search_usual_seq(const struct model *m) { return m->context > 0 && m->context < SEARCH_SEQ ? m->context : SEARCH_SEQ; }
int64_t search_usual_batch(int64_t ranks) { return ceil_div(SEARCH_BATCH, ranks) * ranks; }

void search_args_grid(const struct search_args *a, struct search_options *o)
{
    if (!a->grid && !a->no_grid)
        o->grid = grid_is_usual(o) ? GRID_BESIDE : GRID_NEXT;
}

int search_tune(const struct search_tuned *a, struct model *m)
{
    struct training t = training_default();

    if (a->lora == 0)
        return a->targets || a->saves || a->dropout > 0 || a->base != BASE_PLAIN ?
               fail("%s: says something with --lora only", a->targets ? "--lora-targets" : a->saves ? "--lora-save" :
                    a->dropout > 0 ? "--lora-dropout" : "--base-dtype") : 0;
    if (a->targets && strlen(a->targets) >= sizeof t.target_modules)
        return fail("--lora-targets: at most %zu characters", sizeof t.target_modules - 1);
    if (a->saves && strlen(a->saves) >= sizeof t.modules_to_save)
        return fail("--lora-save: at most %zu characters", sizeof t.modules_to_save - 1);
    if (a->dropout >= 1)
        return fail("--lora-dropout %g: must be below 1", a->dropout);
    strcpy(t.what, "lora");
    strcpy(t.target_modules, a->targets ? a->targets : "all-linear");
    strcpy(t.modules_to_save, a->saves ? a->saves : "");
    t.rank = a->lora;
    t.dropout = a->dropout;
    t.base = (enum base_dtype)a->base;
    return training_apply(m, &t, "--lora");
}

int search_args_load(const struct search_args *a, struct question *q)
{
    struct model m;
    struct cluster c;

    if (check(a) < 0 || named_model(a->model, a->model_doc, &m) < 0)
        return EXIT_MISUSE;
    int rc = search_tune(&a->tuned, &m) < 0 || named_cluster(a->cluster, a->cluster_doc, &c) < 0 ? EXIT_MISUSE
           : search_args_options(a, &m, &c, q);
    if (rc != EXIT_DONE)
        model_free(&m);
    return rc;
}

void search_question_free(struct question *q)
{
    measured_unload(&q->cluster);
    model_free(&q->model);
}

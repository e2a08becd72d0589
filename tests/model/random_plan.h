/* random_plan.h -- plans that plan_check() accepts and lower() knows, of every cell: what the plan's ranks share, lists, layouts and options
 * drawn from the table of keys, each kept where the plan is still accepted.
 *
 *     draw_model(&whole, &rng, &m);            what trains: a model is made for it
 *     draw_plan(&m, &cluster, &rng, &p);       or draw_plan_of(..., strategy, dialect)
 *
 * Model and cluster are borrowed: never plan_free() one.  draw_model()'s is model_free()d. */
#ifndef DPX_RANDOM_PLAN_H
#define DPX_RANDOM_PLAN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/lower/lower.h"
#include "model/plan/knob.h"
#include "model/plan/pipeline_layout.h"

static inline uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;  /* Knuth's MMIX */
    return (uint32_t)(*state >> 33) % below;
}

static inline bool draw_named(const struct knob *k, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(k->name, names[i]))
            return true;
    return false;
}

/* ---- one key ---- */

static inline int64_t draw_whole(const struct knob *k, uint64_t *rng)
{
    static const char *const few[] = { "virtual_stages", "first_stage_less_layers", "last_stage_less_layers", "recompute_num_layers",
                                       "num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16", "recompute_interval" };
    static const char *const powers[] = { "ddp_bucket_size", "hierarchical_a2a_ranks", "qat_group" };

    if (!strncmp(k->object, "deepspeed", 9))
        return (int64_t)1 << draw(rng, 40);
    if (draw_named(k, powers, 3))
        return (int64_t)1 << draw(rng, k->hi > 1 << 20 ? 28 : 4);
    if (!strcmp(k->name, "mtp_num_layers"))        /* one depth, of few plans: most keys do not go with it yet */
        return draw(rng, 4) == 0;
    return k->lo + (int64_t)draw(rng, draw_named(k, few, 7) ? 4 : 64);
}

/* Parts of names of modules: of those that the models of the tests have, and of none. */
static inline void draw_list(const struct knob *k, char *at, uint64_t *rng)
{
    static const char *const filters[] = { "", "none", "auto_filter_small_kn", "q_proj,mlp", "layers.0." };
    static const char *const modules[] = { "", "core_attn", "mlp", "core_attn,mlp", "layernorm" };
    const char *const *from = strcmp(k->name, "fp8_filter") ? modules : filters;

    snprintf(at, (size_t)k->hi, "%s", from[draw(rng, 5)]);
}

/* Blocks for each stage: any number, but for the ends at least one. */
static inline void draw_layout(struct plan *p, uint64_t *rng)
{
    struct pipeline_layout l = { .mtp = (int)p->megatron.mtp_num_layers };
    int64_t left = p->model.layers;
    int stages = l.stages = (int)(p->parallel.pipeline * p->parallel.virtual_stages);

    if (stages < 2 || stages > 64 || left < stages)
        return;
    for (int s = 0; s < stages; s++)
        left -= l.blocks[s] = s > 0 && s < stages - 1;
    for (; left > 0; left--)
        l.blocks[draw(rng, (uint32_t)stages)]++;
    pipeline_layout_text(&l, p->megatron.pipeline_layout, sizeof p->megatron.pipeline_layout);
}

/* Half of the keys keep their default. */
static inline void draw_key(struct plan *p, const struct knob *k, uint64_t *rng)
{
    static const char *const degrees[] = { "tensor", "context", "pipeline", "expert", "pipeline_schedule" };
    char *at = (char *)p + k->offset;
    const char *version;
    int64_t whole;
    double real;
    int word = 0;

    if (!strcmp(k->object, "lora") || !strcmp(k->name, "train") || !strcmp(k->name, "base_dtype"))
        return;                         /* the model has to be made for it: draw_model() */
    if (!strcmp(k->object, "parallel") && draw_named(k, degrees, 5))
        return;                         /* each has to fit the others: draw_degrees() */
    if (!strncmp(k->name, "expert", 6) && p->model.experts == 0)
        return;                         /* it has none to share out */
    if (!strncmp(k->name, "zero_quantized", 14))
        return;                         /* which sizes it takes only the lowering knows: test_zero3_quant.c */
    if (draw(rng, 2))
        return;
    switch (k->type) {
    case KNOB_INT:
        whole = draw_whole(k, rng);
        memcpy(at, &whole, sizeof whole);
        break;
    case KNOB_REAL:
        real = (k->lo > 0 ? (double)k->lo : 0) + draw(rng, 1000) / 1001.0;
        memcpy(at, &real, sizeof real);
        break;
    case KNOB_BOOL: case KNOB_WORD_BOOL: case KNOB_GRAD_ACCUM:
        *(bool *)at = draw(rng, 2);
        break;
    case KNOB_FLAG:
        word = (int)draw(rng, 2);
        memcpy(at, &word, sizeof word);
        break;
    case KNOB_WORD:
        while (k->words[word])
            word++;
        word = (int)draw(rng, (uint32_t)word);
        memcpy(at, &word, sizeof word);
        break;
    case KNOB_UNIT:
        p->unit = (enum unit_kind)draw(rng, UNIT_MODULE + 1);
        p->unit_blocks = p->unit == UNIT_BLOCKS ? 2 + (int64_t)draw(rng, 6) : 1;
        break;
    case KNOB_RESHARD:
        whole = (int64_t)draw(rng, 10) - 1;
        if (whole < 0)                  /* null is the default, which a pipeline makes false */
            whole = (int64_t)knob_default(p, k);
        memcpy(at, &whole, sizeof whole);
        break;
    case KNOB_TEXT:
        version = plan_version_at(p->dialect, (int)draw(rng, 3), NULL);
        if (!strcmp(k->name, "framework_version") && version)
            snprintf(at, (size_t)k->hi, "%s", version);
        if (!strcmp(k->name, "pipeline_model_parallel_layout"))
            draw_layout(p, rng);
        break;
    case KNOB_LIST:
        draw_list(k, at, rng);
        break;
    case KNOB_FIXED:
        break;
    }
}

/* Half of the frameworks' constants, at any size from a byte to the largest models'. */
static inline void draw_limits(struct plan *p, uint64_t *rng)
{
    int64_t *const each[] = { &p->limits.ddp_broadcast, &p->limits.ddp_first_bucket, &p->limits.ddp_bucket,
                              &p->limits.dp_coalesce, &p->limits.ds_allreduce };

    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (draw(rng, 2))
            *each[i] = (int64_t)1 << draw(rng, 34);
}

/* ---- what trains ---- */

/* "h.0.attn.c_attn.weight": "h.*.attn.c_attn.weight", or its module, "c_attn". */
static inline void draw_names(const struct tensor *x, char pattern[TRAINING_LIST], char module[TRAINING_LIST])
{
    const char *end = strrchr(x->name, '.'), *from = end;
    size_t n = 0;

    while (from > x->name && from[-1] != '.')
        from--;
    snprintf(module, TRAINING_LIST, "%.*s", (int)(end - from), from);
    for (const char *c = x->name; *c; c++) {
        bool number = c > x->name && c[-1] == '.' && strspn(c, "0123456789") > 0;
        pattern[n++] = number ? '*' : *c;
        if (number)
            c += strspn(c, "0123456789") - 1;
    }
    pattern[n] = '\0';
}

/* The same model, of which everything trains, or adapters, or one kind of a block's tensors. */
static inline void draw_model(const struct model *m, uint64_t *rng, struct model *out)
{
    char why[512], pattern[TRAINING_LIST], module[TRAINING_LIST];
    uint32_t kind = draw(rng, 4);

    if (model_with_layers(m, m->layers, out) < 0)
        abort();
    fail_capture(why, sizeof why);
    for (int tries = 0, rc = -1; kind > 0 && rc < 0 && tries < 20; tries++) {
        struct training t = training_default();
        draw_names(&m->tensors[m->block0 + (int)draw(rng, (uint32_t)m->per_block)], pattern, module);
        snprintf(t.what, sizeof t.what, "%s", kind == 1 ? pattern : "lora");
        if (kind == 2)
            snprintf(t.target_modules, sizeof t.target_modules, "%s", draw(rng, 4) ? module : "all-linear");
        t.rank = 1 + (int64_t)draw(rng, 16);
        t.dropout = kind > 1 && draw(rng, 2) ? 0.1 : 0;
        t.base = kind > 1 && draw(rng, 3) == 0 ? (enum base_dtype)draw(rng, BASE_AO_INT4) : BASE_PLAIN;
        rc = training_apply(out, &t, "random");
    }
    fail_capture(NULL, 0);
}

/* The same model with Megatron-Bridge's adapters. */
static inline void draw_bridge(const struct model *m, uint64_t *rng, struct model *out)
{
    static const char *const targets[] = { "", "linear_qkv", "linear_proj,linear_fc1", "linear_qkv,linear_fc2" };
    struct training t = training_default();

    if (model_with_layers(m, m->layers, out) < 0)
        abort();
    snprintf(t.what, sizeof t.what, "lora");
    snprintf(t.target_modules, sizeof t.target_modules, "%s", targets[draw(rng, 4)]);
    t.rank = (int64_t)8 << draw(rng, 3);
    t.dropout = draw(rng, 2) ? 0.1 : 0;
    t.dropout_position = (int)draw(rng, 2);
    t.a2a_experimental = draw(rng, 2);
    t.bridge = true;
    if (training_apply(out, &t, "random") < 0)
        abort();
}

/* ---- a plan ---- */

static inline bool draw_accepted(const struct plan *p)
{
    return p->micro_batch > 0 && plan_check(p, "random") == 0 && lower_check(p) == 0;
}

static inline int64_t draw_degree(const struct plan *p, const char *name, uint64_t *rng)
{
    static const int64_t sizes[] = { 1, 1, 1, 2, 2, 3, 4 };

    return knob_has(p, "parallel", name) ? sizes[draw(rng, 7)] : 1;
}

/* Ranks that compute one copy together, in half of the plans that can have any. */
static inline void draw_degrees(struct plan *p, uint64_t *rng)
{
    const struct plan was = *p;

    for (int tries = draw(rng, 2) ? 0 : 12; tries > 0; tries--) {
        struct parallel_options *of = &p->parallel;
        *p = was;
        of->tensor = draw_degree(p, "tensor", rng);
        of->context = draw_degree(p, "context", rng);
        of->pipeline = draw_degree(p, "pipeline", rng);
        of->expert = p->model.experts > 0 && knob_has(p, "parallel", "expert") ? (int64_t)1 << draw(rng, 3) : of->expert;
        if (of->tensor * of->context * of->pipeline * (of->expert > 1 ? of->expert : 1) == 1)
            continue;
        if (of->pipeline > 1) {
            if (knob_has(p, "parallel", "pipeline_schedule"))
                of->pipeline_schedule = (enum pipeline_kind)draw(rng, PIPELINE_DUALPIPEV + 1);
            p->accumulation = of->pipeline * (1 + (int64_t)draw(rng, 3));
        }
        if (of->tensor > 1 && knob_has(p, "parallel", "sequence"))
            of->sequence = draw(rng, 4) > 0;
        if (of->expert > 1 && knob_has(p, "parallel", "expert_tensor"))
            of->expert_tensor = draw(rng, 2) ? of->tensor : 1;
        knob_follow(p, NULL, NULL);
        plan_resolve(p);
        if (draw_accepted(p))
            return;
    }
    *p = was;
}

/* Every key of the cell in turn; what the plan then refuses is taken back. */
static inline void draw_keys(struct plan *p, uint64_t *rng)
{
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++) {
        const struct plan was = *p;
        if (!(k->cells & knob_cell(p)) || !strcmp(k->name, "precision"))
            continue;
        draw_key(p, k, rng);
        if (!memcmp(p, &was, sizeof was))
            continue;
        if (p->ddp.model_dtype >= 0)
            p->ddp.model_dtype = (int)p->precision;
        plan_resolve(p);
        if (!draw_accepted(p))
            *p = was;
    }
}

/* A plan of that cell; false: it does not have the model, whatever the precision. */
static inline bool draw_plan_of(const struct model *m, const struct cluster *c, uint64_t *rng, enum strategy s, enum dialect d, struct plan *out)
{
    char why[512];
    bool accepted = false;

    fail_capture(why, sizeof why);
    for (int tries = 0; !accepted && tries < 12 && dialect_has(d, s); tries++) {
        memset(out, 0, sizeof *out);
        out->model = *m;
        out->cluster = *c;
        out->seq = 512;
        plan_defaults(out, s, d, (enum dtype)draw(rng, 3));
        if (!training_is_all(&m->training))
            out->train = m->training;
        if (draw(rng, 3) == 0 && out->precision == DT_BF16) {
            out->ddp.model_dtype = knob_has(out, "ddp", "model_dtype") ? DT_BF16 : -1;
            out->fsdp.model_dtype = knob_has(out, "fsdp", "model_dtype") ? DT_BF16 : -1;
        }
        if (!training_is_all(&m->training) || tries % 2)
            knob_follow(out, NULL, NULL);
        plan_resolve(out);
        accepted = draw_accepted(out);
    }
    if (accepted) {
        draw_degrees(out, rng);
        draw_keys(out, rng);
    }
    fail_capture(NULL, 0);
    return accepted;
}

static inline void draw_plan(const struct model *m, const struct cluster *c, uint64_t *rng,
                             struct plan *out)
{
    enum strategy s;
    enum dialect d;

    do {
        s = (enum strategy)draw(rng, NSTRATEGY);
        d = (enum dialect)draw(rng, NDIALECT);
    } while (!draw_plan_of(m, c, rng, s, d, out));
}

#endif

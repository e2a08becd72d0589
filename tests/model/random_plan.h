/* random_plan.h -- plans that plan_check() accepts and lower() knows, of every cell, options drawn
 * from the table of keys.  Model and cluster are borrowed: never plan_free() one. */
#ifndef DPX_RANDOM_PLAN_H
#define DPX_RANDOM_PLAN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/lower/lower.h"
#include "model/plan/knob.h"

static inline uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;  /* Knuth's MMIX */
    return (uint32_t)(*state >> 33) % below;
}

static inline void draw_key(struct plan *p, const struct knob *k, uint64_t *rng)
{
    char *at = (char *)p + k->offset;
    const char *version;
    int64_t whole;
    double real;
    int word = 0;

    if (k->type == KNOB_LIST || !strcmp(k->object, "lora"))
        return;                         /* the model would have to be made for it */
    if (!strncmp(k->name, "expert", 6) && p->model.experts == 0)
        return;                         /* it has none to share out */
    if (!strncmp(k->name, "zero_quantized", 14))
        return;                         /* which sizes it takes only the lowering knows: test_zero3_quant.c */
    if (draw(rng, 2))
        return;                         /* half keep their default */
    switch (k->type) {
    case KNOB_INT:
        whole = k->lo + (int64_t)draw(rng, 64);
        if (!strncmp(k->object, "deepspeed", 9))
            whole = (int64_t)1 << draw(rng, 40);
        memcpy(at, &whole, sizeof whole);
        break;
    case KNOB_REAL:
        real = draw(rng, 1000) / 1001.0;
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
        memcpy(at, &whole, sizeof whole);
        break;
    case KNOB_TEXT:
        version = plan_version_at(p->dialect, (int)draw(rng, 3), NULL);
        if (!strcmp(k->name, "framework_version") && version)
            snprintf(at, (size_t)k->hi, "%s", version);
        break;
    case KNOB_LIST: case KNOB_FIXED:
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

static inline void draw_plan(const struct model *m, const struct cluster *c, uint64_t *rng,
                             struct plan *out)
{
    char why[512];
    const struct knob *k;

    fail_capture(why, sizeof why);
    do {
        enum strategy s = (enum strategy)draw(rng, NSTRATEGY);
        enum dialect d = (enum dialect)draw(rng, NDIALECT);
        memset(out, 0, sizeof *out);
        out->model = *m;
        out->cluster = *c;
        out->seq = 512;
        if (!dialect_has(d, s))
            continue;
        plan_defaults(out, s, d, (enum dtype)draw(rng, 3));
        for (int i = 0; (k = knob_at(i)); i++)
            if ((k->cells & CELL(s, d)) && strcmp(k->name, "precision"))
                draw_key(out, k, rng);
        if (out->ddp.model_dtype >= 0)
            out->ddp.model_dtype = (int)out->precision;
        plan_resolve(out);
    } while (out->micro_batch == 0 || plan_check(out, "random") < 0 || lower_check(out) < 0);
    fail_capture(NULL, 0);
}

#endif

/* compare_programs.c -- a built-in family beside the same model recorded from transformers' own code: products, attention, bytes, what forward
 * saves, and the peak of a steady step, under FSDP2 and DDP, with and without recompute.
 *
 *     compare_programs NAME CONFIG.json RECORDED.json MICRO_BATCH SEQ
 *
 * A line for each step, and one for each product that only one side has; steps that were not recorded are left out.  Exit status 1: products or attention differ, or the peak by more than 1e-4. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/lower/lower.h"
#include "model/schedule/ledger.h"

enum { MOST = 4096 };
#define PEAK_WITHIN 1e-4

/* Products of one shape, whichever way round: n in the first model less n in the second. */
struct product { int64_t batch, d[3]; int64_t n; const char *name; };
struct sums { struct product at[MOST]; int nproducts; double attention[2], bytes[2]; int64_t peak[2]; };       /* bytes: of all other kernels */

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void add_product(struct sums *s, const struct kernel *k, int64_t times)
{
    struct product p = { k->batch, { k->m, k->n, k->k }, times, k->name };

    qsort(p.d, 3, sizeof *p.d, by_size);
    for (int i = 0; i < s->nproducts; i++)
        if (s->at[i].batch == p.batch && !memcmp(s->at[i].d, p.d, sizeof p.d)) {
            s->at[i].n += times;
            return;
        }
    if (s->nproducts < MOST)
        s->at[s->nproducts++] = p;
}

/* `eager`: attention is products of matrices, of which the family makes one kernel. */
static void add_piece(struct sums *s, const struct piece *p, int side, bool eager)
{
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < p->nkernels[pass]; i++) {
            const struct kernel *k = &p->kernels[pass][i];
            if (k->kind == KC_GEMM && k->m > 0 && !(eager && (!strncmp(k->name, "bmm", 3) || !strncmp(k->name, "baddbmm", 7))))
                add_product(s, k, side ? -1 : 1);
            if (k->kind == KC_ATTENTION)        /* the family's scores behind the causal mask are halved by the price of a fused kernel */
                s->attention[side] += k->attends == ATTENDS_BEFORE && !eager ? k->flops / 2 : k->flops;
            else if (k->kind == KC_GEMM && eager && (!strncmp(k->name, "bmm", 3) || !strncmp(k->name, "baddbmm", 7)))
                s->attention[side] += k->flops;
            else if (k->kind != KC_GEMM)
                s->bytes[side] += (double)k->bytes;
        }
}

static int add_plan(struct sums *s, const char *model, const char *strategy, const char *recompute, int64_t b, int64_t seq, int side, bool eager, struct plan *p)
{
    json_t *plan = json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:s}", "dpx_plan", 1, "model", model, "cluster", "8xh100", "strategy", strategy,
                             "dialect", "torch", "seq", (json_int_t)seq, "micro_batch", (json_int_t)b, "precision", "bf16", "recompute", recompute);
    struct schedules z = { 0 };
    struct ledger l;

    int rc = plan_from_json(plan, model, p);
    json_decref(plan);
    if (rc < 0)
        return -1;
    if (lower(p, 0, &z) < 0)
        return -1;
    ledger_run(&z, &l);
    s->peak[side] = l.phase[SCHED_STEADY].bytes;
    add_piece(s, &z.program.piece[PIECE_EMBED], side, eager);
    add_piece(s, &z.program.piece[PIECE_HEAD], side, eager);
    for (int64_t i = 0; i < p->model.layers; i++)
        add_piece(s, &z.program.piece[program_piece_of_block(p, i)], side, eager);
    schedules_free(&z);
    return 0;
}

/* Is no fused attention recorded? */
static bool is_eager(const char *path)
{
    struct model m;
    bool eager = true;

    if (model_load(path, &m) < 0)
        exit(2);
    for (int64_t i = 0; i < m.recorded->nkernels; i++)
        eager = eager && m.recorded->kernels[i].class != REC_ATTENTION;
    model_free(&m);
    return eager;
}

/* Was it recorded?  FSDP2 runs in bf16, DDP under autocast. */
static bool has_step(const char *path, const char *strategy, const char *recompute)
{
    struct model m;

    if (model_load(path, &m) < 0)
        exit(2);
    bool has = recorded_program(m.recorded, strcmp(strategy, "ddp") ? "bf16" : "autocast", !strcmp(recompute, "full") ? REC_WHOLE : REC_NOTHING, false);
    model_free(&m);
    return has;
}

static double off(double a, double b) { return a > 0 || b > 0 ? (b - a) / fmax(a, b) : 0; }

/* 1 where something differs that must not. */
static int say(const char *name, const char *strategy, const char *recompute, const struct sums *s)
{
    int differs = fabs(off((double)s->peak[0], (double)s->peak[1])) > PEAK_WITHIN || fabs(off(s->attention[0], s->attention[1])) > 1e-9;

    printf("%-12s %s, recompute %s: peak %" PRId64 " bytes (%+" PRId64 ", %+.4f %%), attention %.4g FLOP (%+.1f %%), other kernels %.4g bytes (%+.1f %%)\n", name,
           strategy, recompute, s->peak[0], s->peak[1] - s->peak[0], 100 * off((double)s->peak[0], (double)s->peak[1]), s->attention[0],
           100 * off(s->attention[0], s->attention[1]), s->bytes[0], 100 * off(s->bytes[0], s->bytes[1]));
    for (int i = 0; i < s->nproducts; i++)
        if (s->at[i].n != 0) {
            printf("    product %s %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 ": %" PRId64 " more %s\n", s->at[i].name, s->at[i].batch, s->at[i].d[0],
                   s->at[i].d[1], s->at[i].d[2], s->at[i].n < 0 ? -s->at[i].n : s->at[i].n, s->at[i].n > 0 ? "in the family" : "recorded");
            differs = 1;
        }
    return differs;
}

int main(int argc, char **argv)
{
    static const char *const strategies[] = { "fsdp", "ddp" }, *const recomputes[] = { "none", "full" };
    int differs = 0;

    if (argc != 6)
        return 2;
    bool eager = is_eager(argv[3]);
    int64_t b = strtoll(argv[4], NULL, 10), seq = strtoll(argv[5], NULL, 10);
    for (int i = 0; i < 4; i++) {
        struct sums *s = room_new(1, sizeof *s);
        struct plan p[2];
        if (!has_step(argv[3], strategies[i / 2], recomputes[i % 2]))
            continue;
        for (int side = 0; side < 2; side++) {
            if (add_plan(s, argv[2 + side], strategies[i / 2], recomputes[i % 2], b, seq, side, eager, &p[side]) < 0)
                return 2;
            if (side == 1 && (p[0].model.params != p[1].model.params || p[0].model.trainable != p[1].model.trainable)) {
                printf("%s: %" PRId64 " parameters, recorded %" PRId64 "\n", argv[1], p[0].model.params, p[1].model.params);
                differs = 1;
            }
        }
        differs |= say(argv[1], strategies[i / 2], recomputes[i % 2], s);
        plan_free(&p[0]);
        plan_free(&p[1]);
        free(s);
    }
    return differs;
}

/* deepspeed_stages.c -- PipelineModule._partition_layers(): see deepspeed_stages.h.
 *
 * Source: deepspeed/runtime/pipe/module.py and utils.py, partition_uniform() and partition_balanced(), of 0.19.6 and 0.19.8: the split in
 * which the largest and the smallest part differ least; of equal ones that whose later parts begin last. */
#include "model/plan/deepspeed_stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"

enum { ENDS = 2 };                      /* the final norm and the head */

struct list { int64_t lead, layers; double *weight; };

static bool has_positions(const struct model *m)
{
    for (int t = 0; t < m->ntensors; t++)
        if (m->tensors[t].role == ROLE_POSITIONS)
            return true;
    return false;
}

static int64_t layer_of(const struct list *l, const struct model *m, const struct tensor *t)
{
    if (t->block >= 0)
        return l->lead + t->block;
    if (t->block == TENSOR_EMBED)
        return t->role == ROLE_POSITIONS;
    return l->lead + m->layers + (t->role == ROLE_HEAD);
}

/* What the parts balance: trainable parameters, or blocks. */
static void weigh(const struct plan *p, struct list *l)
{
    const struct model *m = &p->model;

    for (int t = 0; t < m->ntensors; t++) {
        const struct tensor *x = &m->tensors[t];
        if (p->ds.partition_method == PARTITION_BLOCKS) {
            if (x->block >= 0)
                l->weight[layer_of(l, m, x)] = 1;
            continue;
        }
        l->weight[layer_of(l, m, x)] += x->frozen ? 0 : (double)x->numel;
        if (m->tied && x->role == ROLE_TOKENS && !x->frozen)
            l->weight[l->layers - 1] += (double)x->numel;
    }
}

static void uniform(int64_t layers, int64_t stages, int64_t *parts)
{
    int64_t each = layers / stages, more = layers % stages;

    for (int64_t s = 0; s <= stages; s++)
        parts[s] = layers <= stages ? (s < layers ? s : layers) : s * each + (s < more ? s : more);
}

/* Splits of the first i layers into j parts: the largest and the smallest, and where the last one begins. */
struct split { double most, least, spread; int64_t at; };

static void best_split(struct split *of, const double *sum, int64_t stages, int64_t i, int64_t j)
{
    struct split *best = &of[i * (stages + 1) + j];

    for (int64_t k = 0; k < i; k++) {
        const struct split *before = &of[k * (stages + 1) + j - 1];
        double part = sum[i] - sum[k], most = fmax(before->most, part), least = fmin(before->least, part);
        if (best->spread >= most - least)       /* false for infinity less infinity */
            *best = (struct split){ most, least, most - least, k };
    }
}

static void balanced(const struct list *l, int64_t stages, int64_t *parts)
{
    int64_t n = l->layers;
    struct split *of = room_new((size_t)((n + 1) * (stages + 1)), sizeof *of);
    double *sum = room_new((size_t)n + 1, sizeof *sum);

    for (int64_t i = 0; i < (n + 1) * (stages + 1); i++)
        of[i] = (struct split){ INFINITY, INFINITY, INFINITY, 0 };
    of[0].most = of[0].spread = 0;
    sum[0] = 0;
    for (int64_t i = 0; i < n; i++)
        sum[i + 1] = sum[i] + l->weight[i];
    for (int64_t i = 1; i <= n; i++)
        for (int64_t j = 1; j <= stages && j <= i; j++)
            best_split(of, sum, stages, i, j);
    parts[stages] = n;
    for (int64_t j = stages; j > 0; j--)
        parts[j - 1] = of[parts[j] * (stages + 1) + j].at;
    free(sum);
    free(of);
}

/* Lists of at most so many layers are remembered, as many of them. */
enum { KEPT_LAYERS = 256, KEPT = 8 };

/* A balanced split and all that it depends on.  A search asks for the same few again and again, stage by stage. */
struct kept { int64_t layers, stages, parts[KEPT_LAYERS + 1]; double weight[KEPT_LAYERS]; };

static void balanced_once(const struct list *l, int64_t stages, int64_t *parts)
{
    static _Thread_local struct { struct kept of[KEPT]; unsigned next; } memo;
    size_t weights = (size_t)l->layers * sizeof *l->weight, firsts = (size_t)(stages + 1) * sizeof *parts;

    if (l->layers > KEPT_LAYERS) {              /* more layers than stages: partition() */
        balanced(l, stages, parts);
        return;
    }
    for (int i = 0; i < KEPT; i++) {
        const struct kept *k = &memo.of[i];
        if (k->layers == l->layers && k->stages == stages && memcmp(k->weight, l->weight, weights) == 0) {
            memcpy(parts, k->parts, firsts);
            return;
        }
    }
    balanced(l, stages, parts);
    struct kept *k = &memo.of[memo.next++ % KEPT];
    k->layers = l->layers;
    k->stages = stages;
    memcpy(k->weight, l->weight, weights);
    memcpy(k->parts, parts, firsts);
}

/* Layer parts[s] is the first one of stage s. */
static struct list partition(const struct plan *p, int64_t stages, int64_t *parts)
{
    struct list l = { .lead = 1 + has_positions(&p->model) };

    l.layers = l.lead + p->model.layers + ENDS;
    if (p->ds.partition_method == PARTITION_UNIFORM || l.layers <= stages) {
        uniform(l.layers, stages, parts);
        return l;
    }
    l.weight = room_new((size_t)l.layers, sizeof *l.weight);
    weigh(p, &l);
    balanced_once(&l, stages, parts);
    free(l.weight);
    return l;
}

static int64_t blocks_before(const struct list *l, int64_t blocks, int64_t layer)
{
    int64_t n = layer - l->lead;

    return n < 0 ? 0 : n > blocks ? blocks : n;
}

struct local_stage deepspeed_stage(const struct plan *p, int64_t stages, int64_t stage)
{
    int64_t *parts = room_new((size_t)stages + 1, sizeof *parts), blocks = p->model.layers;
    struct list l = partition(p, stages, parts);
    int64_t first = blocks_before(&l, blocks, parts[stage]), end = blocks_before(&l, blocks, parts[stage + 1]);

    free(parts);
    return (struct local_stage){ first, end - first };
}

const char *deepspeed_stages_refused(const struct plan *p)
{
    int64_t stages = p->parallel.pipeline, *parts = room_new((size_t)stages + 1, sizeof *parts);
    struct list l = partition(p, stages, parts);
    const char *why = NULL;

    if (parts[stages - 1] > l.layers - ENDS)
        why = "the last stage would have the head without the final norm: not modelled yet";
    else if (parts[1] < l.lead)
        why = "the first stage would have the embedding without the positions: not modelled yet";
    free(parts);
    return why;
}

/* exec_context.c -- kernels of context-parallel ranks: positions that are a share of each sample's, attention in steps, exchanges of
 * positions and heads.  Which positions, and which of the keys of a step are seen, local_share.h says. */
#include "base/fail.h"
#include "exec/run/executor_internal.h"

static const struct local_share *share(const struct kernel_call *c) { return c->x->a.share; }

static void *offset(void *p, int64_t elems, enum dtype dt)
{
    return p ? (char *)p + elems * dtype_bytes(dt) : NULL;
}

bool exec_context_is(const struct executor *x) { return x->a.share && x->a.share->context_ranks > 1; }

/* ---- positions: run by run, sample by sample ---- */

int64_t exec_context_position(const struct executor *x, int64_t row, int64_t *n)
{
    struct local_positions whole = { 1, x->p->seq, { 0 } };
    struct local_positions at = exec_context_is(x) ? local_share_positions(x->p, x->a.share) : whole;
    int64_t i = row / at.run % at.runs, in = row % at.run;

    *n = at.run - in;
    return at.first[i] + in;
}

/* f on run i of a sample, whose first row is `row`. */
typedef int each_run(const struct kernel_call *c, struct kernels *k, const struct attention *a, int64_t row, int64_t first);

static int for_each_run(const struct kernel_call *c, struct kernels *k, const struct attention *a, each_run *f)
{
    struct local_positions at = local_share_positions(c->x->p, share(c));
    struct attention one = *a;

    one.batch = 1;
    one.seq = at.run;
    for (int64_t i = 0; i < a->batch * at.runs; i++) {
        one.first = at.first[i % at.runs];
        if (f(c, k, &one, i * at.run, one.first) < 0)
            return -1;
    }
    return 0;
}

static int rotate(const struct kernel_call *c, struct kernels *k, const struct attention *a, int64_t row, int64_t first)
{
    bool back = c->k->fn == FN_ROTARY_BACK;
    void *qkv = offset(c->at[back ? SLOT_DQKV : SLOT_QKV], row * a->ld, a->at);

    (void)first;                        /* a->first */
    return kernels_ops(k)->rotary(k, a, c->x->p->model.rotary_dim, c->x->inv_freq, qkv, back);
}

/* Dropout of the embedding counts elements of whole samples. */
static int sum_positions(const struct kernel_call *c, struct kernels *k, const struct attention *a, int64_t row, int64_t first)
{
    int64_t h = c->x->p->model.hidden;
    const struct grad_out *g = &c->grad[0];
    void *dx = offset(c->at[c->at[SLOT_DGATHERED] ? SLOT_DGATHERED : SLOT_DX], row * h, a->at);
    struct dropout d = exec_embed_dropout(c, row / plan_rank_seq(c->x->p) * c->x->p->seq + first);

    if (d.p > 0 && kernels_ops(k)->dropout_back(k, a->seq * h, dx, a->at, &d) < 0)
        return -1;
    return kernels_ops(k)->embed_positions_back(k, a->seq, h, a->seq, a->seq, dx, a->at, offset(g->p, first * h, g->dt), g->dt,
                                                GRAD_ADD);
}

static int positions_back(const struct kernel_call *c, struct kernels *k, const struct attention *a)
{
    const struct model *m = &c->x->p->model;
    const struct grad_out *g = &c->grad[0];

    if (g->into == GRAD_SET && kernels_ops(k)->zero(k, m->positions * m->hidden * dtype_bytes(g->dt), g->p) < 0)
        return -1;
    return for_each_run(c, k, a, sum_positions);
}

/* ---- keys and values of a step ---- */

static bool gathers(const struct kernel_call *c) { return c->x->p->parallel.context_method == CONTEXT_ALL_GATHER; }

/* Elements of a row of keys and values; of a rank's. */
static int64_t keys_width(const struct attention *a) { return 2 * a->kv_heads * a->dim; }
static int64_t keys_elems(const struct attention *a) { return a->batch * a->seq * keys_width(a); }

/* Where those of the rank `step` before this one lie among all ranks'. */
static int64_t gathered_at(const struct kernel_call *c, const struct attention *a)
{
    int64_t n = share(c)->context_ranks;

    return (share(c)->context_rank - c->k->step + n) % n * keys_elems(a);
}

/* Queries are this rank's positions, keys those of the rank `step` before it; heads the whole model's. */
static struct score_places places(const struct kernel_call *c, const struct attention *a)
{
    struct local_share of = *share(c);
    struct local_positions rows = local_share_positions(c->x->p, &of), keys;

    of.context_rank = (of.context_rank - c->k->step + of.context_ranks) % of.context_ranks;
    keys = local_share_positions(c->x->p, &of);
    return (struct score_places){ a->heads * tensor_ranks(c->x), c->x->p->seq, rows.run, { rows.first[0], rows.first[1] },
                                  { keys.first[0], keys.first[1] } };
}

static struct attention_part part(const struct kernel_call *c, const struct attention *a)
{
    struct local_sight see = local_share_sight(c->x->p, share(c), c->k->step);
    struct attention_part p = { .ld = keys_width(a), .from = see.from, .keys = see.keys, .causal = see.causal,
                                .fresh = c->k->step == 0, .at = places(c, a) };

    if (c->k->step == 0) {
        p.kv = offset(c->at[SLOT_QKV], a->heads * a->dim, a->at);
        p.ld = a->ld;
    } else if (gathers(c)) {
        p.kv = offset(c->at[SLOT_KEYS_NEXT], gathered_at(c, a), a->at);
    } else {
        p.kv = c->at[c->k->step % 2 ? SLOT_KEYS_NEXT : SLOT_KEYS];
    }
    return p;
}

static float *output_sum(const struct kernel_call *c)
{
    return c->at[c->at[SLOT_ATTN_SUM] ? SLOT_ATTN_SUM : SLOT_ATTN];
}

/* Gradients of a step's keys and values of a ring. */
static void *step_grads(const struct kernel_call *c)
{
    return c->at[c->k->step % 2 ? SLOT_DKEYS : SLOT_DKEYS_NEXT];
}

static int part_back(const struct kernel_call *c, struct kernels *k, const struct attention *a)
{
    struct attention_part p = part(c, a);
    bool own = c->k->step == 0 && !gathers(c), narrow = c->at[SLOT_DQ_SUM] != NULL;
    void *dkv = own ? offset(c->at[SLOT_DQKV], a->heads * a->dim, a->at)
              : gathers(c) ? offset(c->at[SLOT_DKEYS], gathered_at(c, a), a->at) : step_grads(c);

    return kernels_ops(k)->attention_part_back(k, a, &p, c->at[SLOT_QKV], c->at[SLOT_LSE], c->at[SLOT_DA], c->at[SLOT_DELTA],
                                               c->at[narrow ? SLOT_DQ_SUM : SLOT_DQKV], narrow ? a->heads * a->dim : a->ld, dkv,
                                               own ? a->ld : keys_width(a));
}

/* Columns `at` of rows that are `ld` apart, from rows of their own, or the reverse. */
static struct runs columns(const struct attention *a, int64_t width, bool into)
{
    return (struct runs){ .n = { 1, a->batch * a->seq }, .run = width, .dt = a->at, .st = a->at,
                          .to = { 0, into ? a->ld : width }, .from = { 0, into ? width : a->ld } };
}

static int take_keys(const struct kernel_call *c, struct kernels *k, const struct attention *a)
{
    struct runs r = columns(a, keys_width(a), false);

    return kernels_ops(k)->copy_runs(k, &r, c->at[SLOT_KEYS], offset(c->at[SLOT_QKV], a->heads * a->dim, a->at));
}

/* What came is the rank's own, or all but that of step 0. */
static int join_grads(const struct kernel_call *c, struct kernels *k, const struct attention *a)
{
    struct runs keys = columns(a, keys_width(a), true), queries = columns(a, a->heads * a->dim, true);

    keys.add = !gathers(c);
    queries.st = DT_FP32;
    if (c->at[SLOT_DQ_SUM] && kernels_ops(k)->copy_runs(k, &queries, c->at[SLOT_DQKV], c->at[SLOT_DQ_SUM]) < 0)
        return -1;
    return kernels_ops(k)->copy_runs(k, &keys, offset(c->at[SLOT_DQKV], a->heads * a->dim, a->at), c->at[SLOT_DKEYS_IN]);
}

/* ---- positions and heads ---- */

/* A tensor that is dealt out: its slot by positions and by heads, which way it goes, groups of columns that are cut each. */
struct dealt_tensor { enum slot positions, heads; bool to_heads; int groups; };

static const struct dealt_tensor dealt[] = {
    [DEALT_QKV]  = { SLOT_QKV,  SLOT_QKV_HEADS,  true,  3 },
    [DEALT_ATTN] = { SLOT_ATTN, SLOT_ATTN_HEADS, false, 1 },
    [DEALT_DA]   = { SLOT_DA,   SLOT_DA_HEADS,   true,  1 },
    [DEALT_DQKV] = { SLOT_DQKV, SLOT_DQKV_HEADS, false, 3 },
};

static void turn(struct runs *r)
{
    struct runs was = *r;

    for (int i = 0; i < 2; i++) {
        r->to[i] = was.from[i];
        r->from[i] = was.to[i];
    }
}

/* Between rows of all heads and parts, of which rank i's has its heads of each group: `out` to parts. */
static int by_positions(const struct kernel_call *c, struct kernels *k, const struct attention *a, const struct dealt_tensor *t,
                        void *parts, bool out)
{
    int64_t ranks = share(c)->context_ranks, rows = a->batch * a->seq, q = a->heads * a->dim, kv = a->kv_heads * a->dim;
    int64_t width = t->groups > 1 ? q + 2 * kv : q, at = 0;

    for (int g = 0; g < t->groups; g++) {
        int64_t mine = (g ? kv : q) / ranks;
        struct runs r = { .n = { ranks, rows }, .run = mine, .to = { rows * width / ranks, width / ranks }, .from = { mine, width },
                          .dt = a->at, .st = a->at };
        void *x = offset(c->at[t->positions], at, a->at), *y = offset(parts, at / ranks, a->at);
        if (!out)
            turn(&r);
        if (kernels_ops(k)->copy_runs(k, &r, out ? y : x, out ? x : y) < 0)
            return -1;
        at += mine * ranks;
    }
    return 0;
}

/* Between rows of the rank's heads and parts, of which rank i's has its positions of each sample. */
static int by_heads(const struct kernel_call *c, struct kernels *k, const struct attention *a, const struct dealt_tensor *t,
                    void *parts, bool out)
{
    int64_t ranks = share(c)->context_ranks, width = (a->heads + (t->groups > 1 ? 2 * a->kv_heads : 0)) * a->dim / ranks;
    int64_t run = a->seq * width;
    struct runs r = { .n = { ranks, a->batch }, .run = run, .to = { a->batch * run, run }, .from = { run, ranks * run }, .dt = a->at,
                      .st = a->at };

    if (!out)
        turn(&r);
    return kernels_ops(k)->copy_runs(k, &r, out ? parts : c->at[t->heads], out ? c->at[t->heads] : parts);
}

static int deal(const struct kernel_call *c, struct kernels *k, const struct attention *a)
{
    const struct dealt_tensor *t = &dealt[c->k->step];
    bool out = c->k->fn == FN_DEAL;
    void *parts = c->at[out ? SLOT_SENT : SLOT_CAME];

    return t->to_heads == out ? by_positions(c, k, a, t, parts, out) : by_heads(c, k, a, t, parts, out);
}

/* Of samples from s on, as many as of->batch. */
static int attend_heads_some(const struct kernel_call *c, struct kernels *k, const struct attention *of, int64_t s)
{
    int64_t n = s * of->seq, o = n * of->heads * of->dim;
    const void *qkv = offset(c->at[SLOT_QKV_HEADS], n * of->ld, of->at);
    void *out = offset(c->at[SLOT_ATTN_HEADS], o, of->at);
    float *lse = (float *)c->at[SLOT_LSE] + n * of->heads;

    if (c->k->fn == FN_ATTENTION)
        return kernels_ops(k)->attention(k, of, qkv, out, lse);
    return kernels_ops(k)->attention_back(k, of, qkv, out, lse, offset(c->at[SLOT_DA_HEADS], o, of->at),
                                          (float *)c->at[SLOT_DELTA] + n * of->heads,
                                          offset(c->at[SLOT_DQKV_HEADS], n * of->ld, of->at));
}

/* All positions of the rank's heads, as one rank's attention; with dropout, which counts the scores of all heads, a sample at a
 * time. */
static int attend_heads(const struct kernel_call *c, struct kernels *k, const struct attention *a)
{
    struct attention of = *a;
    int64_t ranks = share(c)->context_ranks, scores;

    of.seq *= ranks;
    of.heads /= ranks;
    of.kv_heads /= ranks;
    of.ld /= ranks;
    if (a->drop.p <= 0)
        return attend_heads_some(c, k, &of, 0);
    scores = of.heads * of.seq * of.seq;
    of.batch = 1;
    of.drop.first += share(c)->context_rank * scores;
    for (int64_t s = 0; s < a->batch; s++, of.drop.first += tensor_ranks(c->x) * ranks * scores)
        if (attend_heads_some(c, k, &of, s) < 0)
            return -1;
    return 0;
}

/* ---- all ---- */

int exec_context_run(const struct kernel_call *c, struct kernels *k, const struct attention *a)
{
    struct attention_part p;

    switch ((enum kernel_fn)c->k->fn) {
    case FN_ROTARY: case FN_ROTARY_BACK: return for_each_run(c, k, a, rotate);
    case FN_POSITIONS_BACK:              return positions_back(c, k, a);
    case FN_KEYS:                        return take_keys(c, k, a);
    case FN_ATTENTION_PART:
        p = part(c, a);
        return kernels_ops(k)->attention_part(k, a, &p, c->at[SLOT_QKV], output_sum(c), c->at[SLOT_LSE]);
    case FN_ATTENTION_SUM:
        return kernels_ops(k)->copy(k, a->batch * a->seq * a->heads * a->dim, c->at[SLOT_ATTN], a->at, c->at[SLOT_ATTN_SUM], DT_FP32,
                                    1, false);
    case FN_ATTENTION_DELTA:
        return kernels_ops(k)->attention_delta(k, a, c->at[SLOT_ATTN], c->at[SLOT_DA], c->at[SLOT_DELTA]);
    case FN_ATTENTION_PART_BACK:         return part_back(c, k, a);
    case FN_DKEYS_ADD:
        return kernels_ops(k)->copy(k, keys_elems(a), step_grads(c), a->at, c->at[SLOT_DKEYS_IN], a->at, 1, true);
    case FN_DKEYS_JOIN:                  return join_grads(c, k, a);
    case FN_DEAL: case FN_COLLECT:       return deal(c, k, a);
    case FN_ATTENTION: case FN_ATTENTION_BACK: return attend_heads(c, k, a);
    default:                             break;
    }
    return fail("no kernel for \"%s\" of ranks that share a sequence", c->k->name);
}

/* program_dpx_context.c -- attention of our own kernels where a rank has a share of each sample's positions.
 *
 * Ring (Liu et al. 2023, section 3): in `context` steps a rank's queries meet the keys and values of every rank; what a rank has
 * goes on to the next one while attention computes with it.  Scores are summed online: output and log-sum-exp of the steps so
 * far are what the next step begins with.  Backward sends keys and values round again, and their gradients behind them: a step's
 * are added to what the ranks before have added up, and go on while the next step is computed; the rank's own, of step 0, wait for
 * what comes home.  Each makes one hop fewer than there are ranks.
 *
 * All-gather (Llama 3, Dubey et al. 2024, section 3.3.2): keys and values of all ranks in one collective, beside the first step;
 * backward gathers them again, and one reduce-scatter adds their gradients up.
 *
 * Ulysses (Jacobs et al. 2023, section 3.1): an all-to-all of q, k and v takes a rank from all heads of its positions to all
 * positions of its heads, another one of the output back.  Attention itself is that of one rank.  Backward mirrors both.
 *
 * What travels has the activations' type; outputs and gradients of queries are summed in fp32. */
#include "model/program/program_dpx.h"

/* Appends a collective over the context's ranks: its number, for tape_needs(). */
static int collective(struct dpx *d, const char *name, enum coll_op op, bool onward, int64_t elems, enum slot from, enum slot into)
{
    struct kernel *k = dpx_kernel(d, FN_NONE, name, KC_COPY, 0);

    return k->collective = tape_note_collective(&d->t, &(struct collective){
        .op = (uint8_t)op, .group = GROUP_CONTEXT, .dtype = (uint8_t)dpx_dtype(d), .stream = STREAM_CONTEXT, .onward = onward,
        .red = op == COLL_REDUCE_SCATTER ? RED_SUM : RED_NONE, .from = (uint8_t)from, .into = (uint8_t)into, .elems = elems });
}

static int64_t keys_of(const struct dpx *d) { return 2 * d->n * d->kv; }

/* ---- all-gather and ring ---- */

/* Keys and values on their way. */
struct keys {
    bool gathers;
    int  at[2];                 /* stores: the rank's own and, from step 2 on, every other step's; the others' */
    int  sent;                  /* the collective that brings the next step's */
};

static enum slot keys_slot(int64_t step) { return step % 2 ? SLOT_KEYS_NEXT : SLOT_KEYS; }

static struct keys keys_leave(struct dpx *d)
{
    struct keys k = { .gathers = d->p->parallel.context_method == CONTEXT_ALL_GATHER };
    int64_t n = keys_of(d);

    dpx_kernel(d, FN_KEYS, "keys and values", KC_COPY, 2 * n * d->e);
    k.at[0] = dpx_temp(d, SLOT_KEYS, n, d->e);
    k.sent = k.gathers ? collective(d, "gather keys and values", COLL_ALL_GATHER, false, n * d->context, SLOT_KEYS, SLOT_KEYS_NEXT)
                       : collective(d, "send keys and values on", COLL_ALL_TO_ALL, true, n, SLOT_KEYS, SLOT_KEYS_NEXT);
    k.at[1] = dpx_temp(d, SLOT_KEYS_NEXT, k.gathers ? n * d->context : n, d->e);
    return k;
}

/* Before step i, from 1 on: they are sent on, unless it is the last, as soon as they are there: one stream has both. */
static void keys_arrive(struct dpx *d, struct keys *k, int64_t i)
{
    int came = k->sent;

    k->sent = k->gathers || i == d->context - 1 ? 0
            : collective(d, "send keys and values on", COLL_ALL_TO_ALL, true, keys_of(d), keys_slot(i), keys_slot(i + 1));
    tape_needs(&d->t, came);
}

static void keys_go(struct dpx *d, struct keys *k)
{
    dpx_gone(d, &k->at[0]);
    dpx_gone(d, &k->at[1]);
}

/* Of the fullest rank: the last one sees all keys of all others; where a rank has a chunk from either end of the sequence, each
 * sees half. */
static struct kernel *attend(struct dpx *d, enum kernel_fn fn, const char *name, int64_t step, int64_t bytes, double passes)
{
    double square = 4.0 * (double)d->n * (double)d->p->seq * (double)d->q;
    struct kernel *k = dpx_attention(d, fn, name, bytes, passes * square * (step > 0 && d->p->parallel.context_balance ? 0.5 : 1),
                                     d->n / d->p->seq * d->m->heads);

    k->step = (int16_t)step;
    k->attends = step == 0 ? ATTENDS_BEFORE : passes > 1 ? ATTENDS_ALL_BACK : ATTENDS_ALL;
    return k;
}

static void go_round(struct dpx *d)
{
    struct keys k = keys_leave(d);
    bool narrow = d->e != 4;
    int sum = 0;

    for (int64_t i = 0; i < d->context; i++) {
        if (i > 0)
            keys_arrive(d, &k, i);
        attend(d, FN_ATTENTION_PART, i ? "attention of others" : "attention", i,
               d->n * (d->q * (d->e + (i ? 8 : 4)) + 2 * d->kv * d->e), 1);
        if (i > 0)
            continue;
        if (narrow)
            sum = dpx_temp(d, SLOT_ATTN_SUM, d->n * d->q, 4);
        else
            d->k.attn = dpx_keep(d, SLOT_ATTN, d->n * d->q, d->e);
        d->k.lse = dpx_keep(d, SLOT_LSE, d->n * d->m->heads, 4);
    }
    keys_go(d, &k);
    if (!narrow)
        return;
    dpx_kernel(d, FN_ATTENTION_SUM, "attention sum", KC_COPY, d->n * d->q * (4 + d->e));
    d->k.attn = dpx_keep(d, SLOT_ATTN, d->n * d->q, d->e);
    dpx_gone(d, &sum);
}

/* Gradients of other ranks' keys and values, which go on behind these. */
struct key_grads { int at[2], in, sent; };

static enum slot grads_slot(int64_t step) { return step % 2 ? SLOT_DKEYS : SLOT_DKEYS_NEXT; }

/* Step i's are made: what came for them is added, and they go on. */
static void grads_leave(struct dpx *d, struct key_grads *g, int64_t i)
{
    if (i > 1) {
            tape_needs(&d->t, g->sent);
        dpx_kernel(d, FN_DKEYS_ADD, "add gradients", KC_ELEMENTWISE, 3 * keys_of(d) * d->e)->step = (int16_t)i;
    }
    g->sent = collective(d, "send gradients on", COLL_ALL_TO_ALL, true, keys_of(d), grads_slot(i), SLOT_DKEYS_IN);
    if (i == 1)
        g->in = dpx_temp(d, SLOT_DKEYS_IN, keys_of(d), d->e);
}

static void grads_gathered(struct dpx *d, struct key_grads *g)
{
    g->sent = collective(d, "reduce-scatter gradients", COLL_REDUCE_SCATTER, false, keys_of(d) * d->context, SLOT_DKEYS,
                         SLOT_DKEYS_IN);
    g->in = dpx_temp(d, SLOT_DKEYS_IN, keys_of(d), d->e);
}

/* dq in fp32, k's and v's from where they were added up, become the rank's dq, dk, dv. */
static void grads_join(struct dpx *d, struct key_grads *g, int *dq)
{
    tape_needs(&d->t, g->sent);
    dpx_kernel(d, FN_DKEYS_JOIN, "join gradients", KC_ELEMENTWISE, 3 * keys_of(d) * d->e + (*dq ? d->n * d->q * (4 + d->e) : 0));
    dpx_gone(d, dq);
    dpx_gone(d, &g->at[0]);
    dpx_gone(d, &g->at[1]);
    dpx_gone(d, &g->in);
}

static int go_round_back(struct dpx *d, int *da)
{
    int64_t n = keys_of(d);
    struct key_grads g = { { 0 }, 0, 0 };
    int dqkv = 0, dq = 0;

    dpx_kernel(d, FN_ATTENTION_DELTA, "attention delta", KC_ELEMENTWISE, 2 * d->n * d->q * d->e);
    int delta = dpx_temp(d, SLOT_DELTA, d->n * d->m->heads, 4);
    dpx_gone(d, &d->k.attn);
    struct keys k = keys_leave(d);
    for (int64_t i = 0; i < d->context; i++) {
        if (i > 0)
            keys_arrive(d, &k, i);
        attend(d, FN_ATTENTION_PART_BACK, i ? "attention of others backward" : "attention backward", i,
               d->n * (2 * d->q * d->e + 4 * d->kv * d->e + d->q * (i ? 8 : 4)), 2);
        if (i == 0) {
            dqkv = dpx_temp(d, SLOT_DQKV, d->n * (d->q + 2 * d->kv), d->e);
            dq = d->e != 4 ? dpx_temp(d, SLOT_DQ_SUM, d->n * d->q, 4) : 0;
        }
        if (k.gathers && i == 0)
            g.at[0] = dpx_temp(d, SLOT_DKEYS, n * d->context, d->e);
        else if (!k.gathers && (i == 1 || i == 2))
            g.at[i - 1] = dpx_temp(d, grads_slot(i), n, d->e);
        if (i == d->context - 1)
            keys_go(d, &k);
        if (!k.gathers && i > 0)
            grads_leave(d, &g, i);
    }
    int *done[] = { &delta, da, &d->k.lse, &d->k.qk_normed };
    for (int i = 0; i < 4; i++)
        dpx_gone(d, done[i]);
    if (k.gathers)
        grads_gathered(d, &g);
    grads_join(d, &g, &dq);
    return dqkv;
}

/* ---- Ulysses ---- */

/* Tensor `what`, `width` wide, of which `from` has a rank's positions of all heads, or all positions of its heads, becomes the other
 * one, held by `hold`: in parts for each rank, exchanged, put in order.  *from goes where it is not 0. */
static int exchange(struct dpx *d, enum dealt what, int64_t width, int *from, enum slot into, dpx_hold *hold)
{
    int64_t n = d->n * width;

    dpx_kernel(d, FN_DEAL, "parts for each rank", KC_COPY, 2 * n * d->e)->step = (int16_t)what;
    int sent = dpx_temp(d, SLOT_SENT, n, d->e);
    if (from)
        dpx_gone(d, from);
    collective(d, "all-to-all", COLL_ALL_TO_ALL, false, n, SLOT_SENT, SLOT_CAME);
    int came = dpx_temp(d, SLOT_CAME, n, d->e);
    dpx_kernel(d, FN_COLLECT, "parts in order", KC_COPY, 2 * n * d->e)->step = (int16_t)what;
    int y = hold(d, into, n, d->e);
    dpx_gone(d, &sent);
    dpx_gone(d, &came);
    return y;
}

/* All positions, of the rank's heads. */
static void attend_heads(struct dpx *d, enum kernel_fn fn, const char *name, int64_t bytes, double passes)
{
    dpx_attention(d, fn, name, bytes, passes * 4.0 * (double)d->n * (double)(d->p->seq * d->context) * (double)d->q,
                  d->n / d->p->seq * (d->m->heads / d->context));
}

/* Recomputed from all positions of q, k and v, where those were kept. */
static void by_heads(struct dpx *d)
{
    int64_t qkv = d->q + 2 * d->kv;

    if (!d->k.qkv_heads)
        d->k.qkv_heads = exchange(d, DEALT_QKV, qkv, d->m->qk_norm ? &d->k.qk_normed : &d->k.qkv, SLOT_QKV_HEADS, dpx_keep);
    attend_heads(d, FN_ATTENTION, "attention", d->n * (2 * d->q + 2 * d->kv) * d->e, 1);
    d->k.attn_heads = dpx_keep(d, SLOT_ATTN_HEADS, d->n * d->q, d->e);
    d->k.lse = dpx_keep(d, SLOT_LSE, d->n * d->m->heads, 4);
    d->k.attn = exchange(d, DEALT_ATTN, d->q, NULL, SLOT_ATTN, dpx_keep);
}

static int by_heads_back(struct dpx *d, int *da)
{
    int64_t qkv = d->q + 2 * d->kv;

    dpx_gone(d, &d->k.attn);
    int heads = exchange(d, DEALT_DA, d->q, da, SLOT_DA_HEADS, dpx_temp);
    attend_heads(d, FN_ATTENTION_BACK, "attention backward", d->n * (5 * d->q + 4 * d->kv) * d->e, 2);
    int delta = dpx_temp(d, SLOT_DELTA, d->n * d->m->heads, 4);
    int dqkv = dpx_temp(d, SLOT_DQKV_HEADS, d->n * qkv, d->e);
    int *done[] = { &delta, &heads, &d->k.attn_heads, &d->k.lse, &d->k.qkv_heads };
    for (int i = 0; i < 5; i++)
        dpx_gone(d, done[i]);
    return exchange(d, DEALT_DQKV, qkv, &dqkv, SLOT_DQKV, dpx_temp);
}

/* ---- both ---- */

void dpx_context_attention(struct dpx *d)
{
    if (d->p->parallel.context_method == CONTEXT_ULYSSES)
        by_heads(d);
    else
        go_round(d);
}

int dpx_context_attention_back(struct dpx *d, int *da)
{
    return d->p->parallel.context_method == CONTEXT_ULYSSES ? by_heads_back(d, da) : go_round_back(d, da);
}

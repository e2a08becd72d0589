/* program_dpx_tensor.c -- what tensor parallelism adds to the pieces of our own kernels, by its papers.
 *
 * Shoeybi et al. 2019 (Megatron-LM, section 3): q, k, v and the MLP's first matrix are cut by columns, attention's output and the
 * MLP's second one by rows.  Each half of a block adds up its output forward (g) and its input's gradient backward (f): two
 * all-reduces each way.  Tokens are looked up by the rank that has their row and added up; logits stay cut by columns, and
 * cross-entropy exchanges a maximum, the label's logit and a sum for each position.
 *
 * Korthikanti et al. 2022 (section 4.2): with sequence parallelism norms and residuals have a share of the positions.  An all-reduce
 * becomes a reduce-scatter and an all-gather; what a norm left is kept as the rank's share and gathered again in backward.
 * Learned positions are added before the sequence is dealt out (Megatron-LM, VocabParallelEmbedding without
 * reduce_scatter_embeddings).
 *
 * The residual, dropout and a row-parallel product's bias are added behind the sum, by a kernel of its own. */
#include "model/program/program_dpx.h"

static void collective(struct dpx *d, const char *name, enum coll_op op, enum red_op red, enum dtype dt, int64_t elems,
                       enum slot from, enum slot into)
{
    dpx_kernel(d, FN_NONE, name, KC_COPY, 0)->collective = tape_note_collective(&d->t, &(struct collective){
        .op = (uint8_t)op, .group = GROUP_TENSOR, .dtype = (uint8_t)dt, .red = (uint8_t)red, .stream = STREAM_TENSOR,
        .from = (uint8_t)from, .into = (uint8_t)into, .elems = elems });
}

/* ---- blocks ---- */

int dpx_gather(struct dpx *d, enum slot from, enum slot into)
{
    if (!d->sequence)
        return 0;
    collective(d, "all-gather", COLL_ALL_GATHER, RED_NONE, dpx_dtype(d), d->n * d->h, from, into);
    return dpx_temp(d, into, d->n * d->h, d->e);
}

int dpx_sum(struct dpx *d, enum tensor_role role, enum slot out, dpx_hold *hold)
{
    int part = d->sequence ? dpx_temp(d, SLOT_PARTIAL, d->n * d->h, d->e) : 0, y = 0;

    if (!d->sequence)
        y = hold(d, out, d->n * d->h, d->e);
    collective(d, d->sequence ? "reduce-scatter" : "all-reduce", d->sequence ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, RED_SUM,
               dpx_dtype(d), d->n * d->h, d->sequence ? SLOT_PARTIAL : out, out);
    if (d->sequence)
        y = hold(d, out, d->r * d->h, d->e);
    dpx_use(d, role);
    dpx_kernel(d, FN_RESIDUAL, "residual add", KC_ELEMENTWISE, 3 * d->r * d->h * d->e);
    dpx_gone(d, &part);
    return y;
}

int dpx_sum_back(struct dpx *d)
{
    if (d->ranks == 1)
        return 0;
    collective(d, d->sequence ? "reduce-scatter" : "all-reduce", d->sequence ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, RED_SUM,
               dpx_dtype(d), d->n * d->h, SLOT_DN, d->sequence ? SLOT_DSHARE : SLOT_DN);
    return d->sequence ? dpx_temp(d, SLOT_DSHARE, d->r * d->h, d->e) : 0;
}

void dpx_bias_back(struct dpx *d, const char *name, enum tensor_role role)
{
    if (d->ranks == 1 || torch_piece_tensor(d->m, d->block, role, true) < 0)
        return;
    dpx_use(d, role);
    dpx_kernel(d, FN_LINEAR_DB, name, KC_ELEMENTWISE, d->r * d->h * d->e);
    dpx_param_grad(d, role, true, d->h);
}

/* ---- the ends ---- */

/* The lookup is the last kernel. */
int dpx_cut_tokens(struct dpx *d)
{
    bool learned = d->m->position == POS_LEARNED, scatters = d->sequence && !learned;
    int x = d->sequence ? 0 : dpx_keep(d, SLOT_Y, d->n * d->h, d->e);
    int part = d->sequence ? dpx_temp(d, SLOT_PARTIAL, d->n * d->h, d->e) : 0;
    enum slot from = d->sequence ? SLOT_PARTIAL : SLOT_Y;

    collective(d, scatters ? "reduce-scatter" : "all-reduce", scatters ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, RED_SUM,
               dpx_dtype(d), d->n * d->h, from, scatters ? SLOT_Y : from);
    if (scatters)
        x = dpx_keep(d, SLOT_Y, d->r * d->h, d->e);
    if (learned)
        dpx_use(d, ROLE_POSITIONS);
    if (learned)
        dpx_kernel(d, FN_POSITIONS, "position embedding", KC_EMBEDDING, 3 * d->r * d->h * d->e);
    else if (d->sequence)
        dpx_kernel(d, FN_NONE, "parts of sums go", KC_COPY, 0);
    if (!x)
        x = dpx_keep(d, SLOT_Y, d->r * d->h, d->e);
    dpx_gone(d, &part);
    return x;
}

void dpx_cut_tokens_back(struct dpx *d)
{
    d->dgathered = dpx_gather(d, SLOT_DX, SLOT_DGATHERED);
}

/* Columns of the logits that all ranks but the last have. */
static int64_t columns(const struct dpx *d) { return (d->whole->vocab + d->ranks - 1) / d->ranks; }

/* Where all are gathered, equal parts: the last rank's is filled up. */
int64_t dpx_logits(const struct dpx *d)
{
    return d->n * (d->ranks > 1 && !d->p->parallel.loss_parallel ? columns(d) : d->m->vocab);
}

/* Cross-entropy of all logits on every rank, which takes its own columns of their gradient. */
static int whole_loss(struct dpx *d)
{
    int64_t all = d->n * columns(d) * d->ranks;

    collective(d, "all-gather", COLL_ALL_GATHER, RED_NONE, dpx_dtype(d), all, SLOT_LOGITS, SLOT_PARTIAL);
    int logits = dpx_temp(d, SLOT_PARTIAL, all, d->e);
    dpx_kernel(d, FN_LOGITS_WHOLE, "cross-entropy", KC_LOSS, 2 * all * d->e);
    int losses = dpx_keep(d, SLOT_LOSSES, d->n, 4), labels = dpx_labels(d);
    dpx_gone(d, &labels);
    dpx_gone(d, &logits);
    return losses;
}

int dpx_cut_loss(struct dpx *d)
{
    static const struct { const char *name; enum kernel_fn fn; enum slot slot; enum red_op red; } step[] = {
        { "maximum", FN_LOGITS_MOST, SLOT_STATS2, RED_MAX }, { "label's logit", FN_LOGITS_LABEL, SLOT_STATS3, RED_SUM },
        { "sum of exp", FN_LOGITS_SUM, SLOT_STATS4, RED_SUM },
    };
    int64_t cut = d->n * d->m->vocab;
    int sum[3], labels = 0;

    if (!d->p->parallel.loss_parallel)
        return whole_loss(d);
    for (int i = 0; i < 3; i++) {
        dpx_kernel(d, step[i].fn, step[i].name, KC_LOSS, i == 1 ? 8 * d->n : cut * d->e);
        sum[i] = dpx_temp(d, step[i].slot, d->n, 4);
        if (step[i].fn == FN_LOGITS_LABEL)
            labels = dpx_labels(d);
        collective(d, "all-reduce", COLL_ALL_REDUCE, step[i].red, DT_FP32, d->n, step[i].slot, step[i].slot);
    }
    dpx_kernel(d, FN_LOGITS_LOSS, "cross-entropy", KC_LOSS, 2 * cut * d->e);
    int losses = dpx_keep(d, SLOT_LOSSES, d->n, 4);
    for (int i = 0; i < 3; i++)
        dpx_gone(d, &sum[i]);
    dpx_gone(d, &labels);
    return losses;
}

void dpx_logits_dx(struct dpx *d, int *all)
{
    int dn = 0;

    if (!d->sequence) {
        dpx_linear_dx(d, GEMM("logits"), ROLE_HEAD, d->m->vocab, d->h, &d->dx, SLOT_DX);
        if (d->ranks == 1)
            return;
        collective(d, "all-reduce", COLL_ALL_REDUCE, RED_SUM, dpx_dtype(d), d->n * d->h, SLOT_DX, SLOT_DX);
        dpx_kernel(d, FN_NONE, "logits go", KC_COPY, 0);
        return;
    }
    dpx_linear_dx(d, GEMM("logits"), ROLE_HEAD, d->m->vocab, d->h, &dn, SLOT_DN);
    if (all)
        dpx_gone(d, all);
    collective(d, "reduce-scatter", COLL_REDUCE_SCATTER, RED_SUM, dpx_dtype(d), d->n * d->h, SLOT_DN, SLOT_DX);
    d->dx = dpx_temp(d, SLOT_DX, d->r * d->h, d->e);
    dpx_kernel(d, FN_NONE, "parts of sums go", KC_COPY, 0);
    dpx_gone(d, &dn);
}

void dpx_cut_logits_back(struct dpx *d)
{
    int all = dpx_gather(d, SLOT_NORM1, SLOT_GATHERED);

    dpx_linear_dw(d, GEMM("logits"), ROLE_HEAD, d->m->vocab, d->h, NULL);
    dpx_logits_dx(d, &all);
}

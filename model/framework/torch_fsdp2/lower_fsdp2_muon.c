/* lower_fsdp2_muon.c -- torch.optim.Muon of matrices that FSDP2 shards, and AdamW of the rest, a step of its own after it.
 *
 * Source: torch/optim/_muon.py of PyTorch 2.15.  Parameters, gradients and momentum are DTensors of rows; each of the 5 Newton-Schulz
 * iterations multiplies three times, and DTensor brings the inputs of each product to where it finds them cheapest
 * (dtensor_product.h).  One walk over a matrix's step says its entries, and what it holds at its fullest.
 *
 * What it holds are tensors that PyTorch's FSDPMemTracker counts: shard_dim_alltoall() has for a moment a copy in another order
 * beside its input and its result, which is not among them. */
#include <string.h>

#include "model/lower/common/optimizer.h"
#include "model/framework/torch_fsdp2/dtensor_product.h"
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

enum { ITERATIONS = 5 };        /* DEFAULT_NS_STEPS */

/* Tensors of a step that may be there at once: the mean of gradient and momentum, the update of the matrix before, X, its Gram matrix
 * and the polynomial of it, redistributed inputs of a product, what a collective needs beside its result, the product. */
enum { MEAN, BEFORE, X, GRAM, POLYNOMIAL, ADDED, LEFT, RIGHT, BESIDE, PRODUCT, HELD };

struct muon {
    struct fsdp2 *f;
    struct dtensor_mesh mesh;
    bool emits;                 /* entries; else only what is held */
    int block, by;
    uint16_t after;             /* what the next computation waits for */
    int64_t now[HELD], fullest[HELD], most;
    int64_t copied;             /* elements of bf16 that were copied for the next product */
};

static struct muon begin(struct fsdp2 *f, bool emits)
{
    bool far = f->nshard > f->p->cluster.gpus_per_node;

    return (struct muon){ .f = f, .mesh = { f->nshard, f->rank_in_group, far }, .emits = emits };
}

/* ---- what is held, and entries ---- */

static void hold(struct muon *w, int what, int64_t bytes)
{
    int64_t sum = 0;

    w->now[what] = round512(bytes);
    for (int i = 0; i < HELD; i++)
        sum += w->now[i];
    if (sum <= w->most)
        return;
    w->most = sum;
    memcpy(w->fullest, w->now, sizeof w->now);
}

static void compute(struct muon *w, const char *what, int64_t elems, int bytes, int passes, double flops)
{
    if (!w->emits)
        return;
    struct op *o = sched_op(w->f->s, OP_OPTIMIZER, STREAM_COMPUTE, PHASE_OPTIMIZER, what);
    o->after = w->after;
    o->u.optimizer.elems = elems;
    o->u.optimizer.tensors = 1;
    o->u.optimizer.bytes = (uint32_t)bytes;
    o->u.optimizer.passes = (uint8_t)passes;
    o->u.optimizer.each = true;
    o->u.optimizer.flops = flops;
    sched_of(w->f->s, "block", w->block, w->by);
    w->after = 0;
}

static void communicate(struct muon *w, enum coll_op op, int64_t elems)
{
    if (!w->emits)
        return;
    struct op *o = sched_coll(w->f->s, STREAM_GROUP, PHASE_OPTIMIZER, op, w->f->group, DT_BF16,
                              op == COLL_ALL_REDUCE || op == COLL_REDUCE_SCATTER ? RED_SUM : RED_NONE, elems);
    o->after = AFTER(STREAM_COMPUTE);
    o->flags = OPF_DTENSOR;
    sched_of(w->f->s, "block", w->block, w->by);
    w->after = AFTER(STREAM_GROUP);
}

static void move(struct muon *w, const struct dtensor *x, enum placed to, int into)
{
    struct dtensor_move m = dtensor_move(&w->mesh, x, to);

    hold(w, BESIDE, 2 * m.beside);
    hold(w, into, 2 * m.result);
    w->now[BESIDE] = 0;
    w->copied += m.copied;
    if (m.op != NCOLL)
        communicate(w, m.op, m.elems);
}

/* x[0] + x[1] x[2], into what is held as `into`. */
static struct dtensor multiply(struct muon *w, const struct dtensor x[3], bool added, int into)
{
    enum placed want[3];
    struct dtensor product = { x[1].rows, x[2].columns, dtensor_product(&w->mesh, x, added, want), false };
    struct dtensor left = { x[1].rows, x[1].columns, want[1], false }, right = { x[2].rows, x[2].columns, want[2], false };
    int64_t columns = want[2] == PLACED_COLUMNS ? dtensor_local(&w->mesh, &right) / right.rows : right.columns;

    for (int i = added ? 0 : 1; i < 3; i++)
        move(w, &x[i], want[i], ADDED + i);
    hold(w, PRODUCT, 2 * dtensor_local(&w->mesh, &product));
    compute(w, "Newton-Schulz", w->copied, 4, w->copied > 0 ? 2 : 1, 2.0 * (double)dtensor_local(&w->mesh, &left) * (double)columns);
    w->now[ADDED] = w->now[LEFT] = w->now[RIGHT] = 0;
    w->now[into] = w->now[PRODUCT];
    w->now[PRODUCT] = 0;
    w->copied = 0;
    return product;
}

/* ---- a matrix ---- */

static struct dtensor newton_schulz(struct muon *w, struct dtensor x)
{
    for (int i = 0; i < ITERATIONS; i++) {
        struct dtensor gram = multiply(w, (struct dtensor[3]){ x, x, dtensor_transposed(x) }, false, GRAM);
        struct dtensor polynomial = multiply(w, (struct dtensor[3]){ gram, gram, gram }, true, POLYNOMIAL);
        x = multiply(w, (struct dtensor[3]){ x, polynomial, x }, true, X);
    }
    return x;
}

/* _single_tensor_muon().  Bytes an element of this rank's rows, of e a number: lerp_ and lerp read two and write one, the cast reads e
 * and writes 2, its norm reads 2; div_ reads and writes them; mul_ reads and writes e, add_ reads e and 2 and writes e. */
static void step_of(struct muon *w, const struct tensor *t)
{
    int e = (int)dtype_bytes(w->f->r.kept);
    bool tall = t->shape[0] > t->shape[1];
    struct dtensor x = { t->shape[0], t->shape[1], w->mesh.ranks > 1 ? PLACED_ROWS : PLACED_WHOLE, false };
    int64_t n = dtensor_local(&w->mesh, &x);

    hold(w, MEAN, e * n);
    w->now[BEFORE] = 0;
    hold(w, X, 2 * n);
    compute(w, "Muon's momentum", n, 7 * e + 4, 4, 0);
    if (w->mesh.ranks > 1)
        communicate(w, COLL_ALL_REDUCE, 1);             /* _NormPartial, of which clamp() wants the whole */
    compute(w, "divide by the norm", n, 4, 4, 0);       /* and its root, and clamp() */
    x = tall ? dtensor_transposed(x) : x;
    x = newton_schulz(w, x);
    x = tall ? dtensor_transposed(x) : x;
    w->now[GRAM] = w->now[POLYNOMIAL] = w->now[MEAN] = 0;
    w->now[BEFORE] = w->now[X];
    w->now[X] = 0;
    move(w, &x, w->mesh.ranks > 1 ? PLACED_ROWS : x.at, ADDED);
    compute(w, "Muon", n, 4 * e + 2, 2, 0);
    w->now[ADDED] = 0;
    w->copied = 0;
}

static void block(void *arg, int block, int by)
{
    struct muon *w = arg;
    const struct model *m = w->f->m;

    w->block = block;
    w->by = by;
    for (int i = 0; i < m->ntensors; i++)
        if (m->tensors[i].block == block && plan_orthogonalises(w->f->p, &m->tensors[i]))
            step_of(w, &m->tensors[i]);
}

/* ---- the step ---- */

/* Elements of this rank that are AdamW's; how many tensors, and what its list of temporaries takes. */
static int64_t beside(const struct fsdp2 *f, int *tensors, int64_t *list)
{
    int64_t elems = 0, of;

    *tensors = 0;
    *list = 0;
    for (int i = 0; i < f->m->ntensors; i++) {
        const struct tensor *t = &f->m->tensors[i];
        if (t->frozen || plan_orthogonalises(f->p, t))
            continue;
        of = fsdp2_local_share(f, i);
        elems += of;
        *list += round512(of * dtype_bytes(f->r.kept));
        *tensors += 1;
    }
    return elems;
}

struct op *fsdp2_step(struct fsdp2 *f, int64_t elems)
{
    struct muon w = begin(f, true);
    int tensors;
    int64_t list;

    if (f->p->optimizer != OPTIMIZER_MUON)
        return lower_torch_adamw(f->s, f->p, elems);
    units_blocks_emit(f->local, f->s, false, false, block, &w);
    elems = beside(f, &tensors, &list);
    struct op *o = lower_adamw(f->s, f->p, ADAMW_FOREACH, elems);
    o->what = "AdamW";
    o->u.optimizer.tensors = tensors;
    o->u.optimizer.bytes = (uint32_t)(20 * dtype_bytes(f->r.kept));     /* as lower_common.c counts AdamW's list */
    o->u.optimizer.passes = 8;
    o->u.optimizer.each = false;
    o->u.optimizer.flops = 0;
    return o;
}

void fsdp2_step_temporaries(struct fsdp2 *f)
{
    struct muon w = begin(f, false);
    struct buf *b = &f->s->bufs[f->foreach_temp];
    int64_t list;
    int tensors;

    if (f->p->optimizer != OPTIMIZER_MUON) {
        lower_adamw_temporaries(f->s, f->p, f->foreach_temp, 0);
        return;
    }
    for (int i = 0; i < f->m->layers; i++)
        block(&w, i, 0);
    beside(f, &tensors, &list);
    f->s->nparts -= b->nparts;              /* of all tensors */
    b->nparts = 0;
    b->bytes = list > w.most ? list : w.most;
    for (int i = 0; i < f->m->ntensors && list > w.most; i++)
        if (!f->m->tensors[i].frozen && !plan_orthogonalises(f->p, &f->m->tensors[i]) && fsdp2_local_share(f, i) > 0)
            sched_part(f->s, f->foreach_temp, round512(fsdp2_local_share(f, i) * dtype_bytes(f->r.kept)));
    for (int i = 0; i < HELD && list <= w.most; i++)
        if (w.fullest[i] > 0)
            sched_part(f->s, f->foreach_temp, w.fullest[i]);
}

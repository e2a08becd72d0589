/* lower_zero12_backward.c -- backward of stages 1 and 2 where gradients enter the
 * bucket from hooks: compute is cut only where the bucket acts, which is where its
 * memory comes, where it is flushed, and around a gradient too large to be copied.
 *
 * Between cuts a gradient is made, copied into the bucket and freed by itself: the
 * compute entry writes it there, and the copies of a segment, as bytes, are one entry
 * behind it. */
#include "model/framework/deepspeed_012/lower_zero12.h"

#include <string.h>

/* A piece's pass.  r.k0: kernels before it are issued. */
struct cutting {
    struct z12     *z;
    struct walk_run r;
    int            *pending, npending;      /* added to the bucket, not copied yet */
    int            *pending_kernel;
};

static const struct kernel *kernels(const struct cutting *c) { return c->z->d.s->program.piece[c->r.piece].kernels[PASS_BACKWARD]; }

static int nkernels(const struct cutting *c) { return c->z->d.s->program.piece[c->r.piece].nkernels[PASS_BACKWARD]; }

/* The gradient becomes .grad. */
static void born(struct z12 *z, int t)
{
    int what = z->live[t] == Z12_GONE ? ACT_ALLOC | ACT_WRITE : ACT_W;

    if (z->wide) {                  /* for a moment: widen() */
        ds_act(&z->d, &z->narrow, t == z->d.tied ? ACT_W : ACT_ALLOC | ACT_WRITE, t, 0);
        return;
    }
    ds_act(&z->d, &z->grads, what, t, z->grad_copy);
    z->live[t] = Z12_THERE;
}

/* The head's part of a tied weight's gradient waits for the embedding's: as what
 * will be the gradient, or beside one that exists. */
static void tied_part(struct z12 *z)
{
    const struct ds *d = &z->d;

    if (z->mode == Z12_ADD) {
        sched_act(d->s, ACT_ALLOC, z->partial, 0, 0);
        return;
    }
    if (z->wide) {
        ds_act(d, &z->narrow, ACT_ALLOC, d->tied, 0);
        return;
    }
    ds_act(d, &z->grads, ACT_ALLOC, d->tied, z->grad_copy);
    z->live[d->tied] = Z12_PART;
}

/* Gradients that an entry hands out, into out[]. */
static int handed_out(const struct z12 *z, const struct walk_run *r, int *out)
{
    const struct ds *d = &z->d;
    int n = 0;

    for (int i = 0; i < d->nready[r->piece]; i++) {
        const struct ds_ready *x = &d->ready[r->piece][i];
        if (x->kernel >= r->k0 && x->kernel < r->k1)
            out[n++] = ds_handed(d, r->piece, r->block, x);
    }
    return n;
}

static bool keeps(const struct z12 *z) { return z->d.walk.fate == GRADS_KEEP; }

/* Where gradients of a cut pass's entry go: they stay, are added to those that exist, or stream into the
 * bucket.  The latter two are data only: their buffers are there before and after. */
static void leave(struct z12 *z, const struct walk_run *r)
{
    int *t = z->handed, n = keeps(z) || z->d.s->detailed ? handed_out(z, r, t) : 0;

    if (keeps(z) && r->piece == PIECE_HEAD && z->d.tied_kernel >= r->k0 && z->d.tied_kernel < r->k1)
        tied_part(z);
    if (!keeps(z) && z->mode == Z12_STREAM && n > 0)
        sched_act_as(z->d.s, ACT_W, z->ipg, z->index, 0, z12_in_bucket(z, t, n));
    for (int i = 0; i < n; i++) {
        if (keeps(z))
            born(z, t[i]);
        else if (z->mode == Z12_ADD)
            ds_act(&z->d, &z->grads, ACT_A, t[i], 0);
    }
}

/* Of an entry that is a whole pass, in a repeat perhaps. */
static void leave_whole(struct z12 *z, const struct walk_run *r)
{
    const struct ds *d = &z->d;

    for (int i = 0; i < d->nready[r->piece]; i++) {
        int t = ds_handed(d, r->piece, r->block, &d->ready[r->piece][i]);
        ds_act_by(d, &z->grads, z->mode == Z12_ADD ? ACT_A : t == d->tied ? ACT_W : ACT_ALLOC | ACT_WRITE, t, r->by);
    }
}

void z12_leave_gradients(struct z12 *z, const struct walk_run *r) { (z->d.walk.cuts ? leave : leave_whole)(z, r); }

/* fp32 accumulation outside of .grad (_fill_param_grad_accum_attribute), one gradient after the
 * other. */
static void widen(struct z12 *z, const struct walk_run *r)
{
    const struct ds *d = &z->d;
    int *t = z->handed, n = handed_out(z, r, t);

    for (int i = 0; i < n; i++) {
        int64_t elems = d->m->tensors[t[i]].numel;
        bool first = z->live[t[i]] == Z12_GONE;
        sched_copy(d->s, STREAM_COMPUTE, PHASE_BACKWARD, "accumulate in fp32",
                   elems * (first ? d->e : d->e + 4), elems * 4);
        ds_name(d, r->piece, r->block, 0);
        sched_does(d->s, first ? COPY_SET : COPY_ADD, 1);
        ds_act(d, &z->grads, first ? ACT_ALLOC | ACT_WRITE : ACT_A, t[i], 0);
        ds_act(d, &z->narrow, ACT_READ | ACT_FREE, t[i], 0);
        if (!first)                 /* add_(grad.to(fp32)) */
            sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch(&z->d, CAT_TEMPORARIES, "one gradient in fp32",
                                                             round512(elems * 4)), 0, 0);
        z->live[t[i]] = Z12_THERE;
    }
}

void z12_post_run(void *zero12, const struct walk_run *r)
{
    struct z12 *z = zero12;
    bool cut = z->d.walk.cuts;

    if (!r->forward && !cut && r->piece == PIECE_EMBED && z->d.tied >= 0 && z->mode == Z12_ADD)
        sched_act(z->d.s, ACT_FREE, z->partial, 0, 0);
    if (!r->forward && cut && z->wide)
        widen(z, r);
    ds_leaves(&z->d, r);
    if (!cut)
        ds_pipe_after(&z->d, r);
}

/* Kernels up to k1.  `keep`: their gradients stay. */
static void entry(struct cutting *c, int k1, bool keep)
{
    c->z->d.walk.fate = keep ? GRADS_KEEP : GRADS_DROP;
    walk_to(&c->z->d.walk, &c->r, k1);
}

/* The same, where the tied weight's part stays though nothing else does. */
static void segment(struct cutting *c, int k1, bool keep)
{
    int tied = c->z->d.tied_kernel;

    if (!keep && c->r.piece == PIECE_HEAD && tied >= c->r.k0 && tied < k1) {
        entry(c, tied, false);
        entry(c, tied + 1, true);
    }
    entry(c, k1, keep);
}

static void copy_pending(struct cutting *c)
{
    z12_copy_in(c->z, c->pending, c->npending);
    c->npending = 0;
}

/* Bytes of gradients made before kernel k and not handed out yet: a matrix product's
 * weight gradient is handed out after that of its input is made. */
static int64_t unfinished(const struct cutting *c, int k)
{
    const struct ds *d = &c->z->d;
    int64_t bytes = 0;

    for (int i = 0; i < k; i++)
        if (c->r.piece != PIECE_HEAD || i != d->tied_kernel)
            bytes += kernels(c)[i].net[MEM_GRADS] - kernels(c)[i].ready_bytes;
    return bytes;
}

/* The last kernel up to k before which no gradient is half made. */
static int made_from(const struct cutting *c, int k)
{
    while (k > c->r.k0 && unfinished(c, k) != 0)
        k--;
    return k;
}

/* Gradients t[0..n) are ready after kernel k and exist while the bucket acts. */
static void act_now(struct cutting *c, int k, const int *t, int n)
{
    struct z12 *z = c->z;

    if (z->mode == Z12_STREAM) {
        int from = made_from(c, k), kept = 0;
        while (kept < c->npending && c->pending_kernel[c->npending - 1 - kept] >= from)
            kept++;                 /* handed out behind the cut as well */
        segment(c, from, false);
        z12_copy_in(z, c->pending, c->npending - kept);
        memmove(c->pending, c->pending + c->npending - kept, (size_t)kept * sizeof *c->pending);
        c->npending = kept;
    }
    segment(c, k + 1, z->mode != Z12_ADD);
    copy_pending(c);
    for (int i = 0; i < n; i++) {
        if (z->hooks)
            z12_hook(z, t[i]);
        else
            z12_setup_bucket(z);
    }
}

static void later(struct cutting *c, int k, const int *t, int n)
{
    for (int i = 0; i < n; i++) {
        if (!c->z->hooks)
            continue;
        z12_add(c->z, t[i]);
        c->pending_kernel[c->npending] = k;
        c->pending[c->npending++] = t[i];
    }
}

static bool acts(const struct cutting *c, const int *t, int n)
{
    if (c->z->hooks && c->z->wide && c->z->compact)     /* its sum goes into the bucket at once */
        return true;
    if (c->z->hooks)                /* half made at a cut: is kept like those before the cut */
        return z12_acts(c->z, t, n) || (c->z->mode == Z12_STREAM && c->r.k0 > 0 && unfinished(c, c->r.k0) != 0);
    return c->z->contiguous && !c->z->ipg_live;
}

/* Behind the head: the bucket comes with the first gradient, which a stage without a head has in a block. */
static bool cuts_blocks(const struct z12 *z)
{
    return z->hooks || z->wide || (!z->d.walk.heads && z->contiguous && !z->ipg_live);
}

static enum grad_fate fate(const struct z12 *z) { return z->mode == Z12_KEEP ? GRADS_KEEP : GRADS_DROP; }

void z12_begin_backward(struct z12 *z)
{
    z->d.walk.cuts = z->d.walk.heads || cuts_blocks(z);
    z->d.walk.fate = fate(z);
}

void z12_pass(void *zero12, const struct walk_run *r)
{
    struct z12 *z = zero12;
    const struct ds *d = &z->d;
    const struct ds_ready *ready = d->ready[r->piece];
    int n = d->nready[r->piece], tied_done = 0;
    struct cutting c = { .z = z, .r = *r, .pending = z->handed + d->m->ntensors, .pending_kernel = z->handed + 2 * d->m->ntensors };

    for (int i = 0; i < n; ) {
        int t[4], same = 0, k = ready[i].kernel;
        for (; i < n && ready[i].kernel == k && same < 4; i++) {
            t[same] = ds_handed(d, r->piece, r->block, &ready[i]);
            tied_done |= t[same++] == d->tied;
        }
        if (acts(&c, t, same))
            act_now(&c, k, t, same);
        else
            later(&c, k, t, same);
    }
    segment(&c, nkernels(&c), z->mode == Z12_KEEP);
    copy_pending(&c);
    if (tied_done && z->mode == Z12_ADD)
        ds_memory(d, PHASE_BACKWARD, "drop first part", ACT_FREE, z->partial);
    ds_pipe_after(d, r);
    if (r->piece == PIECE_HEAD)
        z->d.walk.cuts = cuts_blocks(z);
    z->d.walk.fate = fate(z);
}

/* Where nothing acted inside of blocks. */
void z12_end_backward(struct z12 *z)
{
    if (z->d.walk.cuts || z->mode != Z12_KEEP)
        return;
    for (int t = 0; t < z->d.m->ntensors; t++)
        z->live[t] = z->d.m->tensors[t].frozen ? Z12_GONE : Z12_THERE;
}

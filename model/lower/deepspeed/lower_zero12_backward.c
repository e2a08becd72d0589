/* lower_zero12_backward.c -- backward of stages 1 and 2 where gradients enter the
 * bucket from hooks: compute is cut only where the bucket acts, which is where its
 * memory comes, where it is flushed, and around a gradient too large to be copied.
 *
 * Between cuts a gradient is made, copied into the bucket and freed by itself: the
 * compute entry writes it there, and the copies of a segment, as bytes, are one entry
 * behind it. */
#include "model/lower/deepspeed/lower_zero12.h"

#include <assert.h>
#include <string.h>

enum { MAX_TENSORS = 64 };          /* of a piece */

struct walk {
    struct z12   *z;
    enum piece_id piece;
    int           block, offset;    /* of the block's tensors from block 0's */
    int           k;                /* kernels before it are issued */
    int           pending[MAX_TENSORS], npending;   /* added to the bucket, not copied yet */
    int           pending_kernel[MAX_TENSORS];
};

static const struct kernel *kernels(const struct walk *w)
{
    return w->z->d.s->program.piece[w->piece].kernels[PASS_BACKWARD];
}

static int nkernels(const struct walk *w)
{
    return w->z->d.s->program.piece[w->piece].nkernels[PASS_BACKWARD];
}

/* The gradient becomes .grad. */
static void born(struct walk *w, int t)
{
    struct z12 *z = w->z;
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
static void tied_part(struct walk *w)
{
    struct z12 *z = w->z;
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

/* Gradients handed out by kernels [w->k, k1), into out[]. */
static int handed_out(const struct walk *w, int k1, int *out)
{
    const struct ds *d = &w->z->d;
    int n = 0;

    for (int i = 0; i < d->nready[w->piece]; i++) {
        const struct ds_ready *r = &d->ready[w->piece][i];
        if (r->kernel >= w->k && r->kernel < k1)
            out[n++] = r->tensor + w->offset;
    }
    return n;
}

/* Where gradients of the last entry go: they stay, are added to those that exist, or stream into the
 * bucket.  The latter two are data only: their buffers are there before and after. */
static void leave(struct walk *w, const int *t, int n, bool keep)
{
    struct z12 *z = w->z;

    if (!keep && z->mode == Z12_STREAM && n > 0)
        sched_act_as(z->d.s, ACT_W, z->ipg, z->index, 0, z12_in_bucket(z, t, n));
    for (int i = 0; i < n; i++) {
        if (keep)
            born(w, t[i]);
        else if (z->mode == Z12_ADD)
            ds_act(&z->d, &z->grads, ACT_A, t[i], 0);
    }
}

/* fp32 accumulation outside of .grad (_fill_param_grad_accum_attribute), one gradient after the
 * other. */
static void widen(struct walk *w, const int *t, int n)
{
    struct z12 *z = w->z;
    const struct ds *d = &z->d;

    for (int i = 0; i < n; i++) {
        int64_t elems = d->m->tensors[t[i]].numel;
        bool first = z->live[t[i]] == Z12_GONE;
        sched_copy(d->s, STREAM_COMPUTE, PHASE_BACKWARD, "accumulate in fp32",
                   elems * (first ? d->e : d->e + 4), elems * 4);
        ds_name(d, w->piece, w->block, 0);
        sched_does(d->s, first ? COPY_SET : COPY_ADD, 1);
        ds_act(d, &z->grads, first ? ACT_ALLOC | ACT_WRITE : ACT_A, t[i], 0);
        ds_act(d, &z->narrow, ACT_READ | ACT_FREE, t[i], 0);
        if (!first)                 /* add_(grad.to(fp32)) */
            sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch(&z->d, CAT_TEMPORARIES, "one gradient in fp32",
                                                             round512(elems * 4)), 0, 0);
        z->live[t[i]] = Z12_THERE;
    }
}

/* Kernels up to k1.  `keep`: their gradients stay. */
static void entry(struct walk *w, int k1, bool keep)
{
    struct z12 *z = w->z;
    int t[MAX_TENSORS], n = 0;

    if (k1 <= w->k)
        return;
    if (keep || z->d.s->detailed)
        n = handed_out(w, k1, t);
    sched_compute(z->d.s, PHASE_BACKWARD, w->piece, PASS_BACKWARD, w->k, k1,
                  keep ? GRADS_KEEP : GRADS_DROP, CAT_GRADS);
    ds_name(&z->d, w->piece, w->block, 0);
    ds_reads_frozen(&z->d);
    sched_act(z->d.s, ACT_R, z->flat, 0, 0);
    if (keep && w->piece == PIECE_HEAD && z->d.tied_kernel >= w->k && z->d.tied_kernel < k1)
        tied_part(w);
    leave(w, t, n, keep);
    if (k1 == nkernels(w))
        ds_free_activations(&z->d, w->piece, w->block);
    w->k = k1;
    if (z->wide)
        widen(w, t, n);
    if (k1 == nkernels(w))
        ds_leaves(&z->d, w->piece, w->block);
}

/* The same, where the tied weight's part stays though nothing else does. */
static void segment(struct walk *w, int k1, bool keep)
{
    int tied = w->z->d.tied_kernel;

    if (!keep && w->piece == PIECE_HEAD && tied >= w->k && tied < k1) {
        entry(w, tied, false);
        entry(w, tied + 1, true);
    }
    entry(w, k1, keep);
}

static void copy_pending(struct walk *w)
{
    z12_copy_in(w->z, w->pending, w->npending);
    w->npending = 0;
}

/* Bytes of gradients made before kernel k and not handed out yet: a matrix product's
 * weight gradient is handed out after that of its input is made. */
static int64_t unfinished(const struct walk *w, int k)
{
    const struct ds *d = &w->z->d;
    int64_t bytes = 0;

    for (int i = 0; i < k; i++)
        if (w->piece != PIECE_HEAD || i != d->tied_kernel)
            bytes += kernels(w)[i].net[MEM_GRADS] - kernels(w)[i].ready_bytes;
    return bytes;
}

/* The last kernel up to k before which no gradient is half made. */
static int made_from(const struct walk *w, int k)
{
    while (k > w->k && unfinished(w, k) != 0)
        k--;
    return k;
}

/* Gradients t[0..n) are ready after kernel k and exist while the bucket acts. */
static void act_now(struct walk *w, int k, const int *t, int n)
{
    struct z12 *z = w->z;

    if (z->mode == Z12_STREAM) {
        int from = made_from(w, k), kept = 0;
        while (kept < w->npending && w->pending_kernel[w->npending - 1 - kept] >= from)
            kept++;                 /* handed out behind the cut as well */
        segment(w, from, false);
        z12_copy_in(z, w->pending, w->npending - kept);
        memmove(w->pending, w->pending + w->npending - kept, (size_t)kept * sizeof *w->pending);
        w->npending = kept;
    }
    segment(w, k + 1, z->mode != Z12_ADD);
    copy_pending(w);
    for (int i = 0; i < n; i++) {
        if (z->hooks)
            z12_hook(z, t[i]);
        else
            z12_setup_bucket(z);
    }
}

static void later(struct walk *w, int k, const int *t, int n)
{
    for (int i = 0; i < n; i++) {
        if (!w->z->hooks)
            continue;
        z12_add(w->z, t[i]);
        w->pending_kernel[w->npending] = k;
        w->pending[w->npending++] = t[i];
    }
}

static bool acts(const struct walk *w, const int *t, int n)
{
    if (w->z->hooks && w->z->wide && w->z->compact)     /* its sum goes into the bucket at once */
        return true;
    if (w->z->hooks)                /* half made at a cut: is kept like those before the cut */
        return z12_acts(w->z, t, n) || (w->z->mode == Z12_STREAM && w->k > 0 && unfinished(w, w->k) != 0);
    return w->z->contiguous && !w->z->ipg_live;
}

static void piece(struct z12 *z, enum piece_id id, int block)
{
    const struct ds *d = &z->d;
    const struct ds_ready *r = d->ready[id];
    int n = d->nready[id], tied_done = 0;
    struct walk w = { .z = z, .piece = id, .block = block };

    assert(n <= MAX_TENSORS);

    w.offset = piece_is_block(id) ? block * d->per_block : 0;
    for (int i = 0; i < n; ) {
        int t[4], same = 0, k = r[i].kernel;
        for (; i < n && r[i].kernel == k && same < 4; i++) {
            t[same++] = r[i].tensor + w.offset;
            tied_done |= r[i].tensor == d->tied;
        }
        if (acts(&w, t, same))
            act_now(&w, k, t, same);
        else
            later(&w, k, t, same);
    }
    segment(&w, nkernels(&w), z->mode == Z12_KEEP);
    copy_pending(&w);
    if (tied_done && z->mode == Z12_ADD)
        ds_memory(d, PHASE_BACKWARD, "drop first part", ACT_FREE, z->partial);
    ds_pipe_after(d, PASS_BACKWARD, id, block);
}

/* ---- where nothing acts inside a pass ---- */

static void whole_entry(void *arg, enum pass pass, enum piece_id id, int block, int by)
{
    struct z12 *z = arg;
    const struct ds *d = &z->d;
    bool in_block = piece_is_block(id);

    (void)pass;
    sched_act(d->s, ACT_R, z->flat, 0, 0);
    if (id == PIECE_EMBED && d->tied >= 0 && z->mode == Z12_ADD)
        sched_act(d->s, ACT_FREE, z->partial, 0, 0);
    for (int i = 0; i < d->nready[id]; i++) {
        int t = d->ready[id][i].tensor;
        int what = z->mode == Z12_ADD ? ACT_A : t == d->tied ? ACT_W : ACT_ALLOC | ACT_WRITE;
        ds_act_by(d, &z->grads, what, t + (in_block ? block * d->per_block : 0), by);
    }
}

void z12_backward(struct z12 *z)
{
    enum grad_fate fate = z->mode == Z12_KEEP ? GRADS_KEEP : GRADS_DROP;

    bool heads = ds_has(&z->d, PIECE_HEAD), embeds = ds_has(&z->d, PIECE_EMBED);

    if (heads)
        piece(z, PIECE_HEAD, 0);
    if (z->hooks || z->wide || (!heads && z->contiguous && !z->ipg_live)) {     /* the bucket comes in the first piece's pass */
        for (int b = z->d.layers - 1; b >= 0; b--)
            piece(z, ds_piece(&z->d, b), b);
        if (embeds)
            piece(z, PIECE_EMBED, 0);
        return;
    }
    ds_blocks(&z->d, PASS_BACKWARD, fate, whole_entry, z);
    if (embeds)
        ds_whole(&z->d, PASS_BACKWARD, fate, PIECE_EMBED, 0, 0, whole_entry, z);
    if (z->mode == Z12_KEEP)
        for (int t = 0; t < z->d.m->ntensors; t++)
            z->live[t] = z->d.m->tensors[t].frozen ? Z12_GONE : Z12_THERE;
}

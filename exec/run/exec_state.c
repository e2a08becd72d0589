/* exec_state.c -- what outlives a step, as bytes: out of the memories, and into them.
 *
 * A buffer that lives between two steps is taken whole, whatever it holds: weights, moments, codes and their scales, residuals of
 * compressed gradients, low-rank factors, gradients that a framework keeps.  So nothing here depends on the strategy.  What the next step
 * overwrites before anything reads it (model/schedule/outlives.h) is left out; a run that goes on finds it filled with NaN, so that a
 * mistake of that rule shows in its first loss.  Beside buffers there are numbers of the host: PowerSGD's generator and the magnitudes of
 * weights that are gathered in float8. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "exec/run/executor_internal.h"
#include "model/schedule/outlives.h"

enum { PART = 4 << 20 };                /* bytes at most */
enum { OF_HOST = -1, HOST_SEEDS = 0, HOST_AMAX_LOCAL, HOST_AMAX };

struct walk { struct executor *x; bool in; exec_state_fn *f; void *arg; char *piece; unsigned char *scratch; int64_t *first; };

/* ---- buffers ---- */

static int on_disk(struct walk *w, const struct exec_part *part, int64_t at)
{
    struct store *s = w->x->store;

    if (w->in)
        return w->f(w->arg, part, w->piece) < 0 ? -1 : store_write(s, at, w->piece, part->n);
    return store_read(s, at, w->piece, part->n) < 0 ? -1 : w->f(w->arg, part, w->piece);
}

static int on_device(struct walk *w, const struct exec_part *part, void *at)
{
    struct kernels *k = w->x->kernels[STREAM_COMPUTE];

    if (w->in)
        return w->f(w->arg, part, w->piece) < 0 ? -1 : kernels_ops(k)->upload(k, part->n, at, w->piece);
    return kernels_ops(k)->download(k, part->n, w->piece, at) < 0 ? -1 : w->f(w->arg, part, w->piece);
}

static int part_of(struct walk *w, enum space in, const struct exec_part *part, int64_t at)
{
    void *p = in == SPACE_DISK ? NULL : arena_at(w->x->in[in], at);

    if (in == SPACE_DISK)
        return on_disk(w, part, at);
    if (in == SPACE_DEVICE && device_async(w->x->d))
        return on_device(w, part, p);
    return w->f(w->arg, part, p);
}

static int range(struct walk *w, enum space in, struct exec_part part, int64_t at, int64_t bytes)
{
    int rc = 0;

    for (int64_t i = 0; i < bytes && rc == 0; i += PART) {
        part.at = i;
        part.n = bytes - i < PART ? bytes - i : PART;
        rc = part_of(w, in, &part, at + i);
    }
    return rc;
}

static int nan_bytes(void *arg, const struct exec_part *part, void *bytes)
{
    (void)arg;
    memset(bytes, 0xff, (size_t)part->n);
    return 0;
}

/* Where kernels made it piece by piece nothing of it is left to fill. */
static int fill_with_nan(struct walk *w, const struct buf *b, const struct inst *n)
{
    struct walk fill = *w;

    fill.f = nan_bytes;
    return n->granted ? 0 : range(&fill, b->space, (struct exec_part){ 0 }, n->at, b->bytes);
}

static int instance(struct walk *w, int family, int i)
{
    const struct executor *x = w->x;
    const struct buf *b = &x->s->bufs[family];
    const struct inst *n = &x->inst[family][i];
    int slices = b->layout ? x->s->layouts[b->layout].nslices : 0, rc = 0;

    if (!n->live)
        return 0;
    if (w->scratch[w->first[family] + i])
        return w->in ? fill_with_nan(w, b, n) : 0;
    if (!n->granted)
        return range(w, b->space, (struct exec_part){ family, i, -1, 0, 0 }, n->at, b->bytes);
    for (int k = 0; k < slices && rc == 0; k++)
        if (n->piece[k] >= 0)
            rc = range(w, b->space, (struct exec_part){ family, i, k, 0, 0 }, n->piece[k], arena_bytes(x->in[b->space], n->piece[k]));
    return rc;
}

/* ---- the host's numbers ---- */

static int numbers(struct walk *w, int64_t which, void *at, size_t bytes)
{
    const struct exec_part part = { OF_HOST, which, -1, 0, (int64_t)bytes };

    return w->f(w->arg, &part, at);
}

static int host_numbers(struct walk *w)
{
    struct executor *x = w->x;
    size_t n = (size_t)x->p->model.ntensors;
    float *amax = room_new(n, sizeof *amax);
    int rc = numbers(w, HOST_SEEDS, &x->seeds, sizeof x->seeds);

    for (size_t i = 0; i < n; i++)
        amax[i] = x->amax[i];
    if (rc == 0 && numbers(w, HOST_AMAX_LOCAL, x->amax_local, n * sizeof *x->amax_local) == 0)
        rc = numbers(w, HOST_AMAX, amax, n * sizeof *amax);
    for (size_t i = 0; i < n; i++)
        x->amax[i] = amax[i];
    free(amax);
    return rc;
}

/* ---- all ---- */

static int walk(struct executor *x, bool in, exec_state_fn *f, void *arg)
{
    struct walk w = { x, in, f, arg, room_new(PART, 1), NULL, room_new((size_t)x->s->nbufs + 1, sizeof *w.first) };
    struct kernels *k = x->kernels[STREAM_COMPUTE];
    int rc = host_numbers(&w);

    w.scratch = outlives_scratch(x->s, w.first);
    for (int b = 0; b < x->s->nbufs; b++)
        for (int i = 0; i < x->s->bufs[b].count && rc == 0; i++)
            rc = instance(&w, b, i);
    free(w.piece);
    free(w.scratch);
    free(w.first);
    return rc < 0 ? -1 : kernels_ops(k)->finish(k);
}

int exec_state_out(struct executor *x, exec_state_fn *f, void *arg)
{
    if (!executor_compute_idle(x))
        return fail("a checkpoint: activations of this plan outlive its step, which is not supported");
    return walk(x, false, f, arg);
}

int exec_state_in(struct executor *x, int64_t step, exec_state_fn *f, void *arg)
{
    return executor_skip(x, step) < 0 ? -1 : walk(x, true, f, arg);
}

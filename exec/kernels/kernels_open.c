/* kernels_open.c -- opening and closing the host's kernels, their workspace, and which elements dropout drops. */
#include "exec/kernels/kernels_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "exec/device/device.h"

enum { LINE = 64 };                     /* bytes of a cache line */

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t kernels_workspace(const struct kernels_need *need)
{
    int64_t widest = largest(largest(need->widest_in, need->widest_out), need->dim);
    int64_t bytes = gemm_workspace(need->threads);

    bytes = largest(bytes, attention_workspace(need->seq, need->dim, need->threads));
    return largest(bytes, rows_workspace(need->n, widest, need->vocab, need->threads));
}

struct kernels *kernels_open(int threads, void *workspace, int64_t bytes, bool reference)
{
    struct kernels *k;

    if (threads < 1 || (bytes > 0 && !workspace)) {
        fail("kernels: %d threads and a workspace of %" PRId64 " bytes at %p", threads, bytes, workspace);
        return NULL;
    }
    if (!(k = calloc(1, sizeof *k))) {
        fail("out of memory for the kernels");
        return NULL;
    }
    k->ops = reference ? kernels_ref_ops : kernels_host_ops;
    k->simd = simd_best();
    k->threads = threads;
    k->workspace = workspace;
    k->bytes = bytes;
    if (reference)
        return k;
    if (!(k->gemm = gemm_open(threads))) {
        free(k);
        return NULL;
    }
    gemm_name(k->name, sizeof k->name);
    k->ops.name = k->name;
    return k;
}

struct kernels *kernels_open_on(struct device *d, enum stream s, int threads, void *workspace, int64_t bytes,
                                bool reference)
{
    return device_async(d) ? d->ops->kernels(d, s, threads, workspace, bytes, reference)
                           : kernels_open(threads, workspace, bytes, reference);
}

const struct kernel_ops *kernels_ops(const struct kernels *k) { return &k->ops; }

const char *kernels_note(const struct kernels *k)
{
    if (k->gemm && gemm_widens(k->gemm))
        return "this machine's oneDNN has no bf16 matrix product: bf16 operands are widened to fp32";
    return NULL;
}

void kernels_close(struct kernels *k)
{
    if (!k)
        return;
    if (k->close)
        k->close(k);
    gemm_close(k->gemm);
    free(k);
}

/* ---- workspace ---- */

struct cut kernels_cut(struct kernels *k)
{
    return (struct cut){ k->workspace, k->bytes };
}

void *kernels_take(struct cut *c, int64_t bytes, const char *what)
{
    int64_t skip = (int64_t)((LINE - (uintptr_t)c->at % LINE) % LINE);
    char *taken = c->at + skip;

    if (skip + bytes > c->left) {
        fail("%s: the kernels' workspace has %" PRId64 " bytes left and %" PRId64
             " are needed: kernels_workspace() was asked for smaller shapes", what, c->left, skip + bytes);
        return NULL;
    }
    c->at = taken + bytes;
    c->left -= skip + bytes;
    return taken;
}

/* ---- dropout ---- */

/* Probabilities are multiples of 2^-32. */
struct dropout_rule dropout_rule(const struct dropout *d)
{
    struct dropout_rule r = { 0, 0, 1 };

    if (!d || !(d->p > 0))
        return r;
    r.seed = drop_from(d->key, (uint64_t)d->first);
    r.limit = d->p < 1 ? (uint32_t)ldexp(d->p, 32) : UINT32_MAX;
    r.keep = d->p < 1 ? (float)(1 / (1 - d->p)) : 0;
    return r;
}

bool dropout_drops(const struct dropout *d, int64_t i)
{
    struct dropout_rule r = dropout_rule(d);

    return (uint32_t)(drop_hash(r.seed, (uint64_t)i) >> 32) < r.limit;
}

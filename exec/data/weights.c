/* weights.c -- first values by seed and place, or from a safetensors file, whatever part is asked for. */
#include "exec/data/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "exec/data/safetensors.h"
#include "exec/kernels/rng.h"
#include "model/arch/training.h"
#include "model/family/family.h"

struct weights {
    const struct model *m;
    uint64_t seed;
    struct safetensors *file, *adapters;    /* NULL: from the seed */
    const struct st_tensor **found;     /* of one of them, for each of the model's tensors; NULL: from the seed */
    bool *adapted;                      /* it is the adapters' file's */
    _Atomic int64_t *bad;               /* of each, the lowest element that was read and is not finite, plus 1; 0: none */
};

static struct weights *new_weights(const struct model *m)
{
    struct weights *w = calloc(1, sizeof *w);

    if (!w) {
        fail("out of memory for the weights' table");
        return NULL;
    }
    w->m = m;
    w->found = calloc((size_t)m->ntensors, sizeof *w->found);
    w->adapted = calloc((size_t)m->ntensors, sizeof *w->adapted);
    w->bad = calloc((size_t)m->ntensors, sizeof *w->bad);
    if (!w->found || !w->adapted || !w->bad) {
        weights_close(w);
        fail("out of memory for the weights' table");
        return NULL;
    }
    return w;
}

void weights_close(struct weights *w)
{
    if (!w)
        return;
    safetensors_close(w->file);
    safetensors_close(w->adapters);
    free(w->found);
    free(w->adapted);
    free(w->bad);
    free(w);
}

/* ---- From a seed ---- */

struct weights *weights_from_seed(const struct model *m, uint64_t seed)
{
    struct weights *w = new_weights(m);

    if (w)
        w->seed = seed;
    return w;
}

static double std_of(const struct model *m, const struct tensor *t)
{
    bool residual = t->role == ROLE_ATTN_OUT || t->role == ROLE_DOWN;

    if (residual && family_for(m)->residual_init)
        return m->init_std / sqrt(2 * (double)m->layers);
    return m->init_std;
}

static void fill_constant(float value, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = value;
}

/* A copy that trains in the place of a frozen module's tensor. */
static bool is_copy(const struct model *m, int tensor)
{
    return training_is_lora(&m->training) && !m->tensors[tensor].frozen && m->tensors[tensor].adapter == ADAPTER_NONE;
}

/* Which of the tensors of a model without adapters it is: the same base, whatever is adapted.  A copy's original stands
 * before it, a module's number of tensors away. */
static uint64_t base_index(const struct model *m, int tensor)
{
    int original = is_copy(m, tensor) ? tensor - m->modules[m->tensors[tensor].module].ntensors : tensor;
    uint64_t before = 0;

    if (!training_is_lora(&m->training))
        return (uint64_t)tensor;
    for (int t = 0; t < original; t++)
        before += m->tensors[t].frozen;
    return before;
}

/* peft/tuners/lora/layer.py, reset_lora_parameters(): B is 0, A kaiming_uniform_(a = sqrt(5)), whose bound is 1 / sqrt(in). */
static void fill_adapter(const struct weights *w, int tensor, int64_t from, int64_t n, float *out)
{
    const struct tensor *t = &w->m->tensors[tensor];
    uint64_t key = rng_key(w->seed, RNG_WEIGHTS, ((uint64_t)1 << 32) + (uint64_t)tensor);
    double bound = 1 / sqrt((double)t->shape[1]);

    for (int64_t i = 0; i < n; i++)
        out[i] = t->adapter == ADAPTER_LORA_B ? 0 : (float)(bound * (2 * rng_uniform(key, (uint64_t)(from + i)) - 1));
}

static void fill_from_seed(const struct weights *w, int tensor, int64_t from, int64_t n, float *out)
{
    const struct tensor *t = &w->m->tensors[tensor];

    if (t->adapter == ADAPTER_LORA_A || t->adapter == ADAPTER_LORA_B)
        fill_adapter(w, tensor, from, n, out);
    else if (t->is_bias)
        fill_constant(0, n, out);
    else if (t->ndim == 1)                      /* a norm's weight */
        fill_constant(1, n, out);
    else
        rng_normals(rng_key(w->seed, RNG_WEIGHTS, base_index(w->m, tensor)), from, n, 0, std_of(w->m, t), out);
}

/* ---- From a file ---- */

static const char *const prefixes[] = { "transformer.", "model.", "gpt_neox." };

/* The name without its prefix, or NULL if it has none. */
static const char *without_prefix(const char *name)
{
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return name + strlen(prefixes[i]);
    return NULL;
}

static const struct st_tensor *find(const struct safetensors *file, const char *name)
{
    const struct st_tensor *t = safetensors_find(file, name);
    const char *bare = without_prefix(name);

    return t || !bare ? t : safetensors_find(file, bare);
}

static bool same_shape(const struct tensor *want, const struct st_tensor *got)
{
    if (want->ndim != got->ndim)
        return false;
    for (int d = 0; d < want->ndim; d++)
        if (want->shape[d] != got->shape[d])
            return false;
    return true;
}

/* "[768, 2304]" */
static const char *shape_text(int ndim, const int64_t *shape, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "[");

    for (int d = 0; d < ndim && n < size; d++)
        n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, d ? ", " : "", shape[d]);
    if (n < size)
        snprintf(text + n, size - n, "]");
    return text;
}

static int take_from(struct weights *w, const struct safetensors *file, int tensor, const struct st_tensor *got)
{
    const struct tensor *want = &w->m->tensors[tensor];
    char there[ST_MAX_DIMS * 22 + 4], here[64];

    shape_text(want->ndim, want->shape, here, sizeof here);
    if (!got)
        return fail("%s: has no tensor \"%s\" of shape %s, which the model has", file->path, want->name, here);
    if (!same_shape(want, got))
        return fail("%s: tensor \"%s\" has shape %s, the model's has %s", file->path, want->name,
                    shape_text(got->ndim, got->shape, there, sizeof there), here);
    if (!safetensors_readable(got))
        return fail("%s: tensor \"%s\" has dtype %s: must be F32, BF16 or F16", file->path, want->name, got->dtype);
    w->found[tensor] = got;
    return 0;
}

#define PEFT_PREFIX "base_model.model."

/* Of a model's file: adapters are not in it, and a copy begins as its original. */
static int take(struct weights *w, int tensor)
{
    const struct tensor *want = &w->m->tensors[tensor];

    if (want->adapter == ADAPTER_LORA_A || want->adapter == ADAPTER_LORA_B)
        return 0;
    return take_from(w, w->file, tensor, find(w->file, is_copy(w->m, tensor) ? want->name + strlen(PEFT_PREFIX) : want->name));
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), e = strlen(end);

    return n >= e && !strcmp(name + n - e, end);
}

/* What checkpoints hold beside parameters: buffers of older modelling code (the causal
 * mask, the rotary frequencies), all computed from the config, and a tied head. */
static bool is_passed_over(const struct model *m, const char *name)
{
    static const char *const buffers[] = {
        ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
        ".rotary_emb.inv_freq",
    };

    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (ends_with(name, buffers[i]))
            return true;
    return m->tied && !strcmp(name, "lm_head.weight");
}

static bool is_taken(const struct weights *w, const struct st_tensor *t)
{
    for (int i = 0; i < w->m->ntensors; i++)
        if (w->found[i] == t)
            return true;
    return false;
}

/* The names of a file are sorted, so that the one reported is always the same. */
static int refuse_others(const struct weights *w, const struct safetensors *file)
{
    for (int i = 0; i < file->ntensors; i++) {
        const struct st_tensor *t = &file->tensors[i];
        if (!is_passed_over(w->m, t->name) && !is_taken(w, t))
            return fail("%s: holds tensor \"%.80s\", which model %s does not have", file->path,
                        t->name, w->m->name);
    }
    return 0;
}

static int open_file(struct weights *w, const char *path)
{
    w->file = safetensors_open(path);
    if (!w->file)
        return -1;
    for (int i = 0; i < w->m->ntensors; i++)
        if (take(w, i) < 0)
            return -1;
    return refuse_others(w, w->file);
}

struct weights *weights_from_file(const struct model *m, const char *path, uint64_t seed)
{
    struct weights *w = weights_from_seed(m, seed);

    if (w && open_file(w, path) == 0)
        return w;
    weights_close(w);
    return NULL;
}

int weights_take_adapters(struct weights *w, const char *path)
{
    w->adapters = safetensors_open(path);
    if (!w->adapters)
        return -1;
    for (int i = 0; i < w->m->ntensors; i++)
        if (!w->m->tensors[i].frozen) {
            if (take_from(w, w->adapters, i, safetensors_find(w->adapters, w->m->tensors[i].name)) < 0)
                return -1;
            w->adapted[i] = true;
        }
    return refuse_others(w, w->adapters);
}

static const struct safetensors *file_of(const struct weights *w, int tensor)
{
    return w->adapted[tensor] ? w->adapters : w->file;
}

static void look(const struct weights *w, int tensor, int64_t from, int64_t n, const float *v)
{
    int64_t i = 0;

    while (i < n && isfinite(v[i]))
        i++;
    if (i == n)
        return;
    int64_t known = atomic_load(&w->bad[tensor]), seen = from + i + 1;
    while ((known == 0 || seen < known) && !atomic_compare_exchange_weak(&w->bad[tensor], &known, seen))
        ;
}

int weights_check_finite(const struct weights *w)
{
    for (int t = 0; t < w->m->ntensors; t++)
        if (w->bad[t])
            return fail("%s: tensor \"%s\" is NaN or infinite at element %" PRId64 "; --no-check-for-nan goes on "
                        "regardless", file_of(w, t)->path, w->m->tensors[t].name, w->bad[t] - 1);
    return 0;
}

int weights_fill(const struct weights *w, int tensor, int64_t from, int64_t n, float *out)
{
    assert(tensor >= 0 && tensor < w->m->ntensors);
    assert(from >= 0 && n >= 0 && n <= w->m->tensors[tensor].numel - from);
    if (w->found[tensor]) {
        int rc = safetensors_read(file_of(w, tensor), w->found[tensor], from, n, out);
        if (rc == 0)
            look(w, tensor, from, n, out);
        return rc;
    }
    fill_from_seed(w, tensor, from, n, out);
    return 0;
}

int weights_fill_own(const struct weights *w, const struct own_tensors *own, int tensor, int64_t from, int64_t n, float *out)
{
    struct own_run run;

    for (int64_t at = 0; at < n; at += run.n) {
        run = own_tensors_run(own, tensor, from + at, n - at);
        if (weights_fill(w, run.tensor, run.from, run.n, out + at) < 0)
            return -1;
    }
    return 0;
}

/* zero3_coordinator.c -- parameters in flight, fetched ahead and released, as PartitionedParameterCoordinator decides. */
#include "model/framework/deepspeed_3/zero3_coordinator.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/sort.h"

static int64_t numel(const struct z3_coord *c, int t) { return c->m->tensors[t].numel; }

/* ---- setting up ---- */

/* parameter_offload.mark_persistent_parameters, registration order: one that does
 * not fit under the model's threshold is passed over. */
static void mark_persistent(struct z3_coord *c, const struct plan *p)
{
    int64_t sum = 0;

    for (int t = 0; t < c->m->ntensors; t++) {
        int64_t n = numel(c, t);
        if (n > p->ds.stage3_param_persistence_threshold ||
            n > p->ds.stage3_model_persistence_threshold - sum)
            continue;
        c->persistent[t] = 1;
        sum += n;
    }
}

/* construct_parameter_trace_from_module_trace, and what answers "when is it used
 * next" in constant time. */
static void index_uses(struct z3_coord *c)
{
    int step = 0, n = 0;

    for (int i = 0; i < c->t->nevents; i++) {
        const struct z3_event *e = &c->t->events[i];
        if (e->kind != Z3_FETCH)
            continue;
        const struct z3_module *m = &c->t->modules[e->module];
        c->before[step + 1] = c->before[step];
        c->fetched[step] = (int)(m - c->t->modules);
        for (int k = 0; k < m->n; k++) {
            c->queue_tensor[n] = z3_own_tensor(m, k);
            c->queue_step[n++] = step;
            c->before[step + 1] += m->more_modules ? 0 : numel(c, z3_own_tensor(m, k));
            c->use_first[z3_own_tensor(m, k) + 1]++;
        }
        step++;
    }
    for (int t = 0; t < c->m->ntensors; t++)
        c->use_first[t + 1] += c->use_first[t];
    memcpy(c->use_next, c->use_first, (size_t)c->m->ntensors * sizeof *c->use_next);
    for (int i = 0; i < n; i++)
        c->uses[c->use_next[c->queue_tensor[i]]++] = c->queue_step[i];
}

int z3_coord_init(struct z3_coord *c, const struct local_model *local, const struct z3_trace *t,
                  struct z3_calls calls, int64_t prefetch)
{
    const struct plan *p = local->plan;
    size_t n = (size_t)local->model->ntensors + 1, uses = (size_t)t->nuses + 1;

    *c = (struct z3_coord){ .m = local->model, .t = t, .calls = calls, .prefetch = prefetch,
                            .max_live = p->ds.stage3_max_live_parameters < SIZE_LIMIT
                                      ? p->ds.stage3_max_live_parameters : SIZE_LIMIT,
                            .max_reuse = p->ds.stage3_max_reuse_distance };
    c->status = calloc(3 * n, 1);
    c->recent = calloc(5 * n, sizeof *c->recent);
    c->queue_tensor = calloc(3 * uses, sizeof *c->queue_tensor);
    c->before = calloc((size_t)t->nsteps + 1, sizeof *c->before);
    c->fetched = calloc((size_t)t->nsteps + 1, sizeof *c->fetched);
    c->cache = calloc((size_t)t->nevents + 1, sizeof *c->cache);
    c->open = calloc((size_t)t->nmodules + 1, sizeof *c->open);
    if (!c->status || !c->recent || !c->queue_tensor || !c->before || !c->fetched || !c->cache || !c->open)
        return fail("out of memory for the parameter coordinator");
    c->active = c->status + n;
    c->persistent = c->status + 2 * n;
    c->use_first = c->recent + n;
    c->use_next = c->recent + 2 * n;
    c->batch = c->recent + 3 * n;
    c->again = c->recent + 4 * n;
    c->queue_step = c->queue_tensor + uses;
    c->uses = c->queue_tensor + 2 * uses;
    mark_persistent(c, p);
    index_uses(c);
    return 0;
}

void z3_coord_free(struct z3_coord *c)
{
    free(c->status);
    free(c->recent);
    free(c->queue_tensor);
    free(c->before);
    free(c->fetched);
    free(c->cache);
    free(c->open);
    *c = (struct z3_coord){ 0 };
}

/* ---- micro-steps ---- */

enum z3_mode z3_coord_begin(struct z3_coord *c)
{
    enum z3_mode was = c->mode;

    c->mode = was == Z3_INVALID ? Z3_RECORD : Z3_COMPLETE;
    for (int t = 0; t < c->m->ntensors; t++)
        c->recent[t] = INT_MIN;
    memcpy(c->use_next, c->use_first, (size_t)c->m->ntensors * sizeof *c->use_next);
    c->head = c->step = c->nopen = c->nagain = 0;
    c->available = 0;               /* although persistent and kept ones are there */
    return was;
}

/* __all_gather_params: one call for those of batch[0..n) that are absent. */
static void gather(struct z3_coord *c, int n)
{
    if (n == 0)
        return;
    for (int i = 0; i < n; i++) {
        c->status[c->batch[i]] = Z3_INFLIGHT;
        c->available += numel(c, c->batch[i]);
        c->flying += numel(c, c->batch[i]);
    }
    c->calls.gather(c->calls.arg, c->batch, n);
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* The next few parameters of the trace.  The budget is taken after the module's own
 * fetch, and the last one may overshoot it. */
static void prefetch(struct z3_coord *c)
{
    int64_t left = c->max_live - c->available, n = 0;
    int64_t budget = left < c->prefetch ? left : c->prefetch;
    int chosen = 0;

    while (c->head < c->t->nuses && n < budget) {
        int t = c->queue_tensor[c->head], step = c->queue_step[c->head];
        if (c->calls.absent && c->calls.absent(c->calls.arg, t))
            break;                  /* read ahead first */
        c->head++;
        if (c->recent[t] < step)
            c->recent[t] = step;
        if (c->status[t] != Z3_ABSENT)
            continue;
        c->status[t] = Z3_INFLIGHT; /* chosen once */
        c->batch[chosen++] = t;
        n += numel(c, t);
    }
    sort_stable(c->batch, (size_t)chosen, sizeof *c->batch, ascending);
    gather(c, chosen);
}

/* __prefetch_nvme_param_partitions: partitions are read that are used after those that are being gathered, until twice as
 * many elements are passed as are in flight. */
static void read_ahead(struct z3_coord *c)
{
    int64_t passed = 0;
    int n = 0, buffers = c->calls.buffers(c->calls.arg), most = buffers < c->m->ntensors ? buffers : c->m->ntensors;

    for (int i = c->head; i < c->t->nuses && passed <= 2 * c->flying && n < most; i++) {
        int t = c->queue_tensor[i];
        if (c->calls.absent(c->calls.arg, t))
            c->batch[n++] = t;
        passed += numel(c, t);
    }
    if (n > 0)
        c->calls.read(c->calls.arg, c->batch, n);
}

/* Uses of this module leave the queue, unless prefetching already took them. */
static void pop_own(struct z3_coord *c, const struct z3_module *m)
{
    int n = 0;

    for (int k = 0; k < m->n; k++)
        n += c->recent[z3_own_tensor(m, k)] < c->step;
    for (; n > 0 && c->head < c->t->nuses; n--, c->head++)
        c->recent[c->queue_tensor[c->head]] = c->queue_step[c->head];
}

static bool in_forward(const struct z3_coord *c, const struct z3_event *e) { return e - c->t->events < c->t->backward; }

/* Tensors that are the module's by now. */
static int known(const struct z3_coord *c, const struct z3_event *e, const struct z3_module *m)
{
    return m->external && c->mode == Z3_RECORD && in_forward(c, e) ? 0 : m->n;
}

enum { BIT_AGAIN = 4 };

/* update_recompute_parameters: what does not train has no backward of its own that would release it; the module whose backward
 * began last does. */
static void hold_again(struct z3_coord *c, const struct z3_event *e, int t)
{
    if (in_forward(c, e) || e->backward || c->nopen == 0 || !c->m->tensors[t].frozen || (c->active[t] & BIT_AGAIN))
        return;
    c->owner = c->open[c->nopen - 1];
    c->active[t] |= BIT_AGAIN;
    c->again[c->nagain++] = t;
}

void z3_coord_fetch(struct z3_coord *c, const struct z3_event *e)
{
    const struct z3_module *m = &c->t->modules[e->module];
    int n = 0, own = known(c, e, m);

    if (e->backward)
        c->open[c->nopen++] = e->module;
    for (int k = 0; k < own; k++)
        if (c->status[z3_own_tensor(m, k)] == Z3_ABSENT)
            c->batch[n++] = z3_own_tensor(m, k);
    gather(c, n);
    for (int k = 0; k < own; k++) {
        int t = z3_own_tensor(m, k);
        c->active[t] |= (uint8_t)m->bit;
        hold_again(c, e, t);
        if (c->status[t] != Z3_INFLIGHT)
            continue;
        c->status[t] = Z3_AVAILABLE;
        c->flying -= numel(c, t);
        c->calls.await(c->calls.arg, t);
    }
    c->calls.ready(c->calls.arg, e->module);
    if (c->mode == Z3_COMPLETE) {
        pop_own(c, m);
        if (c->prefetch > 0)
            prefetch(c);
        if (c->prefetch > 0 && c->calls.absent)
            read_ahead(c);
    }
    c->step++;
}

/* ---- releasing ---- */

static void release(struct z3_coord *c, int t)
{
    if (c->status[t] != Z3_AVAILABLE || c->active[t])
        return;
    c->status[t] = Z3_ABSENT;
    c->available -= numel(c, t);
    c->calls.release(c->calls.arg, t);
}

/* Is the next use of t fewer than max_reuse elements away? */
static bool needed_soon(struct z3_coord *c, int t)
{
    int *next = &c->use_next[t], end = c->use_first[t + 1];

    while (*next < end && c->uses[*next] < c->step)
        (*next)++;
    return *next < end && c->before[c->uses[*next]] - c->before[c->step] < c->max_reuse;
}

/* The same of a leaf's: __params_to_release() takes every module with all below it when it releases a leaf, and a leaf without
 * when it releases another (iter_params(module, recurse=z3_leaf_module(submodule_to_release))). */
static bool leaf_needed_soon(const struct z3_coord *c, int t)
{
    int64_t passed = 0;

    for (int s = c->step; s < c->t->nsteps && passed < c->max_reuse; s++) {
        const struct z3_module *m = &c->t->modules[c->fetched[s]];
        if (t >= m->all_first && t < m->all_first + m->all_n)
            return true;
        for (int k = 0; k < m->all_n; k++)
            passed += numel(c, m->all_first + k);
    }
    return false;
}

/* __params_to_release, computed once for each event (lru_cache). */
static uint32_t to_release(struct z3_coord *c, const struct z3_event *e, const struct z3_module *m)
{
    uint32_t *known = &c->cache[e - c->t->events];

    if (*known)
        return *known - 1;
    *known = 1;
    for (int k = 0; k < m->n; k++) {
        int t = z3_own_tensor(m, k);
        if (!c->persistent[t] && c->recent[t] <= c->step && !(m->more_modules ? leaf_needed_soon(c, t) : needed_soon(c, t)))
            *known += UINT32_C(1) << k;
    }
    return *known - 1;
}

/* What a recomputation fetched is its owner's no more, then goes unless it persists. */
static void let_go_again(struct z3_coord *c, int module)
{
    for (int i = 0; i < c->nagain && c->owner == module; i++)
        c->active[c->again[i]] &= (uint8_t)~BIT_AGAIN;
}

static void release_again(struct z3_coord *c, int module)
{
    if (c->owner != module)
        return;
    for (int i = 0; i < c->nagain; i++)
        if (!c->persistent[c->again[i]])
            release(c, c->again[i]);
    c->nagain = 0;
}

void z3_coord_release(struct z3_coord *c, const struct z3_event *e)
{
    const struct z3_module *m = &c->t->modules[e->module];
    uint32_t which = c->mode == Z3_COMPLETE ? to_release(c, e, m) : UINT32_MAX;

    if (e->backward)
        let_go_again(c, e->module);
    for (int i = c->nopen - 1; e->backward && i >= 0; i--)
        if (c->open[i] == e->module) {
            memmove(&c->open[i], &c->open[i + 1], (size_t)(c->nopen - 1 - i) * sizeof *c->open);
            c->nopen--;
            break;
        }
    for (int k = 0; k < m->n; k++) {
        c->active[z3_own_tensor(m, k)] &= (uint8_t)~m->bit;
        if (which >> k & 1)
            release(c, z3_own_tensor(m, k));
    }
    if (e->backward)
        release_again(c, e->module);
}

void z3_coord_ask(struct z3_coord *c, const struct z3_event *e)
{
    if (!in_forward(c, e) || c->status[e->tensor] != Z3_ABSENT)
        return;
    c->status[e->tensor] = Z3_AVAILABLE;
    c->calls.gather_now(c->calls.arg, e->tensor);
}

void z3_coord_end(struct z3_coord *c)
{
    while (c->nopen > 0) {
        const struct z3_module *m = &c->t->modules[c->open[--c->nopen]];
        let_go_again(c, c->open[c->nopen]);
        release_again(c, c->open[c->nopen]);
        for (int k = 0; k < m->n; k++) {
            c->active[z3_own_tensor(m, k)] &= (uint8_t)~m->bit;
            if (!c->persistent[z3_own_tensor(m, k)])
                release(c, z3_own_tensor(m, k));
        }
    }
}

void z3_coord_release_all(struct z3_coord *c)
{
    for (int t = 0; t < c->m->ntensors; t++) {
        c->active[t] = 0;
        release(c, t);
    }
}

/* lower_ddp_layout.c -- DDP's buffers and what each holds. */
#include "model/lower/common/lower_internal.h"
#include "model/lower/common/optimizer.h"
#include "model/framework/torch_ddp/lower_ddp.h"
#include "model/schedule/sharding.h"

static int declare_buckets(struct ddp *d, const struct buckets *b, const int *order, int number)
{
    int first = d->s->nbufs;

    for (int i = 0; i < b->n; i++) {
        sched_buf(d->s, CAT_BUCKET, "bucket", "bucket", number + i, 1, round512(b->numel[i] * dtype_bytes((enum dtype)b->dtype[i])));
        sched_unit(d->s, "bucket", number + i, b->numel[i], b->numel[i], b->numel[i]);
    }
    ddp_describe_buckets(d, b, order, d->at->ntrainable, first, HOLDS_GRAD, -1);
    return first;
}

/* Every parameter is an allocation of its own; with parameters_as_bucket_view those of a rank
 * share one, in the order in which they were given to it.  Returns the bytes of all. */
static int64_t place_params(struct ddp *d)
{
    const struct model *m = d->m;
    int64_t at = 0, e = dtype_bytes(d->r.kept), parts[PACKED_PARTS];

    for (int64_t r = 0; d->zro.packed && r < d->local->data_ranks && r < d->ntensors; r++, at = round512(at))
        for (int i = 0; i < d->ntensors; i++)
            if (d->zro.owner[d->zro.sorted[i]] == r) {
                d->param_at[d->zro.sorted[i]] = at;
                at += m->tensors[d->zro.sorted[i]].numel * e;
            }
    for (int t = 0; t < d->ntensors && !d->zro.packed; t++) {
        int n = lower_kept_parts(&d->r, m, &m->tensors[t], parts);
        d->param_at[t] = at;
        for (int i = 0; i < n; i++)
            at += round512(parts[i]);
    }
    return at;
}

/* exp_avg or exp_avg_sq of this rank's tensors. */
static void moment_slices(struct ddp *d, enum holds h, int64_t at)
{
    struct sharding x = { d->s, d->m->tensors, h, d->r.kept, .at = at };

    for (int t = 0; t < d->ntensors; t++)
        if (ddp_owns(d, t)) {
            x.dtype = plan_kept(&d->r, &d->m->tensors[t]);
            sharding_whole(&x, t, 512);
        }
}

/* Layouts of all but buckets. */
static void describe(struct ddp *d)
{
    struct schedules *s = d->s;
    const struct model *m = d->m;

    sched_holds(s, d->params, sched_layout(s, 0));
    for (int t = 0; t < d->ntensors; t++)
        ddp_param_slice(d, t);
    sched_holds(s, d->optimizer, sched_layout(s, 0));
    if (optimizer_moments(d->p->optimizer) > 0)
        moment_slices(d, HOLDS_EXP_AVG, 0);
    if (optimizer_moments(d->p->optimizer) > 1)
        moment_slices(d, HOLDS_EXP_AVG_SQ, d->own_bytes);
    int64_t at = 0;
    for (int t = 0; t < d->ntensors && optimizer_by_tensor(d->p->optimizer); t++)
        at += lower_whole_states(s, d->p, t, at, 512);
    for (int t = 0; t < d->ntensors; t++)
        if (ddp_instance_of(d, t) == 0) {
            sched_holds(s, d->grad_family[t], sched_layout(s, m->tensors[t].block < 0 ? 0 : model_block_tensors(m, m->tensors[t].block)));
            ddp_grad_slice(d, t, 0);
        }
}

static int blocks_like(const struct model *m, int block)
{
    int n = 0;

    for (int64_t b = 0; b < m->layers; b++)
        n += model_is_uneven(m) ? model_first_alike(m, b) == model_first_alike(m, block)
                                : !model_blocks_differ(m) || model_has_experts(m, b) == model_has_experts(m, block);
    return n;
}

void ddp_declare(struct ddp *d)
{
    const struct model *m = d->m;
    int first = d->s->nbufs;

    for (int t = 0; t < d->ntensors; t++) {
        if (ddp_instance_of(d, t) == 0)
            d->grad_family[t] = sched_buf(d->s, CAT_GRADS, "grad", m->tensors[t].block < 0 ? NULL : "block", 0,
                                          m->tensors[t].block < 0 ? 1 : blocks_like(m, m->tensors[t].block), round512(ddp_grad_bytes(d, t)));
        else
            d->grad_family[t] = d->grad_family[t - model_block_first(m, m->tensors[t].block) +
                                               model_block_first(m, model_first_alike(m, m->tensors[t].block))];
    }
    d->waiting = d->s->nbufs - first;
    for (int i = 0; i < d->waiting && d->late; i++) {
        const struct buf *b = &d->s->bufs[first + i];
        sched_buf(d->s, CAT_GRADS, "grad of this backward", b->of, 0, b->count, b->bytes);
    }
    d->params = sched_buf(d->s, CAT_PARAMS, "params", NULL, 0, 1, place_params(d));
    d->optimizer = sched_buf(d->s, CAT_OPTIMIZER, optimizer_states_title(d->p), NULL, 0, 1,
                             d->own_states + d->own_tensors * lower_adamw_step_bytes(d->p) + round512(optimizer_tables(d->p)));
    d->foreach = sched_buf(d->s, CAT_TEMPORARIES, "AdamW's temporaries", NULL, 0, 1, d->own_bytes);
    for (int t = 0; t < d->ntensors && !d->zro.packed; t++) {
        int64_t parts[PACKED_PARTS];
        int n = lower_kept_parts(&d->r, m, &m->tensors[t], parts);
        for (int i = 0; i < n; i++)
            sched_part(d->s, d->params, round512(parts[i]));
    }
    for (int t = 0; t < d->ntensors; t++)
        if (ddp_owns(d, t))
            lower_state_parts(d->s, d->p, d->optimizer, &m->tensors[t], m->tensors[t].shape[0]);
    if (optimizer_tables(d->p) > 0)
        sched_part(d->s, d->optimizer, round512(optimizer_tables(d->p)));
    for (int64_t i = 0; i < d->own_tensors; i++)
        sched_part(d->s, d->optimizer, lower_adamw_step_bytes(d->p));
    lower_trained_parts(d->s, m, d->foreach, &d->r, d->zro.owner, d->zro.rank);
    lower_adamw_temporaries(d->s, d->p, d->foreach, 0);
    if (d->paged_bytes > 0)
        d->paged = sched_buf_in(d->s, SPACE_HOST, CAT_OPTIMIZER, "paged states", NULL, 0, 1, d->paged_bytes);
    if (d->s->detailed)
        describe(d);
    for (int i = 0, first_number = 0, steady_number = 0; i < d->nmodules; i++) {
        struct ddp_module *of = d->at = &d->module[i];
        of->number_first = first_number;
        of->number_steady = steady_number;
        of->bucket0_first = declare_buckets(d, &of->first, of->registered, first_number);
        of->bucket0_steady = d->keeps_first_buckets ? of->bucket0_first : declare_buckets(d, &of->steady, of->order, steady_number);
        ddp_hook_declare(d);
        first_number += of->first.n;
        steady_number += of->steady.n;
    }
    lower_declare_activations(d->s, d->local, d->walk.acts);
    if (d->p->parallel.pipeline > 1)
        stage_memory_declare(&d->walk.stage.memory, d->local, d->s);
}

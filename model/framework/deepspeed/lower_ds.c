/* lower_ds.c -- buffers by tensor, passes over blocks, and what is scratch, for all DeepSpeed stages. */
#include "model/framework/deepspeed/lower_ds.h"

#include <stdlib.h>

#include "base/fail.h"
#include "model/lower/common/optimizer.h"
#include "model/plan/optimizer_traits.h"
#include "model/schedule/sharding.h"

/* ---- what the program says about gradients ---- */

static int find_ready(struct ds *d, enum piece_id piece)
{
    const struct piece *g = &d->s->program.piece[piece];
    int n = g->nkernels[PASS_BACKWARD];
    /* A recorded block may hand out gradients of tensors that are in none. */
    int64_t tensors = d->m->recorded ? d->m->ntensors : program_ntensors(d->p, piece);

    d->ready[piece] = malloc((size_t)(tensors ? tensors : 1) * sizeof *d->ready[piece]);
    if (!d->ready[piece])
        return fail("out of memory for the order of gradients");
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 4 && g->kernels[PASS_BACKWARD][k].ready[i] >= 0; i++)
            if (d->nready[piece] < tensors) {
                int place = g->kernels[PASS_BACKWARD][k].ready[i];
                d->ready[piece][d->nready[piece]++] = (struct ds_ready){ k, program_tensor(d->p, piece, 0, place), place };
            }
    return 0;
}

int ds_handed(const struct ds *d, enum piece_id piece, int64_t block, const struct ds_ready *x)
{
    if (!piece_is_block(piece))
        return x->tensor;
    if (d->m->hybrid)
        return model_block_first(d->m, block) + x->place;
    return d->m->recorded ? recorded_tensor(d->m->recorded, block, x->place) : x->tensor + (int)block * d->per_block;
}

static void find_tied(struct ds *d)
{
    const struct piece *g = &d->s->program.piece[PIECE_HEAD];

    d->tied_kernel = d->tied = -1;
    for (int i = 0; i < d->m->ntensors && d->m->tied && d->tied < 0; i++)
        if (d->m->tensors[i].role == ROLE_TOKENS && !d->m->tensors[i].frozen)
            d->tied = i;
    for (int k = 0; k < g->nkernels[PASS_BACKWARD] && d->tied >= 0; k++) {
        const struct kernel *x = &g->kernels[PASS_BACKWARD][k];
        if (x->net[MEM_GRADS] > x->ready_bytes) {
            d->tied_kernel = k;
            break;
        }
    }
    if (d->tied_kernel < 0)
        d->tied = -1;
}

/* MOELayer keeps `self.l_aux`, whose graph goes back to the block's input: in a recomputation torch.utils.checkpoint hands that graph the
 * tensors themselves, which stay until the layer's next forward (moe/sharded_moe.py, MOELayer.forward). */
static int declare_left(struct ds *d)
{
    d->left = calloc(1, sizeof *d->left);
    if (!d->left)
        return fail("out of memory for what blocks leave");
    for (int i = 0; i < NPIECE; i++) {
        int64_t bytes = d->s->program.piece[i].outlives;
        d->left->of[i] = bytes > 0 ? sched_buf(d->s, CAT_BUCKET, "saved again, kept by l_aux", NULL, 0, (int)d->m->layers, bytes) : -1;
    }
    return 0;
}

void ds_leaves(const struct ds *d, const struct walk_run *r)
{
    int of = d->left->of[r->piece];

    if (of < 0 || (r->forward ? !d->left->there : !r->ends))
        return;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, r->forward ? PHASE_FORWARD : PHASE_BACKWARD, r->forward ? "l_aux anew" : "l_aux stays");
    sched_act(d->s, r->forward ? ACT_FREE : ACT_ALLOC, of, r->block, r->by);
    d->left->there = true;
}

/* The model is one unit, whatever it is cut into. */
static void open_walk(struct ds *d, const struct walk_hooks *hooks)
{
    struct plan whole = *d->p;

    whole.unit = UNIT_MODEL;
    walk_open(&d->walk, d->local, &whole, d->s, hooks, d);
    d->walk.first_differs = true;
    d->walk.stage.code = PIPE_DEEPSPEED;
    d->walk.stage.keeps = true;
}

int ds_init(struct ds *d, const struct local_model *local, struct schedules *s, const struct walk_hooks *hooks)
{
    const struct plan *p = local->plan;
    const struct model *m = local->model;
    struct recipe r = plan_recipe(p);

    *d = (struct ds){ .p = p, .local = local, .m = m, .s = s, .n = local->data_ranks, .rank = local->data_rank,
                      .dt = r.kept, .comm = r.wire_reduce, .e = dtype_bytes(r.kept),
                      .ce = dtype_bytes(r.wire_reduce), .layers = (int)m->layers,
                      .block0 = m->block0, .per_block = m->layers > 0 ? m->per_block : 0 };
    if (model_is_uneven(m)) {           /* partitions are flat: nothing asks which tensors a block has */
        d->layers = d->per_block = 0;
        d->block0 = m->ntensors;
    }
    d->blocks_end = d->block0 + d->layers * d->per_block;
    s->tied_apart = true;                /* z12_partial and the like */
    open_walk(d, hooks);
    lower_declare_activations(s, local, d->walk.acts);
    if (declare_left(d) < 0)
        return -1;
    for (int i = 0; i < NPIECE; i++)
        if (find_ready(d, (enum piece_id)i) < 0)
            return -1;
    find_tied(d);
    for (int t = 0; t < m->ntensors; t++)
        d->frozen_bytes += m->tensors[t].frozen ? ds_tensor_bytes(d, &m->tensors[t]) : 0;
    d->frozen = sched_buf(s, CAT_PARAMS, "frozen parameters", NULL, 0, 1, d->frozen_bytes);
    for (int t = 0; t < m->ntensors; t++)
        if (m->tensors[t].frozen)
            sched_part(s, d->frozen, ds_tensor_bytes(d, &m->tensors[t]));
    sched_holds(s, d->frozen, sched_layout(s, 0));
    for (int64_t t = 0, at = 0; t < m->ntensors; at += m->tensors[t].frozen ? ds_tensor_bytes(d, &m->tensors[t]) : 0, t++)
        if (m->tensors[t].frozen)
            sched_slice(s, HOLDS_PARAM, d->dt, (int)t, 0, m->tensors[t].numel, at);
    return 0;
}

void ds_free(struct ds *d)
{
    for (int i = 0; i < NPIECE; i++) {
        free(d->ready[i]);
        d->ready[i] = NULL;
    }
    free(d->left);
    free(d->scratch);
    d->left = NULL;
    d->scratch = NULL;
}

/* ---- parameter groups ---- */

/* The Trainer's get_decay_parameter_names(): all but biases and norms, whose weights are the vectors of our families, and gpt_oss's sinks. */
static bool decays(const struct tensor *t) { return !t->is_bias && (t->ndim > 1 || t->role == ROLE_SINKS); }

/* One of what decays, one of the rest; an empty one is none (_configure_optimizer). */
static int decay_groups(const struct model *m, int *belongs)
{
    bool has[2] = { false, false };

    for (int t = 0; t < m->ntensors; t++)
        if (!m->tensors[t].frozen)
            has[!decays(&m->tensors[t])] = true;
    for (int t = 0; t < m->ntensors; t++)
        belongs[t] = has[0] && has[1] && !m->tensors[t].frozen && !decays(&m->tensors[t]);
    return has[0] && has[1] ? 2 : 1;
}

int ds_parameter_groups(const struct plan *p, const struct model *m, int *belongs)
{
    int64_t in = 0;
    int n = 1;

    if (p->ds.decay_groups)
        return decay_groups(m, belongs);

    for (int t = 0; t < m->ntensors; t++) {
        const struct tensor *x = &m->tensors[t];
        belongs[t] = 0;
        if (p->parallel.expert <= 1 || !role_is_of_experts(x->role))
            continue;
        if (n == 1 || in + x->numel > DS_EXPERT_GROUP) {
            n++;
            in = 0;
        }
        in += x->numel;
        belongs[t] = n - 1;
    }
    return n;
}

bool ds_is_of_experts(const struct ds *d, const struct tensor *t) { return d->p->parallel.expert > 1 && role_is_of_experts(t->role); }

int64_t ds_ranks_of(const struct ds *d, const struct tensor *t) { return ds_is_of_experts(d, t) ? d->local->expert_data_ranks : d->n; }

/* ---- families ---- */

static int slot(const struct ds *d, int tensor)
{
    if (tensor < d->block0)
        return tensor;
    if (tensor < d->blocks_end)
        return d->block0 + (tensor - d->block0) % d->per_block;
    return d->block0 + d->per_block + tensor - d->blocks_end;
}

static int instance(const struct ds *d, int tensor)
{
    return tensor < d->block0 || tensor >= d->blocks_end ? 0 : (tensor - d->block0) / d->per_block;
}

/* A stage may have no block: per_block is 0 there. */
static int slots(const struct ds *d) { return d->m->ntensors - (d->layers - 1) * d->per_block; }

/* The first tensor of a family: of block 0, or outside of the blocks. */
static bool first_of_family(const struct ds *d, int t) { return instance(d, t) == 0; }

static bool in_block(const struct ds *d, int t) { return t >= d->block0 && t < d->blocks_end; }

void ds_declare(const struct ds *d, struct ds_families *f, enum category cat, const char *what,
                int copies, ds_bytes *bytes)
{
    f->copies = copies;
    f->family = malloc((size_t)(copies * slots(d) + 1) * sizeof *f->family);
    if (!f->family)
        abort();
    for (int c = 0; c < copies; c++)
        for (int t = 0; t < d->m->ntensors; t++)
            if (first_of_family(d, t))
                f->family[c * slots(d) + slot(d, t)] =
                    sched_buf_in(d->s, f->in, cat, what, in_block(d, t) ? "block" : NULL, 0,
                                 in_block(d, t) ? d->layers : 1, bytes(d, &d->m->tensors[t]));
}

void ds_hold(const struct ds *d, struct ds_families *f, enum holds h, enum dtype dt)
{
    f->holds = h;
    f->dtype = dt;
    for (int t = 0; t < d->m->ntensors && d->s->detailed; t++) {
        if (!first_of_family(d, t))
            continue;
        int layout = sched_layout(d->s, in_block(d, t) ? d->per_block : 0);
        sched_slice(d->s, h, dt, t, 0, d->m->tensors[t].numel, 0);
        for (int c = 0; c < f->copies; c++)
            sched_holds(d->s, f->family[c * slots(d) + slot(d, t)], layout);
    }
}

void ds_hold_part(const struct ds *d, struct ds_families *f, int t, int64_t n, int64_t from)
{
    if (!d->s->detailed || !first_of_family(d, t))
        return;
    int layout = sched_layout(d->s, in_block(d, t) ? d->per_block : 0);
    sched_slice(d->s, f->holds, f->dtype, t, from, n, 0);
    sched_holds(d->s, f->family[slot(d, t)], layout);
}

void ds_undeclare(struct ds_families *f)
{
    free(f->family);
    f->family = NULL;
}

void ds_act(const struct ds *d, const struct ds_families *f, int what, int tensor, int copy)
{
    sched_act(d->s, what, f->family[copy * slots(d) + slot(d, tensor)], instance(d, tensor), 0);
}

void ds_act_by(const struct ds *d, const struct ds_families *f, int what, int tensor, int by)
{
    sched_act(d->s, what, f->family[slot(d, tensor)], instance(d, tensor), by);
}

void ds_act_as(const struct ds *d, const struct ds_families *f, int what, int tensor, int layout)
{
    sched_act_as(d->s, what, f->family[slot(d, tensor)], instance(d, tensor), 0, layout);
}

void ds_act_part(const struct ds *d, const struct ds_families *f, int what, int tensor, int64_t from,
                 int64_t n, int64_t at)
{
    int layout = sched_layout(d->s, 0);

    sched_slice(d->s, f->holds, f->dtype, tensor, from, n, at);
    ds_act_as(d, f, what, tensor, layout);
}

void ds_act_all(const struct ds *d, const struct ds_families *f, int what)
{
    for (int i = 0; i < slots(d); i++) {
        int t = i < d->block0 + d->per_block ? i : i + (d->layers - 1) * d->per_block;
        if (!f->trained || !d->m->tensors[t].frozen)
            sched_act_all(d->s, what, f->family[i]);
    }
}

int64_t ds_tensor_bytes(const struct ds *d, const struct tensor *t)
{
    return round512(t->numel * d->e);
}

int64_t ds_sum(const struct ds *d, ds_bytes *bytes)
{
    int64_t sum = 0;

    for (int t = 0; t < d->m->ntensors; t++)
        sum += d->m->tensors[t].frozen ? 0 : bytes(d, &d->m->tensors[t]);
    return sum;
}

static bool is_in(const struct ds *d, const int *belongs, int group, int t) { return belongs[t] == group && !d->m->tensors[t].frozen; }

int ds_each_of(const struct ds *d, const int *belongs, int group, enum category cat, const char *what, int n, ds_bytes *bytes)
{
    int64_t sum = 0;
    int buf;

    for (int t = 0; t < d->m->ntensors; t++)
        sum += is_in(d, belongs, group, t) ? n * bytes(d, &d->m->tensors[t]) : 0;
    buf = sched_buf(d->s, cat, what, NULL, 0, 1, sum);
    for (int t = 0; t < n * d->m->ntensors; t++)
        if (is_in(d, belongs, group, t / n))
            sched_part(d->s, buf, bytes(d, &d->m->tensors[t / n]));
    return buf;
}

/* ---- layouts ---- */

void ds_flat_slices(const struct ds *d, const int64_t *start, enum holds h, enum dtype dt, int64_t from,
                    int64_t n, int64_t at)
{
    struct sharding x = { d->s, d->m->tensors, h, dt, at, from, n, 0 };

    for (int t = 0; t < d->m->ntensors && d->s->detailed; t++) {
        if (d->m->tensors[t].frozen)
            continue;
        x.next = start ? start[t] : x.next;
        sharding_flat(&x, t);
    }
}

int ds_flat(const struct ds *d, const int64_t *start, enum holds h, enum dtype t, int64_t from, int64_t n,
            int64_t at)
{
    int layout = sched_layout(d->s, 0);

    ds_flat_slices(d, start, h, t, from, n, at);
    return layout;
}

int ds_apart(const struct ds *d, const int *belongs, int group, enum holds h, enum dtype dt)
{
    int layout = sched_layout(d->s, 0);
    struct sharding x = { d->s, d->m->tensors, h, dt, .at = 0 };

    for (int t = 0; t < d->m->ntensors && d->s->detailed; t++)
        if (is_in(d, belongs, group, t))
            sharding_whole(&x, t, 512);
    return layout;
}

/* ---- entries ---- */

struct op *ds_coll(const struct ds *d, enum stream st, enum phase ph, enum coll_op op, enum dtype t,
                   enum red_op red, int64_t elems)
{
    return sched_coll(d->s, st, ph, op, GROUP_DATA, t, red, elems);
}

void ds_among_model(const struct ds *d, enum dtype t, enum red_op red)
{
    bool pipe = d->p->parallel.pipeline > 1;

    if (d->p->parallel.tensor <= 1 && !pipe)
        return;
    sched_coll(d->s, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, pipe ? GROUP_PIPE : GROUP_TENSOR, t, red, 1);
    sched_moves(d->s, red == RED_MAX ? OF_OVERFLOW : OF_NORM);
}

void ds_memory(const struct ds *d, enum phase ph, const char *what, int act, int buf)
{
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, ph, what);
    sched_act_all(d->s, act, buf);
}

void ds_synchronize(const struct ds *d, enum phase ph, const char *what)
{
    struct op *o = sched_op(d->s, OP_WAIT, STREAM_ISSUE, ph, what);

    o->after = (uint16_t)~AFTER(STREAM_ISSUE) & ((1u << NSTREAM) - 1);
}

enum piece_id ds_piece(const struct ds *d, int block)
{
    return program_piece_of_block(d->p, block);
}

void ds_name(const struct ds *d, enum piece_id piece, int block, int by)
{
    sched_of(d->s, piece == PIECE_EMBED ? "embedding" : piece == PIECE_HEAD ? "head" : "block", block, by);
}

void ds_begin_pass(void *ds)
{
    struct ds *d = ds;

    d->walk.cuts = false;
    d->walk.fate = GRADS_IN_PLACE;
    d->walk.alone = program_period(d->p) != 1;
    d->walk.last_alone = ds_pipe_returns(d);
    ds_pipe_begin_pass(d);
}

/* ---- passing buffers: an open-addressing table by size and name ---- */

static int scratch_slot(const struct ds *d, const char *what, int64_t bytes)
{
    uint64_t h = ((uint64_t)bytes ^ (uint64_t)(uintptr_t)what) * 0x9e3779b97f4a7c15u;
    int i = (int)(h >> 33) & (d->cap_scratch - 1);

    while (d->scratch[i].what && (d->scratch[i].what != what || d->scratch[i].bytes != bytes))
        i = (i + 1) & (d->cap_scratch - 1);
    return i;
}

static void scratch_grow(struct ds *d)
{
    struct ds old = *d;

    d->cap_scratch = old.cap_scratch ? 2 * old.cap_scratch : 64;
    d->scratch = calloc((size_t)d->cap_scratch, sizeof *d->scratch);
    if (!d->scratch)
        abort();
    for (int i = 0; i < old.cap_scratch; i++)
        if (old.scratch[i].what)
            d->scratch[scratch_slot(d, old.scratch[i].what, old.scratch[i].bytes)] = old.scratch[i];
    free(old.scratch);
}

int ds_scratch(struct ds *d, enum category cat, const char *what, int64_t bytes)
{
    return ds_scratch_in(d, SPACE_DEVICE, cat, what, bytes);
}

int ds_scratch_in(struct ds *d, enum space in, enum category cat, const char *what, int64_t bytes)
{
    int i;

    if (2 * d->nscratch >= d->cap_scratch)
        scratch_grow(d);
    i = scratch_slot(d, what, bytes);
    if (!d->scratch[i].what) {
        d->scratch[i].what = what;
        d->scratch[i].bytes = bytes;
        d->scratch[i].family = sched_buf_in(d->s, in, cat, what, NULL, 0, 1, bytes);
        d->nscratch++;
    }
    return d->scratch[i].family;
}

int ds_scratch_of_all(struct ds *d, enum category cat, const char *what)
{
    int before = d->nscratch, buf = ds_scratch(d, cat, what, ds_sum(d, ds_tensor_bytes));

    if (d->nscratch > before)
        for (int t = 0; t < d->m->ntensors; t++)
            if (!d->m->tensors[t].frozen)
                sched_part(d->s, buf, ds_tensor_bytes(d, &d->m->tensors[t]));
    return buf;
}

struct op *ds_adamw(struct ds *d, const struct plan *p, int64_t elems)
{
    static const enum adamw_form forms[NOPTIMIZER_FORM] = {
        [OPTIMIZER_FUSED] = ADAMW_THEN_CAST, [OPTIMIZER_FOREACH] = ADAMW_FOREACH, [OPTIMIZER_LOOP] = ADAMW_LOOP,
    };
    struct op *o = lower_adamw(d->s, p, forms[p->optimizer_form], elems);

    if (p->optimizer_form != OPTIMIZER_FUSED || p->optimizer != OPTIMIZER_ADAMW)
        o->u.optimizer.tensors = 1;
    return o;
}

int ds_states(struct ds *d, int64_t n, int *managed)
{
    int64_t bytes[OPTIMIZER_PARTS], paged = optimizer_flat_paged(d->p, n), tables = d->has_tables ? 0 : round512(optimizer_tables(d->p)), sum = tables;
    int count = optimizer_flat_states(d->p, n, bytes), of;
    bool codes = optimizer_traits(d->p->optimizer)->by != BY_TORCH;

    d->has_tables = true;
    for (int i = 0; i < count; i++)
        sum += round512(bytes[i]);
    of = sched_buf(d->s, CAT_OPTIMIZER, codes ? optimizer_states_title(d->p) : "exp_avg, exp_avg_sq", NULL, 0, 1, sum);
    for (int i = 0; i < count; i++)
        sched_part(d->s, of, round512(bytes[i]));
    if (tables > 0)
        sched_part(d->s, of, tables);
    *managed = paged > 0 ? sched_buf_in(d->s, SPACE_HOST, CAT_OPTIMIZER, "paged states", NULL, 0, 1, paged) : -1;
    return of;
}

void ds_manage_states(struct ds *d, int managed)
{
    if (managed < 0)
        return;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "managed memory");       /* then the driver's: its pages are where kernels need them */
    sched_act(d->s, ACT_ALLOC, managed, 0, 0);
}

void ds_adamw_temporaries(struct ds *d, const struct plan *p, int64_t bytes)
{
    if (p->optimizer != OPTIMIZER_ADAMW || p->optimizer_form == OPTIMIZER_FUSED)
        return;
    sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "AdamW's temporaries", bytes), 0, 0);
    if (p->optimizer_form == OPTIMIZER_LOOP)
        sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "AdamW's temporaries, the second", bytes), 0, 0);
}

/* 0.19.8 views a parameter as bytes first (engine._broadcast_model). */
void ds_broadcast_tensor(const struct ds *d, int t)
{
    bool bytes = plan_has_deepspeed_0_19_8(d->p);
    int64_t n = d->m->tensors[t].numel;
    enum group among = ds_is_of_experts(d, &d->m->tensors[t]) ? GROUP_EXPERT_DATA : GROUP_DATA;

    sched_coll(d->s, STREAM_COMPUTE, PHASE_INIT, COLL_BROADCAST, among, bytes ? DT_UINT8 : d->dt, RED_NONE, bytes ? n * d->e : n);
    sched_root(d->s, 0);
}

void ds_reads_frozen(const struct ds *d)
{
    if (d->frozen_bytes > 0)
        sched_act(d->s, ACT_R, d->frozen, 0, 0);
}

static int group_of(const int *belongs, int t) { return belongs ? belongs[t] : 0; }

/* Where a tensor lies in its buffer: behind those before it. */
static int64_t loaded_at(const struct ds *d, const int *belongs, int t)
{
    const struct tensor *x = d->m->tensors;
    int64_t at = 0;

    for (int i = 0; i < t && d->s->detailed; i++)
        at += x[i].frozen == x[t].frozen && group_of(belongs, i) == group_of(belongs, t) ? ds_tensor_bytes(d, &x[i]) : 0;
    return at;
}

void ds_load_model(const struct ds *d, const int *params, int ngroups, const int *belongs)
{
    ds_memory(d, PHASE_INIT, "model to device", ACT_ALLOC | ACT_W, params[0]);
    for (int g = 1; g < ngroups; g++)
        sched_act(d->s, ACT_ALLOC | ACT_W, params[g], 0, 0);
    if (d->frozen_bytes > 0)
        sched_act(d->s, ACT_ALLOC | ACT_W, d->frozen, 0, 0);
    d->s->ops[d->s->nops - 1].flags = OPF_LOAD;
    for (int t = 0; t < d->m->ntensors; t++) {
        bool frozen = d->m->tensors[t].frozen;
        int layout = sched_layout(d->s, 0);
        sched_slice(d->s, HOLDS_PARAM, d->dt, t, 0, d->m->tensors[t].numel, loaded_at(d, belongs, t));
        ds_broadcast_tensor(d, t);
        sched_act_as(d->s, ACT_RW, frozen ? d->frozen : params[group_of(belongs, t)], 0, 0, layout);
    }
}

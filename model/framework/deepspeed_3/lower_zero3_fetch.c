/* lower_zero3_fetch.c -- what gathering, awaiting and releasing parameters costs. */
#include "base/room.h"
#include "model/arch/recorded.h"
#include "model/framework/deepspeed_3/lower_zero3.h"
#include "model/program/torch_model.h"

#include <stdlib.h>

enum phase z3_phase(const struct z3 *z)
{
    return z->d.walk.forward ? PHASE_FORWARD : PHASE_BACKWARD;
}

/* ---- events that the issuing thread may wait for ---- */

/* __ongoing_fetch_events and param_reduce_events: more than two unfinished ones,
 * and the oldest is waited for. */
void z3_ring_wait(struct z3 *z, struct z3_ring *r, enum phase ph)
{
    if (r->n < 3)
        return;
    if (r->pending[0] > r->waited) {    /* else several waits shared a recording */
        sched_op(z->d.s, OP_WAIT, STREAM_ISSUE, ph, "at most two in flight")->wait[0] =
            r->event[r->pending[0] % 8];
        r->waited = r->pending[0];
    }
    r->pending[0] = r->pending[1];
    r->pending[1] = r->pending[2];
    r->n = 2;
}

void z3_ring_record(struct z3 *z, struct z3_ring *r, bool on_last)
{
    if (on_last)
        z->d.s->ops[z->d.s->nops - 1].record = r->event[++r->recorded % 8];
    r->pending[r->n++] = r->recorded;
}

/* ---- records of gathers ---- */

/* The free records of a family. */
static struct z3_list *list_of(struct z3 *z, int family)
{
    if (family < 0)
        return &z->singles;
    if (family >= z->nlists) {
        int n = 2 * family + 16;
        z->lists = realloc(z->lists, (size_t)n * sizeof *z->lists);
        if (!z->lists)
            abort();
        for (int i = z->nlists; i < n; i++)
            z->lists[i] = (struct z3_list){ .free = -1 };
        z->nlists = n;
    }
    return &z->lists[family];
}

static int new_record(struct z3 *z, int family)
{
    struct z3_gather *g;

    z->gathers = room_for(z->gathers, z->ngathers, &z->cap_gathers, sizeof *z->gathers);
    g = &z->gathers[z->ngathers];
    *g = (struct z3_gather){ .family = family, .event = sched_event(z->d.s), .next_free = -1 };
    if (family >= 0 && (g->instance = list_of(z, family)->made++) > 0)
        z->d.s->bufs[family].count++;
    return z->ngathers++;
}

int z3_take_record(struct z3 *z, int family, const int *tensors, int n)
{
    struct z3_list *list = list_of(z, family);
    int r = list->free;
    struct z3_gather *g;

    if (r >= 0)
        list->free = z->gathers[r].next_free;
    else
        r = new_record(z, family);
    g = &z->gathers[r];
    g->tensors = room_for(g->tensors, n - 1, &g->cap, sizeof *g->tensors);
    for (int i = 0; i < n; i++) {
        g->tensors[i] = tensors[i];
        z->gather_of[tensors[i]] = r;
    }
    g->n = g->left = n;
    g->with = -1;
    g->done = false;
    g->kind = -1;
    return r;
}

static void give_back(struct z3 *z, int r)
{
    struct z3_list *list = list_of(z, z->gathers[r].family);

    z->gathers[r].next_free = list->free;
    list->free = r;
}

/* ---- gathering ---- */

/* Frozen ones are buffers of their own; says whether any of the tensors is not. */
static bool own_frozen(struct z3 *z, int what, const int *tensors, int n)
{
    int64_t from, part;
    bool trains = false;

    for (int i = 0; i < n; i++) {
        bool frozen = z->d.m->tensors[tensors[i]].frozen;
        trains |= !frozen;
        if (!frozen || !z->d.s->detailed)
            continue;
        part = z3_part(z, tensors[i], &from);
        ds_act_part(&z->d, &z->partition, what, tensors[i], from, part, 0);
    }
    return trains;
}

void z3_own_parts(struct z3 *z, int what, const int *tensors, int n)
{
    if (own_frozen(z, what, tensors, n) && z->d.s->detailed)
        sched_act_as(z->d.s, what, z->lp, 0, 0, z3_own(z, HOLDS_PARAM, z->d.dt, tensors, n, 0));
}

static struct ds_families *family_of(struct z3 *z, int t)
{
    return z->held[t] == Z3_COPY ? &z->copy : &z->padded;
}

void z3_take_buffer(struct z3 *z, int t, enum z3_held how)
{
    z->held[t] = (uint8_t)how;
    z->which[t] = z->kept[t] > 0 && z->kept[t] <= 4;
}

void z3_use(struct z3 *z, int what, int t)
{
    const struct z3_gather *g;

    if (z3_is_alone(z, t) && !z->away.params) {
        z3_own_parts(z, what, &t, 1);
        return;
    }
    if (z->held[t] != Z3_VIEW) {
        ds_act(&z->d, family_of(z, t), what, t, z->which[t]);
        return;
    }
    g = &z->gathers[z->gather_of[t]];
    sched_act_as(z->d.s, what, g->family, g->instance, 0, g->layout);
}

void z3_fill(struct z3 *z, int what, int t)
{
    if (z->away.params)
        z3_use_here(z, ACT_R, t);
    else
        z3_own_parts(z, ACT_R, &t, 1);
    ds_act(&z->d, &z->padded, what | ACT_W, t, z->which[t]);
}

/* From which parts a parameter is gathered. */
static bool from_second(const struct z3 *z, int t) { return z->second.on && z->second.there[t]; }

struct op *z3_all_gather(struct z3 *z, const struct z3_cut *cut, enum dtype t, int64_t elems, int tensors)
{
    struct op *o = sched_coll(z->d.s, STREAM_GROUP, z3_phase(z), COLL_ALL_GATHER, cut->among, t, RED_NONE, elems);

    o->after = AFTER(z->gather_stream);
    o->u.coll.tensors = tensors;
    return o;
}

static const struct z3_cut *source_of(const struct z3 *z, int t) { return from_second(z, t) ? &z->second.cut : z3_cut_of(z, t); }

/* _all_gather_sequential: into the buffer that becomes the parameter. */
static void gather_one(struct z3 *z, int t)
{
    int r = z3_take_record(z, -1, &t, 1);

    if (z->away.params)
        z3_bring(z, z->gather_stream, z3_phase(z), t);
    z3_take_buffer(z, t, Z3_PADDED);
    z3_all_gather(z, source_of(z, t), z->d.dt, z->q[t] * z3_cut_of(z, t)->n, 1)->record = z->gathers[r].event;
    sched_of(z->d.s, "parameter", t, 0);
    if (from_second(z, t)) {
        z3_second_act(z, ACT_R, t);
        ds_act(&z->d, &z->padded, ACT_ALLOC | ACT_W, t, z->which[t]);
    } else {
        z3_fill(z, ACT_ALLOC, t);
    }
}

/* _all_gather_dtype: this rank's parts into its chunk of a flat buffer, then the others'.  The
 * record's tensors lie end to end in each chunk. */
static void gather_chunks(struct z3 *z, const struct z3_gather *g, int64_t mine)
{
    struct ds *d = &z->d;
    bool second = g->cut == &z->second.cut;
    int chunk = z3_chunk(z, g->cut, HOLDS_PARAM, d->dt, g->tensors, g->n);

    for (int i = 0; i < g->n && z->away.params; i++)
        z3_bring(z, z->gather_stream, z3_phase(z), g->tensors[i]);
    sched_set(d->s, z->gather_stream, z3_phase(z), "copy own", mine * d->e, mine * d->e);
    for (int i = 0; i < g->n && z->away.params; i++)
        z3_use_here(z, ACT_R | ACT_FREE, g->tensors[i]);
    for (int i = 0; i < g->n && second; i++)
        z3_second_act(z, ACT_R, g->tensors[i]);
    if (!z->away.params && !second && own_frozen(z, ACT_R, g->tensors, g->n))
        sched_act(d->s, ACT_R, z->lp, 0, 0);
    sched_act_as(d->s, ACT_ALLOC | ACT_W, g->family, g->instance, 0, chunk);
    z3_all_gather(z, g->cut, d->dt, mine * g->cut->n, g->n)->record = g->event;
    if (d->s->detailed)
        sched_act_as(d->s, ACT_R, g->family, g->instance, 0, chunk);
    sched_act_as(d->s, ACT_W, g->family, g->instance, 0, g->layout);
}

/* AllReduceCoalescedHandle: the parameters are views of the flat buffer; each rank puts its parts
 * between zeros, and the sum is the whole. */
static void gather_views(struct z3 *z, const struct z3_gather *g, int64_t mine)
{
    struct ds *d = &z->d;

    sched_copy(d->s, z->gather_stream, z3_phase(z), "zero flat buffer", 0, mine * d->n * d->e);
    sched_does(d->s, COPY_ZERO, 0);
    sched_act_as(d->s, ACT_ALLOC | ACT_W, g->family, g->instance, 0, g->layout);
    for (int i = 0; i < g->n && z->away.params; i++) {
        int64_t bytes = z->q[g->tensors[i]] * d->e;
        sched_set(d->s, z->gather_stream, z3_phase(z), "partition to device", bytes, bytes);
        z3_act_partition(z, ACT_R, g->tensors[i]);
        sched_act_as(d->s, ACT_W, g->family, g->instance, 0, z3_inside_one(z, HOLDS_PARAM, d->dt, g->tensors, i));
        z3_block(z, z->gather_stream, z3_phase(z), "await the partition");
    }
    if (!z->away.params) {
        sched_set(d->s, z->gather_stream, z3_phase(z), "copy own", mine * d->e, mine * d->e);
        if (own_frozen(z, ACT_R, g->tensors, g->n))
            sched_act(d->s, ACT_R, z->lp, 0, 0);
        sched_act_as(d->s, ACT_W, g->family, g->instance, 0, z3_inside(z, HOLDS_PARAM, d->dt, g->tensors, g->n));
    }
    struct op *o = ds_coll(d, STREAM_GROUP, z3_phase(z), COLL_ALL_REDUCE, d->dt, RED_SUM, mine * d->n);
    o->after = AFTER(z->gather_stream);
    o->record = g->event;
    o->u.coll.tensors = g->n;
    sched_act_as(d->s, ACT_RW, g->family, g->instance, 0, g->layout);
}

/* _all_gather_coalesced of several. */
static void gather_flat(struct z3 *z, const int *tensors, int n)
{
    struct ds *d = &z->d;
    const struct z3_cut *cut = source_of(z, tensors[0]);
    bool views = z->by_all_reduce && cut != &z->second.cut;
    int64_t mine = 0;

    for (int i = 0; i < n; i++) {
        mine += cut->times * z->q[tensors[i]];
        z3_take_buffer(z, tensors[i], views ? Z3_VIEW : Z3_COPY);
    }
    int r = z3_take_record(z, ds_scratch(d, views ? CAT_UNSHARDED : CAT_ALL_GATHER,
                                      "flat gather buffer", round512(mine * cut->n * d->e)), tensors, n);
    struct z3_gather *g = &z->gathers[r];
    g->cut = cut;
    if (views) {
        g->layout = z3_whole(z, HOLDS_PARAM, d->dt, tensors, n, 0, 1);
        gather_views(z, g, mine);
    } else {
        g->layout = z3_chunks(z, cut, HOLDS_PARAM, d->dt, tensors, n);
        gather_chunks(z, g, mine);
    }
    sched_of(d->s, "parameters from", tensors[0], 0);
}

/* NoGatherHandle: one rank has all, and copies it to the device. */
static void gather_alone(struct z3 *z, const int *tensors, int n)
{
    int r = z3_take_record(z, -1, tensors, n);

    for (int i = 0; i < z->gathers[r].n; i++)
        z3_bring_whole(z, z->gather_stream, z3_phase(z), tensors[i]);
}

/* all_gather_coalesced, of parameters that all have a secondary partition, or none. */
static void gather_alike(struct z3 *z, const int *tensors, int n)
{
    if (z->int8) {
        z3_int8_gather(z, tensors, n, source_of(z, tensors[0]));
        return;
    }
    if (n > 1 && !z->sequential) {
        gather_flat(z, tensors, n);
        return;
    }
    for (int i = 0; i < n; i++)
        gather_one(z, tensors[i]);
}

/* __all_gather_params_: those with a secondary partition first. */
static void gather_apart(struct z3 *z, const int *tensors, int n)
{
    for (int second = 1; second >= 0; second--) {
        int some = 0;
        for (int i = 0; i < n; i++)
            if (from_second(z, tensors[i]) == second)
                z->second.list[some++] = tensors[i];
        if (some > 0)
            gather_alike(z, z->second.list, some);
    }
}

/* all_gather_coalesced, one call for each group of ranks; where that is one rank the parameter is its partition (_no_gather_coalesced).
 * Which group comes first is that of a set's first element there: any.  What is gathered by both is awaited, and given up, together
 * (MultipleAllGatherHandles). */
static void gather_by_group(struct z3 *z, const int *tensors, int n)
{
    const struct z3_cut *of[] = { &z->cut, &z->expert_cut };
    int record[] = { -1, -1 };

    for (int k = 0; k < 2; k++) {
        int some = 0;
        for (int i = 0; i < n; i++)
            if (z3_cut_of(z, tensors[i]) == of[k])
                z->apart[some++] = tensors[i];
        if (some == 0 || of[k]->n < 2)
            continue;
        gather_alike(z, z->apart, some);
        record[k] = z->gather_of[z->apart[0]];
    }
    if (record[0] < 0 || record[1] < 0 || z->sequential || z->by_all_reduce)
        return;
    z->gathers[record[0]].with = record[1];
    z->gathers[record[1]].with = record[0];
    z->gathers[record[0]].leads = true;
    z->gathers[record[1]].leads = false;
}

void z3_gather(void *arg, const int *tensors, int n)
{
    struct z3 *z = arg;

    z3_files_ensure(z, z3_phase(z), tensors, n);
    if (z->d.n > 1 && z->second.on)
        gather_apart(z, tensors, n);
    else if (z->d.n > 1)
        gather_by_group(z, tensors, n);
    else if (z->away.params)
        gather_alone(z, tensors, n);
}

/* Param.all_gather(): no handle, and always among all ranks. */
void z3_gather_now(void *arg, int t)
{
    struct z3 *z = arg;

    if (z->d.n < 2 && z->away.params)
        z3_bring_whole(z, STREAM_COMPUTE, z3_phase(z), t);
    if (z->d.n < 2)
        return;
    if (z->away.params)
        z3_bring(z, STREAM_COMPUTE, z3_phase(z), t);
    z3_take_buffer(z, t, Z3_PADDED);
    struct op *o = ds_coll(&z->d, STREAM_GROUP, z3_phase(z), COLL_ALL_GATHER, z->d.dt, RED_NONE, z->q[t] * z->d.n);
    o->after = AFTER(STREAM_COMPUTE);
    o->u.coll.tensors = 1;
    sched_of(z->d.s, "parameter", t, 0);
    z3_fill(z, ACT_ALLOC, t);
    if (z->away.params)
        z3_use_here(z, ACT_FREE, t);
    sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, z3_phase(z), "await gather")->after = AFTER(STREAM_GROUP);
}

/* ---- awaiting: AllGatherHandle.wait, AllGatherCoalescedHandle.wait ---- */

static void first_wait(struct z3 *z, struct z3_gather *g)
{
    struct schedules *s = z->d.s;
    int64_t elems = 0;
    struct op *o;

    if (z->d.n < 2) {
        z3_block(z, z->gather_stream, z3_phase(z), "await the parameters");
        return;
    }
    if (g->kind >= 0) {
        z3_int8_wait(z, g);
        return;
    }
    if (g->family < 0 || z->held[g->tensors[0]] == Z3_VIEW) {
        o = sched_op(s, OP_MEMORY, z->gather_stream, z3_phase(z), "await gather");
        o->wait[0] = g->event;
        if (g->family < 0 && z->away.params)
            z3_use_here(z, ACT_FREE, g->tensors[0]);
        return;
    }
    for (int i = 0; i < g->n; i++)
        elems += z3_numel(z, g->tensors[i]);
    o = sched_copy(s, z->gather_stream, z3_phase(z), "copy out", elems * z->d.e, elems * z->d.e);
    o->wait[0] = g->event;
    sched_does(s, COPY_SET, 1);
    sched_act_as(s, ACT_R, g->family, g->instance, 0, g->layout);
    for (int i = 0; i < g->n; i++)
        ds_act(&z->d, &z->copy, ACT_ALLOC | ACT_W, g->tensors[i], z->which[g->tensors[i]]);
}

/* All that a call gathered. */
static void await_call(struct z3 *z, struct z3_gather *g)
{
    struct z3_gather *other = g->with >= 0 ? &z->gathers[g->with] : NULL;

    if (other && !g->leads)
        first_wait(z, other);
    first_wait(z, g);
    if (other && g->leads)
        first_wait(z, other);
    g->done = true;
    if (other)
        other->done = true;
}

static void drop_flat(struct z3 *z, const struct z3_gather *g)
{
    if (g->family < 0)
        return;
    sched_act(z->d.s, ACT_FREE, g->family, g->instance, 0);
    if (g->kind >= 0)
        z3_int8_drop(z, g);
}

/* Its last parameter has been awaited: the last entry, if one was issued, or else one of its own frees flat buffers.  Was any issued? */
static bool end_call(struct z3 *z, int record, bool issued)
{
    const struct z3_gather *g = &z->gathers[record], *other = g->with >= 0 ? &z->gathers[g->with] : NULL;
    bool flat = g->family >= 0 || (other && other->family >= 0);
    int with = g->with;

    if (other && other->left > 0)
        return issued;
    if (flat && !issued)
        sched_op(z->d.s, OP_MEMORY, z->gather_stream, z3_phase(z), "drop flat buffer");
    drop_flat(z, g);
    if (other) {
        drop_flat(z, other);
        give_back(z, with);
    }
    give_back(z, record);
    return issued || flat;
}

/* NoGatherHandle.wait(): the issuing thread waits for all that was gathered before. */
static void wait_alone(struct z3 *z)
{
    if (z->d.n < 2)
        return;
    z3_block(z, z->gather_stream, z3_phase(z), "await the parameters");
    z->fetched.n = 0;
}

void z3_await(void *arg, int t)
{
    struct z3 *z = arg;
    bool issued = false;

    if (z3_is_alone(z, t) && !z->away.params) {
        wait_alone(z);
        return;
    }
    struct z3_gather *g = &z->gathers[z->gather_of[t]];
    z3_ring_wait(z, &z->fetched, z3_phase(z));
    if (!g->done) {
        await_call(z, g);
        issued = true;
        z->gather_dirty = true;
    }
    if (z->held[t] != Z3_VIEW && --g->left == 0)
        issued = end_call(z, z->gather_of[t], issued);
    /* An event of a wait that issued nothing is that of the one before. */
    z3_ring_record(z, &z->fetched, issued);
}

/* fetch_sub_module: compute waits for what the gather stream was given. */
void z3_ready(void *arg, int module)
{
    struct z3 *z = arg;

    (void)module;
    if (!z->gather_dirty || z->gather_stream == STREAM_COMPUTE)
        return;
    struct op *o = sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, z3_phase(z), "await parameters");
    o->after = AFTER(z->gather_stream);
    z->gather_dirty = false;
}

/* ---- releasing ---- */

/* One entry frees all that goes at a moment. */
static void release_entry(struct z3 *z)
{
    struct schedules *s = z->d.s;

    if (z->release_op == s->nops - 1)
        return;
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, z3_phase(z), "release");
    z->release_op = s->nops - 1;
}

/* Of a flat buffer the last view goes: the record is free. */
static bool last_view(struct z3 *z, int record)
{
    if (--z->gathers[record].left > 0)
        return false;
    give_back(z, record);
    return true;
}

bool z3_linear_saves_view(const struct ds *d) { return torch_linear_saves_view(d->m) || d->p->parallel.tensor > 1; }

/* The head of a falcon is a plain linear layer; AutoTP has its own. */
static bool saved_as_view(const struct z3 *z, int t)
{
    const struct recorded *r = z->d.m->recorded;
    const struct tensor *x = &z->d.m->tensors[t];
    bool own_layer = x->block >= 0 || (x->role == ROLE_HEAD && z->d.p->parallel.tensor > 1);

    if (r)
        return r->viewed && r->viewed[t];
    return role_is_of_experts(x->role) || (own_layer && x->ndim == 2 && z3_linear_saves_view(&z->d));
}

/* The checkpoint detaches what needs a gradient.  Neither addmm() nor a sum saves a bias. */
static bool saved_detached(const struct z3 *z, const struct tensor *x)
{
    bool own_bias = x->is_bias && torch_own_linear(z->d.m) && x > z->d.m->tensors && x[-1].role == x->role && x[-1].ndim == 2;

    return !x->frozen && !own_bias;
}

void z3_module_saves(struct z3 *z, const struct z3_module *m, bool again)
{
    if (z->d.p->kernels == KERNELS_DPX || !m->has_backward)
        return;
    for (int k = 0; k < m->n; k++) {
        int i = z3_own_tensor(m, k);
        const struct tensor *x = &z->d.m->tensors[i];
        z->data_saved[i] |= saved_as_view(z, i) || (again && saved_detached(z, x));
    }
}

void z3_release(void *arg, int t)
{
    struct z3 *z = arg;

    if (z3_is_alone(z, t) && !z->away.params)
        return;
    z3_second_keep(z, z3_phase(z), t);
    z3_give_buffer(z, t);
    if (z->data_saved[t] && z->kept[t] == 0) {
        z->kept[t] = (uint8_t)(1 + z->held[t] + 4 * z->which[t]);
        z->kept_gather[t] = z->gather_of[t];
        return;
    }
    if (z->held[t] == Z3_VIEW && !last_view(z, z->gather_of[t]))
        return;
    release_entry(z);
    z3_use(z, ACT_FREE, t);
}

void z3_drop_kept_data(struct z3 *z, int t)
{
    int kept = z->kept[t] - 1;
    const struct z3_gather *g;

    z->data_saved[t] = 0;
    if (kept < 0)
        return;
    z->kept[t] = 0;
    if (kept % 4 == Z3_VIEW && !last_view(z, z->kept_gather[t]))
        return;
    release_entry(z);
    g = kept % 4 == Z3_VIEW ? &z->gathers[z->kept_gather[t]] : NULL;
    if (g)
        sched_act_as(z->d.s, ACT_FREE, g->family, g->instance, 0, g->layout);
    else
        ds_act(&z->d, kept % 4 == Z3_COPY ? &z->copy : &z->padded, ACT_FREE, t, kept / 4);
}

/* The persistent parameters of a cut: buffers, then gathers. */
static void gather_cut(struct z3 *z, const struct z3_cut *cut)
{
    struct ds *d = &z->d;
    bool any = false;

    for (int t = 0; t < d->m->ntensors; t++)
        any |= z->coord.persistent[t] && z3_cut_of(z, t) == cut;
    if (!any || cut->n < 2)
        return;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "persistent parameters");
    for (int t = 0; t < d->m->ntensors; t++)
        if (z->coord.persistent[t] && z3_cut_of(z, t) == cut)
            ds_act(d, &z->padded, ACT_ALLOC, t, 0);
    for (int t = 0; t < d->m->ntensors; t++)
        if (z->coord.persistent[t] && z3_cut_of(z, t) == cut) {
            struct op *o = sched_coll(d->s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_ALL_GATHER, cut->among, d->dt, RED_NONE, z->q[t] * cut->n);
            o->after = AFTER(STREAM_COMPUTE);
            o->u.coll.tensors = 1;
            sched_of(d->s, "parameter", t, 0);
            z3_fill(z, 0, t);
        }
    ds_synchronize(d, PHASE_OPTIMIZER, "synchronize");
}

/* _post_step: a buffer and a gather for each persistent parameter. */
void z3_gather_persistent(struct z3 *z)
{
    struct ds *d = &z->d;
    bool any = false;

    for (int t = 0; t < d->m->ntensors; t++)
        if (z->coord.persistent[t]) {
            z->coord.flying -= z->coord.status[t] == Z3_INFLIGHT ? d->m->tensors[t].numel : 0;
            z->coord.status[t] = Z3_AVAILABLE;
            z3_take_buffer(z, t, Z3_PADDED);
            if (z->away.params && d->n < 2)
                z3_bring_whole(z, STREAM_COMPUTE, PHASE_OPTIMIZER, t);
            else if (z->away.params)
                z3_bring(z, STREAM_COMPUTE, PHASE_OPTIMIZER, t);
            any = true;
        }
    if (!any)
        return;
    if (d->n < 2) {
        if (z->away.params)
            z3_block(z, STREAM_COMPUTE, PHASE_OPTIMIZER, "await the parameters");
        return;
    }
    gather_cut(z, &z->cut);
    gather_cut(z, &z->expert_cut);
    if (!z->away.params)
        return;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "drop partitions");
    for (int t = 0; t < d->m->ntensors; t++)
        if (z->coord.persistent[t])
            z3_use_here(z, ACT_FREE, t);
}

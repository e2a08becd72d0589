/* lower_zero3_int8.c -- ZeRO++'s gathers in int8 (qwZ): CUDAQuantizer of partition_parameters.py, the quantised halves of
 * _all_gather_coalesced and _all_gather_sequential, and their handles' wait().
 *
 * n elements of this rank's parts are one array: made fp16 whatever the model's dtype, coded in groups with one scale each, gathered
 * in two calls, codes and scales, and made fp16 again.  The codes of all ranks, their scales and (of several parameters) the fp16
 * numbers are the handle's: they stay until its last parameter was awaited. */
#include "base/room.h"
#include "model/framework/deepspeed_3/lower_zero3.h"

#include <inttypes.h>
#include <stdio.h>

enum { TARGET = 8000 };             /* CUDAQuantizer.target_group_size */

/* It counts groups up from n / 8000 until 8 times as many divide n; its second loop then never runs. */
int64_t z3_int8_groups(int64_t n)
{
    int64_t least = ceil_div(n, TARGET), eighths = n / 8, g = 0;

    for (int64_t i = 1; n % 8 == 0 && i <= eighths / i; i++)
        for (int side = 0; side < 2 && eighths % i == 0; side++) {
            int64_t groups = side ? eighths / i : i;
            if (groups >= least && (g == 0 || groups < g))
                g = groups;
        }
    return g;
}

void z3_int8_setup(struct z3 *z)
{
    char why[sizeof z->disk.why];

    z->int8 = z->d.p->ds.zero_quantized_weights && z->d.n > 1;
    for (int t = 0; t < z->d.m->ntensors && z->int8; t++) {
        const struct tensor *x = &z->d.m->tensors[t];
        if (x->numel % z->d.n == 0)
            continue;
        snprintf(why, sizeof why, "deepspeed.zero_quantized_weights: %" PRId64 " ranks do not divide %.40s: DeepSpeed would quantise "
                 "padding that was never set", z->d.n, x->name);
        z3_disk_refuse(z, why);
    }
}

/* Groups of what a rank gives. */
static int64_t measure(struct z3 *z, int64_t mine, int first)
{
    int64_t groups = z3_int8_groups(mine);
    char why[sizeof z->disk.why];

    if (groups > 0)
        return groups;
    snprintf(why, sizeof why, "deepspeed.zero_quantized_weights: DeepSpeed asks that 8 divides what a rank gives to a gather, %" PRId64
             " elements from %.40s", mine, z->d.m->tensors[first].name);
    z3_disk_refuse(z, why);
    return 1;
}

static int kind_of(struct z3 *z, const int *tensors, int n, const struct z3_cut *cut)
{
    struct schedules *s = z->d.s;
    struct z3_codes k = { .cut = cut, .several = n > 1 };

    for (int i = 0; i < n; i++)
        k.mine += cut->times * z->q[tensors[i]];
    for (int i = 0; i < z->nkinds; i++)
        if (z->kinds[i].cut == cut && z->kinds[i].mine == k.mine && z->kinds[i].several == k.several)
            return i;
    k.groups = measure(z, k.mine, tensors[0]);
    k.all = sched_buf(s, CAT_ALL_GATHER, "int8 gather buffer", NULL, 0, 1, round512(k.mine * cut->n));
    k.scales = sched_buf(s, CAT_ALL_GATHER, "scales of a gather", NULL, 0, 1, round512(4 * k.groups * cut->n));
    k.sent = sched_buf(s, CAT_ALL_GATHER, "int8 parts", NULL, 0, 1, round512(k.mine));
    k.sent_scales = sched_buf(s, CAT_ALL_GATHER, "scales of parts", NULL, 0, 1, round512(4 * k.groups));
    k.numbers = n > 1 ? sched_buf(s, CAT_ALL_GATHER, "gathered parameters in fp16", NULL, 0, 1, round512(2 * k.mine * cut->n)) : -1;
    z->kinds = room_for(z->kinds, z->nkinds, &z->cap_kinds, sizeof *z->kinds);
    z->kinds[z->nkinds] = k;
    return z->nkinds++;
}

static const struct z3_codes *kind(const struct z3 *z, const struct z3_gather *g) { return &z->kinds[g->kind]; }

static const struct z3_gather *record(struct z3 *z, const int *tensors, int n, const struct z3_cut *cut)
{
    int at = kind_of(z, tensors, n, cut);
    const struct z3_codes *k = &z->kinds[at];
    int r = z3_take_record(z, k->all, tensors, n);      /* may move them */
    struct z3_gather *g = &z->gathers[r];
    const int beside[] = { k->scales, k->sent, k->sent_scales, k->numbers };

    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (beside[i] >= 0)
            z->d.s->bufs[beside[i]].count = z->d.s->bufs[k->all].count;
    g->kind = at;
    g->cut = cut;
    g->layout = z3_chunks(z, cut, HOLDS_PARAM, DT_INT8, tensors, n);
    return g;
}

static struct op *copy(struct z3 *z, const char *what, int64_t reads, int64_t writes)
{
    struct op *o = sched_copy(z->d.s, z->gather_stream, z3_phase(z), what, reads, writes);

    sched_does(z->d.s, COPY_SET, 1);
    return o;
}

/* This rank's parts, where they are. */
static void read_parts(struct z3 *z, const struct z3_gather *g)
{
    if (g->cut != &z->second.cut)
        z3_own_parts(z, ACT_R, g->tensors, g->n);
    for (int i = 0; i < g->n && g->cut == &z->second.cut; i++)
        z3_second_act(z, ACT_R, g->tensors[i]);
}

/* A passing copy of them; the family of the last one, which is in fp16; -1: the one part is so itself. */
static int as_halves(struct z3 *z, const struct z3_gather *g)
{
    struct ds *d = &z->d;
    int from = -1;

    for (int i = 0; i < 2; i++) {
        enum dtype dt = i ? DT_FP16 : d->dt;
        int64_t bytes = kind(z, g)->mine * dtype_bytes(dt);
        if (i ? d->dt == DT_FP16 : g->n == 1)
            continue;
        copy(z, i ? "cast to fp16" : "copy own", kind(z, g)->mine * d->e, bytes);
        if (from >= 0)
            sched_act_as(d->s, ACT_R | ACT_FREE, from, 0, 0, z3_mine(z, g->cut, HOLDS_PARAM, d->dt, g->tensors, g->n));
        else
            read_parts(z, g);
        from = ds_scratch(d, CAT_TEMPORARIES, i ? "parts in fp16" : "parts together", round512(bytes));
        sched_act_as(d->s, ACT_ALLOC | ACT_W, from, 0, 0, z3_mine(z, g->cut, HOLDS_PARAM, dt, g->tensors, g->n));
    }
    return from;
}

static void quantise(struct z3 *z, const struct z3_gather *g, int halves)
{
    struct ds *d = &z->d;

    copy(z, "quantise", 2 * kind(z, g)->mine, kind(z, g)->mine + 4 * kind(z, g)->groups);
    sched_quantises(d->s, COPY_QUANTIZE, (struct quant){ kind(z, g)->mine, kind(z, g)->groups, 8, 1, 1 }, 1);
    if (halves >= 0)
        sched_act_as(d->s, ACT_R | ACT_FREE, halves, 0, 0, z3_mine(z, g->cut, HOLDS_PARAM, DT_FP16, g->tensors, g->n));
    else
        read_parts(z, g);
    sched_act_as(d->s, ACT_ALLOC | ACT_W, kind(z, g)->sent, g->instance, 0, z3_mine(z, g->cut, HOLDS_PARAM, DT_INT8, g->tensors, g->n));
    sched_act(d->s, ACT_ALLOC | ACT_W, kind(z, g)->sent_scales, g->instance, 0);
}

void z3_int8_gather(struct z3 *z, const int *tensors, int n, const struct z3_cut *cut)
{
    struct ds *d = &z->d;
    const struct z3_gather *g = record(z, tensors, n, cut);
    const char *of = n > 1 ? "parameters from" : "parameter";

    for (int i = 0; i < n; i++)
        z3_take_buffer(z, tensors[i], Z3_COPY);
    sched_op(d->s, OP_MEMORY, z->gather_stream, z3_phase(z), "gather buffer");
    sched_act(d->s, ACT_ALLOC, g->family, g->instance, 0);
    quantise(z, g, as_halves(z, g));
    z3_all_gather(z, cut, DT_INT8, kind(z, g)->mine * cut->n, n);
    sched_of(d->s, of, tensors[0], 0);
    sched_act_as(d->s, ACT_R, kind(z, g)->sent, g->instance, 0, z3_mine(z, cut, HOLDS_PARAM, DT_INT8, tensors, n));
    sched_act_as(d->s, ACT_W, g->family, g->instance, 0, g->layout);
    struct op *o = z3_all_gather(z, cut, DT_FP32, kind(z, g)->groups * cut->n, n);
    o->record = g->event;
    o->flags &= (uint8_t)~OPF_HOOK;         /* the same hook issues both */
    sched_of(d->s, of, tensors[0], 0);
    sched_act(d->s, ACT_R, kind(z, g)->sent_scales, g->instance, 0);
    sched_act(d->s, ACT_ALLOC | ACT_W, kind(z, g)->scales, g->instance, 0);
}

/* Of all ranks' codes; into a buffer, or (-1) the one parameter, which is fp16 itself. */
static void dequantise(struct z3 *z, const struct z3_gather *g, int to, int instance)
{
    struct ds *d = &z->d;
    int64_t all = kind(z, g)->mine * g->cut->n, groups = kind(z, g)->groups * g->cut->n;

    copy(z, "dequantise", all + 4 * groups, 2 * all);
    sched_quantises(d->s, COPY_DEQUANTIZE, (struct quant){ all, groups, 8, 1, 1 }, 1);
    sched_act_as(d->s, ACT_R, g->family, g->instance, 0, g->layout);
    sched_act(d->s, ACT_R, kind(z, g)->scales, g->instance, 0);
    if (to >= 0)
        sched_act_as(d->s, ACT_ALLOC | ACT_W, to, instance, 0, z3_chunks(z, g->cut, HOLDS_PARAM, DT_FP16, g->tensors, g->n));
    else
        ds_act(d, &z->copy, ACT_ALLOC | ACT_W, g->tensors[0], z->which[g->tensors[0]]);
}

/* AllGatherHandle.wait. */
static void wait_one(struct z3 *z, const struct z3_gather *g)
{
    struct ds *d = &z->d;
    int64_t all = kind(z, g)->mine * g->cut->n;
    int halves = d->dt == DT_FP16 ? -1 : ds_scratch(d, CAT_TEMPORARIES, "parameter in fp16", round512(2 * all));

    dequantise(z, g, halves, 0);
    if (halves < 0)
        return;
    copy(z, "cast", 2 * all, all * d->e);
    sched_act_as(d->s, ACT_R | ACT_FREE, halves, 0, 0, z3_chunks(z, g->cut, HOLDS_PARAM, DT_FP16, g->tensors, 1));
    ds_act(d, &z->copy, ACT_ALLOC | ACT_W, g->tensors[0], z->which[g->tensors[0]]);
}

/* Bytes by which making the parameters one by one, each in fp16 first, exceeds all of them. */
static int64_t on_the_way(const struct z3 *z, const struct z3_gather *g)
{
    int64_t sum = 0, most = 0;

    for (int i = 0; i < g->n; i++) {
        int64_t numel = z->d.m->tensors[g->tensors[i]].numel;
        sum += round512(numel * z->d.e);
        most = sum + round512(2 * numel) > most ? sum + round512(2 * numel) : most;
    }
    return z->d.dt == DT_FP16 ? 0 : most - sum;
}

/* AllGatherCoalescedHandle.wait: of each parameter its parts together, then in its dtype. */
static void wait_several(struct z3 *z, const struct z3_gather *g)
{
    struct ds *d = &z->d;
    int64_t all = kind(z, g)->mine * g->cut->n, cast = d->dt == DT_FP16 ? 0 : all, extra = on_the_way(z, g);

    dequantise(z, g, kind(z, g)->numbers, g->instance);
    copy(z, "copy out", 2 * all + 2 * cast, 2 * all + d->e * cast);
    sched_act_as(d->s, ACT_R, kind(z, g)->numbers, g->instance, 0, z3_chunks(z, g->cut, HOLDS_PARAM, DT_FP16, g->tensors, g->n));
    for (int i = 0; i < g->n; i++)
        ds_act(d, &z->copy, ACT_ALLOC | ACT_W, g->tensors[i], z->which[g->tensors[i]]);
    if (extra > 0)
        sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "a parameter in fp16", extra), 0, 0);
}

void z3_int8_wait(struct z3 *z, struct z3_gather *g)
{
    struct op *o = sched_op(z->d.s, OP_MEMORY, z->gather_stream, z3_phase(z), "await gather");

    o->wait[0] = g->event;
    sched_act(z->d.s, ACT_FREE, kind(z, g)->sent, g->instance, 0);
    sched_act(z->d.s, ACT_FREE, kind(z, g)->sent_scales, g->instance, 0);
    if (g->n > 1)
        wait_several(z, g);
    else
        wait_one(z, g);
}

void z3_int8_drop(struct z3 *z, const struct z3_gather *g)
{
    sched_act(z->d.s, ACT_FREE, kind(z, g)->scales, g->instance, 0);
    if (kind(z, g)->numbers >= 0)
        sched_act(z->d.s, ACT_FREE, kind(z, g)->numbers, g->instance, 0);
}

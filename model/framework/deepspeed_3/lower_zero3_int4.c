/* lower_zero3_int4.c -- ZeRO++'s reductions in int4 (qgZ): all_to_all_quant_reduce() of runtime/comm/coalesced_collectives.py and its
 * kernels (csrc/quantization: swizzled_quantize.cu, quant_reduce.cu, dequantize.cu).
 *
 * Matrix by matrix, on l ranks of each of M nodes: codes of the whole gradient go to the ranks of the node, which add them up and code
 * the sums again; those go to the ranks of equal place on all nodes, which take the mean.  A rank ends with its part.  Python's names
 * of one matrix's tensors keep them until the next one's replace them. */
#include "base/room.h"
#include "base/sort.h"
#include "model/framework/deepspeed_3/lower_zero3.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* max(rows, columns, ranks). */
static int64_t groups_of(const struct ds *d, const struct tensor *t)
{
    int64_t most = t->shape[0] > t->shape[1] ? t->shape[0] : t->shape[1];

    return most > d->n ? most : d->n;
}

/* Vectors, and what does not divide, are reduced as without. */
static bool falls_back(const struct ds *d, const struct tensor *t) { return t->ndim == 1 || t->numel % (2 * d->n) != 0; }

static int64_t node(const struct ds *d) { return plan_quantised_node(d->p); }

/* ---- sizes of one matrix's tensors; 0 of one that falls back ---- */

static int64_t coded(const struct ds *d, const struct tensor *t, int64_t bytes) { return falls_back(d, t) ? 0 : round512(bytes); }

static int64_t half_bytes(const struct ds *d, const struct tensor *t)   { return coded(d, t, d->comm == DT_FP16 ? 0 : 2 * t->numel); }
static int64_t code_bytes(const struct ds *d, const struct tensor *t)   { return coded(d, t, t->numel / 2); }
static int64_t scale_bytes(const struct ds *d, const struct tensor *t)  { return coded(d, t, 4 * groups_of(d, t)); }
static int64_t sum_bytes(const struct ds *d, const struct tensor *t)    { return coded(d, t, t->numel / (2 * node(d))); }
static int64_t sum_scale_bytes(const struct ds *d, const struct tensor *t) { return coded(d, t, 4 * (groups_of(d, t) / node(d))); }
static int64_t number_bytes(const struct ds *d, const struct tensor *t) { return coded(d, t, 2 * (t->numel / node(d))); }
static int64_t part_bytes(const struct ds *d, const struct tensor *t)   { return coded(d, t, 2 * (t->numel / d->n)); }

static int64_t padded_bytes(const struct ds *d, const struct tensor *t)
{
    return falls_back(d, t) && t->numel % d->n ? round512(ceil_div(t->numel, d->n) * d->n * d->ce) : 0;
}

void z3_int4_setup(struct z3 *z)
{
    const struct ds *d = &z->d;

    z->int4.ranks = node(d);
    z->int4.nodes = z->int4.ranks > 0 ? d->n / z->int4.ranks : 0;
    for (int t = 0; t < d->m->ntensors && z->int4.nodes > 0; t++) {
        const struct tensor *x = &d->m->tensors[t];
        int64_t groups = groups_of(d, x), each = x->numel / groups;
        char why[sizeof z->disk.why];
        if (falls_back(d, x) || (groups % d->n == 0 && each % 8 == 0 && each <= 40960))
            continue;
        if (groups % d->n)
            snprintf(why, sizeof why, "deepspeed.zero_quantized_gradients: %.50s has %" PRId64 " scales, which all_to_all_single cannot "
                     "divide among %" PRId64 " ranks", x->name, groups, d->n);
        else        /* 16 bytes a load; at most 10 loads of 512 threads (swizzled_quantize.cu) */
            snprintf(why, sizeof why, "deepspeed.zero_quantized_gradients: %.50s has groups of %" PRId64 " elements: DeepSpeed's kernels "
                     "take multiples of 8 up to 40960", x->name, each);
        z3_disk_refuse(z, why);
    }
}

void z3_int4_declare(struct z3 *z)
{
    struct z3_int4 *q = &z->int4;
    const struct { struct ds_families *f; const char *what; ds_bytes *bytes; } all[] = {
        { &q->half, "gradient in fp16", half_bytes }, { &q->codes, "int4 gradient", code_bytes }, { &q->scales, "its scales", scale_bytes },
        { &q->got, "int4 gradients of the node", code_bytes }, { &q->got_scales, "the node's scales", scale_bytes },
        { &q->sum, "int4 sum", sum_bytes }, { &q->sum_scales, "scales of the sum", sum_scale_bytes },
        { &q->all, "int4 sums of nodes", sum_bytes }, { &q->all_scales, "scales of the nodes", sum_scale_bytes },
        { &q->numbers, "sums of nodes in fp16", number_bytes }, { &q->part, "reduced part", part_bytes },
        { &q->padded, "padded gradient", padded_bytes },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all && q->nodes > 0; i++)
        ds_declare(&z->d, all[i].f, CAT_REDUCE_SCATTER, all[i].what, 1, all[i].bytes);
    q->half.holds = q->part.holds = q->padded.holds = HOLDS_GRAD;
    q->half.dtype = q->part.dtype = DT_FP16;
    q->padded.dtype = z->d.comm;
}

void z3_int4_free(struct z3 *z)
{
    struct z3_int4 *q = &z->int4;
    struct ds_families *all[] = { &q->half, &q->codes, &q->scales, &q->got, &q->got_scales, &q->sum, &q->sum_scales, &q->all,
                                  &q->all_scales, &q->numbers, &q->part, &q->padded };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ds_undeclare(all[i]);
}

/* ---- a flush ---- */

/* Where the bucket has its i-th gradient: `at` bytes into a buffer, or (buf -1) its own. */
struct in_bucket { int tensor, buf; int64_t at; };

static void act_whole(struct z3 *z, int what, const struct in_bucket *g)
{
    if (g->buf >= 0)
        sched_act_as(z->d.s, what, g->buf, 0, 0, z3_whole(z, HOLDS_GRAD, z->d.comm, &g->tensor, 1, g->at / z->d.ce, 1));
    else
        ds_act(&z->d, &z->grads, what, g->tensor, 0);
}

/* This rank's part of it, in place. */
static void act_part(struct z3 *z, int what, const struct in_bucket *g)
{
    struct ds *d = &z->d;
    int64_t from, n = z3_part(z, g->tensor, &from);

    if (g->buf < 0) {
        ds_act_part(d, &z->grads, what, g->tensor, from, n, from * d->ce);
        return;
    }
    int layout = sched_layout(d->s, 0);
    sched_slice(d->s, HOLDS_GRAD, d->comm, g->tensor, from, n, g->at + from * d->ce);
    sched_act_as(d->s, what, g->buf, 0, 0, layout);
}

static void copy(struct z3 *z, const char *what, int64_t reads, int64_t writes, double scale)
{
    sched_copy(z->d.s, z->reduce_stream, PHASE_REDUCE, what, reads, writes);
    sched_does(z->d.s, COPY_SET, scale);
}

/* reduce_scatter_coalesced() of one tensor. */
static void reduce_alone(struct z3 *z, const struct in_bucket *g)
{
    struct ds *d = &z->d;
    int t = g->tensor;
    int64_t all = z->q[t] * d->n;
    bool padded = d->m->tensors[t].numel != all;
    int chunks = z3_chunks(z, &z->cut, HOLDS_GRAD, d->comm, &t, 1);

    if (padded) {
        copy(z, "concatenate parts", d->m->tensors[t].numel * d->ce, all * d->ce, 1);
        act_whole(z, ACT_R, g);
        ds_act_as(d, &z->int4.padded, ACT_ALLOC | ACT_W, t, chunks);
    }
    copy(z, "divide", all * d->ce, all * d->ce, 1.0 / (double)d->n);
    padded ? ds_act_as(d, &z->int4.padded, ACT_RW, t, chunks) : act_whole(z, ACT_RW, g);
    ds_coll(d, z->reduce_stream, PHASE_REDUCE, COLL_REDUCE_SCATTER, d->comm, RED_SUM, all)->flags &= (uint8_t)~OPF_HOOK;
    sched_of(d->s, "parameter", t, 0);
    if (padded) {
        ds_act_as(d, &z->int4.padded, ACT_R, t, chunks);
        ds_act_as(d, &z->int4.padded, ACT_W, t, z3_chunk(z, &z->cut, HOLDS_GRAD, d->comm, &t, 1));
    } else {
        act_whole(z, ACT_R, g);
        act_part(z, ACT_W, g);
    }
}

/* A name of Python's gets another tensor's value; -1: it had none. */
static void replace(struct z3 *z, const struct ds_families *f, int what, int tensor, int before)
{
    ds_act(&z->d, f, ACT_ALLOC | what, tensor, 0);
    if (before >= 0)
        ds_act(&z->d, f, ACT_FREE, before, 0);
}

static void all_to_all(struct z3 *z, enum group g, enum dtype dt, int64_t elems, const struct ds_families *from,
                       const struct ds_families *to, int tensor, int before)
{
    struct op *o = sched_coll(z->d.s, z->reduce_stream, PHASE_REDUCE, COLL_ALL_TO_ALL, g, dt, RED_NONE, elems);

    o->flags &= (uint8_t)~OPF_HOOK;         /* one hook issues a whole flush */
    sched_of(z->d.s, "parameter", tensor, 0);
    ds_act(&z->d, from, ACT_R, tensor, 0);
    replace(z, to, ACT_W, tensor, before);
}

static void quantise(struct z3 *z, const struct in_bucket *g, int64_t numel, int64_t groups, int before)
{
    struct ds *d = &z->d;
    struct z3_int4 *q = &z->int4;
    bool cast = d->comm != DT_FP16;

    if (cast) {
        copy(z, "cast to fp16", numel * d->ce, 2 * numel, 1);
        act_whole(z, ACT_R, g);
        ds_act_part(d, &q->half, ACT_ALLOC | ACT_W, g->tensor, 0, numel, 0);
    }
    copy(z, "quantise", 2 * numel, numel / 2 + 4 * groups, 1);
    sched_quantises(d->s, COPY_QUANTIZE, (struct quant){ numel, groups, 4, (int32_t)q->ranks, (int32_t)q->nodes }, 1);
    if (cast)
        ds_act_part(d, &q->half, ACT_R | ACT_FREE, g->tensor, 0, numel, 0);
    else
        act_whole(z, ACT_R, g);
    ds_act(d, &q->codes, ACT_ALLOC | ACT_W, g->tensor, 0);
    ds_act(d, &q->scales, ACT_ALLOC | ACT_W, g->tensor, 0);
    if (before >= 0) {
        ds_act(d, &q->codes, ACT_FREE, before, 0);
        ds_act(d, &q->scales, ACT_FREE, before, 0);
    }
}

/* quantized_reduction(): codes of the sum over the node's ranks. */
static void add_up(struct z3 *z, int t, int64_t numel, int64_t groups, int before)
{
    struct ds *d = &z->d;
    struct z3_int4 *q = &z->int4;

    copy(z, "add and quantise", numel / 2 + 4 * groups, numel / (2 * q->ranks) + 4 * (groups / q->ranks), 1);
    sched_quantises(d->s, COPY_REQUANTIZE, (struct quant){ numel / q->ranks, groups / q->ranks, 4, (int32_t)q->ranks, 1 }, 1);
    ds_act(d, &q->got, ACT_R, t, 0);
    ds_act(d, &q->got_scales, ACT_R, t, 0);
    ds_act(d, &q->sum, ACT_ALLOC | ACT_W, t, 0);
    ds_act(d, &q->sum_scales, ACT_ALLOC | ACT_W, t, 0);
    if (before >= 0) {
        ds_act(d, &q->sum, ACT_FREE, before, 0);
        ds_act(d, &q->sum_scales, ACT_FREE, before, 0);
    }
}

/* sum(list(final_output.chunk(num_nodes))) / num_nodes: from 0, one temporary of a part after the other. */
static void mean(struct z3 *z, int t, int64_t numel, int64_t groups, int before)
{
    struct ds *d = &z->d;
    struct z3_int4 *q = &z->int4;
    int64_t mine = numel / d->n, from, n = z3_part(z, t, &from);

    copy(z, "dequantise", numel / (2 * q->ranks) + 4 * (groups / q->ranks), 2 * (numel / q->ranks), 1);
    sched_quantises(d->s, COPY_DEQUANTIZE, (struct quant){ numel / q->ranks, groups / q->ranks, 4, 1, 1 }, 1);
    ds_act(d, &q->all, ACT_R, t, 0);
    ds_act(d, &q->all_scales, ACT_R, t, 0);
    replace(z, &q->numbers, ACT_W, t, before);
    copy(z, "mean of nodes", 4 * q->nodes * mine, 2 * (q->nodes + 1) * mine, 1);
    sched_quantises(d->s, COPY_MEAN, (struct quant){ mine, 0, 0, 1, (int32_t)q->nodes }, 1.0 / (double)d->n);
    ds_act(d, &q->numbers, ACT_R, t, 0);
    ds_act_part(d, &q->part, ACT_ALLOC | ACT_W, t, from, n, 0);
    sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "sum over nodes", round512(2 * mine)), 0, 0);
}

static void exchange(struct z3 *z, const struct in_bucket *g, int before)
{
    struct z3_int4 *q = &z->int4;
    const struct tensor *x = &z->d.m->tensors[g->tensor];
    int64_t groups = groups_of(&z->d, x);
    int t = g->tensor;

    quantise(z, g, x->numel, groups, before);
    all_to_all(z, GROUP_NODE, DT_INT8, x->numel / 2, &q->codes, &q->got, t, before);
    all_to_all(z, GROUP_NODE, DT_FP32, groups, &q->scales, &q->got_scales, t, before);
    add_up(z, t, x->numel, groups, before);
    all_to_all(z, GROUP_ACROSS, DT_INT8, x->numel / (2 * q->ranks), &q->sum, &q->all, t, before);
    all_to_all(z, GROUP_ACROSS, DT_FP32, groups / q->ranks, &q->sum_scales, &q->all_scales, t, before);
    mean(z, t, x->numel, groups, before);
}

static void drop(struct z3 *z, int t)
{
    struct z3_int4 *q = &z->int4;
    const struct ds_families *all[] = { &q->codes, &q->scales, &q->got, &q->got_scales, &q->sum, &q->sum_scales, &q->all, &q->all_scales,
                                        &q->numbers };

    if (t < 0)
        return;
    sched_op(z->d.s, OP_MEMORY, z->reduce_stream, PHASE_REDUCE, "drop codes");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ds_act(&z->d, all[i], ACT_FREE, t, 0);
}

static int by_tensor(const void *a, const void *b)
{
    const struct in_bucket *x = a, *y = b;

    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* The bucket's gradients, sorted as __reduce_and_partition_ipg_grads does. */
static struct in_bucket *sorted(const struct z3 *z, int cast)
{
    struct in_bucket *all = room_new((size_t)z->nbucket, sizeof *all);
    bool kept = cast < 0 && !z3_in_buffer(z);
    int64_t at = 0;

    for (int i = 0; i < z->nbucket; i++) {
        int64_t bytes = z->d.m->tensors[z->bucket[i]].numel * z->d.ce;
        all[i] = (struct in_bucket){ z->bucket[i], kept ? -1 : cast >= 0 ? cast : z->ipg, at };
        at += cast >= 0 ? round512(bytes) : bytes;
    }
    sort_stable(all, (size_t)z->nbucket, sizeof *all, by_tensor);
    return all;
}

/* What is reduced goes to this rank's gradients; what it was in goes. */
static void keep(struct z3 *z, const struct in_bucket *all, int cast)
{
    struct ds *d = &z->d;
    int64_t parts = 0;

    for (int i = 0; i < z->nbucket; i++)
        parts += z->q[all[i].tensor];
    z3_keep_parts(z, parts);
    for (int i = 0; i < z->nbucket; i++) {
        int t = all[i].tensor;
        int64_t from, n = z3_part(z, t, &from);
        if (!falls_back(d, &d->m->tensors[t]))
            ds_act_part(d, &z->int4.part, ACT_R | ACT_FREE, t, from, n, 0);
        else if (d->m->tensors[t].numel % d->n)
            ds_act_as(d, &z->int4.padded, ACT_R | ACT_FREE, t, z3_chunk(z, &z->cut, HOLDS_GRAD, d->comm, &t, 1));
        else
            act_part(z, ACT_R, &all[i]);
    }
    if (cast >= 0)
        sched_act(d->s, ACT_FREE, cast, 0, 0);
    z3_drop_kept(z);
}

void z3_int4_flush(struct z3 *z)
{
    int cast = z3_cast_kept(z), before = -1;
    struct in_bucket *all = sorted(z, cast);
    int first = z->d.s->nops;

    for (int i = 0; i < z->nbucket; i++) {
        if (falls_back(&z->d, &z->d.m->tensors[all[i].tensor])) {
            reduce_alone(z, &all[i]);
        } else {
            exchange(z, &all[i], before);
            before = all[i].tensor;
        }
    }
    for (int i = first, hooked = 0; i < z->d.s->nops && !hooked; i++)
        if (z->d.s->ops[i].kind == OP_COLL) {
            z->d.s->ops[i].flags |= OPF_HOOK;
            hooked = 1;
        }
    drop(z, before);
    keep(z, all, cast);
    free(all);
}

/* print_layouts.c -- what the executor reads of the schedules of plans, for compare.sh.
 *
 *     print_layouts <PLANS
 *
 * PLANS has a plan.json a line.  A line "@ PLAN" for each, then, for each rank that can differ, its buffers, and the entries of each
 * schedule with all that `explain --schedule` leaves out: phases, flags, what copies and collectives do, and which elements of which
 * tensors each act reads and writes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/lower/lower.h"

static uint64_t mix(uint64_t h, int64_t x) { return (h ^ (uint64_t)x) * 0x100000001b3u; }

/* One number over the slices of a layout. */
static uint64_t layout_hash(const struct schedules *s, int layout)
{
    const struct layout *l = &s->layouts[layout];
    uint64_t h = mix(0xcbf29ce484222325u, l->stride);

    for (int i = l->slice0; i < l->slice0 + l->nslices; i++) {
        const struct slice *x = &s->slices[i];
        h = mix(mix(mix(mix(mix(mix(h, x->tensor), x->holds), x->dtype), x->from), x->n), x->at);
    }
    return h;
}

static void print_layout(const struct schedules *s, int layout)
{
    if (layout)
        printf(" layout %" PRIx64, layout_hash(s, layout));
}

static void print_bufs(const struct schedules *s)
{
    for (int i = 0; i < s->nbufs; i++) {
        const struct buf *b = &s->bufs[i];
        printf("buf %s of %s first %d count %d bytes %" PRId64 " cat %d space %d cyclic %d copied %d stands %d late %d parts", b->what,
               b->of ? b->of : "-", b->first, b->count, b->bytes, b->category, b->space, b->cyclic, b->copied, b->stands, b->late);
        for (int k = 0; k < b->nparts; k++)
            printf(" %" PRId64, s->parts[b->part0 + k]);
        print_layout(s, b->layout);
        putchar('\n');
    }
}

static void print_work(const struct op *o)
{
    switch ((enum op_kind)o->kind) {
    case OP_COMPUTE:
        printf(" piece %d pass %d fate %d grads %d k %d %d granted %" PRId64, o->u.compute.piece, o->u.compute.pass, o->u.compute.fate,
               o->u.compute.grads, o->u.compute.k0, o->u.compute.k1, o->u.compute.granted);
        break;
    case OP_COLL:
        printf(" op %d group %d dtype %d red %d of %d piece %d %d %d at %d %d elems %" PRId64, o->u.coll.op, o->u.coll.group, o->u.coll.dtype,
               o->u.coll.red, o->u.coll.of, o->u.coll.piece, o->u.coll.from, o->u.coll.into, o->u.coll.root, o->u.coll.tag,
               o->u.coll.elems);
        break;
    case OP_COPY:
        printf(" reads %" PRId64 " writes %" PRId64 " fn %d quant %d scale %.9g kernels %d narrow %d %d", o->u.copy.reads, o->u.copy.writes,
               o->u.copy.fn, o->u.copy.quant, (double)o->u.copy.scale, o->u.copy.kernels, o->u.copy.narrow0, o->u.copy.narrows);
        break;
    case OP_OPTIMIZER:
        printf(" elems %" PRId64 " tensors %d bytes %d passes %d each %d flops %.17g", o->u.optimizer.elems, o->u.optimizer.tensors,
               o->u.optimizer.bytes, o->u.optimizer.passes, o->u.optimizer.each, o->u.optimizer.flops);
        break;
    case OP_REPEAT: case OP_END:
        printf(" n %" PRId64, o->kind == OP_REPEAT ? o->u.repeat.n : 0);
        break;
    case OP_WAIT: case OP_MEMORY:
        break;
    }
}

/* Those that allocate, those that free, the rest: within each, in their order. */
static void print_acts(const struct schedules *s, const struct op *o)
{
    for (int pass = 0; pass < 3; pass++)
        for (uint32_t i = 0; i < o->nacts; i++) {
            const struct act *a = &s->acts[o->act0 + i];
            int turn = a->what & ACT_ALLOC ? 0 : a->what & ACT_FREE ? 1 : 2;
            if (turn != pass)
                continue;
            printf("    %s what %d at %d by %d n %d", s->bufs[a->buf].what, a->what, a->at, a->by, a->n);
            print_layout(s, a->layout);
            putchar('\n');
        }
}

static void print_op(const struct schedules *s, const struct op *o)
{
    printf("  %s kind %d stream %d phase %d flags %d after %d record %d wait %d %d chunk %d step %d %d unit %s %d %d", o->what ? o->what : "-",
           o->kind, o->stream, o->phase, o->flags, o->after, o->record, o->wait[0], o->wait[1], o->chunk, o->step, o->step_by,
           o->of ? o->of : "-", o->unit, o->unit_by);
    print_work(o);
    putchar('\n');
    print_acts(s, o);
}

static void print_rank(const struct schedules *s)
{
    printf("rank %" PRId64 " star %d tied %d seed %.17g hooks %d events %d early %" PRId64 "\n", s->rank, s->star, s->tied_apart, s->seed,
           s->hooks, s->nevents, s->early);
    for (int i = 0; i < s->nunits; i++)
        printf("unit %s %d %" PRId64 " %" PRId64 " %" PRId64 "\n", s->units[i].kind, s->units[i].index, s->units[i].numel,
               s->units[i].padded, s->units[i].shard);
    print_bufs(s);
    for (int id = 0; id < NSCHED; id++) {
        if (!sched_has(s, (enum sched_id)id))
            continue;
        printf("%s {\n", sched_name((enum sched_id)id));
        for (int i = s->begin[id]; i < s->end[id]; i++)
            print_op(s, &s->ops[i]);
        printf("}\n");
    }
    for (int i = 0; i < s->nnotes; i++)
        printf("note %s\n", s->notes[i]);
}

static void print_plan(const struct plan *p)
{
    int64_t ranks[LOWER_KINDS];
    struct schedules s = { .detailed = true };
    struct program g = { 0 };
    int n = lower_ranks(p, ranks), rc = program_build(p, &g);

    for (int i = 0; i < n && rc == 0 && (rc = lower_using(p, ranks[i], &g, &s)) == 0; i++)
        print_rank(&s);
    if (rc < 0)
        printf("refused\n");
    schedules_free(&s);
    program_free(&g);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    int number = 0;

    while (getline(&line, &room, stdin) > 0) {
        json_t *j = json_loads(line, 0, NULL);
        struct plan p;
        printf("@ line %d: %s", ++number, line);
        if (plan_from_json(j, "plan", &p) == 0) {
            print_plan(&p);
            plan_free(&p);
        } else {
            printf("refused\n");
        }
        json_decref(j);
    }
    free(line);
    return 0;
}

/* schedule_print.c -- a schedule as text that a person can read and diff. */
#include "model/schedule/schedule.h"

#include <inttypes.h>
#include <string.h>

static void print_index(FILE *to, const char *of, int at, int by)
{
    if (!of)
        return;
    fprintf(to, " %s", of);
    if (!strcmp(of, "root") || !strcmp(of, "head") || !strcmp(of, "embedding"))
        return;                     /* there is only one */
    fprintf(to, " %d", at);
    if (by == 1 || by == -1)
        fprintf(to, "%ci", by > 0 ? '+' : '-');
    else if (by)
        fprintf(to, "%+d*i", by);
}

static void print_work(const struct schedules *s, const struct op *o, FILE *to)
{
    const struct span *sp;

    switch ((enum op_kind)o->kind) {
    case OP_COMPUTE:
        sp = &s->spans[o->u.compute.span];
        fprintf(to, " kernels %d..%d, %.3g FLOP", o->u.compute.k0, o->u.compute.k1 - 1, sp->flops);
        break;
    case OP_COLL:
        fprintf(to, " %s %" PRId64 " %s = %" PRId64 " B", sched_group(s, o)->name,
                o->u.coll.elems, dtype_name(o->u.coll.dtype),
                o->u.coll.elems * dtype_bytes(o->u.coll.dtype));
        if (o->u.coll.red != RED_NONE)
            fprintf(to, " %s", red_name(o->u.coll.red));
        if (coll_is_message(o->u.coll.op))
            fprintf(to, " %s place %d, tag %d", o->u.coll.op == COLL_SEND ? "to" : "from", o->u.coll.peer,
                    o->u.coll.tag);
        if (o->u.coll.op == COLL_ALL_TO_ALL && o->u.coll.parts)
            fprintf(to, " in unequal parts");
        break;
    case OP_COPY:
        fprintf(to, " reads %" PRId64 " B, writes %" PRId64 " B", o->u.copy.reads, o->u.copy.writes);
        break;
    case OP_OPTIMIZER:
        fprintf(to, " %" PRId64 " elements", o->u.optimizer.elems);
        break;
    case OP_WAIT: case OP_MEMORY: case OP_REPEAT: case OP_END:
        break;
    }
}

static void print_waits(const struct op *o, FILE *to)
{
    const char *lead = "  after ";
    bool all = o->after == (((1u << NSTREAM) - 1) & (unsigned)~AFTER(STREAM_ISSUE));

    if (all) {
        fprintf(to, "%severy stream", lead);
        lead = ", ";
    }
    for (enum stream st = 0; st < NSTREAM && !all; st++)
        if (o->after & AFTER(st)) {
            fprintf(to, "%s%s", lead, stream_name(st));
            lead = ", ";
        }
    for (int w = 0; w < 2; w++)
        if (o->wait[w]) {
            fprintf(to, "%sevent %d", lead, o->wait[w]);
            lead = ", ";
        }
    if (o->record)
        fprintf(to, "  records event %d", o->record);
}

static void print_acts(const struct schedules *s, const struct op *o, FILE *to)
{
    static const struct { int bit; char sign; } signs[] = { { ACT_ALLOC, '+' }, { ACT_FREE, '-' } };

    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < o->nacts; i++) {
            const struct act *a = &s->acts[o->act0 + i];
            const struct buf *b = &s->bufs[a->buf];
            if (!(a->what & signs[pass].bit))
                continue;
            fprintf(to, "  %c%s", signs[pass].sign, b->what);
            if (b->of)
                print_index(to, b->of, b->first + a->at, a->by);
            if (a->n > 1)
                fprintf(to, "..%d", b->first + a->at + a->n - 1);
            fprintf(to, " (%" PRId64 "%s%s)", b->bytes, b->space == SPACE_DEVICE ? "" : ", ",
                    b->space == SPACE_DEVICE ? "" : space_name(b->space));
        }
}

void sched_print(const struct schedules *s, enum sched_id id, FILE *to)
{
    int depth = 0;

    fprintf(to, "%s {\n", sched_name(id));
    for (int i = s->begin[id]; i < s->end[id]; i++) {
        const struct op *o = &s->ops[i];
        if (o->kind == OP_END)
            depth--;
        fprintf(to, "%*s", 4 + 4 * depth, "");
        if (o->kind == OP_REPEAT) {
            fprintf(to, "repeat %" PRId64 " {\n", o->u.repeat.n);
            depth++;
            continue;
        }
        if (o->kind == OP_END) {
            fprintf(to, "}\n");
            continue;
        }
        fprintf(to, "%-8s %s", stream_name(o->stream), o->what);
        print_index(to, o->of, o->unit, o->unit_by);
        print_work(s, o, to);
        print_waits(o, to);
        print_acts(s, o, to);
        if (o->flags & OPF_GUARDED)
            fprintf(to, "  [skipped on overflow]");
        fputc('\n', to);
    }
    fprintf(to, "}\n");
}

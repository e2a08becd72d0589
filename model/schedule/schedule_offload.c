/* schedule_offload.c -- see schedule_offload.h. */
#include "model/schedule/schedule_offload.h"

#include "model/schedule/schedule_again.h"

struct pass_over {
    struct schedules *s;
    const struct offload_way *way;
    struct again again;
    int here[NPIECE], there[NPIECE];    /* families on the device and away; -1: the piece's stay */
    uint16_t down, begun;           /* events: a copy down is done; a block's backward begins */
};

/* ---- families ---- */

/* Is the tensor of move i still there when the pass ends? */
static bool stays(const struct piece *piece, int n, int i)
{
    const struct move *m = &piece->moves[PASS_FORWARD][i];

    if (m->kind != MOVE_ALLOC || m->mem != MEM_ACTIVATIONS)
        return false;
    for (int k = i + 1; k < n; k++)
        if (piece->moves[PASS_FORWARD][k].kind == MOVE_FREE && piece->moves[PASS_FORWARD][k].tensor == m->tensor)
            return false;
    return true;
}

static int64_t room_of_moves(const struct pass_over *p, const struct piece *piece)
{
    int n = 0;
    int64_t sum = 0;

    for (int k = 0; k < piece->nkernels[PASS_FORWARD]; k++)
        n += piece->kernels[PASS_FORWARD][k].nmoves;
    for (int i = 0; i < n; i++)
        if (stays(piece, n, i))
            sum += p->way->room(piece->moves[PASS_FORWARD][i].bytes);
    return sum;
}

/* Tensors that a forward leaves, each with the room that it takes. */
static int64_t room_of(const struct pass_over *p, const struct piece *piece)
{
    int64_t left[NSLOT] = { 0 }, sum = 0;

    if (p->way->saved)
        return p->way->rounds ? piece->pinned : piece->copied[PASS_FORWARD];
    if (!piece->places[PASS_FORWARD])
        return room_of_moves(p, piece);
    for (int k = 0; k < piece->nkernels[PASS_FORWARD]; k++)
        for (int i = 0; i < piece->kernels[PASS_FORWARD][k].nplaces; i++) {
            const struct place *at = &piece->places[PASS_FORWARD][piece->kernels[PASS_FORWARD][k].place0 + i];
            if (at->mem == MEM_ACTIVATIONS)
                left[at->slot] = at->comes ? at->bytes : 0;
        }
    for (int i = 0; i < NSLOT; i++)
        sum += p->way->room(left[i]);
    return sum < piece->saved ? piece->saved : sum;     /* its input is the piece's before */
}

/* Does the pass move what this piece keeps? */
static bool has_part(const struct pass_over *p, enum piece_id piece)
{
    if (p->way->saved)
        return p->s->program.piece[piece].copied[PASS_FORWARD] > 0;
    return piece_is_block(piece) && (!p->way->recomputed || piece_is_recomputed(piece));
}

static void find_families(struct pass_over *p)
{
    struct schedules *s = p->s;

    for (int i = 0; i < NPIECE; i++)
        p->here[i] = p->there[i] = -1;
    for (int i = 0; i < s->nops; i++) {
        const struct op *o = &s->ops[i];
        int piece = o->u.compute.piece;
        for (uint32_t k = o->act0; o->kind == OP_COMPUTE && k < o->act0 + o->nacts; k++)
            if (s->bufs[s->acts[k].buf].category == CAT_ACTIVATIONS && has_part(p, (enum piece_id)piece))
                p->here[piece] = s->acts[k].buf;
    }
    for (int i = 0; i < NPIECE; i++)
        if (p->here[i] >= 0) {
            struct buf b = s->bufs[p->here[i]];
            p->there[i] = sched_buf_in(s, p->way->to, CAT_ACTIVATIONS, b.what, b.of, b.first, b.count,
                                       room_of(p, &s->program.piece[i]));
            if (b.cyclic)
                sched_cyclic(s, p->there[i]);
        }
}

/* ---- entries ---- */

static bool moves(const struct pass_over *p, const struct op *o)
{
    return o->kind == OP_COMPUTE && p->here[o->u.compute.piece] >= 0;
}

static bool ends_forward(const struct pass_over *p, const struct op *o)
{
    return moves(p, o) && o->u.compute.pass == PASS_FORWARD &&
           o->u.compute.k1 == p->s->program.piece[o->u.compute.piece].nkernels[PASS_FORWARD];
}

static bool begins_backward(const struct pass_over *p, const struct op *o)
{
    return moves(p, o) && o->u.compute.pass == PASS_BACKWARD && o->u.compute.k0 == 0;
}

/* The block of entry o leaves the device, or comes back. */
static struct op *copy(struct pass_over *p, const struct op *o, bool down)
{
    int piece = o->u.compute.piece, from = down ? p->here[piece] : p->there[piece];
    int to = down ? p->there[piece] : p->here[piece];
    const struct piece *of = &p->s->program.piece[piece];
    int64_t bytes = p->way->saved ? of->copied[down ? PASS_FORWARD : PASS_BACKWARD] : of->saved;
    bool program = p->way->saved;        /* the family on the device: kernels take and free its memory */

    sched_copy(p->s, down ? STREAM_D2H : STREAM_H2D, (enum phase)o->phase,
               down ? "activations to host" : "activations to device", bytes, bytes);
    sched_of(p->s, o->of, o->unit, o->unit_by);
    sched_does(p->s, COPY_SET, 1);
    sched_act(p->s, down && program ? ACT_R : ACT_R | ACT_FREE, from, o->unit, o->unit_by);
    sched_act(p->s, !down && program ? ACT_W : ACT_ALLOC | ACT_W, to, o->unit, o->unit_by);
    return &p->s->ops[p->s->nops - 1];
}

static struct op *mark(struct pass_over *p, enum phase phase, const char *what)
{
    return sched_op(p->s, OP_MEMORY, STREAM_COMPUTE, phase, what);
}

static void hold_issue(struct pass_over *p, const struct op *o, enum stream st)
{
    sched_op(p->s, OP_WAIT, STREAM_ISSUE, (enum phase)o->phase, "activations copied")->after = AFTER(st);
}

/* Compute goes on once the block before has left; then this one leaves. */
static void leave(struct pass_over *p, const struct op *o)
{
    if (p->way->streams)
        mark(p, (enum phase)o->phase, "await activations")->wait[0] = p->down;
    struct op *c = copy(p, o, true);
    c->after = AFTER(STREAM_COMPUTE);
    if (p->way->streams)
        c->record = p->down;
    else
        hold_issue(p, o, STREAM_D2H);
}

/* Not before the block behind it has begun, of which the last mark tells. */
static void come_back(struct pass_over *p, const struct op *o)
{
    struct op *c = copy(p, o, false);

    c->after = AFTER(STREAM_D2H);
    if (p->way->streams) {
        c->wait[0] = p->begun;
        mark(p, (enum phase)o->phase, "backward begins")->record = p->begun;
    } else {
        c->after |= AFTER(STREAM_COMPUTE);
        if (p->way->to == SPACE_HOST)
            hold_issue(p, o, STREAM_H2D);
    }
}

static void entry(void *pass, const struct op *o)
{
    struct pass_over *p = pass;
    bool back = begins_backward(p, o);

    if (back)
        come_back(p, o);
    again_op(&p->again, o)->after |= back ? AFTER(STREAM_H2D) : 0;
    again_acts(&p->again, o, ~0);
    if (ends_forward(p, o))
        leave(p, o);
}

void schedules_offload(struct schedules *s, const struct offload_way *way)
{
    struct pass_over p = { .s = s, .way = way };

    find_families(&p);
    again_open(&p.again, s);
    if (way->streams) {
        p.down = sched_event(s);
        p.begun = sched_event(s);
    }
    for (int id = 0; id < NSCHED; id++) {
        sched_begin(s, (enum sched_id)id);
        if (way->streams && id != SCHED_INIT && sched_has(s, (enum sched_id)id)) {     /* nothing has left, no backward has begun */
            mark(&p, PHASE_FORWARD, "step begins")->record = p.down;
            mark(&p, PHASE_FORWARD, "step begins")->record = p.begun;
        }
        again_each(&p.again, p.again.begin[id], p.again.end[id], entry, &p);
        sched_end(s, (enum sched_id)id);
    }
    again_close(&p.again);
}

/* passes.c -- see passes.h. */
#include "sim/clock/passes.h"

#include <limits.h>
#include <string.h>

/* How far a pass is through its stage: the embedding below all blocks, the head above. */
static int64_t depth_of(const struct op *o, int64_t iteration)
{
    if (!o->of || !strcmp(o->of, "embedding"))
        return -1;
    return !strcmp(o->of, "head") ? INT_MAX : o->unit + o->unit_by * iteration;
}

/* Where a stage takes over what another one hands on, or is rid of what it has handed on (program.h).  Of what it takes over the
 * first kernel makes room, which may be passes ahead; the second is where the pass begins. */
static bool at_edge(const struct op *o)
{
    return o->kind == OP_COMPUTE && (o->u.compute.piece == PIECE_RECEIVED || o->u.compute.piece == PIECE_SENT);
}

bool passes_is_mark(const struct op *o)
{
    return at_edge(o) && (o->u.compute.piece == PIECE_RECEIVED) == (o->u.compute.pass == PASS_FORWARD) && o->u.compute.k1 > 1;
}

/* The second half of a backward that is in two. */
static bool of_weights(const struct schedules *s, const struct op *o)
{
    int piece = o->u.compute.piece;

    return o->kind == OP_COMPUTE && (piece == PIECE_BLOCK_SPLIT || piece == PIECE_HEAD_SPLIT) &&
           o->u.compute.pass == PASS_BACKWARD && o->u.compute.k0 >= s->program.piece[piece].split;
}

static char kind_of(const struct schedules *s, const struct op *o)
{
    if (o->kind == OP_COLL && coll_is_message((enum coll_op)o->u.coll.op))
        return PASS_IS_MESSAGE;
    if (at_edge(o) || o->stream != STREAM_COMPUTE || (o->kind != OP_COMPUTE && o->kind != OP_OPTIMIZER))
        return 0;
    switch ((enum phase)o->phase) {
    case PHASE_FORWARD:   return PASS_IS_FORWARD;
    case PHASE_BACKWARD:  return of_weights(s, o) ? PASS_IS_WEIGHTS : PASS_IS_BACKWARD;
    case PHASE_OPTIMIZER: return PASS_IS_OPTIMIZER;
    default:              return 0;
    }
}

/* Does this entry go on with the pass under way?  Backward may run a block's forward again first. */
static bool goes_on(const struct passes *at, char kind, uint8_t pass, int64_t depth, int k0)
{
    if (kind != at->last.kind || kind == PASS_IS_OPTIMIZER)
        return kind == at->last.kind;
    if (depth != at->last.depth)
        return (depth > at->last.depth) == (kind == PASS_IS_FORWARD);
    return pass != at->last.pass ? pass == PASS_BACKWARD : k0 > at->last.k0;
}

struct pass_part passes_next(struct passes *at, const struct schedules *s, const struct op *o, int64_t iteration)
{
    bool computes = o->kind == OP_COMPUTE;
    char kind = kind_of(s, o);

    if (passes_is_mark(o)) {
        at->last.kind = 0;
        at->mark = o->unit + o->unit_by * iteration;
        at->marked = true;
        return (struct pass_part){ 0 };
    }
    if (!kind)
        return (struct pass_part){ 0 };
    if (kind == PASS_IS_MESSAGE)
        return (struct pass_part){ kind, o->unit + o->unit_by * (int)iteration, true };
    uint8_t pass = computes ? o->u.compute.pass : 0;
    int64_t depth = computes ? depth_of(o, iteration) : 0;
    int k0 = computes ? o->u.compute.k0 : 0;
    bool begins = !goes_on(at, kind, pass, depth, k0);
    if (begins) {
        int next = at->count[(unsigned char)kind]++;
        at->last.number = kind == PASS_IS_OPTIMIZER ? 0 : at->marked ? (int)at->mark : next;
        at->marked = false;
    }
    at->last.kind = kind;
    at->last.pass = pass;
    at->last.depth = depth;
    at->last.k0 = k0;
    return (struct pass_part){ kind, at->last.number, begins };
}

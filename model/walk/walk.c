/* walk.c -- see walk.h. */
#include "model/walk/walk.h"

#include "model/lower/common/lower_internal.h"
#include "model/plan/loss_check.h"
#include "model/schedule/schedule_fold.h"

static void call(const struct walk *w, void (*hook)(void *of))
{
    if (hook)
        hook(w->of);
}

static void call_at(const struct walk *w, void (*hook)(void *of, struct at u), struct at u)
{
    if (hook)
        hook(w->of, u);
}

/* ---- units ---- */

struct at walk_at(const struct walk *w, int position, int by)
{
    struct unit_ref r = unit_at(&w->map, position);

    return r.cls == UC_ROOT ? walk_root : (struct at){ r.cls, r.index, by, position, 0 };
}

void walk_name(struct walk *w, struct at u) { sched_of(w->s, unit_class_name(u.c), u.i, u.by); }

static bool halves(const struct walk *w) { return w->map.kind == UNIT_HALF_BLOCK; }

bool walk_needs_both(const struct walk *w, struct at u)
{
    const struct plan *p = w->local->plan;

    return halves(w) && recompute_whole(p->recompute) && piece_is_recomputed(program_piece_of_block(p, unit_at(&w->map, u.position).block));
}

/* ---- compute entries ---- */

static enum pass pass_of(const struct walk_run *r) { return r->forward ? PASS_FORWARD : PASS_BACKWARD; }

static enum piece_id piece_of(const struct walk *w, int block)
{
    const struct plan *p = w->local->plan;

    return w->hooks->by_chunk ? program_piece_in_chunk(p, block, block - w->block0) : program_piece_of_block(p, block);
}

static void call_run(const struct walk *w, void (*hook)(void *of, const struct walk_run *r), const struct walk_run *r)
{
    if (hook)
        hook(w->of, r);
}

/* The entry of kernels [k0, k1) of the pass of r's piece; k1 < 0: to its end. */
static void segment(struct walk *w, struct walk_run r, enum piece_id runs, int k0, int k1)
{
    bool block = piece_is_block(r.piece);
    const char *name = block ? "block" : r.piece == PIECE_EMBED ? "embedding" : "head";
    int kept = block ? w->kept_blocks + r.block : w->kept_ends;
    struct op *o = sched_compute(w->s, r.forward ? PHASE_FORWARD : PHASE_BACKWARD, runs, pass_of(&r), k0, k1, w->fate, w->hooks->grads);

    r.k0 = o->u.compute.k0;
    r.k1 = o->u.compute.k1;
    sched_of(w->s, name, r.block, r.by);
    w->hooks->compute(w->of, &r);
    if (r.forward && (w->cuts && w->hooks->cut ? r.ends : r.begins))
        sched_act(w->s, ACT_ALLOC, w->acts[r.piece], kept, r.by);
    if (r.weights && r.ends)
        sched_act(w->s, ACT_FREE, w->acts[r.piece], kept, r.by);
    call_run(w, w->hooks->post_run, &r);
}

/* Kernel by kernel: an entry ends where the framework says so. */
static void run_cut(struct walk *w, struct walk_run r)
{
    int n = w->s->program.piece[r.piece].nkernels[pass_of(&r)];
    struct walk_run whole = r;

    for (int k = 0; k < n; k++) {
        if (k == r.k0)
            call_run(w, w->hooks->pre_run, &r);
        if (!w->hooks->cut(w->of, &r, k) && k < n - 1)
            continue;
        r.ends = whole.ends && k == n - 1;
        segment(w, r, r.piece, r.k0, k + 1);
        r.begins = false;
        r.k0 = k + 1;
    }
}

void walk_to(struct walk *w, struct walk_run *r, int k1)
{
    struct walk_run now = *r;

    if (k1 <= r->k0)
        return;
    now.ends = r->ends && k1 == w->s->program.piece[r->piece].nkernels[pass_of(r)];
    segment(w, now, r->piece, r->k0, k1);
    r->begins = false;
    r->k0 = k1;
}

/* The same of kernels [k0, k1), in one entry, cut to the part of backward that runs. */
static void run(struct walk *w, struct walk_run r, int k0, int k1)
{
    bool split = !r.forward && w->part != WHOLE_BACKWARD, defers = !r.forward && w->defers && r.piece == PIECE_HEAD;
    enum piece_id runs = defers ? PIECE_HEAD_SPLIT : !split ? r.piece : r.piece == PIECE_HEAD ? PIECE_HEAD_SPLIT : PIECE_BLOCK_SPLIT;

    r.weights = !r.forward && w->part != INPUT_PART;
    if (w->cuts) {
        if (w->hooks->pass)
            w->hooks->pass(w->of, &r);
        else
            run_cut(w, r);
        return;
    }
    if (split)
        *(w->part == INPUT_PART ? &k1 : &k0) = w->s->program.piece[runs].split;
    if (defers)
        k1 = w->s->program.piece[runs].split;
    r.k0 = k0;
    call_run(w, w->hooks->pre_run, &r);
    segment(w, r, runs, k0, k1);
}

/* The unit that has the embedding or the head: one of its own, or the root. */
static struct at end_unit(const struct walk *w, enum piece_id piece)
{
    const int *n = w->map.of_class;
    bool embeds = piece == PIECE_EMBED && n[UC_EMBED];

    return embeds || n[UC_OUTPUT] ? (struct at){ embeds ? UC_EMBED : UC_OUTPUT, 0, 0, -1, 0 } : w->root;
}

/* Is one unit of embedding and head, apart from the root? */
static bool is_tied(const struct walk *w) { return w->map.of_class[UC_OUTPUT] && !w->map.of_class[UC_EMBED]; }

/* The embedding, or the head's kernels [k0, k1). */
static void end_piece(struct walk *w, enum piece_id piece, bool forward, int k0, int k1)
{
    struct at u = end_unit(w, piece);
    bool begins = k0 == 0, ends = k1 < 0, alone = u.c == UC_EMBED || (u.c == UC_OUTPUT && !is_tied(w));
    bool opens = alone || (forward ? piece == PIECE_EMBED || !w->embeds : piece == PIECE_HEAD || !w->heads);

    run(w, (struct walk_run){ .u = u, .piece = piece, .forward = forward, .begins = begins, .ends = ends, .opens = opens,
                              .loss = forward ? !begins : !ends }, k0, k1);
}

/* What a recorded model runs between two of its units, the root's: in forward before the unit is entered, in backward behind it. */
static void outside(struct walk *w, struct at u, bool forward)
{
    int block = unit_at(&w->map, u.position).block, n;
    enum piece_id piece = program_piece_of_block(w->local->plan, block);
    enum pass pass = forward ? PASS_FORWARD : PASS_BACKWARD;

    n = w->s->program.piece[piece].outside[pass];
    if (n > 0)
        run(w, (struct walk_run){ .u = w->root, .piece = piece, .forward = forward, .block = block, .by = u.by_block, .begins = forward, .ends = !forward },
            forward ? 0 : w->s->program.piece[piece].nkernels[pass] - n, forward ? n : -1);
}

/* Half a block runs the kernels up to the cut, or those behind it. */
static void unit_block(struct walk *w, struct at u, int block, bool forward, bool opens)
{
    enum piece_id piece = piece_of(w, block);
    struct walk_run r = { .u = u, .piece = piece, .forward = forward, .block = block, .by = u.by_block, .begins = true, .ends = true,
                          .opens = opens };
    int k0 = 0, k1 = -1;

    if (halves(w)) {
        r.begins = (u.c == UC_ATTENTION) == forward;
        r.ends = !r.begins;
        *(r.begins ? &k1 : &k0) = program_half(&w->s->program, piece, forward ? PASS_FORWARD : PASS_BACKWARD, forward);
    }
    const struct piece *p = &w->s->program.piece[piece];
    if (forward && p->outside[PASS_FORWARD] > 0) {
        k0 = p->outside[PASS_FORWARD];
        r.begins = false;
    } else if (!forward && p->outside[PASS_BACKWARD] > 0) {
        k1 = p->nkernels[PASS_BACKWARD] - p->outside[PASS_BACKWARD];
        r.ends = false;
    }
    r.both = !forward && r.begins && walk_needs_both(w, u);
    run(w, r, k0, k1);
}

static void unit_blocks(struct walk *w, struct at u, bool forward)
{
    struct unit_ref ref = unit_at(&w->map, u.position);

    if (w->hooks->inside && w->hooks->inside(w->of, u, forward))
        return;
    for (int k = 0; k < ref.nblocks; k++)
        unit_block(w, u, forward ? ref.block + k : ref.block + ref.nblocks - 1 - k, forward, k == 0);
}

/* Blocks of a model that is one unit. */
static void root_block(struct walk *w, bool forward, int block, int by)
{
    run(w, (struct walk_run){ .u = w->root, .piece = piece_of(w, block), .forward = forward, .block = block,
                              .by = by, .begins = true, .ends = true }, 0, -1);
}

/* ---- a pass ---- */

static void unit_pass(struct walk *w, struct unit_step st, bool forward)
{
    struct at u = walk_at(w, st.position, st.by);

    u.by_block = st.by_block;
    if (forward)
        outside(w, u, true);
    call_at(w, forward ? w->hooks->pre_forward : w->hooks->pre_backward, u);
    unit_blocks(w, u, forward);
    call_at(w, forward ? w->hooks->post_forward : w->hooks->post_backward, u);
    if (!forward)
        outside(w, u, false);
}

static void forward_unit(void *walk, struct unit_step st)       { unit_pass(walk, st, true); }
static void backward_unit(void *walk, struct unit_step st)      { unit_pass(walk, st, false); }
static void forward_block(void *walk, int block, int by)        { root_block(walk, true, block, by); }
static void backward_block(void *walk, int block, int by)       { root_block(walk, false, block, by); }

/* All of the pass's: equal ones as a repeat, but where they are cut, and in a pipeline, whose micro-steps have activations of their own. */
static void units(struct walk *w, bool forward)
{
    bool whole = w->map.n == 0, alone = w->cuts || w->alone;
    int from = whole ? w->block0 : w->unit0, to = whole ? w->block1 : w->unit1;

    if (!alone && whole)
        units_blocks_emit(w->local, w->s, !forward, !forward && w->last_alone, forward ? forward_block : backward_block, w);
    else if (!alone)
        units_emit(&w->map, w->s, !forward, forward ? forward_unit : backward_unit, w);
    for (int i = 0; alone && i < to - from; i++) {
        int at = forward ? from + i : to - 1 - i;
        if (whole)
            root_block(w, forward, at, 0);
        else
            unit_pass(w, (struct unit_step){ at, 0, 0 }, forward);
    }
    call(w, w->hooks->end_of_units);
}

/* Kernels of the head before the model returns, or before its backward is entered; 0: all are the model's. */
static int returns(const struct walk *w, enum pass pass)
{
    return w->hooks->loss_apart && !walk_is_stage(w) ? w->s->program.returns[pass] : 0;
}

/* The embedding, or the head's kernels [k0, k1), with what their unit's module does before and behind: the loss is no module's. */
static void end_pass(struct walk *w, enum piece_id piece, bool forward, int k0, int k1)
{
    struct at u = end_unit(w, piece);
    bool apart = u.c != w->root.c, first = !is_tied(w) || (piece == PIECE_EMBED) == forward, last = !is_tied(w) || !first;
    int cut = apart && piece == PIECE_HEAD ? w->s->program.heads[forward ? PASS_FORWARD : PASS_BACKWARD] : 0;

    if (!forward && cut > k0)
        end_piece(w, piece, forward, k0, cut);
    if (apart && first)
        call_at(w, forward ? w->hooks->pre_forward : w->hooks->pre_backward, u);
    end_piece(w, piece, forward, forward || cut == 0 ? k0 : cut, forward && cut > 0 ? cut : k1);
    if (apart && last)
        call_at(w, forward ? w->hooks->post_forward : w->hooks->post_backward, u);
    if (forward && cut > 0 && cut != k1)
        end_piece(w, piece, forward, cut, k1);
}

/* Kernels [k0, k1) of the head's piece that are the root's, where the head is a unit that the loss calls. */
static void beside_calls(struct walk *w, bool forward, bool loss, int k0, int k1)
{
    if (k0 != k1)
        run(w, (struct walk_run){ .u = w->root, .piece = PIECE_HEAD, .forward = forward, .begins = k0 == 0, .ends = k1 < 0, .opens = !forward && !loss,
                                  .loss = loss }, k0, k1);
}

/* From where the model has returned, or to where its backward is entered. */
static void head_calls(struct walk *w, bool forward, int k0, int k1)
{
    const struct program *g = &w->s->program;
    struct at u = end_unit(w, PIECE_HEAD);

    w->calls = g->ncalls;
    for (w->call = 0; w->call < w->calls; w->call++) {
        int from = g->call[forward ? PASS_FORWARD : PASS_BACKWARD][w->call].from, to = g->call[forward ? PASS_FORWARD : PASS_BACKWARD][w->call].to;
        beside_calls(w, forward, true, k0, from);
        call_at(w, forward ? w->hooks->pre_forward : w->hooks->pre_backward, u);
        run(w, (struct walk_run){ .u = u, .piece = PIECE_HEAD, .forward = forward, .opens = w->call == 0 }, from, to);
        call_at(w, forward ? w->hooks->post_forward : w->hooks->post_backward, u);
        k0 = to;
    }
    w->calls = w->call = 0;
    beside_calls(w, forward, true, k0, k1);
}

static void forward(struct walk *w)
{
    int cut = returns(w, PASS_FORWARD);
    bool calls = cut > 0 && w->s->program.ncalls > 0;

    call_at(w, w->hooks->pre_forward, w->root);
    if (w->embeds)
        end_pass(w, PIECE_EMBED, true, 0, -1);
    units(w, true);
    if (calls)
        beside_calls(w, true, false, 0, cut);
    else if (w->heads)
        end_pass(w, PIECE_HEAD, true, 0, cut > 0 ? cut : -1);
    call_at(w, w->hooks->post_forward, w->root);
    if (calls)
        head_calls(w, true, cut, -1);
    else if (cut > 0)
        end_piece(w, PIECE_HEAD, true, cut, -1);
}

static void backward(struct walk *w)
{
    int cut = returns(w, PASS_BACKWARD);
    bool calls = cut > 0 && w->s->program.ncalls > 0;

    if (calls)
        head_calls(w, false, 0, cut);
    else if (cut > 0)
        end_piece(w, PIECE_HEAD, false, 0, cut);
    call_at(w, w->hooks->pre_backward, w->root);
    if (calls)
        beside_calls(w, false, false, cut, -1);
    else if (w->heads)
        end_pass(w, PIECE_HEAD, false, cut, -1);
    units(w, false);
    if (w->embeds)
        end_pass(w, PIECE_EMBED, false, 0, -1);
    call_at(w, w->hooks->post_backward, w->root);
}

static void begin_pass(struct walk *w, bool is_forward)
{
    w->forward = is_forward;
    w->alone = walk_is_stage(w);
    call(w, w->hooks->begin_pass);
}

/* ---- micro-steps ---- */

/* What the program's head lets go when the model has returned, the function that runs backward has a name for. */
static void name_logits(struct walk *w, const char *what, int act)
{
    if (w->logits < 0)
        return;
    sched_op(w->s, OP_MEMORY, STREAM_COMPUTE, act == ACT_ALLOC ? PHASE_FORWARD : PHASE_BACKWARD, what);
    sched_act(w->s, act, w->logits, 0, 0);
}

static void micro_step(void *walk)
{
    struct walk *w = walk;

    begin_pass(w, true);
    forward(w);
    name_logits(w, "name logits", ACT_ALLOC);
    begin_pass(w, false);
    backward(w);
    name_logits(w, "drop logits", ACT_FREE);
    call(w, w->hooks->end_of_micro_step);
}

static bool settled(void *walk, bool begins)
{
    const struct walk *w = walk;

    return !w->hooks->settled || w->hooks->settled(w->of, begins);
}

/* A micro-step by itself.  Where it turned out to be as those behind it, up to `end`, they are its repeat: true.  Of a steady step it stays
 * by itself: its time is a sum in this order. */
static bool alone(struct walk *w, int64_t at, int64_t end)
{
    int from = w->s->nops;

    micro_step(w);
    if (w->step != SCHED_FIRST || w->first || w->last || w->apart > at || at + 1 >= end)
        return false;
    schedule_repeat_since(w->s, from, end - at);
    w->again0 = from + 1;
    w->again1 = w->s->nops - 1;
    return true;
}

static bool comes_again(const struct walk *w)
{
    return w->again0 < w->again1 && w->hooks->comes_again && w->hooks->comes_again(w->of);
}

/* Those that are alike are a repeat. */
static void micro_steps(struct walk *w)
{
    int64_t steps = w->local->plan->accumulation, end = w->last_differs ? steps - 1 : steps;
    bool alike = false;

    for (int64_t at = 0; at < steps && !w->s->too_long; at = alike ? end : at + 1) {
        w->s->too_long = w->s->nops > SCHED_MOST_OPS;
        alike = steps > 1 && at < end && at >= w->apart && !(at == 0 && w->first_differs);
        w->first = !alike && at == 0;
        w->last = !alike && at == steps - 1;
        w->number = alike ? -1 : at;
        if (!alike) {
            alike = alone(w, at, end);
            continue;
        }
        sched_repeat(w->s, end - at);
        if (comes_again(w))
            schedule_append(w->s, w->again0, w->again1);
        else
            lower_emit_settled(w->s, micro_step, settled, w);
        sched_repeat_end(w->s);
    }
}

/* ---- a pipeline's stage ---- */

/* What the passes of an act's chunk have: units, root, embedding, head, and where its micro-step's activations begin. */
static void enter_chunk(struct walk *w, const struct pipeline_act *a)
{
    bool whole = w->map.kind == UNIT_MODEL;
    int each = halves(w) ? 2 : 1;

    w->chunk = a->chunk;
    w->embeds = stage_ports_embeds(&w->ports, a->chunk);
    w->heads = stage_ports_heads(&w->ports, a->chunk);
    w->block0 = stage_ports_block0(&w->ports, a->chunk);
    w->block1 = stage_ports_block1(&w->ports, a->chunk);
    w->unit0 = w->map.blocks > 1 ? 0 : each * w->block0;
    w->unit1 = w->map.blocks > 1 ? w->map.n : each * w->block1;
    w->root = walk_root;
    w->root.c = whole || w->embeds || (w->heads && !w->map.of_class[UC_HEAD]) ? UC_ROOT : w->heads ? UC_HEAD : NUC;
    w->root.position = w->root.c == UC_HEAD ? w->map.n : -1;
    w->ties = w->map.of_class[UC_TIED] && w->root.c != NUC;
    if (w->ties && w->root.c == UC_ROOT && !w->map.of_class[UC_ROOT]) {     /* nothing else than the embedding */
        w->root.c = UC_TIED;
        w->ties = false;
    }
    w->kept_blocks = (int)w->local->model->layers * a->step;
    w->kept_ends = a->step;
}

static void stage_act(void *walk, const struct pipeline_act *a)
{
    struct walk *w = walk;

    if (a->verb > PIPE_WEIGHT && w->hooks->pre_stage_act)
        w->hooks->pre_stage_act(w->of, a);
    if (!stage_ports_does(&w->ports, a))
        enter_chunk(w, a);
    if (a->verb > PIPE_WEIGHT && w->hooks->stage_act)
        w->hooks->stage_act(w->of, a);
    if (a->verb > PIPE_WEIGHT || stage_ports_idle(&w->ports, a))
        return;
    w->part = a->verb == PIPE_FORWARD || stage_ports_whole(&w->ports, a) ? WHOLE_BACKWARD : a->verb == PIPE_INPUT ? INPUT_PART : WEIGHT_PART;
    begin_pass(w, a->verb == PIPE_FORWARD);
    stage_ports_begin(&w->ports, a);
    (w->forward ? forward : backward)(w);
    stage_ports_end(&w->ports, a);
    call(w, w->hooks->end_of_pass);
}

static int flush(struct walk *w)
{
    bool first = w->step == SCHED_FIRST && w->flush == 0;
    int rc = stage_ports_open(&w->ports, w->local, w->s, w->stage.code, &w->stage.memory, first, w->stage.keeps);

    if (rc == 0 && w->stage.connects && first)
        stage_ports_connect(&w->ports);
    if (rc == 0) {
        stage_ports_run(&w->ports, stage_act, w);
        call(w, w->hooks->end_of_stage);
        stage_ports_finish(&w->ports);
    }
    stage_ports_close(&w->ports);
    return rc;
}

static int stage(struct walk *w)
{
    int64_t flushes = w->local->plan->parallel.pipeline_flushes;
    int rc = 0;

    w->flush = 0;
    do
        rc = flush(w);
    while (rc == 0 && ++w->flush < flushes && !w->s->too_long);
    return rc;
}

/* ---- whole steps ---- */

struct step { struct walk *w; int rc; };

static void one_step(void *step)
{
    struct step *e = step;
    struct walk *w = e->w;

    call(w, w->hooks->begin);
    if (walk_is_stage(w))
        e->rc = stage(w);
    else
        micro_steps(w);
    call(w, w->hooks->end_of_backward);
    call(w, w->hooks->optimizer);
    lower_read_loss(w->s);
    call(w, w->hooks->end);
}

static bool step_settled(void *step, bool begins) { return settled(((struct step *)step)->w, begins); }

void walk_open(struct walk *w, const struct local_model *local, const struct plan *units, struct schedules *s, const struct walk_hooks *hooks,
               void *of)
{
    struct local_model cut = *local;

    if (units)
        cut.plan = units;
    *w = (struct walk){ .hooks = hooks, .of = of, .local = local, .s = s, .fate = hooks->fate, .root = walk_root, .embeds = true,
                        .heads = true, .stage.memory = { -1, -1, -1, -1 } };
    unit_map_init(&w->map, &cut);
    w->unit1 = w->map.n;
    w->block1 = (int)local->model->layers;
}

int walk_steps(struct walk *w)
{
    struct step e = { .w = w };
    int64_t named = loss_leaves_bytes(w->local->plan);

    w->logits = named > 0 ? sched_buf(w->s, CAT_TEMPORARIES, "logits that have a name", NULL, 0, 1, round512(named)) : -1;
    sched_begin(w->s, SCHED_INIT);
    lower_load_buffers(w->s, w->local);
    call(w, w->hooks->init);
    sched_end(w->s, SCHED_INIT);
    for (int i = 1; i < NSCHED && e.rc == 0; i++) {
        w->step = (enum sched_id)i;
        if (!sched_has(w->s, w->step))
            continue;
        sched_begin(w->s, w->step);
        lower_emit_settled(w->s, one_step, w->step == SCHED_STEADY ? step_settled : NULL, &e);
        sched_end(w->s, w->step);
    }
    stage_ports_free(&w->ports);
    return e.rc;
}

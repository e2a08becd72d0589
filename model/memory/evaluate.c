/* evaluate.c -- lowers a plan for each kind of rank, runs the ledger, and adds what no schedule allocates. */
#include "model/memory/evaluate.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/room.h"
#include "base/size.h"
#include "model/plan/experts_check.h"
#include "model/plan/knob.h"
#include "model/program/program.h"

/* ---- collectives ---- */

static void count_one(const struct schedules *s, const struct op *o, int64_t times, struct comm_table *t)
{
    int64_t bytes = o->u.coll.elems * dtype_bytes(o->u.coll.dtype);
    int i = 0;

    while (i < t->n && !(t->line[i].op == o->u.coll.op && t->line[i].group == o->u.coll.group &&
                         t->line[i].dtype == o->u.coll.dtype))
        i++;
    if (i == t->n)
        t->line[t->n++] = (struct comm_line){ o->u.coll.op, o->u.coll.group, o->u.coll.dtype, 0, 0, 0 };
    t->line[i].count += times;
    t->line[i].bytes += times * bytes;
    t->line[i].sent += times * sched_sent_bytes(s, o);
    t->sent_bytes += times * sched_sent_bytes(s, o);
}

static void count_range(const struct schedules *s, int from, int to, int64_t times, struct comm_table *t)
{
    for (int i = from; i < to; i++) {
        const struct op *o = &s->ops[i];
        if (o->kind == OP_REPEAT) {
            count_range(s, i + 1, o->u.repeat.other, times * o->u.repeat.n, t);
            i = o->u.repeat.other;
        } else if (o->kind == OP_COLL && times > 0) {
            count_one(s, o, times, t);
        }
    }
}

void evaluation_comm_count(const struct schedules *s, enum sched_id id, struct comm_table *out)
{
    out->n = 0;
    out->sent_bytes = 0;
    count_range(s, s->begin[id], s->end[id], 1, out);
}

/* ---- words ---- */

void evaluation_op_in_words(const struct schedules *s, int i, int64_t iteration, char *to, int size)
{
    const struct op *o = &s->ops[i];
    const char *phase = o->kind == OP_COMPUTE || o->phase == PHASE_INIT ? "" : phase_name(o->phase);
    int n = snprintf(to, (size_t)size, "%s%s%s", phase, *phase ? " " : "", o->what);

    if (n < 0 || n >= size || !o->of)
        return;
    int64_t at = o->unit + o->unit_by * iteration;
    const struct recorded *r = s->recorded;
    if (r && !strcmp(o->of, "embedding"))
        snprintf(to + n, (size_t)(size - n), " before %s", r->unit[s->recorded_from]);
    else if (r && !strcmp(o->of, "head"))
        snprintf(to + n, (size_t)(size - n), " behind %s", r->unit[r->nunits - 1]);
    else if (r && !strcmp(o->of, "block") && at >= 0 && at + s->recorded_from < r->nunits)
        snprintf(to + n, (size_t)(size - n), " %s", r->unit[at + s->recorded_from]);
    else if (o->unit_by == 0 && o->unit == 0 &&
        (!strcmp(o->of, "root") || !strcmp(o->of, "head") || !strcmp(o->of, "embedding")))
        snprintf(to + n, (size_t)(size - n), " %s", o->of);
    else
        snprintf(to + n, (size_t)(size - n), " %s %" PRId64, o->of, at);
}

void evaluation_op_largest_new(const struct schedules *s, int i, const char **what, int64_t *bytes)
{
    const struct op *o = &s->ops[i];

    *what = "working set of its kernels";
    *bytes = 0;
    if (o->kind == OP_COMPUTE) {
        const struct span *sp = &s->spans[o->u.compute.span];
        int64_t set = sp->peak[MEM_ACTIVATIONS] + sp->peak[MEM_TEMPORARIES];
        *bytes = set > 0 ? set : 0;             /* backward may free more than it makes */
        if (sp->peak[MEM_GRADS] > *bytes) {
            *what = "gradients of its kernels";
            *bytes = sp->peak[MEM_GRADS];
        }
    }
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct buf *b = &s->bufs[s->acts[k].buf];
        if ((s->acts[k].what & ACT_ALLOC) && op_moves(o, b) &&
            b->bytes * s->acts[k].n > *bytes) {
            *what = b->what;
            *bytes = b->bytes * s->acts[k].n;
        }
    }
}

/* ---- evaluation ---- */

/* Stages of the plan's pipeline; 1: it has none. */
static int stages_of(const struct plan *p)
{
    struct mesh m = plan_mesh(p);

    if (m.size[AXIS_PIPE] > EVALUATION_STAGES)
        return fail("a pipeline of %" PRId64 " stages: at most %d are evaluated", m.size[AXIS_PIPE], EVALUATION_STAGES);
    return (int)m.size[AXIS_PIPE];
}

/* Kinds of rank of a stage: those of the first, at the same places of the others' axes. */
static int ranks_of(const struct plan *p, int stage, int64_t ranks[LOWER_KINDS])
{
    struct mesh m = plan_mesh(p);
    struct mesh_group pipe = mesh_group(&m, MESH_AXIS(AXIS_PIPE));
    int n = lower_ranks(p, ranks);

    for (int i = 0; i < n; i++)
        ranks[i] = mesh_member(&pipe, ranks[i], stage);
    return n;
}

int evaluate_stage(const struct plan *p, const struct program *g, int stage, struct schedules *s,
                          struct memory_verdict *out)
{
    int64_t ranks[LOWER_KINDS];
    int n = ranks_of(p, stage, ranks);

    if (n < 0)
        return -1;
    struct ledger l;

    memset(out, 0, sizeof *out);
    out->rank = -1;
    s->folds = p->kernels != KERNELS_DPX;
    for (int i = 0; i < n; i++) {
        if (lower_using(p, ranks[i], g, s) < 0)
            return -1;
        out->elsewhere |= s->spaces != 0;
        ledger_run(s, &l);
        out->kind[out->nkinds].rank = ranks[i];
        out->kind[out->nkinds++].peak = l.peak.bytes;
        if (out->rank < 0 || l.peak.bytes > out->ledger.peak.bytes) {
            out->ledger = l;
            out->rank = ranks[i];
        }
    }
    if (lower_unless(p, out->rank, g, s) < 0)
        return -1;
    out->needed = out->ledger.peak.bytes + overhead_of(p, s, &out->overhead);
    out->available = cluster_available(&p->cluster);
    out->fits = out->needed <= out->available;
    return 0;
}

/* Host memory and disks of the fullest node, with every stage's kinds of rank; `s` stays lowered for out->rank. */
static int evaluate_elsewhere(const struct plan *p, const struct program *g, int stages, struct schedules *s,
                              struct memory_verdict *out)
{
    int64_t *ranks;
    int n = 0, rc;

    if (!out->elsewhere)
        return 0;
    ranks = room_new((size_t)(stages * LOWER_KINDS), sizeof *ranks);
    for (int stage = 0; stage < stages; stage++)
        n += ranks_of(p, stage, ranks + n);
    rc = spaces_account(p, g, s, ranks, n, out->needed, &out->spaces) < 0 ? -1 : lower_unless(p, out->rank, g, s);
    free(ranks);
    out->fits &= rc < 0 || spaces_short(&out->spaces) < 0;
    return rc;
}

int evaluate_memory(const struct plan *p, const struct program *g, struct schedules *s,
                    struct memory_verdict *out)
{
    int n = stages_of(p);
    struct memory_verdict m;
    bool elsewhere;

    if (n < 0 || evaluate_stage(p, g, 0, s, out) < 0)
        return -1;
    elsewhere = out->elsewhere;
    for (int stage = 1; stage < n; stage++) {
        if (evaluate_stage(p, g, stage, s, &m) < 0)
            return -1;
        elsewhere |= m.elsewhere;
        if (m.needed > out->needed)
            *out = m;
    }
    if (lower_unless(p, out->rank, g, s) < 0)
        return -1;
    out->elsewhere = elsewhere;
    return evaluate_elsewhere(p, g, n, s, out);
}

int evaluate_schedules(const struct plan *p, const struct program *g, struct schedules *s) { return lower_unless(p, 0, g, s); }

int64_t evaluation_taken(const struct memory_verdict *m, const struct reserved *r)
{
    return r->known ? r->reserved_peak + m->overhead.by[OVERHEAD_OUTSIDE] : m->needed;
}

struct evaluation_where evaluation_where(const struct evaluation *e)
{
    struct evaluation_where t;

    if (e->nstages)
        snprintf(t.s, sizeof t.s, "rank %" PRId64 ", stage %d of %d", e->m.rank, e->fullest, e->nstages);
    else
        snprintf(t.s, sizeof t.s, "rank %" PRId64, e->m.rank);
    return t;
}

/* PyTorch's allocator fails though what is allocated would fit. */
static void fails_reserved(struct evaluation *e)
{
    const struct reserved *r = &e->reserved;

    e->first_over = (struct peak){ .op = r->op, .sched = r->sched, .iteration = r->iteration };
    evaluation_op_in_words(&e->schedules, r->op, r->iteration, e->over_at, sizeof e->over_at);
    snprintf(e->why_not, sizeof e->why_not, "would reserve %s with unlimited memory (%s usable on %s): a request of %s finds no room at %s of the %s step, "
             "even in the whole card", size_text(evaluation_taken(&e->m, &e->reserved)).s, size_text(e->m.available).s, evaluation_where(e).s,
             size_text(r->refused).s, e->over_at, sched_name(r->sched));
}

/* Device memory is short. */
static void device_in_words(struct evaluation *e)
{
    const struct memory_verdict *m = &e->m;
    const struct peak *p = &m->ledger.peak;

    if (ledger_first_over(&e->schedules, m->available - (m->needed - p->bytes), &e->first_over) >= 0)
        evaluation_op_in_words(&e->schedules, e->first_over.op, e->first_over.iteration, e->over_at, sizeof e->over_at);
    /* Where PyTorch's allocator is known, what is too much is too much for the whole card: the headroom may be used. */
    int64_t card = e->reserved.limit + m->overhead.by[OVERHEAD_OUTSIDE];
    bool whole = e->reserved.known && m->needed > card;
    int64_t limit = whole ? card : m->available;
    snprintf(e->why_not, sizeof e->why_not, "needs %s of %s usable on %s: %s %s, at %s of the %s step",
             size_text(m->needed).s, size_text(m->available).s, evaluation_where(e).s, size_text(m->needed - limit).s,
             whole ? "more than the whole card" : "too much", e->peak_at, sched_name(p->sched));
}

/* Host memory or disk is short: where this rank exceeds its share of the node's. */
static void node_in_words(const struct plan *p, struct evaluation *e)
{
    enum space s = (enum space)spaces_short(&e->m.spaces);
    const struct space_account *a = &e->m.spaces.of[s];
    int64_t share = a->available / p->cluster.gpus_per_node - (p->cluster.is_host && s == SPACE_HOST ? e->m.needed : 0);

    spaces_why_not(&e->m.spaces, e->why_not, sizeof e->why_not);
    if (ledger_first_over_in(&e->schedules, s == SPACE_HOST ? (unsigned)IN_HOST : IN(s), share, &e->first_over) >= 0)
        evaluation_op_in_words(&e->schedules, e->first_over.op, e->first_over.iteration, e->over_at, sizeof e->over_at);
    else
        e->first_over.op = -1;
}

static void judge(const struct plan *p, struct evaluation *e)
{
    bool allocated_fits = e->m.needed <= e->m.available;
    bool others_fit = !e->m.elsewhere || spaces_short(&e->m.spaces) < 0;

    e->verdict = others_fit ? reserved_verdict(&e->reserved, allocated_fits) : VERDICT_DOES_NOT_FIT;
    e->m.fits = e->verdict != VERDICT_DOES_NOT_FIT;
    e->first_over.op = -1;
    if (e->m.fits)
        return;
    if (!allocated_fits)
        device_in_words(e);
    else if (!others_fit)
        node_in_words(p, e);
    else
        fails_reserved(e);
    if (!allocated_fits && !others_fit) {       /* both are named; where it fails first is the device's */
        size_t n = strlen(e->why_not);
        n += (size_t)snprintf(e->why_not + n, sizeof e->why_not - n, "; ");
        if (n < sizeof e->why_not)
            spaces_why_not(&e->m.spaces, e->why_not + n, (int)(sizeof e->why_not - n));
    }
}

/* The figures of the fullest stage become the evaluation's: of those with the worst verdict the one that needs most. */
static void take_fullest(struct evaluation *e)
{
    const struct evaluation_stage *of = &e->stage[0];
    struct space_accounts spaces = e->m.spaces;
    bool elsewhere = e->m.elsewhere;

    for (int i = 1; i < e->nstages; i++) {
        const struct evaluation_stage *g = &e->stage[i];
        if (g->verdict != of->verdict ? g->verdict > of->verdict : g->m.needed > of->m.needed)
            of = g;
    }
    e->fullest = (int)(of - e->stage);
    e->schedules = of->schedules;
    e->schedules.borrowed = e->borrowed;    /* else the evaluation owns the program that all stages share */
    e->m = of->m;
    e->m.spaces = spaces;
    e->m.elsewhere = elsewhere;
    e->reserved = of->reserved;
}

/* What follows from the schedules of the fullest rank. */
static void describe(const struct plan *p, struct evaluation *e)
{
    const struct peak *at = &e->m.ledger.peak;

    e->allocated_peak = at->bytes + e->m.overhead.by[OVERHEAD_ALLOCATED];
    evaluation_comm_count(&e->schedules, SCHED_STEADY, &e->comm);
    evaluation_op_in_words(&e->schedules, at->op, at->iteration, e->peak_at, sizeof e->peak_at);
    judge(p, e);
}

struct stages {
    const struct plan *p;
    const struct program *g;
    const struct caching_options *conf;
    bool    within;                     /* as a search asks */
    int     n, fullest;                 /* the stage that needs most, which is asked first */
    struct evaluation_stage *stage;
};

/* Has stage i room for what its allocator may keep idle?  Twice what the fullest stage's does, and a quarter of what that one needs: stages
 * between the first and the last run the same kernels, and of thousands of random pipelines none of these kept more
 * (tests/model/test_stage_idle.c). */
static bool has_room_for_idle(const struct stages *all, int64_t i)
{
    const struct memory_verdict *m = &all->stage[i].m;
    const struct evaluation_stage *full = &all->stage[all->fullest];
    int64_t idle = evaluation_taken(&full->m, &full->reserved) - full->m.needed;

    return full->verdict == VERDICT_FITS && full->reserved.known && i > 0 && i < all->n - 1 &&
           m->needed + 2 * idle + full->m.needed / 4 <= m->available;
}

/* A search asks for the verdict and the figures of the fullest stage alone: another one with so much room fits (sim/search/search.h), and none
 * changes that the fullest does not. */
static bool is_decided(const struct stages *all, int64_t i)
{
    const struct memory_verdict *m = &all->stage[i].m;
    const struct evaluation_stage *full = &all->stage[all->fullest];

    if (!all->within || !reserved_is_known(all->p) || i == all->fullest)
        return false;
    return full->verdict == VERDICT_DOES_NOT_FIT || 2 * m->needed <= m->available || has_room_for_idle(all, i);
}

static int replay_stage(const struct stages *all, int64_t i)
{
    struct evaluation_stage *g = &all->stage[i];

    if ((all->within ? reserved_within : reserved_of)(all->p, &g->schedules, &g->m.overhead, all->conf, &g->reserved) < 0)
        return -1;
    g->verdict = reserved_verdict(&g->reserved, g->m.fits);
    return 0;
}

/* All but the fullest. */
static int reserve_stage(void *of, int64_t i)
{
    const struct stages *all = of;
    struct evaluation_stage *g = &all->stage[i];

    if (i == all->fullest)
        return 0;
    if (!is_decided(all, i))
        return replay_stage(all, i);
    g->reserved = (struct reserved){ 0 };
    g->verdict = VERDICT_FITS;
    return 0;
}

static int reserve_stages(const struct plan *p, struct evaluation *e, const struct caching_options *conf, bool within)
{
    struct stages all = { .p = p, .conf = conf, .within = within, .stage = e->stage, .n = e->nstages };

    for (int i = 1; i < e->nstages; i++)
        if (e->stage[i].m.needed > e->stage[all.fullest].m.needed)
            all.fullest = i;
    if (replay_stage(&all, all.fullest) < 0 || parallel_each(e->nstages, 0, reserve_stage, &all) < 0)
        return -1;
    take_fullest(e);
    describe(p, e);
    return 0;
}

static int reserve(const struct plan *p, struct evaluation *e, const struct caching_options *conf, bool within)
{
    if (e->nstages)
        return reserve_stages(p, e, conf, within);
    if ((within ? reserved_within : reserved_of)(p, &e->schedules, &e->m.overhead, conf, &e->reserved) < 0)
        return -1;
    judge(p, e);
    return 0;
}

int evaluation_reserve(const struct plan *p, struct evaluation *e, const struct caching_options *conf) { return reserve(p, e, conf, false); }

int evaluation_reserve_within(const struct plan *p, struct evaluation *e) { return reserve(p, e, NULL, true); }

int evaluate(const struct plan *p, struct evaluation *e)
{
    if (evaluate_allocated(p, e) < 0)
        return -1;
    if (e->m.elsewhere && e->m.spaces.of[SPACE_HOST].used)
        cluster_say_assumed(&p->cluster);
    if (evaluation_reserve(p, e, NULL) == 0)
        return 0;
    evaluation_free(e);
    return -1;
}

int evaluate_within(const struct plan *p, struct evaluation *e)
{
    if (evaluate_allocated(p, e) < 0)
        return -1;
    if (e->m.elsewhere && e->m.spaces.of[SPACE_HOST].used)
        cluster_say_assumed(&p->cluster);
    if (evaluation_reserve_within(p, e) == 0 && (e->m.fits || evaluation_reserve(p, e, NULL) == 0))
        return 0;
    evaluation_free(e);
    return -1;
}

static int allocate_stage(void *of, int64_t i)
{
    const struct stages *all = of;
    struct evaluation_stage *g = &all->stage[i];
    int rc = evaluate_stage(all->p, all->g, (int)i, &g->schedules, &g->m);

    schedules_trim(&g->schedules);          /* all stages' are kept */
    g->verdict = g->m.fits ? VERDICT_FITS : VERDICT_DOES_NOT_FIT;
    return rc;
}

/* Every stage of a pipeline: each keeps its schedules. */
static int evaluate_stages(const struct plan *p, const struct program *g, int n, struct evaluation *e)
{
    struct schedules scratch = { 0 };

    e->nstages = n;
    e->stage = room_new((size_t)n, sizeof *e->stage);
    int rc = parallel_each(n, 0, allocate_stage, &(struct stages){ .p = p, .g = g, .stage = e->stage });
    for (int i = 0; i < n; i++)
        e->m.elsewhere |= e->stage[i].m.elsewhere;
    if (rc == 0)
        take_fullest(e);
    if (rc == 0 && e->m.elsewhere)
        rc = evaluate_elsewhere(p, g, n, &scratch, &e->m);
    scratch.borrowed = true;
    schedules_free(&scratch);
    return rc;
}

int evaluate_using(const struct plan *p, const struct program *g, struct evaluation *e)
{
    int n = stages_of(p);

    memset(e, 0, offsetof(struct evaluation, comm));    /* the table is long, and its length says what is in use */
    e->comm.n = 0;
    e->comm.sent_bytes = 0;
    e->borrowed = true;
    if (n < 0)
        return -1;
    if ((n > 1 ? evaluate_stages(p, g, n, e) : evaluate_memory(p, g, &e->schedules, &e->m)) < 0) {
        e->schedules.borrowed = true;
        evaluation_free(e);
        return -1;
    }
    describe(p, e);
    return 0;
}

int evaluate_allocated(const struct plan *p, struct evaluation *e)
{
    struct program g = { 0 };

    if (program_build(p, &g) < 0)
        return -1;
    if (evaluate_using(p, &g, e) < 0) {
        program_free(&g);
        return -1;
    }
    e->borrowed = e->schedules.borrowed = false;        /* from now on they own the program */
    return 0;
}

void evaluation_free(struct evaluation *e)
{
    for (int i = 0; i < e->nstages; i++)
        if (i != e->fullest || !e->schedules.ops)       /* the fullest one's are the evaluation's */
            schedules_free(&e->stage[i].schedules);
    free(e->stage);
    schedules_free(&e->schedules);
}

int evaluation_roles(const struct evaluation *e, const struct schedules *of[EVALUATION_STAGES])
{
    for (int i = 0; i < e->nstages; i++)
        of[i] = &e->stage[i].schedules;
    if (e->nstages)
        return e->nstages;
    of[0] = &e->schedules;
    return 1;
}

/* ---- JSON ---- */

json_t *evaluation_model_json(const struct model *m)
{
    json_t *j = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "name", m->name,
                     "family", m->family, "params", (json_int_t)m->params,
                     "layers", (json_int_t)m->layers, "hidden", (json_int_t)m->hidden,
                     "heads", (json_int_t)m->heads, "kv_heads", (json_int_t)m->kv_heads,
                     "ffn", (json_int_t)m->ffn, "vocab", (json_int_t)m->vocab, "tied", m->tied);

    if (m->trainable < m->params)
        json_object_set_new(j, "trainable_params", json_integer(m->trainable));
    if (m->experts) {
        json_object_set_new(j, "active_params", json_integer(m->active));
        json_object_set_new(j, "routing", json_string(experts_routing(m)));
    }
    return j;
}

json_t *evaluation_cluster_json(const struct cluster *c)
{
    json_t *j = json_pack("{s:I, s:I, s:I, s:s, s:I}", "world_size", (json_int_t)c->world_size,
                          "nodes", (json_int_t)c->nodes, "gpus_per_node", (json_int_t)c->gpus_per_node,
                          "gpu", c->gpu.name, "memory_bytes", (json_int_t)c->memory);

    if (cluster_assumed_memory(c))
        json_object_set_new(j, "assumed_host_memory_bytes", json_integer(cluster_assumed_memory(c)));
    return j;
}

static json_t *comm_json(const struct schedules *s, const struct comm_table *t)
{
    json_t *ops = json_array();

    for (int i = 0; i < t->n; i++)
        json_array_append_new(ops, json_pack("{s:s, s:s, s:s, s:I, s:I}",
            "op", coll_name(t->line[i].op), "group", s->groups.group[t->line[i].group].name,
            "dtype", dtype_name(t->line[i].dtype), "count", (json_int_t)t->line[i].count,
            "bytes", (json_int_t)t->line[i].bytes));
    return json_pack("{s:I, s:o}", "sent_bytes_per_rank", (json_int_t)t->sent_bytes, "ops", ops);
}

/* One rank of each kind, as the fullest one's allocated peak counts it. */
static json_t *kinds_json(const struct evaluation *e)
{
    const struct memory_verdict *m = &e->m;
    int64_t extra = e->allocated_peak - m->ledger.peak.bytes;
    json_t *kinds = json_array();

    for (int i = 0; i < m->nkinds; i++)
        json_array_append_new(kinds, json_pack("{s:I, s:I}", "rank", (json_int_t)m->kind[i].rank,
                                               "allocated_peak_bytes", (json_int_t)(m->kind[i].peak + extra)));
    return kinds;
}

/* One rank of each stage, as its own allocator counts it. */
static json_t *roles_json(const struct evaluation *e)
{
    json_t *roles = json_array();

    for (int i = 0; i < e->nstages; i++) {
        const struct evaluation_stage *of = &e->stage[i];
        json_array_append_new(roles, json_pack("{s:i, s:I, s:n, s:I, s:o, s:s}",
            "stage", i, "rank", (json_int_t)of->m.rank, "peak_bytes",
            "allocated_peak_bytes", (json_int_t)(of->m.ledger.peak.bytes + of->m.overhead.by[OVERHEAD_ALLOCATED]),
            "reserved_peak_bytes", of->reserved.known ? json_integer(of->reserved.reserved_peak) : json_null(),
            "verdict", verdict_name(of->verdict)));
    }
    return roles;
}

static json_t *memory_json(const struct evaluation *e)
{
    const struct ledger *l = &e->m.ledger;
    const int64_t *by = l->peak.by;
    int64_t extra = e->m.needed - l->peak.bytes;
    json_t *cats = json_object(), *doc;

    for (int c = 0; c < NCAT; c++)
        json_object_set_new(cats, category_name((enum category)c), json_integer(by[c]));
    doc = json_pack("{s:n, s:I, s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}",
        "peak_bytes", "allocated_peak_bytes", (json_int_t)e->allocated_peak,
        "available_bytes", (json_int_t)e->m.available, "rank", (json_int_t)e->m.rank,
        "phase", sched_name(l->peak.sched), "peak_at", e->peak_at,
        "params_bytes", (json_int_t)l->most[CAT_PARAMS], "grads_bytes", (json_int_t)l->most[CAT_GRADS],
        "optimizer_bytes", (json_int_t)l->most[CAT_OPTIMIZER],
        "activations_bytes", (json_int_t)by[CAT_ACTIVATIONS],
        "temporaries_bytes", (json_int_t)by[CAT_TEMPORARIES],
        "buffers_bytes", (json_int_t)(by[CAT_UNSHARDED] + by[CAT_UNSHARDED_GRADS] + by[CAT_ALL_GATHER] +
                                      by[CAT_REDUCE_SCATTER] + by[CAT_BUCKET]),
        "overhead_bytes", (json_int_t)(by[CAT_OVERHEAD] + extra),
        "at_peak", cats, "kinds_of_rank", kinds_json(e));
    if (e->nstages)
        json_object_set_new(doc, "roles", roles_json(e));
    reserved_into(doc, &e->reserved);
    json_object_set_new(doc, "taken_bytes", json_integer(evaluation_taken(&e->m, &e->reserved)));
    json_object_set_new(doc, "verdict", json_string(verdict_name(e->verdict)));
    if (e->m.elsewhere)
        json_object_set_new(doc, "spaces", spaces_json(&e->m.spaces, e->m.needed, e->m.available));
    return doc;
}

static json_t *first_over_json(const struct evaluation *e)
{
    const char *what;
    int64_t bytes;

    if (e->m.fits || e->first_over.op < 0)
        return json_null();
    evaluation_op_largest_new(&e->schedules, e->first_over.op, &what, &bytes);
    return json_pack("{s:s, s:s, s:s, s:I}", "phase", sched_name(e->first_over.sched), "op", e->over_at,
                     "buffer", what, "bytes", (json_int_t)bytes);
}

static json_t *notes_json(const struct schedules *s)
{
    json_t *list = json_array();

    for (int i = 0; i < s->nnotes; i++)
        json_array_append_new(list, json_string(s->notes[i]));
    return list;
}

json_t *evaluation_json(const struct plan *p, const struct evaluation *e)
{
    char label[KNOB_LABEL];

    knob_label(p, label, sizeof label);
    return json_pack("{s:o, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:n}", "plan", plan_to_json(p), "label", label, "fits", e->m.fits,
                     "why_not", e->m.fits ? json_null() : json_string(e->why_not),
                     "first_over", first_over_json(e), "memory", memory_json(e),
                     "comm", comm_json(&e->schedules, &e->comm), "remarks", notes_json(&e->schedules), "time");
}

/* What a block saves of a plan of so many positions without recompute; -1: it is not known. */
static double block_saves(const struct plan *p, int64_t seq)
{
    struct plan q = *p;
    struct program g = { 0 };
    char ignored[512];
    double saved = -1;

    q.seq = seq;
    q.recompute = RECOMPUTE_NONE;
    struct fail_sink before = fail_divert(ignored, sizeof ignored);
    if (program_build(&q, &g) == 0)
        saved = (double)g.piece[PIECE_BLOCK].saved;
    fail_restore(before);
    program_free(&g);
    return saved;
}

/* a S + b S^2 of S, and of 2 S. */
double evaluate_scores(const struct plan *p)
{
    double once = block_saves(p, p->seq), twice = block_saves(p, 2 * p->seq), blocks = p->recompute == RECOMPUTE_NONE ? (double)p->model.layers / (double)p->parallel.pipeline : 1;

    return p->kernels != KERNELS_TORCH_EAGER || once < 0 || twice < 0 ? 0 : blocks * (twice - 2 * once) / 2;
}

/* explain_step.c -- one steady step as pictures need it: its roles, their entries on their streams, memory by category. */
#include "sim/plan/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "sim/plan/memory_time.h"

/* ROWS: of a step with more entries, those that touch are put together.  A role has at most COLUMNS of memory. */
enum { ROWS = 20000, COLUMNS = 512 };

enum kind { KIND_FORWARD, KIND_BACKWARD, KIND_OPTIMIZER, KIND_COLLECTIVE, KIND_MESSAGE, KIND_COPY, KIND_WAIT, NKIND };
static const char *const kind_names[NKIND] = { "forward", "backward", "optimizer", "collective", "message", "copy", "wait" };

static enum kind kind_of(const struct op *o)
{
    switch ((enum op_kind)o->kind) {
    case OP_COMPUTE:   return o->u.compute.pass == PASS_FORWARD ? KIND_FORWARD : KIND_BACKWARD;
    case OP_OPTIMIZER: return KIND_OPTIMIZER;
    case OP_COLL:      return o->u.coll.op == COLL_SEND || o->u.coll.op == COLL_RECV ? KIND_MESSAGE : KIND_COLLECTIVE;
    case OP_COPY:      return KIND_COPY;
    default:           return KIND_WAIT;
    }
}

/* Texts, each once; their numbers. */
struct texts { json_t *list, *number; };

static json_int_t number_of(struct texts *t, const char *text)
{
    json_t *n = json_object_get(t->number, text);

    if (!n) {
        n = json_integer((json_int_t)json_array_size(t->list));
        json_object_set_new(t->number, text, n);
        json_array_append_new(t->list, json_string(text));
    }
    return json_integer_value(n);
}

static json_int_t words_of(struct texts *t, const struct schedules *s, int op, int64_t iteration)
{
    char words[96];

    evaluation_op_in_words(s, op, iteration, words, sizeof words);
    return number_of(t, words);
}

static json_int_t ns(double s) { return (json_int_t)(1e9 * s + 0.5); }

/* The row under way on a stream. */
struct row { double start, end; json_int_t words; enum kind kind; bool open; };

static void put_row(json_t *entries, enum stream st, struct row *r)
{
    if (r->open)
        json_array_append_new(entries, json_pack("[i, I, I, I, i]", (int)st, ns(r->start), ns(r->end), r->words, (int)r->kind));
    r->open = false;
}

static json_t *entries_json(const struct schedules *s, const struct run *r, double near_s, struct texts *words)
{
    struct row row[NSTREAM] = { 0 };
    json_t *entries = json_array();

    for (int64_t i = 0; i < r->n; i++) {
        const struct ran *ran = &r->ran[i];
        const struct op *o = &s->ops[ran->op];
        struct row *at = &row[o->stream];
        if (ran->end <= ran->start)
            continue;
        if (at->open && at->kind == kind_of(o) && ran->start >= at->start && ran->start - at->end < near_s) {
            at->end = ran->end > at->end ? ran->end : at->end;
            continue;
        }
        put_row(entries, (enum stream)o->stream, at);
        *at = (struct row){ ran->start, ran->end, words_of(words, s, ran->op, ran->iteration), kind_of(o), true };
    }
    for (int st = 0; st < NSTREAM; st++)
        put_row(entries, (enum stream)st, &row[st]);
    return entries;
}

static json_t *by_json(const int64_t by[NCAT])
{
    json_t *bytes = json_array();

    for (int c = 0; c < NCAT; c++)
        json_array_append_new(bytes, json_integer(by[c]));
    return bytes;
}

static json_t *memory_json(const struct schedules *s, const struct run *r, struct texts *words)
{
    json_t *t = json_array(), *at = json_array(), *bytes = json_array();
    struct memory_time m;

    memory_time(s, r, COLUMNS, &m);
    for (int64_t i = 0; i < m.n; i++) {
        json_array_append_new(t, json_integer(ns(m.t[i])));
        json_array_append_new(at, json_integer(words_of(words, s, m.at[i].op, m.at[i].iteration)));
        json_array_append_new(bytes, by_json(m.by[i]));
    }
    memory_time_free(&m);
    return json_pack("{s:o, s:o, s:o}", "t_ns", t, "words", at, "bytes", bytes);
}

static json_t *names_json(const char *(*name)(int i), int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_string(name(i)));
    return list;
}
static const char *category_of(int c) { return category_name((enum category)c); }
static const char *stream_of(int st) { return stream_name((enum stream)st); }
static const char *kind_name(int k) { return kind_names[k]; }

static json_t *peak_json(const struct schedules *s)
{
    struct ledger l;
    char where[96];

    ledger_run(s, &l);
    evaluation_op_in_words(s, l.peak.op, l.peak.iteration, where, sizeof where);
    return json_pack("{s:s, s:s, s:I, s:o}", "step", sched_name(l.peak.sched), "at", where, "bytes", (json_int_t)l.peak.bytes, "live",
                     explain_live_json(s, &l.peak));
}

static json_t *role_json(const struct trace_role *role, double near_s)
{
    struct texts words = { json_array(), json_object() };
    json_t *entries = entries_json(role->s, role->r, near_s, &words), *memory = memory_json(role->s, role->r, &words);
    json_t *doc = json_pack("{s:s?, s:I, s:f, s:o, s:o, s:o, s:o, s:o}", "name", role->name, "rank", (json_int_t)role->s->rank, "step_s",
                            role->r->total.step_s, "streams", names_json(stream_of, NSTREAM), "words", words.list, "entries", entries,
                            "memory", memory, "peak", peak_json(role->s));

    json_decref(words.number);
    return doc;
}

struct trace_role *explain_roles(const struct evaluation *e, const struct run *runs)
{
    enum { NAME = 24 };
    const struct schedules *of[EVALUATION_STAGES];
    int n = evaluation_roles(e, of);
    struct trace_role *roles = room_new((size_t)n, sizeof *roles + NAME);
    char *name = (char *)(roles + n);           /* behind the roles, one after the other */

    for (int i = 0; i < n; i++, name += NAME) {
        const struct memory_verdict *m = e->nstages ? &e->stage[i].m : &e->m;
        snprintf(name, NAME, "stage %d", i);
        roles[i] = (struct trace_role){ of[i], &runs[i], 0, e->nstages ? name : NULL };
        for (int c = 0; c < NCAT; c++)
            roles[i].before += m->ledger.persistent[c];
        if (runs[i].n == 0) {
            free(roles);
            return NULL;
        }
    }
    return roles;
}

static json_t *roles_json(const struct evaluation *e, int n, const struct run *runs)
{
    struct trace_role *role = explain_roles(e, runs);
    int64_t entries = 0;

    if (!role)
        return json_null();
    for (int i = 0; i < n; i++)
        entries += runs[i].n;
    double near_s = entries > ROWS ? runs[0].total.step_s * n / ROWS : 0;
    json_t *roles = json_array(), *doc;
    for (int i = 0; i < n; i++)
        json_array_append_new(roles, role_json(&role[i], near_s));
    doc = json_pack("{s:f, s:o, s:o, s:o}", "resolution_s", near_s, "categories", names_json(category_of, NCAT), "kinds",
                    names_json(kind_name, NKIND), "roles", roles);
    free(role);
    return doc;
}

/* The step with another rank in its stage's place: it may have entries of its own, so all stages run anew. */
static json_t *step_of_rank(const struct explained *p, const struct schedules *of)
{
    struct evaluation e = p->e;
    int n = explain_runs(p);
    struct evaluation_stage *stage = room_new((size_t)n, sizeof *stage);
    struct run *runs = room_new((size_t)n, sizeof *runs);
    struct mesh m = plan_mesh(&p->plan);
    struct timing t;
    json_t *doc = NULL;

    if (e.nstages) {
        memcpy(stage, e.stage, (size_t)n * sizeof *stage);
        e.stage = stage;
        int64_t place = mesh_digit(&m, of->rank, AXIS_PIPE);
        stage[place].schedules = *of;
        if (place == e.fullest)
            e.schedules = *of;
    } else
        e.schedules = *of;
    if (simulate_stages(&p->plan, &e, &t, runs) == 0)
        doc = roles_json(&e, n, runs);
    for (int i = 0; i < n; i++)
        run_free(&runs[i]);
    free(runs);
    free(stage);
    return doc;
}

json_t *explain_step_json(const struct explained *p, const struct run *runs, const struct schedules *of)
{
    bool other = of && of != &p->e.schedules;

    return other ? step_of_rank(p, of) : roles_json(&p->e, explain_runs(p), runs);
}

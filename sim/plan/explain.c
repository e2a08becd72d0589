/* explain.c -- the schedule, the curve of memory and what is live at the peak, for the three answers. */
#include "sim/plan/explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/meaning.h"
#include "base/fail.h"
#include "base/room.h"
#include "base/sort.h"
#include "model/lower/lower.h"
#include "sim/plan/commands.h"
#include "sim/plan/plan_words.h"
#include "sim/search/advice.h"

static bool has_oom(const struct explain_args *a) { return a->oom.path || a->oom.text || a->oom.doc; }
static bool has_other(const struct explain_args *a) { return a->other.path || a->other.doc; }

int explain_check(const struct explain_args *a)
{
    if (has_oom(a) && has_other(a))
        return fail("explain: --oom goes with one plan");
    if (a->detail && (has_oom(a) || has_other(a)))
        return fail("explain: --detail goes with one plan");
    if (a->oom.text && (a->oom.path || a->oom.doc))
        return fail("explain: give one of --oom and --oom-text");
    if (a->schedule && has_oom(a))
        return fail("explain: give one of --schedule and --oom");
    if (a->rank >= 0 && a->stage >= 0)
        return fail("explain: give one of --rank and --stage");
    if (a->rank >= 0 && ((!a->schedule && !a->detail && !a->snapshot) || has_other(a)))
        return fail("explain: --rank goes with --schedule, --detail or --snapshot of one plan");
    if (a->stage >= 0 && ((!a->schedule && !a->snapshot) || has_other(a)))
        return fail("explain: --stage goes with --schedule or --snapshot of one plan");
    return 0;
}

int explain_load(const struct plan_given *given, const struct opt_pairs *set, struct explained *p)
{
    if (plan_source_given(given, set, &p->plan) < 0)
        return -1;
    if (evaluate(&p->plan, &p->e) < 0) {
        plan_free(&p->plan);
        return -1;
    }
    return 0;
}

int explain_check_place(const struct explained *p, const struct explain_args *a)
{
    struct mesh m = plan_mesh(&p->plan);

    if (a->rank >= p->plan.cluster.world_size)
        return fail("explain: --rank %" PRId64 ": the plan has ranks 0 to %" PRId64, a->rank, p->plan.cluster.world_size - 1);
    if (a->stage >= m.size[AXIS_PIPE])
        return fail("explain: --stage %" PRId64 ": the plan has %" PRId64 " stage%s", a->stage, m.size[AXIS_PIPE],
                    m.size[AXIS_PIPE] == 1 ? ", no pipeline" : "s");
    return 0;
}

int explain_runs(const struct explained *p) { return p->e.nstages ? p->e.nstages : 1; }

int explain_time(struct explained *p, const char *db, struct run *runs)
{
    if (measured_load(db, p->plan.precision, p->plan.kernels, &p->plan.cluster) < 0)
        return measured_status();
    int rc = runs ? simulate_stages(&p->plan, &p->e, &p->t, runs) : simulate_plan(&p->plan, &p->e, &p->t, NULL);
    return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
}

int explain_load_two(const struct explain_args *a, struct explained *p, struct explained *q)
{
    if (explain_load(&a->plan, &a->set, p) < 0)
        return EXIT_MISUSE;
    if (explain_load(&a->other, &a->set, q) < 0) {
        explain_unload(p);
        return EXIT_MISUSE;
    }
    int rc = explain_time(p, a->db, NULL);
    if (rc == EXIT_DONE)
        rc = explain_time(q, a->db, NULL);
    if (rc != EXIT_DONE) {
        explain_unload(p);
        explain_unload(q);
    }
    return rc;
}

const struct schedules *explain_schedules(const struct explained *p, const struct explain_args *a, struct schedules *other)
{
    struct mesh m = plan_mesh(&p->plan);
    struct mesh_group pipe = mesh_group(&m, MESH_AXIS(AXIS_PIPE));
    int64_t rank = a->rank >= 0 ? a->rank : a->stage >= 0 ? mesh_member(&pipe, p->e.m.rank, a->stage) : p->e.m.rank;

    *other = (struct schedules){ 0 };
    if (rank == p->e.m.rank)
        return &p->e.schedules;
    return lower(&p->plan, rank, other) < 0 ? NULL : other;
}

void explain_unload(struct explained *p)
{
    evaluation_free(&p->e);
    measured_unload(&p->plan.cluster);
    plan_free(&p->plan);
}

/* ---- one plan as a document ---- */

static int by_bytes(const void *a, const void *b)
{
    int64_t x = ((const struct explain_live *)a)->bytes, y = ((const struct explain_live *)b)->bytes;

    return (x < y) - (x > y);
}

int explain_live(const struct schedules *s, const struct peak *at, struct explain_live *out, int most)
{
    struct live *family = room_new((size_t)s->nbufs + 1, sizeof *family);
    struct explain_live *all = room_new((size_t)s->nbufs + NCAT, sizeof *all);
    int64_t own[NCAT];
    int nfamilies = ledger_live(s, at, family, s->nbufs), n = 0;

    memcpy(own, at->by, sizeof own);
    for (int i = 0; i < nfamilies; i++) {
        const struct buf *b = &s->bufs[family[i].buf];
        if (!at->by[b->category])
            continue;       /* the entry's results, which it does not hold yet at its fullest moment */
        all[n++] = (struct explain_live){ b->what, b->of, b->category, family[i].instances, b->bytes, family[i].bytes };
        own[b->category] -= family[i].bytes;
    }
    for (int c = 0; c < NCAT; c++)
        if (own[c] > 0)
            all[n++] = (struct explain_live){ "what the entry itself works with", NULL, (enum category)c, 1, own[c], own[c] };
    sort_stable(all, (size_t)n, sizeof *all, by_bytes);
    n = n < most ? n : most;
    memcpy(out, all, (size_t)n * sizeof *out);
    free(all);
    free(family);
    return n;
}

json_t *explain_live_json(const struct schedules *s, const struct peak *at)
{
    enum { MOST = 64 };
    struct explain_live live[MOST];
    json_t *list = json_array();

    for (int i = 0, n = explain_live(s, at, live, MOST); i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s?, s:s, s:I, s:I, s:I}", "what", live[i].what, "of", live[i].of, "category",
                                              category_name(live[i].category), "count", (json_int_t)live[i].count, "each_bytes",
                                              (json_int_t)live[i].each, "bytes", (json_int_t)live[i].bytes));
    return list;
}

/* {"space", "step", "at", "bytes", "live"} of device memory and of each other memory that the plan uses. */
static json_t *peaks_json(const struct evaluation *e)
{
    const struct schedules *s = &e->schedules;
    json_t *list = json_array();
    struct ledger l;
    char where[96];

    json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:o}", "space", space_name(SPACE_DEVICE), "step",
                                          sched_name(e->m.ledger.peak.sched), "at", e->peak_at, "bytes",
                                          (json_int_t)e->m.ledger.peak.bytes, "live", explain_live_json(s, &e->m.ledger.peak)));
    for (enum space in = SPACE_PINNED; in < NSPACE; in++) {
        if (!(s->spaces & IN(in)))
            continue;
        ledger_run_in(s, IN(in), &l);
        evaluation_op_in_words(s, l.peak.op, l.peak.iteration, where, sizeof where);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:o}", "space", space_name(in), "step",
                                              sched_name(l.peak.sched), "at", where, "bytes", (json_int_t)l.peak.bytes,
                                              "live", explain_live_json(s, &l.peak)));
    }
    return list;
}

/* Live bytes over the entries of one steady step, in the order of issue; of many entries the largest of several. */
static json_t *curve_json(const struct schedules *s)
{
    enum { ENTRIES = 65536, MOST = 512 };
    struct point *p = room_new(ENTRIES, sizeof *p);
    int64_t n = ledger_curve(s, SCHED_STEADY, p, ENTRIES), columns = n < MOST ? n : MOST;
    json_t *list = json_array();

    for (int64_t c = 0; c < columns; c++) {
        int64_t most = 0;
        for (int64_t i = n * c / columns; i < n * (c + 1) / columns; i++)
            most = p[i].peak > most ? p[i].peak : most;
        json_array_append_new(list, json_integer(most));
    }
    free(p);
    return list;
}

/* {"init": [lines], "first": ..., "steady": ...} as --schedule prints them. */
static json_t *schedules_json(const struct schedules *s)
{
    json_t *doc = json_object();

    for (int turn = 0; turn < NSCHED; turn++) {
        enum sched_id id = sched_in_turn(turn);
        if (!sched_has(s, id))
            continue;
        char *text = NULL, *rest;
        size_t size;
        FILE *f = open_memstream(&text, &size);
        json_t *lines = json_array();
        if (!f)
            abort();
        sched_print(s, id, f);
        fclose(f);
        for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
            json_array_append_new(lines, json_string(line));
        free(text);
        json_object_set_new(doc, sched_name(id), lines);
    }
    return doc;
}

/* {"category": {"params": 0, ...}, "op", "work", "phase"}: numbers of the palette of all figures. */
static json_t *colours_json(void)
{
    json_t *all = json_object();

    for (enum meaning of = 0; of < NMEANING; of++) {
        json_t *names = json_object();
        const char *name;
        int colour;
        for (int i = 0; (name = meaning_at(of, i, &colour)); i++)
            json_object_set_new(names, name, json_integer(colour));
        json_object_set_new(all, meaning_name(of), names);
    }
    return all;
}

/* `step` (may be NULL) becomes part of it. */
static json_t *plan_json(const struct explained *p, const struct explain_args *a, const struct schedules *which, json_t *step)
{
    json_t *doc = evaluation_json(&p->plan, &p->e);
    char words[PLAN_WORDS];

    plan_words(&p->plan, words, sizeof words);
    json_object_set_new(doc, "words", json_string(words));
    simulate_timing_into(doc, &p->plan, &p->e, &p->t);
    json_object_set_new(doc, "dpx", json_integer(1));
    json_object_set_new(doc, "peaks", peaks_json(&p->e));
    json_object_set_new(doc, "memory_curve_bytes", curve_json(&p->e.schedules));
    json_object_set_new(doc, "advice", advice_json(&p->plan, &p->e, a->detail));
    if (step) {
        json_object_set_new(doc, "step", step);
        json_object_set_new(doc, "colours", colours_json());
    }
    if (which)
        json_object_set_new(doc, "schedule", schedules_json(which));
    return doc;
}

static int one_json(const struct explain_args *a, json_t **doc)
{
    const struct schedules *which = NULL;
    struct schedules other = { 0 };
    json_t *step = NULL;
    struct explained p;

    if (explain_load(&a->plan, &a->set, &p) < 0)
        return EXIT_MISUSE;
    struct run *runs = a->detail ? room_new((size_t)explain_runs(&p), sizeof *runs) : NULL;
    int rc = explain_check_place(&p, a) < 0 ? EXIT_MISUSE : explain_time(&p, a->db, runs);
    if (rc == EXIT_DONE && (a->schedule || a->rank >= 0) && !(which = explain_schedules(&p, a, &other)))
        rc = EXIT_MISUSE;
    if (rc == EXIT_DONE && runs && !(step = explain_step_json(&p, runs, which)))
        rc = EXIT_MISUSE;
    if (rc == EXIT_DONE) {
        *doc = plan_json(&p, a, a->schedule ? which : NULL, step);
        rc = p.e.m.fits ? EXIT_DONE : EXIT_NO;
    }
    for (int i = 0; runs && i < explain_runs(&p); i++)
        run_free(&runs[i]);
    free(runs);
    schedules_free(&other);
    explain_unload(&p);
    return rc;
}

/* ---- the others ---- */

static int two_json(const struct explain_args *a, json_t **doc)
{
    struct explained p, q;
    int rc = explain_load_two(a, &p, &q);

    if (rc != EXIT_DONE)
        return rc;
    *doc = explain_two_json(&p, &q, a->schedule);
    explain_unload(&p);
    explain_unload(&q);
    return rc;
}

static json_t *bytes_or_null(int64_t n) { return n >= 0 ? json_integer(n) : json_null(); }

static json_t *message_json(const struct oom_message *m)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tried_bytes", bytes_or_null(m->tried), "total_bytes",
                     bytes_or_null(m->total), "free_bytes", bytes_or_null(m->free), "allowed_bytes", bytes_or_null(m->allowed),
                     "process_bytes", bytes_or_null(m->process), "others_bytes", bytes_or_null(m->others), "allocated_bytes",
                     bytes_or_null(m->allocated), "reserved_bytes", bytes_or_null(m->reserved));
}

/* The figures of the message, the plan's, and in sentences what it was and what would fit. */
static int oom_json(const struct explain_args *a, json_t **doc)
{
    struct oom_message m;
    struct explained p;
    char *text = NULL;
    size_t size;

    if (oom_message_given(&a->oom, &m) < 0 || explain_load(&a->plan, &a->set, &p) < 0)
        return EXIT_MISUSE;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        abort();
    explain_oom(&p, &m, f);
    fclose(f);
    *doc = evaluation_json(&p.plan, &p.e);
    json_object_set_new(*doc, "dpx", json_integer(1));
    json_object_set_new(*doc, "message", message_json(&m));
    json_object_set_new(*doc, "text", json_string(text));
    free(text);
    explain_unload(&p);
    return EXIT_DONE;
}

int explain_json(const struct explain_args *a, json_t **doc)
{
    if (explain_check(a) < 0)
        return EXIT_MISUSE;
    return has_oom(a) ? oom_json(a, doc) : has_other(a) ? two_json(a, doc) : one_json(a, doc);
}

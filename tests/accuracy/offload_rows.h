/* offload_rows.h -- published runs with offload, and steps of AdamW on hosts, against what dpx predicts; and other published steps.
 *
 * tests/accuracy/offload.jsonl, steps.jsonl, tuned_steps.jsonl (fine-tuning): one JSON object a line with `what`, `step_s` as published, `source`, `note`, and either
 * `plan`, or `cluster`, `elements` of one rank and `bytes` of traffic an element.  tests/gpu/h200/steps.jsonl: what torch_steps.py recorded; rows without a
 * time, which are of ranks beside a fake process group, are passed over.  Shared by accuracy_offload.c, which
 * prints, and tests/sim/test_offload_published.c, which asserts. */
#ifndef DPX_OFFLOAD_ROWS_H
#define DPX_OFFLOAD_ROWS_H

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/price/space_cost.h"

#define OFFLOAD_ROWS "tests/accuracy/offload.jsonl"
#define STEPS_ROWS   "tests/accuracy/steps.jsonl"
#define TUNED_ROWS   "tests/accuracy/tuned_steps.jsonl"
#define H100_ROWS    "tests/gpu/h100/steps.jsonl"
#define H200_ROWS    "tests/gpu/h200/steps.jsonl"
/* What the latter's host takes to issue a kernel: tests/gpu/h200/issue.txt.  The other's was not measured. */
#define H200_ISSUE_S 16.78e-6

struct offload_row {
    const char *what, *source, *note;   /* of the document */
    double published, kernels, step_s, low_s, high_s;      /* kernels: seconds that the GPU computed of it, 0: not known */
    double away_s[NAWAY];
    bool   plan, fits;
    int64_t device, host;               /* bytes of a rank, of a node */
};

static inline int offload_adamw(const json_t *j, struct offload_row *r)
{
    struct schedules s = { 0 };
    struct plan p = { 0 };
    struct cost c;

    if (cluster_from_json(json_object_get(j, "cluster"), r->what, &p.cluster) < 0)
        return -1;
    sched_begin(&s, SCHED_STEADY);
    struct op *o = sched_op(&s, OP_OPTIMIZER, STREAM_HOST, PHASE_OPTIMIZER, "AdamW");
    o->u.optimizer.elems = json_integer_value(json_object_get(j, "elements"));
    o->u.optimizer.bytes = (uint8_t)json_integer_value(json_object_get(j, "bytes"));
    sched_end(&s, SCHED_STEADY);
    int rc = space_cost(&p, &s, o, &c) ? 0 : -1;
    r->step_s = c.s;
    r->low_s = c.low_s;
    r->high_s = c.high_s;
    schedules_free(&s);
    return rc;
}

static inline int offload_plan(const json_t *j, struct offload_row *r)
{
    struct evaluation e;
    struct timing t;
    struct plan p;
    int rc = -1;

    if (plan_from_json(json_object_get(j, "plan"), r->what, &p) < 0)
        return -1;
    if (json_object_get(j, "gpu") && !strcmp(json_string_value(json_object_get(j, "gpu")), "NVIDIA H200"))
        p.cluster.node.issue = H200_ISSUE_S;
    if (evaluate(&p, &e) == 0) {
        rc = simulate_plan(&p, &e, &t, NULL);
        r->plan = true;
        r->fits = e.m.fits;
        r->device = e.m.needed;
        r->host = e.m.spaces.of[SPACE_HOST].peak;
        r->step_s = t.line.step_s;
        r->low_s = t.low_s;
        r->high_s = t.high_s;
        memcpy(r->away_s, t.line.away_s, sizeof r->away_s);
        evaluation_free(&e);
    }
    plan_free(&p);
    return rc;
}

/* Adapters beside 16 bits that the recorder ran without autocast, under which they are planned: the H200's. */
static inline bool offload_without_autocast(const json_t *j)
{
    const json_t *train = json_object_get(json_object_get(j, "plan"), "train");

    return json_is_string(train) && !json_is_true(json_object_get(j, "autocast"));
}

/* Calls take() for every row of a file, predicted.  How many, or -1 with the reason reported. */
static inline int offload_each_row(const char *path, void (*take)(const struct offload_row *r, void *arg), void *arg)
{
    char line[8192];
    FILE *in = fopen(path, "r");
    int n = 0;

    if (!in)
        return fail("%s: cannot be read; run from the top of the source tree", path);
    while (n >= 0 && fgets(line, sizeof line, in)) {
        json_error_t why;
        json_t *j = json_loads(line, 0, &why);
        struct offload_row r = { .what = json_string_value(json_object_get(j, "what")),
                                 .source = json_string_value(json_object_get(j, "source")),
                                 .note = json_string_value(json_object_get(j, "note")),
                                 .published = json_number_value(json_object_get(j, "step_s")) };
        bool recorded = json_object_get(j, "gpu") != NULL;
        r.kernels = json_number_value(json_object_get(j, "kernels_s"));
        if (recorded && (!(r.published > 0) || offload_without_autocast(j))) {
            json_decref(j);
            continue;
        }
        if (!j || !r.what || (!recorded && (!r.source || !r.note)))
            n = fail("%s:%d: no row", path, n + 1);
        else if ((json_object_get(j, "plan") ? offload_plan : offload_adamw)(j, &r) < 0)
            n = -1;
        else {
            take(&r, arg);
            n++;
        }
        json_decref(j);
    }
    fclose(in);
    return n;
}

#endif

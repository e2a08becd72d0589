/* memory_rows.h -- published peaks of memory against what dpx predicts, meter by meter.
 *
 *     memory_each_row(take, &mine);
 *
 * Rows of torchtitan.csv that state memory (public_rows.c says how a row becomes a plan) and of memory.jsonl: one JSON object
 * a line with `what`, `source` and either `left_out`, the reason, or `plan` and published peaks in bytes: `allocated`
 * (max_memory_allocated), `active`, `reserved` (max_memory_reserved), `driver` (nvidia-smi).  `beside` is bytes that the
 * run kept and no plan says, for the reason in `note`; they are in ours.  `emptied`: the script gave the cache back when the
 * model was made, before its first step.  Reasons are stated before anything is compared.
 * Shared by accuracy_memory.c, which prints, and tests/sim/test_memory_published.c, which asserts. */
#ifndef DPX_MEMORY_ROWS_H
#define DPX_MEMORY_ROWS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "tests/accuracy/public_rows.h"

#define MEMORY_ROWS "tests/accuracy/memory.jsonl"
/* prime-rl's own benchmarks of its trainers (PrimeIntellect-ai/prime-rl, benchmarks/baselines), one line a run. */
#define PRIMERL_ROWS "tests/accuracy/primerl.jsonl"

enum memory_meter { METER_ALLOCATED, METER_ACTIVE, METER_RESERVED, METER_DRIVER, NMETER };
static const char *const memory_meters[NMETER] = { "allocated", "active", "reserved", "driver" };

struct memory_row {
    char    what[128];
    const char *source, *left_out;      /* left_out: NULL where it is compared; of the document */
    const char *note;                   /* what is known of it that no plan says; NULL: nothing; of the document */
    int64_t beside;                     /* what the trainer keeps beside the plan all the time, in ours */
    bool    emptied;
    double  published[NMETER];          /* bytes; 0: not stated */
    int64_t ours[NMETER];
    enum verdict verdict;
};

/* What is reserved by a script that calls torch.cuda.empty_cache() behind init, on a device with room. */
static inline int64_t memory_reserved_emptied(const struct plan *p, const struct schedules *s)
{
    struct caching_allocator *a = caching_allocator_new((int64_t)1 << 48, NULL);
    struct request_target t = reserved_target(a);
    struct request_options o = reserved_options(p);
    struct request_report report;

    o.emptied = true;
    requests_walk(p, s, o, &t, &report);
    int64_t peak = t.stats->reserved.peak;
    caching_allocator_delete(a);
    return peak;
}

static inline int memory_predict(const struct plan *p, struct memory_row *r)
{
    struct evaluation e;

    if (evaluate(p, &e) < 0)
        return -1;
    if (r->emptied) {
        int64_t reserved = memory_reserved_emptied(p, &e.schedules);
        e.reserved.driver += reserved - e.reserved.reserved_peak;
        e.reserved.reserved_peak = reserved;
    }
    r->ours[METER_ALLOCATED] = r->beside + e.reserved.allocated_peak;
    r->ours[METER_ACTIVE] = r->beside + e.reserved.active_peak;
    r->ours[METER_RESERVED] = r->beside + e.reserved.reserved_peak;
    r->ours[METER_DRIVER] = r->beside + e.reserved.driver;
    r->verdict = e.verdict;
    evaluation_free(&e);
    return 0;
}

/* Why a row of torchtitan's that states memory is not compared; NULL: it is. */
static inline const char *memory_left_out(const struct public_row *r)
{
    if (*r->skipped)
        return r->skipped;
    if (r->tensor > 1 && !r->compiled)
        return "record_stream() by tensor parallelism's collectives: torch of March 2024 alone (sim/notebook.md)";
    return NULL;
}

static inline int memory_titan(void (*take)(const struct memory_row *r, void *arg), void *arg)
{
    struct public_set *set = calloc(1, sizeof *set);
    int n = set ? public_read("tests/accuracy/torchtitan.csv", PUBLIC_TORCHTITAN, set) : -1;

    for (int i = 0; n >= 0 && i < set->n; i++) {
        const struct public_row *of = &set->row[i];
        struct memory_row r = { .source = "torchtitan.csv", .left_out = memory_left_out(of) };
        struct plan p;
        if (!(of->reserved > 0))
            continue;
        r.published[METER_ACTIVE] = of->allocated;
        r.published[METER_RESERVED] = of->reserved;
        snprintf(r.what, sizeof r.what, "%s, %d GPUs, %s, %d x %d%s%s%s%s", of->model, (int)of->gpus, of->fsdp1 ? "FSDP1" : "FSDP2",
                 (int)of->micro_batch, (int)of->seq, of->by_operator ? ", recompute op" : of->recompute ? ", recompute" : "",
                 of->compiled ? ", compiled" : "", of->fused_optimizer ? ", fused AdamW" : "", of->fsdp1 || of->reshard ? "" : ", not freed after forward");
        if (!r.left_out) {
            bool made = public_plan(set, of, &p) == 0;
            r.beside = made ? public_beside(of, &p) : 0;
            if (!made)
                n = -1;
            else if (memory_predict(&p, &r) < 0)
                n = -1;
            if (n < 0)
                break;
            plan_free(&p);
        }
        take(&r, arg);
        n++;
    }
    free(set);
    return n;
}

static inline int memory_line(const json_t *j, struct memory_row *r)
{
    const json_t *plan = json_object_get(j, "plan");
    struct plan p;

    snprintf(r->what, sizeof r->what, "%s", json_string_value(json_object_get(j, "what")) ? json_string_value(json_object_get(j, "what")) : "");
    r->source = json_string_value(json_object_get(j, "source"));
    r->left_out = json_string_value(json_object_get(j, "left_out"));
    r->note = json_string_value(json_object_get(j, "note"));
    r->beside = (int64_t)json_number_value(json_object_get(j, "beside"));
    r->emptied = json_is_true(json_object_get(j, "emptied"));
    for (int m = 0; m < NMETER; m++)
        r->published[m] = json_number_value(json_object_get(j, memory_meters[m]));
    if (!*r->what || !r->source || !plan == !r->left_out)
        return fail("%s: a row needs what, source, and plan or left_out", MEMORY_ROWS);
    if (r->left_out)
        return 0;
    if (plan_from_json(plan, r->what, &p) < 0)
        return -1;
    int rc = memory_predict(&p, r);
    plan_free(&p);
    return rc;
}

/* Calls take() for every row of a file, predicted or left out, behind n of others.  How many, or -1 with the reason reported. */
static inline int memory_each_line(const char *path, int n, void (*take)(const struct memory_row *r, void *arg), void *arg)
{
    char line[4096];
    FILE *in = fopen(path, "r");

    if (!in)
        return fail("%s: cannot be read; run from the top of the source tree", path);

    while (n >= 0 && fgets(line, sizeof line, in)) {
        json_error_t why;
        json_t *j = json_loads(line, 0, &why);
        struct memory_row r = { 0 };
        if (!j || memory_line(j, &r) < 0)
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

static inline int memory_each_row(void (*take)(const struct memory_row *r, void *arg), void *arg)
{
    return memory_each_line(MEMORY_ROWS, memory_titan(take, arg), take, arg);
}

static inline int memory_each_primerl(void (*take)(const struct memory_row *r, void *arg), void *arg)
{
    return memory_each_line(PRIMERL_ROWS, 0, take, arg);
}

/* Errors of one meter, predicted / published - 1. */
struct memory_errors { double e[128]; int n; };

static inline int memory_by_size(const void *a, const void *b)
{
    double x = fabs(*(const double *)a), y = fabs(*(const double *)b);

    return (x > y) - (x < y);
}

static inline void memory_errors_add(struct memory_errors *of, const struct memory_row *r, enum memory_meter m)
{
    if (!r->left_out && r->published[m] > 0 && of->n < 128)
        of->e[of->n++] = (double)r->ours[m] / r->published[m] - 1;
}

/* Sorts; the median of their sizes.  The worst is then the last. */
static inline double memory_errors_median(struct memory_errors *of)
{
    qsort(of->e, (size_t)of->n, sizeof *of->e, memory_by_size);
    return of->n ? (fabs(of->e[(of->n - 1) / 2]) + fabs(of->e[of->n / 2])) / 2 : 0;
}

#endif

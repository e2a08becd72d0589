/* import_kineto.c -- a trace's kernels, matched with its plan, become the samples of a calibration. */
#define _DEFAULT_SOURCE         /* realpath */
#include "calib/import/import_kineto.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/version.h"
#include "calib/import/kineto_match.h"
#include "calib/import/nccl_log.h"
#include "calib/store/belongs.h"
#include "calib/store/fits.h"
#include "calib/store/query.h"
#include "calib/store/words.h"
#include "model/lower/lower.h"

static int open_plan(const char *path, struct plan *p)
{
    if (plan_read(path, p) < 0)
        return -1;
    if (kineto_expect_check(p) == 0)
        return 0;
    plan_free(p);
    return -1;
}

/* "2-5" or "3", of n steps. */
static int parse_steps(const char *words, int n, const char *path, int *first, int *last)
{
    char end;

    *first = 1;
    *last = n;
    if (!words)
        return 0;
    int found = sscanf(words, "%d-%d%c", first, last, &end);
    if (found == 1 && strspn(words, "0123456789") == strlen(words))
        *last = *first;
    else if (found != 2)
        return fail("--steps %s: steps of the trace are written 2-5 or 3, the first is 1", words);
    if (*first < 1 || *last < *first || *last > n)
        return fail("--steps %s: %s has %d step%s, from 1", words, path, n, n == 1 ? "" : "s");
    return 0;
}

/* Is the trace of this plan's GPUs and ranks? */
static int same_machine(const struct plan *p, const struct kineto *k, const char *path)
{
    const char *device = k->info.device[0] ? nccl_device(k->info.device) : NULL;

    if (!k->gpu)
        return fail("%s: no kernels of a GPU in it: a trace calibrates a type of GPU; profile with ProfilerActivity.CUDA", path);
    if (device && strcmp(device, p->cluster.gpu.name) != 0)
        return fail("%s: a trace of \"%s\", and the plan's cluster has %s", path, k->info.device, p->cluster.gpu.name);
    if (k->info.world_size > 0 && k->info.world_size != p->cluster.world_size)
        return fail("%s: a trace of %" PRId64 " ranks, and the plan is for %" PRId64, path, k->info.world_size,
                    p->cluster.world_size);
    if (k->info.rank >= p->cluster.world_size)
        return fail("%s: a trace of rank %" PRId64 ", and the plan has %" PRId64 " ranks", path, k->info.rank, p->cluster.world_size);
    if (k->info.rank < 0 && !plan_is_data_parallel(p))
        return fail("%s: does not say of which rank it is (distributedInfo), and ranks of this plan differ", path);
    return 0;
}

/* As the rank that the trace is of. */
static int match_rank(struct match *m, const struct kineto *k, const char *path, int first, int last)
{
    struct schedules s = { 0 };
    struct expectation x;

    if (lower(m->p, k->info.rank > 0 ? k->info.rank : 0, &s) < 0)
        return -1;
    kineto_expect(m->p, &s, &x);
    int rc = match_trace(m, &x, k, path, first, last);
    kineto_expect_free(&x);
    schedules_free(&s);
    return rc;
}

static int match_file(struct match *m, const struct import_kineto *how, const char *path)
{
    struct kineto k;
    int first, last, rc = -1;

    if (kineto_load(path, &k) < 0)
        return -1;
    if (same_machine(m->p, &k, path) == 0 && parse_steps(how->steps, k.nsteps, path, &first, &last) == 0)
        rc = match_rank(m, &k, path, first, last);
    kineto_free(&k);
    return rc;
}

/* What the calibration belongs to: what was said, else what its plan would use. */
static const char *owner(const struct import_kineto *how, const struct plan *p)
{
    const char *named = p->cluster.calibration;

    return how->cluster ? how->cluster : named[0] && strcmp(named, CLUSTER_UNCALIBRATED) ? named
         : cluster_has_own_name(&p->cluster) ? p->cluster.name : BELONGS_IMPORTED;
}

/* The calibration's number, 0 if it is there; -1 reported. */
static int64_t begin(struct db *db, const struct import_kineto *how, const struct plan *p, const char *path, double *started)
{
    char whole[PATH_MAX], options[128];
    struct stat s;

    *started = stat(path, &s) == 0 ? (double)s.st_mtime : 0;
    snprintf(options, sizeof options, "{\"kernels\": \"%s\", \"steps\": \"%.40s\"}", kernels_name(p->kernels),
             how->steps ? how->steps : "all");
    struct calibration c = { .started = *started, .host = owner(how, p), .device = p->cluster.gpu.name, .cpu = "",
                             .source = "kineto", .ranks = p->cluster.world_size, .options = options,
                             .dpx_version = version_text(), .kernels_version = p->framework_version[0] ? p->framework_version : NULL,
                             .origin = realpath(path, whole) ? whole : path };
    int known = calibration_known(db, &c);
    if (known)
        return known < 0 ? -1 : 0;
    int64_t id = calibration_add(db, &c, c.started);
    return id < 0 ? db_fail(db, "recording %s", path) : id;
}

static int record(struct db *db, int64_t id, struct match *m, double started)
{
    for (int i = 0; i < m->nseries; i++) {
        m->series[i].started = started;
        m->series[i].probe_before_s = m->series[i].probe_after_s = NAN;
    }
    if (series_add(db, id, m->series, m->nseries) < 0 || fits_write(db, id, false) < 0)
        return db_fail(db, "recording what the traces say");
    return 0;
}

/* Where the GPU's time of a step went, of all ranks' steps together. */
static void print_shares(const struct match *m, FILE *to)
{
    enum { PRODUCTS, ATTENTION, REST, OPTIMIZER, COPIES, NSHARES };
    static const char *const names[NSHARES] = { "products", "attention", "other kernels", "the optimizer", "copies" };
    double of[NSHARES] = { 0 }, all = 0;

    for (int i = 0; i < m->n; i++) {
        const struct timed *t = m->timed[i];
        bool kernel = t->of.kind == SERIES_KERNEL;
        if (!kernel && t->of.kind != SERIES_PASS)
            continue;
        int what = !kernel ? (strcmp(t->name, pass_words[MP_ADAMW]) ? COPIES : OPTIMIZER)
                   : t->of.m > 0 ? PRODUCTS : t->of.class == KC_ATTENTION ? ATTENTION : REST;
        for (int64_t c = 0; c < t->ncalls; c++)
            of[what] += t->call[c].s;
    }
    for (int i = 0; i < NSHARES; i++)
        all += of[i];
    fprintf(to, "a step of the GPU, %.4g ms:", 1e3 * all / m->steps);
    for (int i = 0; i < NSHARES; i++)
        fprintf(to, " %s %.1f %%%s", names[i], all > 0 ? 100 * of[i] / all : 0, i + 1 < NSHARES ? "," : "\n");
}

static void print_taken(const struct match *m, const struct plan *p, FILE *to)
{
    int kernels = 0, passes = 0, colls = 0;

    for (int i = 0; i < m->n; i++) {
        kernels += m->timed[i]->of.kind == SERIES_KERNEL;
        passes += m->timed[i]->of.kind == SERIES_PASS;
        colls += m->timed[i]->of.kind == SERIES_COLL;
    }
    fprintf(to, "%s: %d step%s of %d rank%s: %d kernels of %s, %d copies and passes of the optimizer, %d collectives\n",
           p->cluster.gpu.name, m->steps, m->steps == 1 ? "" : "s", m->traces, m->traces == 1 ? "" : "s", kernels,
           kernels_name(p->kernels), passes, colls);
    print_shares(m, to);
    if (m->colls_left)
        fprintf(to, "%" PRId64 " calls of collectives were left out: the plan has none of that operation and size\n", m->colls_left);
}

static int store(struct db *db, const struct import_kineto *how, struct match *m, const char *path)
{
    FILE *to = how->to ? how->to : stdout;
    double started;
    int rc = db_begin(db) < 0 ? db_fail(db, "importing") : 0;
    int64_t id = rc < 0 ? -1 : begin(db, how, m->p, path, &started);

    if (id > 0)
        rc = record(db, id, m, started);
    if (id < 0)
        rc = -1;
    if (db_end(db, rc) < 0 && rc == 0)
        rc = db_fail(db, "importing");
    if (rc == 0 && id == 0)
        fprintf(to, "%s: was taken in before\n", path);
    else if (rc == 0)
        print_taken(m, m->p, to);
    return rc;
}

int import_kineto(struct db *db, const struct import_kineto *how, char *const *paths, int npaths, bool *refused)
{
    struct plan p;
    struct match m;
    int rc;

    *refused = true;
    if (open_plan(how->plan, &p) < 0)
        return -1;
    match_open(&m, &p);
    rc = 0;
    for (int i = 0; i < npaths && rc == 0; i++)
        rc = match_file(&m, how, paths[i]);
    if (rc == 0) {
        *refused = false;
        match_series(&m);
        rc = store(db, how, &m, paths[0]);
    }
    match_free(&m);
    plan_free(&p);
    return rc;
}

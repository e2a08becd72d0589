/* import.c -- the logs of nccl-tests become one calibration, or none of it is kept. */
#define _DEFAULT_SOURCE         /* realpath */
#include "calib/import/import.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/version.h"
#include "calib/import/nccl_log.h"
#include "calib/store/belongs.h"
#include "calib/store/fits.h"
#include "calib/store/query.h"
#include "calib/store/series.h"
#include "model/cluster/cluster.h"

/* The name under which plans know the GPU. */
static const char *gpu_of(const struct import_nccl *how, const struct nccl_sweep *s, const char *path)
{
    const struct gpu *g = how->gpu ? gpu_find(how->gpu) : NULL;
    const char *name = g ? g->name : how->gpu ? NULL : nccl_device(s->device);

    if (!name && how->gpu)
        fail("--gpu %s: no GPU of this name (dpxplan list gpus shows them)", how->gpu);
    else if (!name)
        fail("%s: \"%s\" is not a GPU that dpx knows: name it with --gpu (dpxplan list gpus)", path, s->device);
    return name;
}

static double when_written(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0 ? (double)s.st_mtime : 0;
}

/* The calibration's number, 0 if this very file was taken in before; -1 reported. */
static int64_t begin(struct db *db, const struct import_nccl *how, const char *gpu, const char *path,
                     const struct nccl_sweep *s)
{
    char whole[PATH_MAX];
    struct calibration c = { .started = when_written(path), .host = how->cluster ? how->cluster : BELONGS_IMPORTED, .device = gpu, .cpu = "",
                             .source = "nccl-tests", .options = "{}", .dpx_version = version_text(),
                             .comm_version = s->version[0] ? s->version : NULL,
                             .origin = realpath(path, whole) ? whole : path };
    int known = calibration_known(db, &c);
    int64_t id;

    if (known)
        return known < 0 ? -1 : 0;
    id = calibration_add(db, &c, c.started);
    return id < 0 ? db_fail(db, "recording %s", path) : id;
}

static int take_sweep(struct db *db, int64_t id, const struct nccl_sweep *s, double started)
{
    for (int i = 0; i < s->npoints; i++) {
        const struct nccl_point *p = &s->point[i];
        struct series of = { .kind = SERIES_COLL, .name = coll_name((enum coll_op)s->op), .dtype = p->dtype,
                             .algorithm = "nccl", .ranks = s->ranks, .per_node = s->ranks / s->nodes, .bytes = p->bytes,
                             .started = started, .probe_before_s = NAN, .probe_after_s = NAN, .seconds = p->seconds,
                             .nsamples = p->nseconds };
        if (series_add(db, id, &of, 1) < 0)
            return db_fail(db, "recording %s", of.name);
    }
    return 0;
}

/* What was not taken of it. */
static void print_left(const struct nccl_log *log, const char *path, FILE *to)
{
    if (log->nwrong)
        fprintf(to, "%s: %d results with wrong values were left out\n", path, log->nwrong);
    if (log->cut.n)
        fprintf(to, "%s:%d: a row with another number of columns than the header, cut off or mixed with other output: %d such left "
               "out\n", path, log->cut.first, log->cut.n);
    if (log->untimed.n)
        fprintf(to, "%s: %d results without a time were left out (the first: line or result %d)\n", path, log->untimed.n,
               log->untimed.first);
    if (log->sizeless.n)
        fprintf(to, "%s: %d results without a size in whole bytes were left out (the first: line or result %d)\n", path, log->sizeless.n,
               log->sizeless.first);
    if (log->nuntyped)
        fprintf(to, "%s: %d results of %s were left out: dpx does not use it\n", path, log->nuntyped, log->types);
}

static int take_sweeps(struct db *db, const struct import_nccl *how, const struct nccl_log *log, const char *path,
                       bool *refused)
{
    FILE *to = how->to ? how->to : stdout;
    int64_t id = 0;

    for (int i = 0; i < log->nsweeps; i++) {
        const struct nccl_sweep *s = &log->sweep[i];
        if (s->npoints == 0)
            continue;
        const char *gpu = gpu_of(how, s, path);
        if (!gpu) {
            *refused = true;
            return -1;
        }
        if (id == 0 && (id = begin(db, how, gpu, path, s)) <= 0) {
            if (id == 0)
                fprintf(to, "%s: was taken in before\n", path);
            return (int)id;
        }
        if (take_sweep(db, id, s, when_written(path)) < 0)
            return -1;
        fprintf(to, "%s: %s on %" PRId64 " x %" PRId64 " %s, %d points\n", path, coll_name((enum coll_op)s->op), s->nodes,
               s->ranks / s->nodes, gpu, s->npoints);
    }
    print_left(log, path, to);
    return fits_write(db, id, false) < 0 ? db_fail(db, "recording fits") : 0;
}

static int take_file(struct db *db, const struct import_nccl *how, const char *path, bool *refused)
{
    struct nccl_log log;
    int rc;

    if (nccl_log_read(path, how->op, &log) < 0) {
        *refused = true;
        return -1;
    }
    rc = take_sweeps(db, how, &log, path, refused);
    nccl_log_free(&log);
    return rc;
}

int import_nccl(struct db *db, const struct import_nccl *how, char *const *paths, int npaths, bool *refused)
{
    *refused = false;
    int rc = db_begin(db) < 0 ? db_fail(db, "importing") : 0;

    for (int i = 0; i < npaths && rc == 0; i++)
        rc = take_file(db, how, paths[i], refused);
    if (db_end(db, rc) < 0 && rc == 0)
        rc = db_fail(db, "importing");
    return rc;
}

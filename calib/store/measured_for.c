/* measured_for.c -- the calibration that belongs to a plan's cluster, as the clock reads it. */
#include "calib/store/measured_for.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/notes.h"
#include "calib/store/belongs.h"
#include "calib/store/db.h"
#include "calib/store/fit.h"
#include "calib/store/measured_kept.h"

struct wanted {
    const char *path;
    enum dtype precision;
    enum kernel_set kernels;
    int64_t threads;
    char refused[512];          /* why the cluster must say which calibration it means; "": it need not */
};

/* Kernels that more threads run, or that share the machine with more ranks, take another time. */
static void warn_if_other(const struct wanted *w, const struct cluster *c, struct measured_device *m)
{
    int64_t threads = fit_threads(w->threads, c->gpus_per_node, m->cores);

    size_t n = strlen(m->warning);

    if (n > 0)
        fprintf(stderr, "warning: %s\n", m->warning);
    if (m->ranks == 0 || (m->threads == threads && m->ranks == c->world_size))
        return;
    n += (size_t)snprintf(m->warning + n, sizeof m->warning - n, "%s", n > 0 ? "; " : "");
    snprintf(m->warning + n, sizeof m->warning - n, "this machine was calibrated with %" PRId64 " rank%s x %" PRId64 " thread%s, "
             "and this is %" PRId64 " x %" PRId64 ": kernels will take another time; `dpxcal run --ranks %" PRId64
             " --threads %" PRId64 "` measures it", m->ranks, m->ranks == 1 ? "" : "s", m->threads,
             m->threads == 1 ? "" : "s", c->world_size, threads, c->world_size, threads);
    notes_say("warning: %s", m->warning + n);
}

/* machine NULL: there is only one. */
static int read_from(struct db *db, const struct wanted *w, const char *machine, struct cluster *c, struct measured_device *out)
{
    struct fit_want want = { .device = c->is_host ? NULL : c->gpu.name, .machine = machine, .precision = w->precision,
                             .ranks = c->world_size, .per_node = c->gpus_per_node, .threads = w->threads };
    int found = fit_read(db, &want, out);

    if (found > 0)
        c->measured = out;
    return found;
}

static int read_own(struct db *db, struct wanted *w, struct cluster *c, struct measured_device *out)
{
    char machine[BELONGS_NAME];
    int found = belongs_to(db, c, machine, w->refused, sizeof w->refused);

    return found > 0 ? read_from(db, w, machine, c, out) : found;
}

static int read_file(struct wanted *w, struct cluster *c, struct measured_device *out)
{
    struct db *db = db_open_reader(w->path);
    int found = db ? read_own(db, w, c, out) : -1;

    db_close(db);
    return found;
}

static int read_if_there(struct wanted *w, struct cluster *c, struct measured_device *out)
{
    char why[512];
    int found;

    if (!w->path || access(w->path, F_OK) < 0)
        return read_own(NULL, w, c, out);
    struct fail_sink before = fail_divert(why, sizeof why);
    found = read_file(w, c, out);
    fail_restore(before);
    if (found == BELONGS_REFUSED)
        return found;
    if (found < 0)
        notes_say_once("warning: calibrations are not used: %s", why);
    return found > 0;
}

int measured_for_threads(const char *path, bool must, enum dtype precision, enum kernel_set kernels, int64_t threads,
                         struct cluster *c, struct measured_device *out)
{
    const char *set = getenv("OMP_NUM_THREADS");        /* as host_threads() of exec/ */
    struct wanted w = { .path = path, .precision = precision, .kernels = kernels,
                        .threads = threads > 0 ? threads : set && atoi(set) > 0 ? atoi(set) : 0 };
    char usual[4096], why[512];
    int found;

    memset(out, 0, sizeof *out);
    if (!path) {
        struct fail_sink before = fail_divert(why, sizeof why);

        found = db_default_path(usual, sizeof usual);
        fail_restore(before);
        w.path = found < 0 ? NULL : usual;
    }
    found = path && must ? read_file(&w, c, out) : read_if_there(&w, c, out);
    if (found == BELONGS_REFUSED)
        return fail("%s", w.refused);
    if (found == 0 && !path)
        found = measured_kept(precision, kernels, c, out);
    if (found > 0 && c->is_host)
        warn_if_other(&w, c, out);
    return found;
}

int measured_for(const char *path, bool must, enum dtype precision, enum kernel_set kernels, struct cluster *c,
                 struct measured_device *out)
{
    return measured_for_threads(path, must, precision, kernels, 0, c, out);
}

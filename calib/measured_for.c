#include "calib/measured_for.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "calib/db.h"
#include "calib/fit.h"
#include "model/fail.h"

/* A host's calibration is of this very machine, a GPU's of its type. */
static int read_from(struct db *db, enum dtype precision, struct cluster *c, struct measured_device *out)
{
    struct fit_want want = { .device = c->is_host ? NULL : c->gpu.name, .precision = precision,
                             .ranks = c->world_size };
    int found = fit_read(db, &want, out);

    if (found > 0)
        c->measured = out;
    return found;
}

static int read_file(const char *path, enum dtype precision, struct cluster *c, struct measured_device *out)
{
    struct db *db = db_open_reader(path);
    int found = db ? read_from(db, precision, c, out) : -1;

    db_close(db);
    return found;
}

static int read_if_there(const char *path, enum dtype precision, struct cluster *c, struct measured_device *out)
{
    char why[512];
    int found;

    if (access(path, F_OK) < 0)
        return 0;
    fail_capture(why, sizeof why);
    found = read_file(path, precision, c, out);
    fail_capture(NULL, 0);
    if (found < 0)
        fprintf(stderr, "warning: calibrations are not used: %s\n", why);
    return found > 0;
}

int measured_for(const char *path, bool must, enum dtype precision, struct cluster *c, struct measured_device *out)
{
    char usual[4096], why[512];
    int known;

    memset(out, 0, sizeof *out);
    if (path)
        return (must ? read_file : read_if_there)(path, precision, c, out);
    fail_capture(why, sizeof why);
    known = db_default_path(usual, sizeof usual);
    fail_capture(NULL, 0);
    return known < 0 ? 0 : read_if_there(usual, precision, c, out);
}

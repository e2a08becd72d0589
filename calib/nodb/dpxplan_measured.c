/* dpxplan_measured.c -- the library without a database, as a browser has it: what was measured is what came with dpx. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "calib/store/measured_kept.h"
#include "sim/plan/commands.h"

int measured_load(const char *db, enum dtype precision, enum kernel_set kernels, struct cluster *c)
{
    struct measured_device *device;

    c->measured = NULL;
    if (db)
        return fail("db: this build of dpx has no database");
    if (c->calibration[0] && strcmp(c->calibration, CLUSTER_UNCALIBRATED))
        return fail("calibration \"%s\": this build of dpx has no database", c->calibration);
    device = room_new(1, sizeof *device);
    if (measured_kept(precision, kernels, c, device))
        return 1;
    free(device);
    return 0;
}

int measured_status(void) { return EXIT_MISUSE; }

void measured_unload(struct cluster *c)
{
    struct measured_device *device = (struct measured_device *)c->measured;     /* measured_load() made it */

    if (device)
        measured_device_free(device);
    free(device);
    c->measured = NULL;
}

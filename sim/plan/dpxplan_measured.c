/* dpxplan_measured.c -- joins dpxplan, and libdpx, with the database of calibrations. */
#include <stdlib.h>

#include "base/room.h"
#include "calib/store/db.h"
#include "calib/store/measured_for.h"
#include "sim/plan/commands.h"

int measured_load(const char *db, enum dtype precision, enum kernel_set kernels, struct cluster *c)
{
    struct measured_device *device = room_new(1, sizeof *device);

    c->measured = NULL;
    int rc = measured_for(db, true, precision, kernels, c, device);
    if (rc <= 0) {
        measured_device_free(device);
        free(device);
        c->measured = NULL;
    }
    return rc;
}

int measured_status(void)
{
    return db_exit_status() != EXIT_DONE ? db_exit_status() : EXIT_MISUSE;
}

void measured_unload(struct cluster *c)
{
    struct measured_device *device = (struct measured_device *)c->measured;     /* measured_load() made it */

    if (device)
        measured_device_free(device);
    free(device);
    c->measured = NULL;
}

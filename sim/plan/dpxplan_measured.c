/* dpxplan_measured.c -- joins dpxplan with the database of calibrations. */
#include "calib/store/db.h"
#include "calib/store/measured_for.h"
#include "sim/plan/commands.h"

static struct measured_device device;

int measured_load(const char *db, enum dtype precision, struct cluster *c)
{
    measured_device_free(&device);
    return measured_for(db, true, precision, c, &device);
}

int measured_status(void)
{
    return db_exit_status() != EXIT_DONE ? db_exit_status() : EXIT_MISUSE;
}

void measured_unload(void)
{
    measured_device_free(&device);
}

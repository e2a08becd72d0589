/* measured_kept.c -- the fits that come with dpx, where they are of the plan's GPU and of its kernels. */
#include "calib/store/measured_kept.h"

#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "calib/store/kept.h"

bool measured_kept(enum dtype precision, enum kernel_set kernels, struct cluster *c, struct measured_device *out)
{
    char path[4200], why[512];
    int found;

    if (kernels != KERNELS_DPX || c->is_host || !strcmp(c->calibration, CLUSTER_UNCALIBRATED) || !kept_find(c->gpu.name, path, sizeof path))
        return false;
    struct fail_sink before = fail_divert(why, sizeof why);
    found = kept_read(c->gpu.name, path, precision, out);
    fail_restore(before);
    if (found < 0)
        notes_say_once("warning: %s is not used: %s", path, why);
    if (found > 0)
        c->measured = out;
    return found > 0;
}

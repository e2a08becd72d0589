/* measured.c -- kernels and passes as short words; a calibration moved to the speed of this moment. */
#include "model/schedule/measured.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void measured_words(enum pass pass, const struct kernel *k, char out[MEASURED_WORDS])
{
    snprintf(out, MEASURED_WORDS, "%s %s%s%s", pass == PASS_FORWARD ? "forward" : "backward", k->name ? k->name : "",
             k->scaled ? ", " : "", k->scaled ? scaled_name((enum scaled)k->scaled) : "");
}

uint32_t measured_word(const char *words)
{
    uint32_t h = 2166136261u;       /* FNV-1a */

    for (; *words; words++)
        h = (h ^ (unsigned char)*words) * 16777619u;
    return h ? h : 1;
}

void measured_now(struct measured_device *m, double probe_s)
{
    size_t n = strlen(m->basis);

    if (!(m->probe_s > 0) || !(probe_s > 0))
        return;
    m->now_s = probe_s;
    m->drift = m->unsteady > m->late ? m->unsteady : m->late;
    snprintf(m->basis + n, sizeof m->basis - n, "; the probe takes %.2f ms now, %.2f ms then", 1e3 * probe_s,
             1e3 * m->probe_s);
}

void measured_device_free(struct measured_device *m)
{
    free(m->store);
    memset(m, 0, sizeof *m);
}

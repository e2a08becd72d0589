/* crowd.c -- see crowd.h. */
#include "sim/clock/crowd.h"

#include "model/schedule/measured.h"

bool crowd_of(const struct plan *p, int n, struct crowd *out)
{
    const struct measured_device *m = p->kernels == KERNELS_DPX && p->cluster.is_host && p->cluster.nodes == 1 ? p->cluster.measured : NULL;
    double threads;

    if (!m || m->cores < 1 || m->ranks < 1)
        return false;
    threads = (double)(m->threads > 0 ? m->threads : 1);
    *out = (struct crowd){ threads * (double)m->ranks / (double)m->cores, threads * (double)p->cluster.world_size / n / (double)m->cores };
    return out->timed > 1;
}

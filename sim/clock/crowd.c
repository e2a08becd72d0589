/* crowd.c -- see crowd.h. */
#include "sim/clock/crowd.h"

#include "model/plan/plan_groups.h"
#include "model/schedule/measured.h"

bool crowd_of(const struct plan *p, int64_t rank, struct crowd *out)
{
    const struct measured_device *m = p->kernels == KERNELS_DPX && p->cluster.is_host && p->cluster.nodes == 1 ? p->cluster.measured : NULL;
    int64_t world = p->cluster.world_size, cores, each;
    struct mesh mesh = plan_mesh(p);
    double threads;

    *out = (struct crowd){ .timed = 1 };
    if (!m || m->cores < 1 || m->ranks < 1)
        return false;
    cores = m->cores;
    each = world % cores == 0 ? 1 : cores;      /* else all ranks have all cores */
    threads = (double)(m->threads > 0 ? m->threads : 1);
    for (int64_t r = 0; r < world; r++)
        if (cluster_first_core(cores, each, r, world) == cluster_first_core(cores, each, rank, world))
            out->by[mesh_digit(&mesh, r, AXIS_PIPE)] += threads / (double)each;
    out->timed = threads * (double)m->ranks / (double)cores;
    return out->timed > 1;
}

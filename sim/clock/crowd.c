/* crowd.c -- see crowd.h. */
#include "sim/clock/crowd.h"

#include <math.h>

#include "model/plan/plan_groups.h"
#include "model/schedule/measured.h"

double crowd_timed(const struct measured_device *m, int64_t nodes)
{
    double threads = (double)(m->threads > 0 ? m->threads : 1);

    return m->cores < 1 || m->ranks < 1 ? 1 : fmax(1, threads * (double)m->ranks / (double)(nodes * m->cores));
}

bool crowd_of(const struct plan *p, int64_t rank, struct crowd *out)
{
    const struct measured_device *m = p->kernels == KERNELS_DPX && p->cluster.is_host && p->cluster.nodes == 1 ? p->cluster.measured : NULL;
    int64_t world = p->cluster.world_size, cores, each;
    struct mesh mesh = plan_mesh(p);
    double threads, elsewhere = 0;

    *out = (struct crowd){ .timed = 1, .alone = 1 };
    if (!m || m->cores < 1 || m->ranks < 1)
        return false;
    cores = m->cores;
    each = world % cores == 0 ? 1 : cores;      /* else all ranks have all cores */
    threads = (double)(m->threads > 0 ? m->threads : 1);
    for (int64_t r = 0; r < world; r++) {
        int64_t role = mesh_digit(&mesh, r, AXIS_PIPE);
        if (cluster_first_core(cores, each, r, world) == cluster_first_core(cores, each, rank, world)) {
            out->by[role] += threads / (double)each;
        } else {
            out->beside[role]++;
            elsewhere++;
        }
    }
    for (int64_t role = 0; role < EVALUATION_STAGES; role++)
        out->beside[role] /= elsewhere > 0 ? elsewhere : 1;
    out->timed = crowd_timed(m, 1);
    if (elsewhere > 0 && m->alone.s > 0 && m->together.s > 0)
        out->alone = fmin(1, m->alone.s / m->together.s * out->timed);
    return out->timed > 1 || (out->alone < 1 && p->parallel.pipeline > 1);
}

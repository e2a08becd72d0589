/* crowd.c -- see crowd.h. */
#include "sim/clock/crowd.h"

#include <math.h>

#include "base/host_limits.h"
#include "model/plan/plan_groups.h"
#include "model/schedule/measured.h"

double crowd_timed(const struct measured_device *m, int64_t nodes)
{
    double threads = (double)(m->threads > 0 ? m->threads : 1);

    return m->cores < 1 || m->ranks < 1 ? 1 : fmax(1, threads * (double)m->ranks / (double)(nodes * m->cores));
}

/* Cores of each node: where it was calibrated, as its file says, or this machine's. */
static int64_t cores_of(const struct plan *p, const struct measured_device *m)
{
    return m && m->cores > 0 ? m->cores : p->cluster.node.cores > 0 ? p->cluster.node.cores : host_cores();
}

/* What the ranks of `rank`'s node ask of its cores, and which of them compute on others. */
static double ask(const struct plan *p, int64_t rank, int64_t cores, double threads, struct crowd *out)
{
    int64_t ranks = p->cluster.gpus_per_node, first = rank / ranks * ranks;
    int64_t each = ranks % cores == 0 ? 1 : cores;      /* else all have all cores */
    struct mesh mesh = plan_mesh(p);
    double elsewhere = 0;

    for (int64_t r = first; r < first + ranks; r++) {
        int64_t role = mesh_digit(&mesh, r, AXIS_PIPE);
        if (cluster_first_core(cores, each, r - first, ranks) == cluster_first_core(cores, each, rank - first, ranks)) {
            out->by[role] += threads / (double)each;
        } else {
            out->beside[role]++;
            elsewhere++;
        }
    }
    for (int64_t role = 0; role < EVALUATION_STAGES; role++)
        out->beside[role] /= elsewhere > 0 ? elsewhere : 1;
    return elsewhere;
}

bool crowd_of(const struct plan *p, int64_t rank, struct crowd *out)
{
    const struct measured_device *m = p->kernels == KERNELS_DPX && p->cluster.measured && p->cluster.measured->ranks > 0
                                      ? p->cluster.measured : NULL;
    double asked = 0;

    *out = (struct crowd){ .timed = 1, .alone = 1 };
    if (!p->cluster.is_host)
        return false;
    double elsewhere = ask(p, rank, cores_of(p, m), m && m->threads > 0 ? (double)m->threads : 1, out);
    for (int64_t role = 0; role < EVALUATION_STAGES; role++)
        asked += out->by[role];
    if (m)
        out->timed = crowd_timed(m, p->cluster.nodes);
    if (m && p->cluster.nodes == 1 && elsewhere > 0 && m->alone.s > 0 && m->together.s > 0)
        out->alone = fmin(1, m->alone.s / m->together.s * out->timed);
    return out->timed > 1 || asked > 1 + 1e-9 || (out->alone < 1 && p->parallel.pipeline > 1);
}

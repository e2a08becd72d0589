/* cut_adapter.c -- see cut_adapter.h. */
#include "model/plan/cut_adapter.h"

bool cut_adapter_gathers(int64_t rows, int64_t n) { return rows > n; }

/* Microseconds: 87.7 GiB/s within a node (MeshTopoInfo), an all-to-all counts what a rank has, and a microsecond. */
bool cut_adapter_exchanges(const struct plan *p, int64_t k)
{
    double ranks = (double)p->parallel.tensor, rank = (double)p->train.rank, rate = p->parallel.tensor > p->cluster.gpus_per_node ? 87.7 * 0.22 : 87.7;
    double per = (ranks - 1) / ranks / rate * 1e6 * 2 / (double)(1 << 30), rows = (double)(p->micro_batch * p->seq);

    return (double)k / ranks * rank * per + 1 < rows * rank * per;
}

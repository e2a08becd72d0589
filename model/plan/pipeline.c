/* pipeline.c -- what tells the schedules of a pipeline apart, their order aside: see pipeline.h. */
#include "model/plan/pipeline.h"

#include <stddef.h>

bool pipeline_is_v(enum pipeline_kind k)
{
    return k == PIPELINE_ZBV || k == PIPELINE_DUALPIPEV;
}

/* ZB1P has any number of chunks, one as well; torchtitan makes two where nothing is said (distributed/pipeline_parallel.py). */
int pipeline_usual_chunks(enum pipeline_kind k)
{
    return k == PIPELINE_GPIPE || k == PIPELINE_1F1B ? 1 : 2;
}

const char *pipeline_refused(const struct pipeline *p)
{
    bool one = p->kind == PIPELINE_GPIPE || p->kind == PIPELINE_1F1B;
    int rounds = p->steps / p->ranks;

    if (p->kind == PIPELINE_DUALPIPEV)
        return "its order is not generated yet";
    if (one && p->chunks != 1)
        return "it has one chunk a rank: virtual_stages 1";
    if (pipeline_is_v(p->kind) && p->chunks != 2)
        return "it has two chunks a rank: virtual_stages 2";
    if ((p->kind == PIPELINE_INTERLEAVED || p->kind == PIPELINE_ZB1P) && rounds > 1 && p->steps % rounds)
        return "the micro-steps must divide into rounds of equal length";
    return NULL;
}

int pipeline_stage(const struct pipeline *p, int rank, int chunk)
{
    if (pipeline_is_v(p->kind) && chunk == 1)
        return 2 * p->ranks - 1 - rank;
    return chunk * p->ranks + rank;
}

const char *pipeline_name(enum pipeline_kind k)
{
    static const char *const names[NPIPELINE] = {
        "GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV",
    };
    return names[k];
}

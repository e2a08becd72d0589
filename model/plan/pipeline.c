/* pipeline.c -- what tells the schedules of a pipeline apart, their order aside: see pipeline.h. */
#include "model/plan/pipeline.h"

#include <stddef.h>

bool pipeline_is_v(enum pipeline_kind k)
{
    return k == PIPELINE_ZBV || k == PIPELINE_DUALPIPEV;
}

bool pipeline_splits(enum pipeline_kind k)
{
    return k == PIPELINE_ZB1P || pipeline_is_v(k);
}

/* ZB1P has any number of chunks, one as well; torchtitan makes two where nothing is said (distributed/pipeline_parallel.py). */
int pipeline_usual_chunks(enum pipeline_kind k)
{
    return k == PIPELINE_GPIPE || k == PIPELINE_1F1B ? 1 : 2;
}

bool pipeline_too_few(const struct pipeline *p) { return p->kind == PIPELINE_1F1B && p->chunks == 1 && p->steps < p->ranks; }

const char *pipeline_refused(const struct pipeline *p)
{
    bool one = p->kind == PIPELINE_GPIPE || p->kind == PIPELINE_1F1B;
    int rounds = p->steps / p->ranks;

    if (one && p->chunks != 1)
        return "it has one stage per rank: virtual_stages 1";
    if (pipeline_is_v(p->kind) && p->chunks != 2)
        return "it requires exactly 2 stages per rank: virtual_stages 2";
    if (pipeline_too_few(p))
        return "the number of microbatches (accumulation) must be greater than or equal to the number of stages";
    if (p->kind == PIPELINE_DUALPIPEV && p->steps < 2 * p->ranks)
        return "it requires at least as many microbatches (accumulation) as stages";
    if ((p->kind == PIPELINE_INTERLEAVED || p->kind == PIPELINE_ZB1P) && rounds > 1 && p->steps % rounds)
        return "it requires the number of microbatches (accumulation) to be a multiple of the number of rounds, which is "
               "accumulation / pipeline, rounded down";
    return NULL;
}

/* Time steps are laid out for rounds of as many micro-steps as there are ranks: a rank rests for chunks ranks - (chunks - 1) q - rank of them before its
 * first backward (_get_1f1b_rank_ops()).  Recorded: tests/golden/grid/lock_step.csv. */
const char *pipeline_refused_in_step(const struct pipeline *p)
{
    int rounds = p->steps / p->ranks, q = p->steps / (rounds < 1 ? 1 : rounds);

    if (pipeline_splits(p->kind))
        return "it is modelled as torch 2.15 runs it: 2.9 splits backward in lock step";
    if (p->chunks > 1 && p->steps < p->ranks)
        return "torch 2.9 runs it in lock step, and with fewer micro-steps (accumulation) than ranks a pass comes before what it needs is received";
    if (p->kind == PIPELINE_INTERLEAVED && p->chunks * p->ranks < (p->chunks - 1) * q)
        return "torch 2.9 runs it in lock step, laid out for rounds of as many micro-steps as ranks: make accumulation a multiple of pipeline";
    return NULL;
}

int pipeline_stage(const struct pipeline *p, int rank, int chunk)
{
    if (pipeline_is_v(p->kind) && chunk == 1)
        return 2 * p->ranks - 1 - rank;
    return chunk * p->ranks + rank;
}

int pipeline_rank(const struct pipeline *p, int stage)
{
    return pipeline_is_v(p->kind) && stage >= p->ranks ? 2 * p->ranks - 1 - stage : stage % p->ranks;
}

const char *pipeline_name(enum pipeline_kind k)
{
    static const char *const names[NPIPELINE] = {
        "GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV",
    };
    return names[k];
}

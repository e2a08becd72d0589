/* parallel_check.c -- what "parallel" refuses, with the key named: see parallel_check.h. */
#include "model/plan/parallel_check.h"

#include <inttypes.h>

#include "base/fail.h"
#include "model/plan/local_share.h"

int parallel_check_ranks(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    int64_t one_copy;

    if (of->tensor < 1 || of->context < 1 || of->pipeline < 1)
        return fail("%s: parallel: tensor, context and pipeline are 1 or more", where);
    if (!checked_mul(of->tensor * of->context, of->pipeline, &one_copy) || p->cluster.world_size % one_copy)
        return fail("%s: parallel: tensor %" PRId64 " x context %" PRId64 " x pipeline %" PRId64
                    " does not divide the world of %" PRId64 " ranks", where, of->tensor, of->context, of->pipeline,
                    p->cluster.world_size);
    return 0;
}

static int check_tensor(const struct plan *p, const char *where)
{
    const char *why = local_share_refused(&p->model, p->parallel.tensor);

    if (why)
        return fail("%s: parallel.tensor: %s cannot be cut over %" PRId64 " ranks: %s", where, p->model.name,
                    p->parallel.tensor, why);
    return fail("%s: parallel.tensor: tensor parallelism is not modelled yet", where);
}

static int check_context(const struct plan *p, const char *where)
{
    int64_t chunks = p->parallel.context * (p->parallel.context_balance ? 2 : 1);

    if (p->seq % chunks)
        return fail("%s: parallel.context: seq %" PRId64 " does not divide into the %" PRId64 " chunks of %" PRId64 " ranks",
                    where, p->seq, chunks, p->parallel.context);
    return fail("%s: parallel.context: context parallelism is not modelled yet", where);
}

/* Every stage has a block. */
static int check_stages(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    int64_t stages = of->pipeline * of->virtual_stages;

    for (int64_t s = 0; s < stages; s++)
        if (local_share_stage(p->model.layers, stages, s, of->first_stage_less, of->last_stage_less).blocks < 1)
            return fail("%s: parallel.pipeline: stage %" PRId64 " of %" PRId64 " would have no block of the %" PRId64 " of %s",
                        where, s, stages, p->model.layers, p->model.name);
    return 0;
}

static int check_pipeline(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    struct pipeline pipe = { of->pipeline_schedule, (int)of->pipeline, 0, (int)of->virtual_stages, (int)p->accumulation };
    const char *why = pipeline_refused(&pipe);

    if (why)
        return fail("%s: parallel.pipeline_schedule: %s: %s", where, pipeline_name(of->pipeline_schedule), why);
    if (check_stages(p, where) < 0)
        return -1;
    return fail("%s: parallel.pipeline: pipeline parallelism is not modelled yet", where);
}

int parallel_check(const struct plan *p, const char *where)
{
    if (plan_is_data_parallel(p))
        return 0;
    if (p->parallel.tensor > 1 && check_tensor(p, where) < 0)
        return -1;
    if (p->parallel.context > 1 && check_context(p, where) < 0)
        return -1;
    return p->parallel.pipeline > 1 ? check_pipeline(p, where) : 0;
}

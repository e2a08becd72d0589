/* parallel_check.c -- what "parallel" refuses, with the key named: see parallel_check.h. */
#include "model/plan/parallel_check.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/attention.h"
#include "model/plan/framework.h"
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
    if (p->parallel.sequence && p->seq % p->parallel.tensor)
        return fail("%s: parallel.sequence: seq %" PRId64 " does not divide by the %" PRId64 " tensor-parallel ranks", where,
                    p->seq, p->parallel.tensor);
    return framework_of(p)->check_tensor ? framework_of(p)->check_tensor(p, where) : 0;
}

int parallel_check_heads(const struct plan *p, int64_t ranks, bool repeats, const char *where)
{
    bool queries = p->model.heads % ranks == 0, keys = p->model.kv_heads % ranks == 0 || (repeats && ranks % p->model.kv_heads == 0);

    if (queries && keys)
        return 0;
    return fail("%s: parallel.context_method: ulysses deals out heads, and the %" PRId64 " %s of %s do not divide by %" PRId64 " ranks (tensor x "
                "context)", where, queries ? p->model.kv_heads : p->model.heads, queries ? "key/value heads" : "attention heads",
                p->model.name, ranks);
}

static int check_context(const struct plan *p, const char *where)
{
    int64_t chunks = p->parallel.context * (p->parallel.context_balance ? 2 : 1);

    if (p->seq % chunks)
        return fail("%s: parallel.context: seq %" PRId64 " does not divide into the %" PRId64 " chunks of %" PRId64 " ranks",
                    where, p->seq, chunks, p->parallel.context);
    if (p->parallel.tensor > 1 && p->parallel.sequence && p->seq % (p->parallel.tensor * p->parallel.context))
        return fail("%s: parallel.sequence: the %" PRId64 " positions of a context-parallel rank do not divide by the %" PRId64
                    " tensor-parallel ranks", where, plan_rank_seq(p), p->parallel.tensor);
    return framework_of(p)->check_context ? framework_of(p)->check_context(p, where) : 0;
}

/* Every stage has a block; a framework's first and last may have the embedding or the head alone. */
static int check_stages(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    int64_t stages = of->pipeline * of->virtual_stages;
    bool alone = framework_of(p)->ends_alone;

    for (int64_t s = 0; s < stages; s++)
        if (local_share_stage_of(p, stages, s).blocks < (alone && (s == 0 || s == stages - 1) ? 0 : 1))
            return fail("%s: parallel.pipeline: stage %" PRId64 " of %" PRId64 " would have no block of the %" PRId64 " of %s",
                        where, s, stages, p->model.layers, p->model.name);
    return 0;
}

/* What PyTorch, or torchtitan around it, refuses under a pipeline, or no lowering issues. */
static int check_stage(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    bool one = of->virtual_stages == 1, units = plan_shards_grads(p->strategy);

    if (p->sync_every_micro_step)
        return fail("%s: sync_every_micro_step: under a pipeline gradients are reduced after a stage's last backward", where);
    if (units && p->unit != UNIT_BLOCK && p->unit != UNIT_HALF_BLOCK && !(p->unit == UNIT_BLOCKS && one))
        return fail("%s: unit: under a pipeline \"block\" or \"half-block\"%s", where, one ? ", or \"<n> blocks\"" : "");
    if (p->fsdp.reshard_after_forward > 1 || p->fsdp.root_reshard_after_forward > 1)
        return fail("%s: fsdp.reshard_after_forward: to a number of ranks it is not modelled under a pipeline", where);
    if (p->fsdp.cpu_offload || p->activation_offload != OFFLOAD_NOTHING || p->recompute == RECOMPUTE_OFFLOAD)
        return fail("%s: %s: offload is not modelled under a pipeline", where,
                    p->recompute == RECOMPUTE_OFFLOAD ? "recompute" : p->fsdp.cpu_offload ? "fsdp.cpu_offload" : "activation_offload");
    if (attention_mixed(p))
        return fail("%s: parallel.pipeline: %s has layers with and without a window: not modelled under a pipeline", where,
                    p->model.name);
    return 0;
}

static int check_schedule(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    enum pipeline_kind kind = of->pipeline_schedule;
    struct pipeline pipe = { kind, (int)of->pipeline, 0, (int)of->virtual_stages, (int)plan_flush_steps(p), 0 };
    bool old = plan_torch_before(p, 2015);
    const char *why = pipeline_refused(&pipe);

    if (pipeline_too_few(&pipe) && (old || framework_of(p)->fills_partly))
        why = NULL;
    if (why)
        return fail("%s: parallel.pipeline_schedule: %s: %s", where, pipeline_name(kind), why);
    if (pipeline_splits(kind) && p->recompute != RECOMPUTE_NONE)
        return fail("%s: recompute: %s splits backward in two, and torch would run a checkpointed block again for every weight",
                    where, pipeline_name(kind));
    if (pipeline_splits(kind) && p->kernels == KERNELS_TORCH_COMPILE)
        return fail("%s: kernels: the %s schedule is not supported with stage modules that have used torch.compile", where,
                    pipeline_name(kind));
    if (pipeline_splits(kind) && p->unit == UNIT_HALF_BLOCK)
        return fail("%s: unit: half-blocks are not modelled where backward is split in two", where);
    if (old && kind != PIPELINE_GPIPE && kind != PIPELINE_1F1B && (why = pipeline_refused_in_step(&pipe)))
        return fail("%s: parallel.pipeline_schedule: %s: %s", where, pipeline_name(kind), why);
    return 0;
}

/* Whether a step of more micro-steps costs no more to plan: what dpxrun runs is written pass by pass; GPipe and breadth first keep all
 * micro-steps' messages and activations, and torch's runtime all gradients that it sent. */
static bool comes_again(const struct plan *p)
{
    enum pipeline_kind k = p->parallel.pipeline_schedule;

    return p->kernels != KERNELS_DPX && (framework_of(p)->pipelines_fold & OF_PIPELINE(k));
}

/* Every run of the schedule is written by itself. */
static int check_flushes(const struct plan *p, const char *where)
{
    int64_t n = p->parallel.pipeline_flushes;

    if (n <= 1)
        return 0;
    if (p->kernels == KERNELS_DPX)
        return fail("%s: parallel.pipeline_flushes: kernels \"dpx\" run a step's schedule once", where);
    if (p->accumulation % n)
        return fail("%s: parallel.pipeline_flushes: %" PRId64 " micro-steps do not divide by %" PRId64, where, p->accumulation, n);
    if (p->fsdp.cpu_offload)
        return fail("%s: parallel.pipeline_flushes: beside fsdp.cpu_offload not modelled yet", where);
    return 0;
}

static int check_passes(const struct plan *p, const char *where)
{
    int64_t chunks = p->parallel.virtual_stages, most = comes_again(p) ? PIPELINE_MOST_STEPS : PIPELINE_MOST_PASSES / chunks;

    if (p->accumulation <= most)
        return 0;
    return fail("%s: accumulation: a pipeline of %" PRId64 " chunk%s a rank%s is planned with at most %" PRId64 " micro-steps, not %" PRId64, where,
                chunks, chunks == 1 ? "" : "s", comes_again(p) ? "" : ", whose passes are not all alike,", most, p->accumulation);
}

static int check_pipeline(const struct plan *p, const char *where)
{
    const struct framework *f = framework_of(p);

    if (check_flushes(p, where) < 0 || check_passes(p, where) < 0)
        return -1;
    if (f->runs_pipelines)
        return f->check_pipeline(p, where) < 0 ? -1 : check_stages(p, where);
    if (check_schedule(p, where) < 0 || check_stages(p, where) < 0 || check_stage(p, where) < 0)
        return -1;
    if (f->check_pipeline)
        return f->check_pipeline(p, where);
    return fail("%s: parallel.pipeline: pipeline parallelism is not modelled yet for %s/%s", where, strategy_name(p->strategy),
                dialect_name(p->dialect));
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

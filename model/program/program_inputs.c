/* program_inputs.c -- what a plan's program depends on: every key but those that are left out here.  A new key counts until
 * its line here says otherwise: tests/model/test_program_inputs.c changes each in turn. */
#include <string.h>

#include "model/arch/training.h"
#include "model/program/program.h"

/* DistributedDataParallel's buckets decide where the graphs of compiled blocks are cut (torch_splits_init()). */
static bool buckets_cut_graphs(const struct plan *p)
{
    return p->kernels == KERNELS_TORCH_COMPILE && p->strategy == STRAT_DDP;
}

/* How states are kept, moved and updated.  What decides number formats stays. */
static void leave_out_states(struct plan *p)
{
    const struct fsdp_options fsdp = p->fsdp;
    const struct deepspeed_options ds = p->ds;
    const struct ddp_options ddp = p->ddp;
    const struct framework_limits limits = p->limits;

    p->accumulation = 0;
    p->clip = 0;
    p->optimizer = 0;
    p->optimizer_form = 0;
    p->unit = 0;
    p->unit_blocks = 0;
    p->shard_group = 0;
    p->sync_every_micro_step = p->deterministic = false;
    p->host_threads = 0;
    memset(&p->limits, 0, sizeof p->limits);
    memset(&p->dp, 0, sizeof p->dp);
    memset(&p->ddp, 0, sizeof p->ddp);
    memset(&p->fsdp, 0, sizeof p->fsdp);
    memset(&p->ds, 0, sizeof p->ds);
    p->ddp.model_dtype = ddp.model_dtype;
    if (buckets_cut_graphs(p)) {
        p->ddp.wrapped = ddp.wrapped;
        p->ddp.bucket_cap_mb = ddp.bucket_cap_mb;
        p->limits.ddp_bucket = limits.ddp_bucket;
        p->limits.ddp_first_bucket = limits.ddp_first_bucket;
    }
    p->fsdp.model_dtype = fsdp.model_dtype;
    p->fsdp.wrap_adapters = fsdp.wrap_adapters;         /* plan_gets_gradient() */
    p->fsdp.float8_all_gather = fsdp.float8_all_gather;
    p->fsdp.grouped_experts = fsdp.grouped_experts;
    p->ds.moe_layer = ds.moe_layer;
    p->ds.moe_capacity_factor = ds.moe_capacity_factor;
    p->ds.moe_min_capacity = ds.moe_min_capacity;
    p->ds.moe_drop_tokens = ds.moe_drop_tokens;
}

/* Of one framework's strategies those that differ in where states are alone: their number formats are in the recipe. */
static void leave_out_strategy(struct plan *p)
{
    if (p->dialect == DIALECT_MEGATRON)
        p->strategy = STRAT_DDP;
    if (p->dialect == DIALECT_TORCH && p->strategy == STRAT_ZERO1)
        p->strategy = STRAT_DDP;
    if (p->dialect == DIALECT_DEEPSPEED && (p->strategy == STRAT_ZERO1 || p->strategy == STRAT_ZERO2))
        p->strategy = STRAT_DDP;
}

static void leave_out_megatron_states(struct megatron_options *m)
{
    m->exp_avg_dtype = m->exp_avg_sq_dtype = ADAM_FP32;
    m->store_param_remainders = false;
    m->overlap_grad_reduce = m->overlap_param_gather = false;
    m->ddp_bucket_size = 0;
    m->ddp_average_in_collective = m->ddp_pad_buckets_for_high_nccl_busbw = false;
    m->check_for_nan_in_loss_and_grad = false;
    m->overlap_p2p_comm = false;
    m->wgrad_deferral_limit = 0;
    m->microbatch_group_size_per_vp_stage = 0;
}

/* A program has the pieces of all stages.  Of the pipeline it depends on whether there is one, because a stage may lack embedding and
 * head, and on whether backward is split; where chunks recompute their first blocks, on which those are. */
static void leave_out_stages(struct plan *p)
{
    struct parallel_options *of = &p->parallel;
    bool cut = of->pipeline > 1, split = cut && pipeline_splits(of->pipeline_schedule);

    if (p->megatron.recompute_num_layers > 0)
        return;
    of->pipeline = cut ? 2 : 1;
    of->pipeline_schedule = split ? PIPELINE_ZBV : PIPELINE_1F1B;
    of->virtual_stages = of->first_stage_less = of->last_stage_less = 0;
    memset(p->megatron.pipeline_layout, 0, sizeof p->megatron.pipeline_layout);
}

void program_inputs(const struct plan *p, struct program_inputs *out)
{
    struct recipe r = plan_recipe(p);

    memset(out, 0, sizeof *out);
    memcpy(&out->of, p, sizeof out->of);
    memset(&out->of.model, 0, sizeof out->of.model);
    memset(&out->of.cluster, 0, sizeof out->of.cluster);
    memset(&out->of.stated, 0, sizeof out->of.stated);
    leave_out_states(&out->of);
    leave_out_strategy(&out->of);
    leave_out_megatron_states(&out->of.megatron);
    leave_out_stages(&out->of);
    if (p->dialect != DIALECT_MEGATRON && p->parallel.tensor == 1)      /* elsewhere autograd's work does not see the network's dtype */
        out->of.reduce_dtype = 0;
    out->of.activation_offload = program_saves_on_host(p);
    out->kept = r.kept;
    out->frozen = r.frozen;
    out->copies = r.copies;
    out->used = r.used;
    out->adapter = training_is_lora(&p->train) ? plan_adapter_input(p) : r.kept;
    out->autocast = r.autocast;
}

bool program_is_shared(const struct plan *a, const struct plan *b)
{
    struct program_inputs x, y;

    program_inputs(a, &x);
    program_inputs(b, &y);
    return !memcmp(&x, &y, sizeof x);
}

/* framework_torch.c -- PyTorch's data parallelism of whole models: DataParallel, DistributedDataParallel, ZeroRedundancyOptimizer. */
#include "model/plan/framework.h"

#include <inttypes.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/plan/ddp_check.h"
#include "model/plan/optimizer_traits.h"
#include "model/plan/titan_check.h"

static const struct framework_version versions[] = {
    { "2.15", "FSDP2 reduces gradients in the parameters' own dtype (fp32)" },
    { "2.11", "scaled_dot_product_attention runs cuDNN's kernel on Hopper and datacenter Blackwell" },
    { "2.9",  "FSDP2 keeps the root only where reshard_after_forward is null" },
    { "2.5",  "an explicit bucket_cap_mb holds for DDP's first bucket too" },
    { "2.4",  "DDP's first bucket is always 1 MiB" },
};

const struct framework_tool framework_torch_tool = {
    .name = "torch", .versions = versions, .nversions = sizeof versions / sizeof *versions, .torch = true,
};

/* Autocast leaves gradients in fp32. */
static double reduce_dtype(const struct plan *p)
{
    (void)p;
    return DT_FP32;
}

/* Weights that adapters leave frozen are bf16, as trainers load them and as FSDP's are (framework_fsdp.c); beside packed ones the rest is in
 * fp32, as PEFT's prepare_model_for_kbit_training() leaves it. */
static double loaded_dtype(const struct plan *p)
{
    bool loaded = training_is_lora(&p->train) && p->train.base == BASE_PLAIN && p->kernels != KERNELS_DPX;

    return loaded && p->precision == DT_BF16 ? DT_BF16 : -1;
}

static void resolve(struct plan *p) { p->reduce_dtype = plan_ddp_wire(p); }

static void recipe(const struct plan *p, struct recipe *r)
{
    r->kept = r->grad = r->wire_gather = DT_FP32;
    r->optimizer = 8;
    r->autocast = p->precision != DT_FP32;
    if (p->ddp.model_dtype < 0 || plan_has_wide_adapters(p))
        return;
    r->kept = r->used = r->grad = r->wire_gather = (enum dtype)p->ddp.model_dtype;
    r->optimizer = 2 * (int)dtype_bytes(r->kept);
    r->autocast = false;
}

static bool wide_adapters(const struct plan *p) { return p->ddp.model_dtype >= 0 && !p->train.narrow; }

/* ---- what is refused ---- */

static int check_dp(const struct plan *p, const char *where)
{
    if (p->cluster.nodes > 1)
        return fail("%s: cluster: DataParallel is one process: it cannot span %" PRId64 " nodes", where, p->cluster.nodes);
    return 0;
}

static int check_dtype(const struct plan *p, const char *where)
{
    if (p->ddp.model_dtype >= 0 && (p->ddp.model_dtype != (int)p->precision || p->precision == DT_FP32))
        return fail("%s: ddp.model_dtype: must be \"precision\", bf16 or fp16", where);
    return 0;
}

/* DistributedDataParallel.__init__ and zero_redundancy_optimizer.py. */
static int check_ddp(const struct plan *p, const char *where)
{
    if (p->ddp.static_graph && p->accumulation > 1 && !p->sync_every_micro_step)
        return fail("%s: ddp.static_graph: PyTorch aborts in backward under no_sync() (reducer.cpp: "
                    "\"expect_autograd_hooks_ INTERNAL ASSERT FAILED\"): set sync_every_micro_step, or "
                    "static_graph to false", where);
    if (p->ddp.forward_sync_buffers >= 0 && plan_version(p) < 2013)
        return fail("%s: ddp.forward_sync_buffers: torch has it from 2.13 on, framework_version is \"%s\"",
                    where, p->framework_version);
    if (p->ddp.bucket_cap_mb >= 0 && p->ddp.bucket_cap_mb * 1048576 < 1)
        return fail("%s: ddp.bucket_cap_mb: %g MiB is less than a byte", where,
                    p->ddp.bucket_cap_mb);
    return ddp_check_hook(p, where) < 0 || ddp_check_alone(p, where) < 0 ? -1 : check_dtype(p, where);
}

static int check_train(const struct plan *p, const char *where)
{
    bool two = plan_has_wide_adapters(p) && p->train.modules_to_save[0], by_tensor = optimizer_traits(p->optimizer)->by == BY_BITSANDBYTES;

    if (two && p->precision == DT_FP16)
        return fail("%s: lora.modules_to_save: copies in fp16 do not train: torch.amp.GradScaler refuses their gradients (\"Attempting to unscale FP16 "
                    "gradients\"): bf16", where);
    if (two && p->ddp.comm_hook != HOOK_NONE)
        return fail("%s: ddp.comm_hook: beside copies in %s and adapters in fp32 (lora.modules_to_save) planned with \"none\"", where,
                    dtype_name(plan_recipe(p).frozen));
    if (two && p->optimizer != OPTIMIZER_ADAMW && p->optimizer != OPTIMIZER_SGD && !by_tensor)
        return fail("%s: optimizer: beside copies in %s and adapters in fp32 (lora.modules_to_save) planned with adamw, sgd and bitsandbytes' own", where,
                    dtype_name(plan_recipe(p).frozen));
    return 0;
}

static int check_run(const struct plan *p)
{
    if (p->ddp.model_dtype == DT_BF16 && (plan_recipe(p).kept == DT_BF16 || p->train.modules_to_save[0]))
        return fail("model_dtype bf16: dpxrun updates weights in fp32 only");
    return 0;
}

/* ---- rows ---- */

#define PYTORCH .tool = &framework_torch_tool, .syncs = EVERY_STRATEGY, .units = OF_UNIT(UNIT_MODEL) | OF_UNIT(UNIT_BLOCK), \
                .units_text = "model, block", .reduce_dtype = reduce_dtype, .resolve = resolve, .recipe = recipe, .sequence = true, \
                .context_method = CONTEXT_ALL_GATHER, .ends_count = true, \
                .check_tensor = titan_check_tensor, .check_context = titan_check_context, .check_run = check_run, \
                .pipelines_fold = OF_PIPELINE(PIPELINE_1F1B)

const struct framework framework_torch_dp  = { PYTORCH, .check = check_dp, .meets_tied_grads = true };
const struct framework framework_torch_ddp = { PYTORCH, .sync_is_choice = EVERY_STRATEGY, .mixtures = MIXTURES_ANY,
                                               .check_expert_ranks = titan_check_experts, .check = check_ddp,
                                               .check_train = check_train, .check_pipeline = titan_check_pipeline, .wide_adapters = wide_adapters, .narrow_copies = true,
                                               .model_dtype = loaded_dtype };
const struct framework framework_torch_zro = { PYTORCH, .sync_is_choice = EVERY_STRATEGY, .check = check_ddp };

/* framework_torch.c -- PyTorch's data parallelism of whole models: DataParallel, DistributedDataParallel, ZeroRedundancyOptimizer. */
#include "model/plan/framework.h"

#include "model/arch/training.h"

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

static bool wide_adapters(const struct plan *p) { return p->ddp.model_dtype >= 0; }

#define PYTORCH .tool = &framework_torch_tool, .syncs = EVERY_STRATEGY, .units = OF_UNIT(UNIT_MODEL) | OF_UNIT(UNIT_BLOCK), \
                .units_text = "model, block", .reduce_dtype = reduce_dtype, .resolve = resolve, .recipe = recipe, .sequence = true, \
                .context_method = CONTEXT_ALL_GATHER, .ends_count = true

const struct framework framework_torch_dp  = { PYTORCH };
const struct framework framework_torch_ddp = { PYTORCH, .sync_is_choice = EVERY_STRATEGY, .wide_adapters = wide_adapters };
const struct framework framework_torch_zro = { PYTORCH, .sync_is_choice = EVERY_STRATEGY };

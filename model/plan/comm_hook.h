/* comm_hook.h -- what DistributedDataParallel.register_comm_hook() was given: hooks of torch.distributed.algorithms.ddp_comm_hooks,
 * one row each.
 *
 *     comm_hook(p->ddp.comm_hook)->module
 *
 * What a hook does with a bucket is its row of model/framework/torch_ddp/lower_ddp_hook.c. */
#ifndef DPX_COMM_HOOK_H
#define DPX_COMM_HOOK_H

#include <stdbool.h>

#include "base/dtype.h"

/* HOOK(NAME, PyTorch's word, the rest of struct comm_hook_row). */
#define COMM_HOOKS(HOOK) \
    HOOK(NONE, "none", .said = "") \
    HOOK(FP16, "fp16_compress_hook", .module = "default_hooks", .casts = true, .sends = DT_FP16, \
         .said = "gradients sent in fp16", .changes = "gradients rounded to fp16") \
    HOOK(BF16, "bf16_compress_hook", .module = "default_hooks", .casts = true, .sends = DT_BF16, .tried = true, \
         .said = "gradients sent in bf16", .changes = "gradients rounded to bf16") \
    HOOK(POWERSGD, "powerSGD_hook", .module = "powerSGD_hook", .tried = true, \
         .said = "gradients compressed by PowerSGD", .changes = "gradients of matrices as products of two narrow ones", \
         .once = true, .not_fp16 = "powerSGD_hook, which would keep an overflow in its error feedback") \
    HOOK(ROWS, "quantization_perchannel_hook", .module = "quantization_hooks", .once = true, .fp32 = true, \
         .said = "gradients sent as bytes, each 512 of them with a scale", .changes = "gradients rounded to 256 steps of each 512's range", \
         .not_run = "quantization_perchannel_hook: dpxrun has no kernels that make bytes of rows")

#define COMM_HOOK_NAME(name, ...) HOOK_##name,
enum comm_hook { COMM_HOOKS(COMM_HOOK_NAME) NCOMM_HOOK };
#undef COMM_HOOK_NAME

struct comm_hook_row {
    const char *word;               /* of plan.json */
    const char *module;             /* of ddp_comm_hooks, for exports */
    bool        casts;              /* sends a bucket in another number format: */
    enum dtype  sends;
    bool        tried;              /* searches on slow networks try it */
    const char *said, *changes;     /* in a plan's words; what it does to the numbers, in a search's */
    bool        once;               /* modelled with one reduction of a bucket a step; */
    bool        fp32;               /* of gradients in fp32 */
    const char *not_run;            /* what dpxrun lacks for it; NULL: nothing */
    const char *not_fp16;           /* why dpxrun does not train in fp16 with it; NULL: it does */
};

const struct comm_hook_row *comm_hook(enum comm_hook h);

#endif

/* request_plans.h -- plans whose requests to the allocator are compared with the ledger and with PyTorch. */
#ifndef DPX_REQUEST_PLANS_H
#define DPX_REQUEST_PLANS_H

#include "tests/model/plans.h"

struct request_plan {
    const char *name, *model;
    int64_t layers, world, seq, micro_batch, accumulation;
    enum strategy strategy;
    enum dialect  dialect;
    enum dtype    precision;
    enum kernel_set kernels;
    enum recompute recompute;
};

#define D  DIALECT_TORCH
#define D1 DIALECT_TORCH_FSDP1
#define DS DIALECT_DEEPSPEED
#define E  KERNELS_TORCH_EAGER
#define S  KERNELS_TORCH_SDPA
#define F  DT_FP32
#define B  DT_BF16

static const struct request_plan request_plans[] = {
    { "ddp-gpt2", "gpt2", 0, 8, 1024, 4, 1, STRAT_DDP, D, F, S, RECOMPUTE_NONE },
    { "ddp-gpt2-eager", "gpt2", 0, 8, 1024, 2, 1, STRAT_DDP, D, F, E, RECOMPUTE_NONE },
    { "ddp-gpt2-autocast", "gpt2", 0, 8, 1024, 4, 1, STRAT_DDP, D, B, S, RECOMPUTE_NONE },
    { "ddp-gpt2-accumulate", "gpt2", 0, 8, 512, 2, 4, STRAT_DDP, D, F, S, RECOMPUTE_NONE },
    { "ddp-gpt2-recompute", "gpt2", 0, 8, 1024, 4, 1, STRAT_DDP, D, B, S, RECOMPUTE_FULL },
    { "ddp-gpt2-selective", "gpt2", 0, 8, 1024, 2, 1, STRAT_DDP, D, F, E, RECOMPUTE_SELECTIVE },
    { "ddp-llama", "llama-3.1-8b", 2, 8, 2048, 1, 1, STRAT_DDP, D, B, S, RECOMPUTE_NONE },
    { "ddp-one-rank", "gpt2", 3, 1, 512, 1, 1, STRAT_DDP, D, F, S, RECOMPUTE_NONE },
    { "zero1-gpt2", "gpt2", 0, 8, 1024, 4, 1, STRAT_ZERO1, D, F, S, RECOMPUTE_NONE },
    { "zero1-gpt2-autocast", "gpt2", 0, 4, 1024, 4, 2, STRAT_ZERO1, D, B, S, RECOMPUTE_NONE },
    { "fsdp2-gpt2", "gpt2", 0, 8, 1024, 4, 1, STRAT_FSDP, D, F, S, RECOMPUTE_NONE },
    { "fsdp2-gpt2-bf16", "gpt2", 0, 8, 1024, 4, 1, STRAT_FSDP, D, B, S, RECOMPUTE_NONE },
    { "fsdp2-gpt2-eager", "gpt2", 0, 8, 1024, 2, 1, STRAT_FSDP, D, B, E, RECOMPUTE_NONE },
    { "fsdp2-gpt2-accumulate", "gpt2", 0, 8, 512, 2, 4, STRAT_FSDP, D, B, S, RECOMPUTE_NONE },
    { "fsdp2-gpt2-recompute", "gpt2", 0, 8, 1024, 4, 1, STRAT_FSDP, D, B, S, RECOMPUTE_FULL },
    { "fsdp2-gpt2-selective", "gpt2", 0, 8, 1024, 4, 1, STRAT_FSDP, D, B, E, RECOMPUTE_SELECTIVE },
    { "fsdp2-llama", "llama-3.1-8b", 4, 8, 4096, 1, 1, STRAT_FSDP, D, B, S, RECOMPUTE_NONE },
    { "fsdp2-llama-whole", "llama-3.1-8b", 0, 8, 4096, 1, 1, STRAT_FSDP, D, B, S, RECOMPUTE_FULL },
    { "fsdp2-llama-64", "llama-3.1-8b", 0, 64, 8192, 1, 1, STRAT_FSDP, D, B, S, RECOMPUTE_NONE },
    { "fsdp2-llama-fp32", "llama-3.1-8b", 4, 8, 2048, 1, 2, STRAT_FSDP, D, F, S, RECOMPUTE_FULL },
    { "fsdp2-qwen", "qwen2.5-0.5b", 0, 8, 2048, 2, 1, STRAT_FSDP, D, B, S, RECOMPUTE_NONE },
    { "fsdp2-one-rank", "gpt2", 4, 1, 512, 1, 1, STRAT_FSDP, D, B, S, RECOMPUTE_NONE },
    { "fsdp1-gpt2", "gpt2", 0, 8, 1024, 4, 1, STRAT_FSDP, D1, F, S, RECOMPUTE_NONE },
    { "fsdp1-gpt2-bf16", "gpt2", 0, 8, 1024, 4, 1, STRAT_FSDP, D1, B, S, RECOMPUTE_NONE },
    { "fsdp1-gpt2-accumulate", "gpt2", 0, 8, 512, 2, 4, STRAT_FSDP, D1, B, S, RECOMPUTE_NONE },
    { "fsdp1-gpt2-recompute", "gpt2", 0, 8, 1024, 4, 1, STRAT_FSDP, D1, B, E, RECOMPUTE_FULL },
    { "fsdp1-llama", "llama-3.1-8b", 4, 8, 4096, 1, 1, STRAT_FSDP, D1, B, S, RECOMPUTE_FULL },
    { "fsdp1-llama-whole", "llama-3.1-8b", 0, 16, 2048, 1, 1, STRAT_FSDP, D1, B, S, RECOMPUTE_NONE },
    { "dp-gpt2", "gpt2", 0, 4, 512, 2, 1, STRAT_DP, D, F, S, RECOMPUTE_NONE },
    { "deepspeed0-gpt2", "gpt2", 0, 8, 1024, 2, 1, STRAT_DDP, DS, B, S, RECOMPUTE_NONE },
    { "deepspeed1-gpt2", "gpt2", 0, 8, 1024, 2, 1, STRAT_ZERO1, DS, B, S, RECOMPUTE_NONE },
    { "deepspeed1-gpt2-fp16", "gpt2", 0, 8, 1024, 2, 2, STRAT_ZERO1, DS, DT_FP16, S, RECOMPUTE_NONE },
    { "deepspeed2-gpt2", "gpt2", 0, 8, 1024, 2, 1, STRAT_ZERO2, DS, B, S, RECOMPUTE_NONE },
    { "deepspeed2-gpt2-accumulate", "gpt2", 0, 8, 512, 2, 4, STRAT_ZERO2, DS, B, S, RECOMPUTE_NONE },
    { "deepspeed2-llama", "llama-3.1-8b", 4, 8, 2048, 1, 1, STRAT_ZERO2, DS, B, S, RECOMPUTE_FULL },
    { "deepspeed3-gpt2", "gpt2", 0, 8, 1024, 2, 1, STRAT_ZERO3, DS, B, S, RECOMPUTE_NONE },
    { "deepspeed3-gpt2-accumulate", "gpt2", 0, 8, 512, 2, 2, STRAT_ZERO3, DS, B, S, RECOMPUTE_NONE },
    { "deepspeed3-llama", "llama-3.1-8b", 4, 8, 2048, 1, 1, STRAT_ZERO3, DS, B, S, RECOMPUTE_FULL },
    { "paper-zero1-gpt2", "gpt2", 0, 8, 512, 2, 1, STRAT_ZERO1, DIALECT_PAPER, B, S, RECOMPUTE_NONE },
    { "paper-zero2-gpt2", "gpt2", 0, 8, 512, 2, 1, STRAT_ZERO2, DIALECT_PAPER, B, S, RECOMPUTE_NONE },
    { "paper-zero3-gpt2", "gpt2", 0, 8, 512, 2, 1, STRAT_ZERO3, DIALECT_PAPER, B, S, RECOMPUTE_NONE },
    { "paper-fsdp-gpt2", "gpt2", 0, 8, 512, 2, 2, STRAT_FSDP, DIALECT_PAPER, F, E, RECOMPUTE_NONE },
    { "fsdp2-gemma", "gemma-3-1b", 0, 8, 2048, 1, 1, STRAT_FSDP, D, B, S, RECOMPUTE_NONE },
    { "fsdp2-opt", "opt-125m", 0, 8, 1024, 4, 1, STRAT_FSDP, D, B, S, RECOMPUTE_NONE },
};
enum { NREQUEST_PLANS = sizeof request_plans / sizeof *request_plans };

#undef D
#undef D1
#undef DS
#undef E
#undef S
#undef F
#undef B

static inline void request_plan(int i, struct plan *p)
{
    const struct request_plan *r = &request_plans[i];

    plan_of(p, r->model, r->layers, r->world, r->strategy, r->dialect, r->precision);
    p->seq = r->seq;
    p->micro_batch = r->micro_batch;
    p->accumulation = r->accumulation;
    p->kernels = r->kernels;
    p->recompute = r->recompute;
}

#endif

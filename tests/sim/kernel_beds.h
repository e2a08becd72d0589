/* kernel_beds.h -- a GPU of round rates, a plan on it and three kernels, for the tests of prices. */
#ifndef DPX_TESTS_KERNEL_BEDS_H
#define DPX_TESTS_KERNEL_BEDS_H

#include "sim/price/kernel_cost.h"

/* 1 TB/s of which an unknown type streams 0.85, and 100 TFLOP/s. */
static const struct gpu plain = { .name = "plain", .hbm = 1e12, .fp32 = 10e12, .bf16 = 100e12,
                                  .fp16 = 100e12, .sms = 100, .pcie = 50e9, .sm_arch = 80 };

static inline struct plan plan_of(enum dialect d, enum kernel_set set, enum strategy s, enum dtype t)
{
    struct plan p = { .strategy = s, .dialect = d, .kernels = set, .precision = t,
                      .reduce_dtype = t, .seq = 1024, .micro_batch = 1, .accumulation = 1 };

    p.cluster.gpu = plain;
    p.cluster.world_size = 8;
    p.model.layers = 2, p.model.heads = 8, p.model.head_dim = 64, p.model.ntensors = 10;
    return p;
}

static struct kernel three[] = {
    { .name = "norm", .kind = KC_NORM, .bytes = 850000000 },
    { .name = "up", .kind = KC_GEMM, .flops = 1, .m = 4096, .n = 4096, .k = 4096, .batch = 1,
      .bytes = 3 * 32 << 20 },
    { .name = "add", .kind = KC_ELEMENTWISE, .bytes = 1700000000 },
};

#endif

/* estimators.h -- DeepSpeed's own estimate of ZeRO's model states, to the byte.
 *
 *     struct estimator_input in = { .params = 125000000, .largest_layer = 40000000,
 *                                   .gpus_per_node = 8, .nodes = 1,
 *                                   .buffer_factor = ESTIMATOR_BUFFER_FACTOR };
 *     struct estimate e;
 *     if (estimate_zero3(&in, ESTIMATE_OFFLOAD_ALL, true, &e) < 0)
 *         return 2;
 *
 * estimate_zero2_model_states_mem_needs() and estimate_zero3_model_states_mem_needs() are
 * what people consult before they book GPUs.  They know neither buckets, nor gathered
 * parameters, nor activations; dpx prints them so that its own figure can stand beside
 * them.  Equal to the Python functions bit for bit, so their floating-point steps are
 * kept: see estimators.c. */
#ifndef DPX_ESTIMATORS_H
#define DPX_ESTIMATORS_H

#include <stdbool.h>
#include <stdint.h>

#include "model/arch/transformer.h"

#define ESTIMATOR_BUFFER_FACTOR 1.5     /* DeepSpeed's additional_buffer_factor */

struct estimator_input {
    int64_t params;             /* total_params; shared parameters once */
    int64_t largest_layer;      /* largest_layer_params; zero3 only */
    int64_t gpus_per_node, nodes;
    double  buffer_factor;
};

struct estimate {
    int64_t cpu_bytes;          /* per node */
    int64_t gpu_bytes;          /* per GPU */
};

enum estimate_offload {
    ESTIMATE_OFFLOAD_NONE,
    ESTIMATE_OFFLOAD_OPTIMIZER,         /* cpu_offload */
    ESTIMATE_OFFLOAD_ALL,               /* cpu_offload and cpu_offload_params (zero3 only) */
};

/* 0, or -1 with the field reported: an input that is not positive, or a result
 * beyond 63 bits. */
int estimate_zero2(const struct estimator_input *in, bool cpu_offload, struct estimate *out);
int estimate_zero3(const struct estimator_input *in, enum estimate_offload offload,
                   bool zero_init, struct estimate *out);

/* The five rows of `dpxplan estimators`, in the order of its JSON. */
struct estimate_row {
    const char     *name;       /* "zero2", "zero2_offload", "zero3" ... */
    struct estimate zero_init, no_zero_init;    /* equal for zero2, which has no such option */
};
#define ESTIMATE_ROWS 5
int estimate_all(const struct estimator_input *in, struct estimate_row rows[ESTIMATE_ROWS]);

/* DeepSpeed's largest_layer_params of a model: the module with the most parameters of
 * its own (children not counted). */
int64_t estimator_largest_layer(const struct model *m);

#endif

/* zero_check.c -- keys of ZeRO++ that exclude each other or others, with DeepSpeed's reasons. */
#include "model/plan/zero_check.h"

#include <inttypes.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/plan/knob.h"

/* groups._create_zero_param_parallel_group(): at most all ranks, which it has to divide. */
static int check_hpz(const struct plan *p, const char *where)
{
    int64_t n = p->ds.zero_hpz_partition_size, ranks = plan_data_ranks(p);

    if (!knob_has(p, "deepspeed", "zero_hpz_partition_size") || n == 1)
        return 0;
    if (ranks == 1)
        return fail("%s: deepspeed.zero_hpz_partition_size: one rank gathers nothing: set 1", where);
    if (ranks % (n < ranks ? n : ranks) != 0)
        return fail("%s: deepspeed.zero_hpz_partition_size: %" PRId64 " does not divide %" PRId64 " ranks, as DeepSpeed requires",
                    where, n, ranks);
    if (p->ds.offload_param.device != OFFLOAD_NONE)
        return fail("%s: deepspeed.zero_hpz_partition_size: with offload_param the secondary partitions lie in host memory, which is "
                    "not modelled yet: leave one of them out", where);
    return 0;
}

/* What DeepSpeed 0.19.6 and 0.19.8 make of it, as tests/golden/tune/record_frozen_int8.py found: _partition_param() quantises memory that was
 * never set and then copies the weights into the codes, as whole numbers; under zero.Init nothing is frozen yet when partitions are made. */
static int check_frozen_int8(const struct plan *p, const char *where)
{
    if (!p->ds.zero_quantized_nontrainable_weights || training_is_all(&p->train))
        return 0;
    return fail("%s: deepspeed.zero_quantized_nontrainable_weights: DeepSpeed rounds frozen weights to whole numbers as it copies them into their "
                "int8 partitions, so that they are lost; of a base built under zero.Init it quantises nothing, unless "
                "quantize_nontrainable_params() is called, which \"expects tensor.dtype == torch.float16\" and whose gathers of several tensors "
                "come out as int8: leave it out", where);
}

/* stage3.py (__init__); what is quantised on the way from or to the host is not followed. */
static int check_quantised(const struct plan *p, const char *where)
{
    const struct deepspeed_options *ds = &p->ds;
    bool away = ds->offload_param.device != OFFLOAD_NONE || ds->offload_optimizer.device != OFFLOAD_NONE;
    const char *key = ds->zero_quantized_weights ? "zero_quantized_weights" : ds->zero_quantized_gradients ? "zero_quantized_gradients"
                    : ds->zero_quantized_nontrainable_weights ? "zero_quantized_nontrainable_weights" : NULL;

    if (!key || !knob_has(p, "deepspeed", key))
        return 0;
    if (check_frozen_int8(p, where) < 0)
        return -1;
    if (ds->zero_quantized_gradients && !ds->reduce_scatter)
        return fail("%s: deepspeed.zero_quantized_gradients: \"when enable all_to_all_reduce, reduce_scatter should also be enabled\" "
                    "(DeepSpeed): set deepspeed.reduce_scatter to true", where);
    if (ds->zero_quantized_weights && ds->stage3_allgather_sequential)
        return fail("%s: deepspeed.zero_quantized_weights: beside stage3_allgather_sequential DeepSpeed dequantises every parameter of a "
                    "fetch again for each of them, which is not followed: leave one of them out", where);
    if (away)
        return fail("%s: deepspeed.%s: beside offload_%s it is not supported yet: leave one of them out", where, key,
                    ds->offload_param.device != OFFLOAD_NONE ? "param" : "optimizer");
    if (!plan_is_data_parallel(p))
        return fail("%s: deepspeed.%s: beside parallel.context it is not supported yet", where, key);
    return 0;
}

int zero_check(const struct plan *p, const char *where)
{
    return check_hpz(p, where) < 0 ? -1 : check_quantised(p, where);
}

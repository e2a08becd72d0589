/* as_recorded.h -- what a recorded plan of fine-tuning leaves out is what PyTorch does by itself, not what transformers' Trainer asks for: a
 * model in fp32, whose adapters are in their block's unit. */
#ifndef DPX_TEST_AS_RECORDED_H
#define DPX_TEST_AS_RECORDED_H

#include <jansson.h>
#include <string.h>

static inline void as_recorded(json_t *plan)
{
    const char *strategy = json_string_value(json_object_get(plan, "strategy")), *dialect = json_string_value(json_object_get(plan, "dialect"));
    json_t *fsdp = json_object_get(plan, "fsdp");

    if (!json_object_get(plan, "train") || !strategy || strcmp(strategy, "fsdp") != 0)
        return;
    if (!fsdp)
        json_object_set_new(plan, "fsdp", fsdp = json_object());
    if (!json_object_get(plan, "base_dtype") && !json_object_get(fsdp, "model_dtype"))
        json_object_set_new(fsdp, "model_dtype", json_null());
    if (dialect && !strcmp(dialect, "torch-fsdp1") && !json_object_get(fsdp, "wrap_adapters"))
        json_object_set_new(fsdp, "wrap_adapters", json_false());
}

#endif

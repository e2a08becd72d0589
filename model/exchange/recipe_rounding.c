/* recipe_rounding.c -- see recipe_rounding.h.  axolotl/utils/quantization.py (August 2026), prepare_model_for_qat(). */
#include "model/exchange/recipe_rounding.h"

#include <string.h>

#include "base/fail.h"

bool recipe_rounds_to_int4(const json_t *qat)
{
    const char *inputs = json_string_value(json_object_get(qat, "activation_dtype")), *weights = json_string_value(json_object_get(qat, "weight_dtype"));

    return inputs && weights && !strcmp(inputs, "int8") && !strcmp(weights, "int4") && !json_is_true(json_object_get(qat, "quantize_embedding"));
}

/* Groups are of 32 by its schema. */
int recipe_read_rounding(const json_t *config, const char *where, struct plan *p, struct notes *notes)
{
    const json_t *qat = json_object_get(config, "qat"), *group = json_object_get(qat, "group_size"), *after = json_object_get(qat, "fake_quant_after_n_steps");
    int64_t n = json_is_integer(group) ? (int64_t)json_integer_value(group) : 32;

    if (!json_is_object(qat))
        return 0;
    if ((group && !json_is_null(group) && !json_is_integer(group)) || n < 2 || n > 1 << 16)
        return fail("%s: qat.group_size: expected a number of weights from 2 to 65536", where);
    p->qat = (struct qat_options){ .kind = QAT_MSLK, .group = n };
    if (json_is_integer(after))
        notes_add(notes, "qat.fake_quant_after_n_steps: steps before it round nothing: the plan's steps are those after it");
    return 0;
}

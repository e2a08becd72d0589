/* rope.c -- see rope.h.  Source: transformers 5.23, modeling_rope_utils.py. */
#include "exec/kernels/rope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static double number(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);

    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* _compute_llama3_parameters: long waves are slowed, short ones kept, between them a blend. */
static double llama3(const json_t *o, double f)
{
    double factor = number(o, "factor", 8), low = number(o, "low_freq_factor", 1);
    double high = number(o, "high_freq_factor", 4), old = number(o, "original_max_position_embeddings", 8192);
    double wave = 2 * 3.14159265358979323846 / f;

    if (wave < old / high)
        return f;
    if (wave > old / low)
        return f / factor;
    double smooth = (old / wave - low) / (high - low);
    return (1 - smooth) * f / factor + smooth * f;
}

float *rope_frequencies(const struct model *m, int64_t seq)
{
    const char *type = json_string_value(json_object_get(m->rope_scaling, "rope_type"));
    int64_t half = m->rotary_dim / 2;
    float *f = malloc((size_t)(half + 1) * sizeof *f);

    (void)seq;
    if (!type)
        type = json_string_value(json_object_get(m->rope_scaling, "type"));
    if (!f) {
        fail("out of memory for rotary frequencies");
        return NULL;
    }
    if (m->rope_scaling && type && strcmp(type, "llama3") != 0 && strcmp(type, "linear") != 0) {
        fail("rotary positions of type \"%s\" are not computed here (default, linear and llama3 are)", type);
        free(f);
        return NULL;
    }
    for (int64_t i = 0; i < half; i++) {
        double v = pow(m->rope_theta, -2.0 * (double)i / (double)m->rotary_dim);
        if (m->rope_scaling && type)
            v = strcmp(type, "linear") == 0 ? v / number(m->rope_scaling, "factor", 1) : llama3(m->rope_scaling, v);
        f[i] = (float)v;
    }
    return f;
}

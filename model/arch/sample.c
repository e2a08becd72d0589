/* sample.c -- see sample.h. */
#include "model/arch/sample.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/fail.h"
#include "model/arch/recorded.h"

const char *const sample_of_names[] = { [SAMPLE_TOKENS] = "tokens", [SAMPLE_SIDE] = "side", [SAMPLE_SIZE] = "size", [NSAMPLE] = NULL };

bool sample_has_tokens(const struct model *m) { return !m->recorded || m->recorded->of == SAMPLE_TOKENS; }

struct sample_text sample_text(const struct model *m, int64_t seq)
{
    struct sample_text out;

    if (sample_has_tokens(m))
        snprintf(out.s, sizeof out.s, "%" PRId64 " tokens", seq);
    else if (m->recorded->of == SAMPLE_SIDE)
        snprintf(out.s, sizeof out.s, "%" PRId64 " x %" PRId64, seq, seq);
    else
        snprintf(out.s, sizeof out.s, "size %" PRId64, seq);
    return out;
}

const char *sample_rate_unit(const struct model *m) { return sample_has_tokens(m) ? "tokens/s" : "samples/s"; }

double sample_rate(const struct model *m, int64_t seq, double sizes_per_s) { return sample_has_tokens(m) ? sizes_per_s : sizes_per_s / (double)seq; }

int sample_refuse_tokens(const struct model *m)
{
    return sample_has_tokens(m) ? 0 : fail("--tokens: a sample of %s has no tokens; fit and bill take --samples", m->name);
}

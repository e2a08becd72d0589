/* attention.c -- one row for each family whose attention is not the common one:
 * sdpa through sdpa_attention_forward(), grouped queries without a mask. */
#include "model/attention.h"

#include <string.h>

struct habits {
    const char *family;
    const char *no_sdpa;        /* why its class has no _supports_sdpa */
};

static const struct habits habits[] = {
    { .family = "bloom", .no_sdpa = "its modelling code has no fused attention" },
    { .family = "mpt", .no_sdpa = "its modelling code has no fused attention" },
    { .family = "gemma2", .no_sdpa = "sdpa cannot cap scores" },
};

static const struct habits *habits_of(const char *family)
{
    static const struct habits common = { 0 };

    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
        if (!strcmp(habits[i].family, family))
            return &habits[i];
    return &common;
}

const char *attention_refuses_sdpa(const char *family) { return habits_of(family)->no_sdpa; }

enum kernel_set attention_default(const struct model *m)
{
    return attention_refuses_sdpa(m->family) ? KERNELS_TORCH_EAGER : KERNELS_TORCH_SDPA;
}

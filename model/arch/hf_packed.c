/* hf_packed.c -- see hf_packed.h. */
#include "model/arch/hf_packed.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* Does it occur in the id, whatever its letters' size, and does no letter or number follow? */
static bool has(const char *id, const char *part)
{
    size_t n = strlen(part);

    for (const char *at = id; *at; at++)
        if (!strncasecmp(at, part, n) && !(at[n] >= 'a' && at[n] <= 'z'))
            return true;
    return false;
}

bool hf_packed_nf4(const char *id) { return id && has(id, "-bnb-4bit"); }

bool hf_packed_otherwise(const char *id)
{
    static const char *const parts[] = { "-gptq", "-awq", "-aqlm", "-nvfp4", "-fp8", "-eetq", "-hqq", "-w4a16", "-w8a8", "-int4", "-int8", "-bnb-8bit" };

    for (size_t i = 0; id && i < sizeof parts / sizeof *parts; i++)
        if (has(id, parts[i]))
            return true;
    return false;
}

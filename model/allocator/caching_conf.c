/* caching_conf.c -- PYTORCH_CUDA_ALLOC_CONF as PyTorch writes it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/allocator/caching_allocator.h"

#define MiB ((int64_t)1 << 20)

/* A key's value as a number within [low, high]. */
static int number(const char *key, const char *text, double low, double high, double *out)
{
    char *end;

    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= low && *out <= high))
        return fail("alloc-conf: %s: %s is not a number from %g to %g", key, text, low, high);
    return 0;
}

static int mib(const char *key, const char *text, double low, int64_t *out)
{
    double n;

    if (number(key, text, low, 1 << 20, &n) < 0)
        return -1;
    if (n != floor(n))
        return fail("alloc-conf: %s: %s is not a whole number of MiB", key, text);
    *out = (int64_t)n * MiB;
    return 0;
}

static int power_of_two(const char *key, const char *text, int64_t *out)
{
    double n;

    if (number(key, text, 0, 64, &n) < 0)
        return -1;
    *out = (int64_t)n;
    if ((double)*out != n || (*out & (*out - 1)))
        return fail("alloc-conf: %s: %s is not a power of two", key, text);
    return 0;
}

static int truth(const char *key, const char *text, bool *out)
{
    *out = !strcmp(text, "True");
    if (!*out && strcmp(text, "False"))
        return fail("alloc-conf: %s: True or False, not %s", key, text);
    return 0;
}

static int set(struct caching_options *o, const char *key, const char *value)
{
    if (!strcmp(key, "expandable_segments"))
        return truth(key, value, &o->expandable_segments);
    if (!strcmp(key, "max_split_size_mb"))
        return mib(key, value, 20, &o->max_split_size);
    if (!strcmp(key, "max_non_split_rounding_mb"))
        return mib(key, value, 20, &o->max_non_split_rounding);
    if (!strcmp(key, "large_segment_size_mb"))
        return mib(key, value, 20, &o->large_segment_size);
    if (!strcmp(key, "roundup_power2_divisions"))
        return power_of_two(key, value, &o->roundup_power2_divisions);
    if (!strcmp(key, "garbage_collection_threshold"))
        return number(key, value, 0, 1, &o->garbage_collection_threshold);
    if (!strcmp(key, "per_process_memory_fraction"))
        return number(key, value, 0, 1, &o->fraction);
    return fail("alloc-conf: %s is not replayed: expandable_segments, max_split_size_mb, max_non_split_rounding_mb, "
                "large_segment_size_mb, roundup_power2_divisions, garbage_collection_threshold, "
                "per_process_memory_fraction are", key);
}

int caching_allocator_configure(struct caching_options *o, const char *conf)
{
    char *text = strdup(conf), *rest = NULL;
    int rc = text ? 0 : fail("out of memory for alloc-conf");

    for (char *key = text ? strtok_r(text, ",", &rest) : NULL; key && !rc; key = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(key, ':');
        if (!value) {
            rc = fail("alloc-conf: %s has no value: KEY:VALUE,KEY:VALUE", key);
            break;
        }
        *value++ = '\0';
        rc = set(o, key, value);
    }
    free(text);
    return rc;
}

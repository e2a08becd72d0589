/* caching_calls.c -- one request at a time, of those that caching_allocator_serve() serves. */
#include <stddef.h>

#include "model/allocator/caching_allocator_internal.h"

int caching_allocator_malloc(struct caching_allocator *a, int64_t bytes, int stream)
{
    struct caching_step one = { bytes, 0, CACHING_MALLOC };
    int block;

    return caching_allocator_serve(a, &one, 1, stream, &block, NULL) == 1 ? block : -1;
}

int caching_allocator_touch(struct caching_allocator *a, int64_t bytes, int stream)
{
    struct caching_step one = { bytes, 0, CACHING_TOUCH };

    return caching_allocator_serve(a, &one, 1, stream, NULL, NULL) == 1 ? 0 : -1;
}

void caching_allocator_free(struct caching_allocator *a, int block)
{
    struct caching_step one = { 0, 0, CACHING_FREE };

    caching_allocator_serve(a, &one, 1, a->blocks[block].pool->stream, &block, NULL);
}

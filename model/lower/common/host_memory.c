/* host_memory.c -- PyTorch's two host allocators. */
#include "model/lower/common/host_memory.h"

int64_t pinned_bytes(int64_t bytes)
{
    int64_t power = 1;

    if (bytes <= 0)
        return 0;
    while (power < bytes)
        power *= 2;
    return power;
}

int64_t pageable_bytes(int64_t bytes) { return bytes; }

/* room.c -- lists that grow by doubling; the process ends where there is no memory. */
#include "base/room.h"

#include <stdlib.h>

void *room_new(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);

    if (!p)
        abort();
    return p;
}

void *room_grow(void *array, int64_t n, int64_t *room, size_t size)
{
    enum { FIRST = 64 };

    *room = 2 * n > FIRST ? 2 * n : FIRST;
    array = realloc(array, (size_t)*room * size);
    if (!array)
        abort();
    return array;
}

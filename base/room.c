#include "base/room.h"

#include <stdlib.h>

void *room_new(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);

    if (!p)
        abort();
    return p;
}

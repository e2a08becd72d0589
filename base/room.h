/* room.h -- small allocations that no caller could do without.
 *
 *     l->at = room_for(l->at, l->n, &l->room, sizeof *l->at);
 *     l->at[l->n++] = x;
 *
 * Where there is no memory left for a list, the process ends. */
#ifndef DPX_ROOM_H
#define DPX_ROOM_H

#include <stddef.h>
#include <stdint.h>

/* n * size bytes, zeroed; free() them. */
void *room_new(size_t n, size_t size);

/* room_for()'s array, larger. */
void *room_grow(void *array, int64_t n, int64_t *room, size_t size);

/* An array with room for element n, of `size` bytes each: `array` itself (NULL at first) where it has *room elements and
 * n is below, else a larger one with what was in it; *room is then at least doubled.  What is new is not set. */
static inline void *room_for(void *array, int64_t n, int64_t *room, size_t size)
{
    return n < *room ? array : room_grow(array, n, room, size);
}

#endif

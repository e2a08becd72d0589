/* room.h -- small allocations that no caller could do without. */
#ifndef DPX_ROOM_H
#define DPX_ROOM_H

#include <stddef.h>

/* n * size bytes, zeroed; free() them.  Where there is no memory left for a list, the process ends. */
void *room_new(size_t n, size_t size);

#endif

/* room.h -- small allocations of the issuing thread, outside of the arena. */
#ifndef DPX_ROOM_H
#define DPX_ROOM_H

#include <stddef.h>

/* Zeroed.  Running out of memory for a list is the end: no caller could say anything better. */
void *room(size_t n, size_t size);

#endif

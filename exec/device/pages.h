/* pages.h -- memory in large pages, where the system has them.
 *
 * Which physical pages of 4 KiB a process gets is chance, and so is how many of an operand fall into the
 * same sets of a cache that goes by physical addresses: the same kernel takes longer in one
 * process than in the next, for as long as the process lives.  Pages of 2 MiB hold an operand or most of
 * it, and one entry of the TLB does for 512. */
#ifndef DPX_PAGES_H
#define DPX_PAGES_H

#include <stddef.h>
#include <stdint.h>

enum { LARGE_PAGE = 2 << 20 };

/* Where large pages fit into [p, p + bytes), asks the kernel for them (it may have none; Linux,
 * Documentation/admin-guide/mm/transhuge.rst).  Before the memory is touched. */
void pages_large(void *p, size_t bytes);

/* Page-aligned; huge pages when large enough.  NULL: out of memory.  free() it. */
void *pages_allocate(int64_t bytes);

/* Makes pages present that were not touched yet.  0, or -1 with errno. */
int pages_populate(void *p, size_t bytes);

#endif

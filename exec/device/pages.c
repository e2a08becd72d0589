/* madvise() is not POSIX's. */
#define _DEFAULT_SOURCE
#include "exec/device/pages.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void pages_large(void *p, size_t bytes)
{
    uintptr_t from = ((uintptr_t)p + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    uintptr_t to = ((uintptr_t)p + bytes) / LARGE_PAGE * LARGE_PAGE;

    if (from < to)
        madvise((void *)from, to - from, MADV_HUGEPAGE);        /* refused: small ones do */
}

void *pages_allocate(int64_t bytes)
{
    void *p = NULL;

    if (posix_memalign(&p, bytes < LARGE_PAGE ? 4096 : LARGE_PAGE, (size_t)(bytes > 0 ? bytes : 1)) != 0)
        return NULL;
    pages_large(p, (size_t)bytes);
    return p;
}

int pages_populate(void *p, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

#ifdef MADV_POPULATE_WRITE
    if (madvise(p, bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)                /* Linux before 5.14 does not know it */
        return -1;
#endif
    for (size_t at = 0; at < bytes; at += page)
        ((volatile char *)p)[at] = 0;
    return 0;
}

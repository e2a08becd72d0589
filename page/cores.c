/* cores.c -- what the C library for WebAssembly lacks: there it computes on one core. */
#include <errno.h>
#include <sched.h>

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set)
{
    (void)process, (void)size, (void)set;
    errno = ENOSYS;
    return -1;
}

int __sched_cpucount(size_t size, const cpu_set_t *set)
{
    (void)size, (void)set;
    return 1;
}

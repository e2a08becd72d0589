/* nvml.c -- see nvml.h.  Loaded by name at run time: the library belongs to the driver, and its
 * header is not part of every toolkit.  Declared here is what is used of it, as documented. */
#include "exec/cuda/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NVML_SUCCESS = 0, MOST = 256 };

/* nvmlProcessInfo_v2_t, which the _v3 of the call fills. */
struct process { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };

typedef int init_fn(void);
typedef int by_uuid_fn(const char *uuid, void **device);
typedef int processes_fn(void *device, unsigned *n, struct process *out);

struct nvml {
    void *library, *device;
    init_fn      *shutdown;             /* NULL until nvmlInit() has succeeded */
    processes_fn *processes;
};

/* ISO C has no cast from object to function pointer. */
static void find(void *library, const char *name, void *into)
{
    void *f = dlsym(library, name);

    memcpy(into, &f, sizeof f);
}

static int load(struct nvml *n, const char *uuid)
{
    init_fn *init, *shutdown;
    by_uuid_fn *by_uuid;

    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        return -1;
    find(n->library, "nvmlInit_v2", &init);
    find(n->library, "nvmlShutdown", &shutdown);
    find(n->library, "nvmlDeviceGetHandleByUUID", &by_uuid);
    find(n->library, "nvmlDeviceGetComputeRunningProcesses_v3", &n->processes);
    if (!init || !shutdown || !by_uuid || !n->processes || init() != NVML_SUCCESS)
        return -1;
    n->shutdown = shutdown;
    return by_uuid(uuid, &n->device) == NVML_SUCCESS ? 0 : -1;
}

struct nvml *nvml_open(const char *uuid)
{
    struct nvml *n = calloc(1, sizeof *n);

    if (n && load(n, uuid) == 0)
        return n;
    nvml_close(n);
    return NULL;
}

int64_t nvml_process_used(struct nvml *n)
{
    struct process p[MOST];
    unsigned count = MOST;

    if (n->processes(n->device, &count, p) != NVML_SUCCESS)
        return -1;
    for (unsigned i = 0; i < count; i++)
        if (p[i].pid == (unsigned)getpid() && p[i].bytes != ~0ull)      /* ~0: not available */
            return (int64_t)p[i].bytes;
    return -1;
}

void nvml_close(struct nvml *n)
{
    if (!n)
        return;
    if (n->shutdown)
        n->shutdown();
    if (n->library)
        dlclose(n->library);
    free(n);
}

/* device.cc -- what the emulated devices say they are, errors, and the message of a wrong access. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fiber.h"
#include "internal.h"

static thread_local int current;
static thread_local cudaError_t last_error;

long emu_setting(const char *name)
{
    const char *s = getenv(name);

    return s ? strtol(s, nullptr, 10) : 0;
}

/* ---- errors ---- */

cudaError_t emu_error(cudaError_t status)
{
    if (status != cudaSuccess)
        last_error = status;
    return status;
}

cudaError_t emu_refuse(cudaError_t status, const char *format, ...)
{
    va_list args;

    if (emu_setting("DPX_EMU_TALK")) {
        va_start(args, format);
        fputs("emulated CUDA: ", stderr);
        vfprintf(stderr, format, args);
        fputc('\n', stderr);
        va_end(args);
    }
    return emu_error(status);
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void)
{
    cudaError_t status = last_error;

    last_error = cudaSuccess;
    return status;
}

static const struct { cudaError_t status; const char *name, *words; } errors[] = {
    { cudaSuccess, "cudaSuccess", "no error" },
    { cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument" },
    { cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
    { cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error" },
    { cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument" },
    { cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer" },
    { cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy" },
    { cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version" },
    { cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function" },
    { cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
    { cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal" },
    { cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device" },
    { cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
    { cudaErrorNotReady, "cudaErrorNotReady", "device not ready" },
    { cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered" },
    { cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure" },
    { cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted" },
    { cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported" },
};

const char *cudaGetErrorString(cudaError_t status)
{
    for (const auto &e : errors)
        if (e.status == status)
            return e.words;
    return "unknown error";
}

const char *cudaGetErrorName(cudaError_t status)
{
    for (const auto &e : errors)
        if (e.status == status)
            return e.name;
    return "cudaErrorUnknown";
}

void emu_die(const char *format, ...)
{
    char where[256];
    va_list args;

    emu_where(where, sizeof where);
    va_start(args, format);
    fprintf(stderr, "emulated CUDA: %s: ", where);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    fflush(stderr);
    abort();
}

/* ---- a wrong access: told in words, then what it would have been ---- */

/* SIGILL, SIGTRAP: what -fsanitize=alignment -fsanitize-undefined-trap-on-error puts before an access. */
static void wrong_access(int number, siginfo_t *info, void *)
{
    char where[256], what[256], line[640];

    emu_where(where, sizeof where);
    if (number == SIGILL || number == SIGTRAP)
        snprintf(what, sizeof what, "traps: an address that is not a multiple of what its type asks for");
    else if (info->si_code == SI_KERNEL)
        snprintf(what, sizeof what, "it is no address, or not a multiple of what its type asks for");
    else if (fiber_overflow(info->si_addr))
        snprintf(what, sizeof what, "the stack of an emulated thread is full");
    else
        emu_describe(info->si_addr, what, sizeof what);
    int n = number == SIGILL || number == SIGTRAP
                ? snprintf(line, sizeof line, "emulated CUDA: %s: %s\n", where, what)
                : snprintf(line, sizeof line, "emulated CUDA: %s: touches %p: %s\n", where, info->si_addr, what);
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        abort();
    signal(number, SIG_DFL);            /* on return it happens again */
}

__attribute__((constructor)) static void watch_accesses()
{
    for (int number : { SIGSEGV, SIGBUS, SIGILL, SIGTRAP }) {
        struct sigaction is, ours = {};
        sigaction(number, nullptr, &is);
        if (is.sa_handler != SIG_DFL || (is.sa_flags & SA_SIGINFO))
            continue;                   /* a sanitizer's */
        ours.sa_sigaction = wrong_access;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(number, &ours, nullptr);
    }
}

/* ---- devices ---- */

int emu_devices()
{
    static const int n = getenv("DPX_EMU_DEVICES") ? (int)emu_setting("DPX_EMU_DEVICES") : 1;

    return n < 0 ? 0 : n > 64 ? 64 : n;
}

size_t emu_memory()
{
    static const long n = emu_setting("DPX_EMU_MEMORY");

    return n > 0 ? (size_t)n : (size_t)8 << 30;
}

int emu_current() { return current; }

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = emu_devices();
    return *count ? cudaSuccess : emu_error(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= emu_devices())
        return emu_error(emu_devices() ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    if (!emu_devices())
        return emu_error(cudaErrorNoDevice);
    *device = current;
    return cudaSuccess;
}

static void fill(struct cudaDeviceProp *p, int device)
{
    *p = {};
    snprintf(p->name, sizeof p->name, "emulated");
    memcpy(p->uuid.bytes, "emulated device", 15);
    p->uuid.bytes[15] = (char)device;
    p->totalGlobalMem = emu_memory();
    p->sharedMemPerBlock = SHARED_PLAIN;
    p->sharedMemPerBlockOptin = SHARED_MOST;
    p->sharedMemPerMultiprocessor = SHARED_MOST + KiB;
    p->reservedSharedMemPerBlock = KiB;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = MOST_THREADS;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = 9;
    p->multiProcessorCount = 132;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported = 1;
    p->asyncEngineCount = 3;
    p->memoryBusWidth = 5120;
    p->l2CacheSize = 50 << 20;
    p->pciBusID = device + 1;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *into, int device)
{
    if (device < 0 || device >= emu_devices())
        return emu_error(cudaErrorInvalidDevice);
    fill(into, device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;

    if (device < 0 || device >= emu_devices())
        return emu_error(cudaErrorInvalidDevice);
    fill(&p, device);
    const struct { enum cudaDeviceAttr of; int is; } table[] = {
        { cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock },
        { cudaDevAttrMaxBlockDimX, p.maxThreadsDim[0] },
        { cudaDevAttrMaxGridDimX, p.maxGridSize[0] },
        { cudaDevAttrMaxGridDimY, p.maxGridSize[1] },
        { cudaDevAttrMaxSharedMemoryPerBlock, (int)p.sharedMemPerBlock },
        { cudaDevAttrMaxSharedMemoryPerBlockOptin, (int)p.sharedMemPerBlockOptin },
        { cudaDevAttrMaxSharedMemoryPerMultiprocessor, (int)p.sharedMemPerMultiprocessor },
        { cudaDevAttrWarpSize, p.warpSize },
        { cudaDevAttrMaxRegistersPerBlock, p.regsPerBlock },
        { cudaDevAttrClockRate, 1980000 },
        { cudaDevAttrMemoryClockRate, 2619000 },
        { cudaDevAttrGlobalMemoryBusWidth, p.memoryBusWidth },
        { cudaDevAttrMultiProcessorCount, p.multiProcessorCount },
        { cudaDevAttrL2CacheSize, p.l2CacheSize },
        { cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor },
        { cudaDevAttrAsyncEngineCount, p.asyncEngineCount },
        { cudaDevAttrUnifiedAddressing, p.unifiedAddressing },
        { cudaDevAttrComputeCapabilityMajor, p.major },
        { cudaDevAttrComputeCapabilityMinor, p.minor },
        { cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor },
    };
    for (const auto &row : table)
        if (row.of == attribute) {
            *value = row.is;
            return cudaSuccess;
        }
    return emu_refuse(cudaErrorInvalidValue, "device attribute %d is not emulated", (int)attribute);
}

cudaError_t cudaDeviceGetPCIBusId(char *into, int size, int device)
{
    if (!into || size < 13 || device < 0 || device >= emu_devices())
        return emu_error(cudaErrorInvalidValue);
    snprintf(into, (size_t)size, "0000:%02x:00.0", (unsigned)(device + 1) & 0xff);
    return cudaSuccess;
}

/* Lower is more urgent, as on devices. */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

/* By threads and shared memory; registers are not known here. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int block, size_t shared)
{
    if (!blocks || block < 1 || block > MOST_THREADS)
        return emu_error(cudaErrorInvalidValue);
    int by_threads = 2048 / block, by_shared = (int)((SHARED_MOST + KiB) / (shared + KiB));

    *blocks = by_threads < by_shared ? by_threads : by_shared;
    if (*blocks > 32)
        *blocks = 32;
    return cudaSuccess;
}

/* oom_message.h -- the figures of PyTorch's out-of-memory message, or of a memory snapshot or statistics as JSON.
 *
 * The words of the message, all in c10/cuda/CUDACachingAllocator.cpp (torch 2.15: also
 * c10/core/CachingDeviceAllocator.h without the device's name), where "Tried to allocate" begins each:
 *     1.0 to 1.3   20.00 MiB (GPU 0; 7.79 GiB total capacity; 6.34 GiB already allocated; 14.75 MiB free; 40.11 MiB cached)
 *     1.4 to 2.0   ... 14.75 MiB free; [4.00 GiB allowed; ]6.35 GiB reserved in total by PyTorch)[ If reserved memory is ...]
 *     2.1          20.00 MiB. GPU 0 has a total capacty of 7.79 GiB of which 14.75 MiB is free. [Process 12 has 1.00 GiB
 *                  memory in use. ...][Including non-PyTorch memory, this process has 6.50 GiB memory in use. ][4.00 GiB allowed; ]
 *                  Of the allocated memory 6.34 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.
 *     2.2 and on   "capacity"; from 2.3 with 1.00 GiB allocated in private pools (e.g., CUDA Graphs), and
 * CUDA, HIP, XPU and others differ in the first word.  format_size() prints bytes, KiB, MiB or GiB with two decimals.
 *
 * JSON: torch.cuda.memory_stats() (flat or nested), torch.cuda.memory_snapshot() (a list of segments) and
 * torch.cuda.memory._snapshot() (an object with segments and device_traces), dumped by json.dump. */
#ifndef DPX_OOM_MESSAGE_H
#define DPX_OOM_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

struct json_t;

/* Bytes; -1: not said. */
struct oom_message {
    int64_t tried;              /* the request that failed, as it was made of the device */
    int64_t total, free;        /* of the device */
    int64_t allowed;            /* set_per_process_memory_fraction() */
    int64_t process;            /* this process, PyTorch's memory and the rest */
    int64_t others;             /* other processes together; 0 where the form would name them and does not */
    int64_t allocated, reserved;        /* when it failed, private pools included; of statistics the peaks */
    int64_t private_pools;
    int64_t retries, ooms;      /* of statistics */
    int     gpu;
    double  within;             /* half of the last digit of `tried`, in bytes */
    enum { OOM_TEXT, OOM_STATS, OOM_SEGMENTS } form;
};

/* 0, or -1 with what is missing reported; `where` names the text. */
int oom_message_parse(const char *where, const char *text, size_t size, struct oom_message *out);

/* The message by the name of its file ("-": standard input), or itself, or as a JSON document; one of them. */
struct oom_given { const char *path, *text; const struct json_t *doc; };
int oom_message_given(const struct oom_given *given, struct oom_message *out);

#endif

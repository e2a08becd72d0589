/* elsewhere.c -- the ways to offload, as values of knobs for each strategy and dialect. */
#include "model/plan/elsewhere.h"

#include <string.h>

#include "base/dtype.h"
#include "model/plan/knob.h"

const char *const elsewhere_words[] = { "none", "optimizer", "all", "nvme", NULL };

static const char optimizer[] = "deepspeed.offload_optimizer", param[] = "deepspeed.offload_param";

/* "nvme_path" of DeepSpeed's configuration examples. */
static const char folder[] = "/local_nvme";

static void to_device(struct plan *p, const char *object, enum offload_device d)
{
    const struct knob *path = knob_find(object, "nvme_path", knob_cell(p));

    knob_set(p, knob_find(object, "device", knob_cell(p)), d);
    if (d == OFFLOAD_NVME && path)
        memcpy((char *)p + path->offset, folder, sizeof folder);
}

/* DeepSpeed asks for a buffer_size of at least the largest partition (partitioned_param_swapper.py). */
static void large_enough(struct plan *p)
{
    const struct knob *size = knob_find(param, "buffer_size", knob_cell(p));

    for (int i = 0; size && i < p->model.ntensors; i++) {
        int64_t most = ceil_div(p->model.tensors[i].numel, p->cluster.world_size);
        if ((double)most > knob_get(p, size))
            knob_set(p, size, (double)most);
    }
}

/* A parameter that is kept for its next use keeps its buffer, and a deep model soon has more of them than buffers. */
static void keep_none(struct plan *p)
{
    const struct knob *reuse = knob_find("deepspeed", "stage3_max_reuse_distance", knob_cell(p));

    if (reuse)
        knob_set(p, reuse, 0);
}

static bool is_deepspeeds(uint64_t cell, enum elsewhere how)
{
    return knob_find(optimizer, "device", cell) && (how == ELSEWHERE_OPTIMIZER || knob_find(param, "device", cell));
}

bool elsewhere_has(enum strategy s, enum dialect d, enum elsewhere how)
{
    return how == ELSEWHERE_NOTHING || is_deepspeeds(CELL(s, d), how) ||
           (how != ELSEWHERE_DISK && knob_find("fsdp", "cpu_offload", CELL(s, d)));
}

bool elsewhere_set(struct plan *p, enum elsewhere how)
{
    enum offload_device d = how == ELSEWHERE_DISK ? OFFLOAD_NVME : OFFLOAD_CPU;

    if (!elsewhere_has(p->strategy, p->dialect, how))
        return false;
    if (how == ELSEWHERE_NOTHING)
        return true;
    if (is_deepspeeds(knob_cell(p), how)) {
        to_device(p, optimizer, d);
        if (how != ELSEWHERE_OPTIMIZER)
            to_device(p, param, d);
        if (how == ELSEWHERE_DISK) {
            large_enough(p);
            keep_none(p);
        }
    } else {
        knob_set(p, knob_find("fsdp", "cpu_offload", knob_cell(p)), 1);
    }
    plan_resolve(p);
    return true;
}

const char *elsewhere_note(const struct plan *p)
{
    const struct knob *fsdp = knob_find("fsdp", "cpu_offload", knob_cell(p)), *threads = knob_find("", "host_threads", knob_cell(p));
    const struct knob *device, *path;
    const char *const objects[] = { optimizer, param };

    for (int i = 0; i < 2; i++) {
        device = knob_find(objects[i], "device", knob_cell(p));
        path = knob_find(objects[i], "nvme_path", knob_cell(p));
        if (device && path && (int)knob_get(p, device) == OFFLOAD_NVME && !((const char *)p)[path->offset])
            return "DeepSpeed needs nvme_path, the folder of the files, for device nvme: export refuses the plan without it";
    }
    if (fsdp && threads && knob_get(p, fsdp) > 0 && p->host_threads == 1 && knob_default(p, threads) > 0)
        return "AdamW on the host has one thread a rank, because torchrun sets OMP_NUM_THREADS=1; for more, set that variable and the plan's host_threads";
    return NULL;
}

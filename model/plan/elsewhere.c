#include "model/plan/elsewhere.h"

#include <string.h>

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

static bool is_deepspeeds(uint32_t cell, enum elsewhere how)
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
    } else {
        knob_set(p, knob_find("fsdp", "cpu_offload", knob_cell(p)), 1);
    }
    plan_resolve(p);
    return true;
}

/* lower_fsdp2_states.c -- optimizer states that wait in page-locked host memory, and are on the device in the optimizer's step alone.
 *
 * Source: prime-rl's CPUOffloadOptimizer (trainer/optim/state_offload.py, August 2026), model.optim_cpu_offload.  Before the step each
 * state comes by Tensor.to("cuda", non_blocking=True), on the compute stream.  Behind it each goes by Tensor.to("cpu"), into pageable
 * memory, for which the issuing thread waits, and is pinned there: PyTorch's host allocator keeps what was pinned before for it.  The
 * first step makes the states on the device. */
#include "model/lower/common/optimizer.h"
#include "model/lower/common/pinned.h"
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Of a class: what its states take when pinned, one by one; *largest: the largest of them. */
static int64_t pinned_states(struct fsdp2 *f, enum unit_class c, int64_t *largest)
{
    int64_t bytes[OPTIMIZER_PARTS], sum = 0;

    for (int i = 0, t; (t = unit_tensor(&f->walk.map, c, i)) >= 0; i++)
        for (int k = 0, n = fsdp2_states(f, c, t, bytes); k < n; k++) {
            sum += pinned_bytes(bytes[k]);
            *largest = most(*largest, bytes[k]);
        }
    return sum;
}

void fsdp2_states_declare(struct fsdp2 *f)
{
    int64_t largest = 0;

    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0) {
            f->fam[c].states_home = sched_buf_in(f->s, SPACE_PINNED, CAT_OPTIMIZER, "waiting optimizer states", c == UC_ROOT ? NULL : unit_class_name(c), 0,
                                                 f->walk.map.of_class[c], pinned_states(f, c, &largest));
            f->states_bytes += f->size[c].optimizer_bytes * f->walk.map.of_class[c];
        }
    f->states_staged = sched_buf_in(f->s, SPACE_HOST, CAT_TEMPORARIES, "state before it is pinned", NULL, 0, 1, largest);
}

static void all(struct fsdp2 *f, int act, bool home)
{
    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0)
            sched_act_all(f->s, act, home ? f->fam[c].states_home : f->fam[c].optimizer);
}

void fsdp2_states_come(struct fsdp2 *f)
{
    sched_copy(f->s, STREAM_H2D, PHASE_OPTIMIZER, "states to device", f->states_bytes, f->states_bytes)->after = AFTER(STREAM_COMPUTE);
    all(f, ACT_R, true);
    all(f, ACT_ALLOC | ACT_W, false);
}

/* Each is freed on the device once it has been copied; all are one entry, as each copy holds the thread. */
void fsdp2_states_leave(struct fsdp2 *f, bool first)
{
    sched_copy(f->s, STREAM_D2H, PHASE_OPTIMIZER, "states to host", f->states_bytes, f->states_bytes)->after = AFTER(STREAM_COMPUTE);
    all(f, ACT_R | ACT_FREE, false);
    sched_act(f->s, ACT_ALLOC | ACT_W, f->states_staged, 0, 0);
    sched_op(f->s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "states to host")->after = AFTER(STREAM_D2H);
    sched_copy(f->s, STREAM_HOST, PHASE_OPTIMIZER, "pin states", f->states_bytes, f->states_bytes)->after = AFTER(STREAM_D2H);
    sched_act(f->s, ACT_R | ACT_FREE, f->states_staged, 0, 0);
    all(f, first ? ACT_ALLOC | ACT_W : ACT_W, true);
    sched_op(f->s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "pin states")->after = AFTER(STREAM_HOST);
}

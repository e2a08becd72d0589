/* lower_internal.h -- functions that all lowerings share; for lower_*.c only. */
#ifndef DPX_LOWER_INTERNAL_H
#define DPX_LOWER_INTERNAL_H

#include "model/arch/packed.h"
#include "model/plan/local_model.h"
#include "model/schedule/schedule.h"
#include "model/schedule/units.h"

/* One per family.  The schedules are reset, the program built and the groups
 * set; a lowering appends buffers and entries. */
int lower_dp(const struct local_model *local, struct schedules *s);
int lower_paper(const struct local_model *local, struct schedules *s);
int lower_ddp(const struct local_model *local, struct schedules *s);     /* torch ddp, zero1 */
int lower_fsdp1(const struct local_model *local, struct schedules *s);
int lower_fsdp2(const struct local_model *local, struct schedules *s);
int lower_zero12(const struct local_model *local, struct schedules *s);  /* DeepSpeed stages 0-2 */
int lower_zero3(const struct local_model *local, struct schedules *s);   /* DeepSpeed stage 3 */
int lower_megatron(const struct local_model *local, struct schedules *s);
/* lower_check() of stage 3. */
int lower_zero3_check(const struct plan *p);

/* Families for what each piece keeps from forward to backward, by piece:
 * activations of the embedding and the head have one instance, those of blocks
 * one per block, numbered by block; in a pipeline as many for each micro-step. */
void lower_declare_activations(struct schedules *s, const struct local_model *local, int acts[NPIECE]);

/* Bytes of the allocations that keep a tensor; returns how many there are: of one that is not packed, one. */
int  lower_kept_parts(const struct recipe *r, const struct model *m, const struct tensor *t, int64_t bytes[PACKED_PARTS]);

/* The buffer of what packed weights have beside their codes: attributes of theirs, which FSDP does not shard, so whole on every rank.  -1: there
 * are none.  Its entry of init: FSDP does not move them to the host either. */
int  lower_declare_statistics(struct schedules *s, const struct local_model *local);
void lower_load_statistics(struct schedules *s, int statistics);
/* Of a recorded module its buffers, within the entries of init. */
void lower_load_buffers(struct schedules *s, const struct local_model *local);

/* The family has an allocation for each tensor that trains, of those that `owner` gives to `rank` (NULL: of all). */
void lower_trained_parts(struct schedules *s, const struct model *m, int buf, const struct recipe *r, const int64_t *owner, int64_t rank);

/* Actions of the last entry on all gradients that this rank will give to its optimizer. */
typedef void act_fn(struct schedules *s, int what, void *arg);

/* An all-reduce of so many fp32 numbers in a group whose ranks have different gradients; 0: none. */
struct norm_sum { enum group over; int64_t elems; };

/* Global gradient norm over `bytes` of local gradients, and scaling, on stream
 * `st` (compute, or the host's threads); in between n all-reduces, one after the other, and one
 * of a single number over a pipeline's stages.  `exact`: the sum is taken
 * without rounding, in NORM_LIMBS int64 (exec/kernels/exact_sum.h), and so does not depend on how gradients are sharded. */
void lower_clip_by_norm(struct schedules *s, enum stream st, int64_t bytes, const struct norm_sum *sums, int n, bool exact,
                  act_fn *gradients, void *arg);

/* Its all-reduces alone, after the norm of local gradients was taken on `st`.  What scaling waits for, AFTER() bits. */
uint16_t lower_sum_norm(struct schedules *s, enum stream st, const struct norm_sum *sums, int n, bool exact);

/* All gradients that this rank will give to its optimizer: `bytes` of them, worked on on stream st, and the groups whose ranks have
 * different ones, each with how many numbers their norm is summed of. */
struct step_gradients { const struct plan *p; enum stream st; int64_t bytes; const struct norm_sum *sums; int n; act_fn *act; void *arg; };

/* In fp16 the look for overflow, where the plan clips lower_clip_by_norm(), and then the wait for what was found:
 * the flags of what a step with overflow leaves out are lower_guard(). */
void    lower_before_step(struct schedules *s, const struct step_gradients *g);
uint8_t lower_guard(const struct plan *p);

/* Elements (fp32) of the module's buffers in transformers' modelling code: what
 * DDP broadcasts before a forward. */
int lower_model_buffer_elems(const struct model *m);

/* lower_ranks(), as data ranks, of torch's ZeroRedundancyOptimizer. */
int zro_ranks(const struct local_model *local, int64_t ranks[4]);

/* The same of DeepSpeed's stages 1 and 2: a rank keeps whole the gradients of
 * all tensors that touch its partition. */
int zero12_ranks(const struct local_model *local, int64_t ranks[4]);

/* Appends entries that are run again and again.  settled(arg, true) is called before they are emitted and
 * settled(arg, false) after; it returns whether they leave the state that they found.  Where they do not,
 * they are removed and emitted again from the state that they left.  NULL: they always do. */
typedef bool settled_fn(void *arg, bool begins);
void lower_emit_settled(struct schedules *s, void (*emit)(void *arg), settled_fn *settled, void *arg);

/* How a framework runs AdamW where dpx's own kernels do not. */
enum adamw_form {
    ADAMW_ONE_KERNEL,       /* and it writes the 16-bit copy too, where weights have an fp32 master */
    ADAMW_FOREACH,          /* torch.optim's default: a pass for each operation */
    ADAMW_THEN_CAST,        /* DeepSpeed: one kernel, and a pass that makes the 16-bit copy */
    ADAMW_LOOP,             /* torch.optim, foreach=False: a pass for each operation, tensor by tensor */
    ADAMW_ON_HOST,          /* DeepSpeedCPUAdam: one pass of the host's threads over p, m, v and an fp32 gradient */
};

/* The optimizer's entry, on `elems` elements of this rank. */
struct op *lower_adamw(struct schedules *s, const struct plan *p, enum adamw_form form, int64_t elems);

/* The same of torch.optim.AdamW, by the plan's optimizer_form. */
struct op *lower_torch_adamw(struct schedules *s, const struct plan *p, int64_t elems);

/* What AdamW's counter of steps takes on the device, for each parameter: torch/optim/adam.py puts it there for fused
 * alone, fsdp.optimizer_offload with the other states; elsewhere it lies on the host. */
int64_t lower_adamw_step_bytes(const struct plan *p);

/* States of `rows` rows of a tensor, each an allocation: appended as parts, or their bytes together. */
void    lower_state_parts(struct schedules *s, const struct plan *p, int buf, const struct tensor *t, int64_t rows);
int64_t lower_state_bytes(const struct plan *p, const struct tensor *t, int64_t rows);

/* Cuts the buffer of its temporaries, declared for foreach and the last to get parts, to what the form takes: nothing
 * (fused); twice the largest tensor, one of its parts or of `largest` bytes (loop: sqrt() and its quotient); or optimizer_moment(). */
void lower_adamw_temporaries(struct schedules *s, const struct plan *p, int buf, int64_t largest);

/* States of a whole tensor (optimizer_by_tensor()): their slices, `at` bytes into the buffer, each rounded up to a multiple of `to`
 * bytes; the bytes of all, 0 of a tensor that is frozen.  s NULL: only that. */
int64_t lower_whole_states(struct schedules *s, const struct plan *p, int tensor, int64_t at, int64_t to);

/* The step ends when the issuing thread reads the loss. */
void lower_read_loss(struct schedules *s);

#endif

/* optimizer.h -- what an optimizer keeps of a tensor, what its step takes, and how often it passes over memory.
 *
 * Words of plan.json are those of transformers' TrainingArguments.optim.  Sources:
 *
 *     adamw, sgd, adafactor        torch/optim (2.15); sgd with momentum, without weight decay
 *     adamw_bnb_8bit, lion_*, paged_*  bitsandbytes 0.50.2, optim/optimizer.py: init_state(); a tensor below 4096 elements, and
 *                                  (transformers/trainer.py, create_optimizer) an embedding's, has states in fp32
 *     adamw_torch_8bit, _4bit      torchao 0.18, optim/adam.py: _new_buffer() of a rank's own part of a tensor
 *     flash_adamw                  flashoptim (March 2026, optimizers.py): _ensure_state_initialized(), master_weight_bits 24; flash_adamw_32bit: 32
 *     te_adamw, te_adamw_bf16      Transformer Engine (August 2026, optimizers/fused_adam.py): initialize_state(), store_param_remainders
 *     muon                         torch.optim.Muon (2.15, optim/_muon.py) of what its documentation gives it, matrices of hidden
 *                                  layers: it refuses all that is not 2-D; AdamW's default form of the rest, a step of its own after it;
 *                                  of FSDP2's DTensors: model/framework/torch_fsdp2/lower_fsdp2_muon.c */
#ifndef DPX_OPTIMIZER_H
#define DPX_OPTIMIZER_H

#include "model/plan/plan.h"

/* Most allocations of one tensor's states. */
enum { OPTIMIZER_PARTS = 6 };

/* Bytes of the allocations for `rows` rows (of dimension 0) of a tensor; none of one that is frozen or has no rows.
 * Returns how many there are; those of AdamW's counter of steps not among them (lower_adamw_step_bytes()). */
int optimizer_states(const struct plan *p, const struct tensor *t, int64_t rows, int64_t bytes[OPTIMIZER_PARTS]);

/* The same of a tensor of n elements in fp32 that DeepSpeed's partitions make of many: AdamW's and bitsandbytes' alone, which then know no
 * embedding. */
int optimizer_flat_states(const struct plan *p, int64_t n, int64_t bytes[OPTIMIZER_PARTS]);
int64_t optimizer_flat_paged(const struct plan *p, int64_t n);

/* Bytes of states that are in managed memory (bitsandbytes' paged optimizers; get_state_buffer(): 1e5 elements and more),
 * which the driver moves to the host where the device is full, and the step back. */
int64_t optimizer_paged(const struct plan *p, const struct tensor *t);

/* What the optimizer allocates once, beside that: tables of codes. */
int64_t optimizer_tables(const struct plan *p);

/* What a step of torch.optim.Adafactor, or Muon, takes for the moment where it is fullest: each allocation, already rounded up to 512
 * bytes.  Returns how many; none of other optimizers.  (A default form is the loop over tensors: `if foreach` of
 * optim/_adafactor.py, 2.15, whatever its documentation says.) */
enum { OPTIMIZER_MOMENT_PARTS = 24 };
int optimizer_moment(const struct plan *p, int64_t bytes[OPTIMIZER_MOMENT_PARTS]);

/* Bytes that a tensor which is not Muon's has of the list that AdamW makes in the step of its own; 0 of other optimizers. */
int64_t optimizer_beside_muon(const struct plan *p, const struct tensor *t);

/* Does the step make a list of temporaries, one for each tensor's elements in the parameters' dtype (foreach)? */
bool optimizer_makes_list(const struct plan *p);

/* What dpx's own kernel keeps of an element, in fp32: AdamW's two moments, the one of sgd and Lion; 0: it has no such
 * kernel, or one that works tensor by tensor (optimizer_by_tensor()). */
int  optimizer_moments(enum optimizer o);
/* Adafactor, and AdamW in 8 bits, whose blocks are counted from a tensor's first element: what it keeps of a tensor of its own
 * (optimizer_states()) takes all of that tensor to update. */
bool optimizer_by_tensor(enum optimizer o);
/* bitsandbytes: are the states of a tensor of n elements codes, with the largest value of each block of BNB_BLOCK? */
enum { BNB_BLOCK = 256 };
bool optimizer_in_8_bits(const struct plan *p, const struct tensor *t, int64_t n);

/* The work of a step: bytes an element, passes over memory; `each`: a kernel for each tensor; floating-point operations of products, in 16
 * bits or fp32. */
struct optimizer_work { int bytes, passes; bool each; double flops; bool fp32; };
struct optimizer_work optimizer_work(const struct plan *p);

/* Names of the step's entry and of the states' buffer. */
const char *optimizer_title(const struct plan *p);
const char *optimizer_states_title(const struct plan *p);

#endif

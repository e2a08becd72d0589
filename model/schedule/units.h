/* units.h -- the model cut into units: what is gathered and reduced together.
 *
 * The root unit holds what no other unit holds (embedding and head, or the whole
 * model); there is none where a stage of a pipeline has neither.  The others follow in forward order; equal ones form a class, so that
 * their buffers are families and their entries can be repeated. */
#ifndef DPX_UNITS_H
#define DPX_UNITS_H

#include "model/arch/recorded.h"
#include "model/arch/training.h"
#include "model/plan/local_model.h"

/* UC_HEAD: in a pipeline's V the first rank has the first and the last stage, each with a root of its own.
 * UC_TIED: the tied embedding of a pipeline's first and last stage.  By itself it is sharded alike on both, so that their shards'
 * gradients can be added up, after each stage has reduced its own (Megatron-LM's param_and_grad_buffer.py gives shared_embedding
 * a bucket of its own for the same reason).
 * UC_EMBED, UC_OUTPUT: the embedding, and the last norm with the head, where the root is taken apart (fsdp.root_units); a tied embedding
 * is in the latter.  The root holds what is left, which may be nothing.
 * UC_DENSE: a block without experts where others have some, which are UC_FULL.
 * UC_EXPERTS: a block's experts where other ranks share them than share the rest of it: beside the block's unit, with its number.
 * UC_ADAPTER + i: the i-th of a block's adapters' matrices where each is a unit (fsdp.wrap_adapters): beside the block's unit, with its
 * number.
 * UC_KIND + i: of a recorded model whose units have different tensors, the i-th sort of them. */
enum unit_class { UC_ROOT, UC_EMBED, UC_OUTPUT, UC_FULL, UC_TAIL, UC_ATTENTION, UC_MLP, UC_HEAD, UC_TIED, UC_EXPERTS, UC_DENSE, UC_ADAPTER,
                  UC_KIND = UC_ADAPTER + ADAPTERS_MOST, NUC = UC_KIND + RECORDED_KINDS };

struct unit_map {
    const struct plan *plan;
    const struct model *model;  /* the rank's own */
    enum unit_kind kind;
    int     n;                  /* units besides the root, in forward order */
    int     blocks;             /* blocks per full unit */
    int     of_class[NUC];      /* how many of each class */
    int     period;             /* after so many units the pattern of classes and recompute repeats, */
    int     alone;              /* but for so many of the first */
    int     tied;               /* the tensor that is UC_TIED; -1: none */
    int     nadapters, adapter[ADAPTERS_MOST];  /* the first block's tensors that are UC_ADAPTER, in registration order */
};

/* One unit of the sequence: its class, its number in the class, and the blocks
 * [block, block+nblocks) it covers (none for the root). */
struct unit_ref {
    enum unit_class cls;
    int index, block, nblocks;
};

void            unit_map_init(struct unit_map *m, const struct local_model *local);
struct unit_ref unit_at(const struct unit_map *m, int position);    /* 0 .. n-1; -1 or n: the root */
const char     *unit_class_name(enum unit_class c);
/* Positions in the order in which the model's table has the units: the first, and the one behind; -1 behind the last.
 *     for (int i = unit_registered_after(m, -1); i >= 0; i = unit_registered_after(m, i)) */
int             unit_registered_after(const struct unit_map *m, int position);
static inline bool unit_is_adapter(enum unit_class c) { return c >= UC_ADAPTER && c < UC_KIND; }

/* Sum of f over the tensors of one unit of a class. */
typedef int64_t tensor_fn(const struct tensor *t, const void *arg);
int64_t unit_sum(const struct unit_map *m, enum unit_class c, tensor_fn *f, const void *arg);

/* Index in model->tensors of the i-th tensor of unit 0 of a class, in registration order; -1 after
 * the last.  Unit j's are unit_stride() * j further on. */
int unit_tensor(const struct unit_map *m, enum unit_class c, int i);
int unit_stride(const struct unit_map *m, enum unit_class c);

struct schedules;
/* A stock tensor_fn: elements. */
int64_t units_tensor_numel(const struct tensor *t, const void *unused);

/* PyTorch's caching allocator rounds every request up to 512 bytes
 * (CUDACachingAllocator.cpp, kMinBlockSize). */
static inline int64_t round512(int64_t bytes) { return round_up(bytes, 512); }

/* Calls emit(arg, position, by) for the units in order (backwards: from the last
 * to the first), folding the equal middle part into one repeat: `by` is then the
 * step per iteration of unit numbers of this position's class and `by_block`
 * that of blocks; both 0 outside of repeats.  Emission at a position may refer
 * to the neighbours of that position with the same steps. */
struct unit_step { int position, by, by_block; };
void units_emit(const struct unit_map *m, struct schedules *s, bool backwards,
                void (*emit)(void *arg, struct unit_step at), void *arg);

/* The same for all blocks in one go (a model that is one unit, or strategies without
 * units): emit(arg, block, by) once for each block of a period of the recompute pattern,
 * folded into one repeat.  last_alone: the last block is not like those before it in backward. */
void units_blocks_emit(const struct local_model *local, struct schedules *s, bool backwards, bool last_alone,
                       void (*emit)(void *arg, int block, int by), void *arg);

#endif

/* optimizer_traits.h -- whose an optimizer is, how it keeps its states, what it is called, and what cannot have it: one row each.
 *
 *     if (optimizer_traits(p->optimizer)->by == BY_BITSANDBYTES)
 *         ... */
#ifndef DPX_OPTIMIZER_TRAITS_H
#define DPX_OPTIMIZER_TRAITS_H

#include <stdbool.h>

#include "model/plan/plan.h"

enum optimizer_library { BY_TORCH, BY_BITSANDBYTES, BY_TORCHAO, BY_OTHERS };

struct optimizer_traits {
    enum optimizer_library by;
    int  bits;                      /* of a number of a state, where the tensor is large enough; 32: the number format of the plan */
    int  states;                    /* of the size of the parameter; 0: it depends on the tensor */
    bool paged;                     /* states of large tensors are in managed memory */
    const char *title, *words, *kept;       /* of the step's entry; of a plan; of the states' buffer, NULL: "optimizer states" */
    int  moments;                   /* fp32 numbers of an element that dpx's own kernel keeps; 0: it has none, or one by tensor */
    const char *in_bf16;            /* why parameters have to be kept in bf16; NULL: they need not */
    bool by_element;                /* what it keeps goes by numbers alone, experts' too */
    bool whole;                     /* its step takes whole tensors: not beside tensor, context, pipeline or expert parallelism */
    const char *not_fsdp2;          /* why FSDP2's sharded tensors (DTensor) cannot have it; NULL: they can */
    const char *not_recorded;       /* why a recorded module cannot */
    const char *no_trainer;         /* why a config of transformers' trainer cannot say it */
    const char *note;               /* what figures of a plan with it leave out, a sentence; NULL: nothing */
};

/* The row of an optimizer below NOPTIMIZER. */
const struct optimizer_traits *optimizer_traits(enum optimizer o);

#endif

/* optimizer_traits.h -- whose an optimizer is and how it keeps its states.
 *
 *     if (optimizer_traits(p->optimizer)->by == BY_BITSANDBYTES)
 *         ... */
#ifndef DPX_OPTIMIZER_TRAITS_H
#define DPX_OPTIMIZER_TRAITS_H

#include <stdbool.h>

#include "model/plan/plan.h"

enum optimizer_library { BY_TORCH, BY_BITSANDBYTES, BY_TORCHAO };

struct optimizer_traits {
    enum optimizer_library by;
    int  bits;                      /* of a number of a state, where the tensor is large enough; 32: the number format of the plan */
    int  states;                    /* of the size of the parameter; 0: it depends on the tensor */
    bool paged;                     /* states of large tensors are in managed memory */
};

/* The row of an optimizer below NOPTIMIZER. */
const struct optimizer_traits *optimizer_traits(enum optimizer o);

#endif

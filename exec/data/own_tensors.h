/* own_tensors.h -- which elements of the whole model the tensors of one rank's own model are.
 *
 *     struct own_tensors *own = own_tensors_new(&local);
 *     for (int64_t at = from; at < from + n; at += run.n) {
 *         run = own_tensors_run(own, tensor, at, from + n - at);
 *         ... elements [run.from, run.from + run.n) of the whole model's tensor run.tensor ...
 *     }
 *     own_tensors_free(own);
 *
 * A rank numbers its tensors and blocks by itself (model/plan/local_model.h).  First weights, files in Hugging Face's
 * names and what is said of NaN speak of the whole model's.  A tied pair that two stages hold is one tensor there. */
#ifndef DPX_OWN_TENSORS_H
#define DPX_OWN_TENSORS_H

#include <stdint.h>

#include "model/plan/local_model.h"

struct own_tensors;

/* `local` must outlive the result.  NULL with the reason reported. */
struct own_tensors *own_tensors_new(const struct local_model *local);
void own_tensors_free(struct own_tensors *o);       /* accepts NULL */

/* Elements [from, from + n) of a tensor of the whole model. */
struct own_run { int tensor; int64_t from, n; };

/* Where elements [from, from + n) of a rank's tensor begin in the whole model, and how many of them, at least one, lie one after
 * the other there as well.  NULL: the rank has the whole model. */
struct own_run own_tensors_run(const struct own_tensors *o, int tensor, int64_t from, int64_t n);

#endif

/* tied.h -- whose weight the head's is.
 *
 *     as.tied = model_is_tied_below(m); */
#ifndef DPX_TIED_H
#define DPX_TIED_H

#include "model/family/model.h"

/* Is the head the embedding's in the model below its adapters?  A copy of the head (lora.modules_to_save) beside no original is of a tied one. */
bool model_is_tied_below(const struct model *m);

#endif

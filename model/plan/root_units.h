/* root_units.h -- FSDP2's units of what is outside of the blocks ("fsdp": {"root_units": ...}), as frameworks make them. */
#ifndef DPX_ROOT_UNITS_H
#define DPX_ROOT_UNITS_H

#include "model/plan/plan.h"

const char *root_units_name(enum root_units u);

/* Why the root of an FSDP2 plan is planned as one unit alone; NULL: it may be taken apart. */
const char *root_units_refused(const struct plan *p);

/* What accelerate 1.14 and later (fsdp2_prepare_model()), torchtitan since August 2025 and NeMo Automodel since its pull request 3708
 * (27 August 2026) make of an FSDP2 plan's model: ROOT_TOGETHER too where no other is planned. */
enum root_units root_units_of_accelerate(const struct plan *p);
enum root_units root_units_of_torchtitan(const struct plan *p);
enum root_units root_units_of_primerl(const struct plan *p);
enum root_units root_units_of_automodel(const struct plan *p);

#endif

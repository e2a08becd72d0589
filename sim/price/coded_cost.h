/* coded_cost.h -- which measured series entries that send fewer bytes belong to: quantisers, casts to fp16, PowerSGD's matrices.
 *
 * They are passes over memory on a GPU.  On a host they are bound by their arithmetic, several times as long as a copy of as many bytes,
 * so that each kind has a series of its own. */
#ifndef DPX_CODED_COST_H
#define DPX_CODED_COST_H

#include "model/plan/plan.h"
#include "model/schedule/measured.h"
#include "sim/price/measured_cost.h"

/* Of an entry that quantises or casts between fp32 and 16 bits; NMEASURED_PASS: of any other. */
enum measured_pass coded_pass(const struct plan *p, const struct schedules *s, const struct op *o);

/* An entry of PowerSGD's, which the executor runs matrix by matrix, on the device that was measured.  False: it is none, or
 * what it does was not timed. */
bool coded_matrices(const struct measured_device *d, const struct schedules *s, const struct op *o, struct estimate *out);

#endif

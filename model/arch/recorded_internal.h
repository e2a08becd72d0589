/* recorded_internal.h -- the parts of the reader of recorded models. */
#ifndef DPX_RECORDED_INTERNAL_H
#define DPX_RECORDED_INTERNAL_H

#include "model/arch/recorded.h"

/* One copy of each name. */
const char *recorded_name(struct recorded *r, const char *name);

/* The programs, once tensors and units are read.  0, or -1 reported. */
int recorded_read_programs(struct recorded *r, const json_t *list, const struct model *m, const char *where);

/* What one piece of a program leaves another one frees, behind it in the run.  0, or -1 reported. */
int recorded_check_handed(const struct recorded *r, const struct rec_program *g, const char *where);

#endif

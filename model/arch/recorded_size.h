/* recorded_size.h -- polynomials in b and s, as recorded models write their sizes: 1536, "3072*b*s+8*s", "5*b*s^2/256". */
#ifndef DPX_RECORDED_SIZE_H
#define DPX_RECORDED_SIZE_H

#include "model/arch/recorded.h"

/* Adds a size's terms to the model.  0, or -1 with the reason behind `where`. */
int recorded_read_size(struct recorded *r, const json_t *j, const char *where, struct rec_size *out);

#endif

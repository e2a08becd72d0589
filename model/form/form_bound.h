/* form_bound.h -- what a framework holds and a plan does not, where its most is known. */
#ifndef DPX_FORM_BOUND_H
#define DPX_FORM_BOUND_H

#include "model/form/form.h"

/* Notes that `what` takes up to `bytes` more of each GPU's memory than the plan says; the file is refused where the plan fits without
 * them and would not with them, as the verdict is then not known.  0, or -1 reported. */
int form_bound(const struct form_file *f, const struct plan *p, double bytes, const char *what, struct notes *notes);
/* The same without the note, which has been made. */
int form_bound_holds(const struct form_file *f, const struct plan *p, double bytes, const char *what);

#endif

/* modules_apart.h -- recompute "modules": which models' blocks it is planned of.
 *
 *     if (!modules_apart_fit(&p->model)) ... take full */
#ifndef DPX_MODULES_APART_H
#define DPX_MODULES_APART_H

#include "model/family/family.h"

/* Dense blocks with one norm before attention and one before the MLP. */
static inline bool modules_apart_fit(const struct model *m)
{
    return !m->experts && !m->recorded && !m->parallel && m->norm_place == NORM_FIRST && !family_for(m)->keeps_names;
}

#endif

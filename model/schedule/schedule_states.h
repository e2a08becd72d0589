/* schedule_states.h -- parameters, gradients and optimizer states wait in host memory: one pass over finished schedules.
 *
 * A framework lowers its plan as if the device held them, declares what is the host's, and the pass adds the ways between:
 *
 *   init         weights appear on the host, and are pinned there
 *   parameters   an entry that reads them works on copies: each part is brought to the device, on the entry's stream, and cast there
 *   gradients    what is reduced lands on the device; each part is copied down behind the last entry that works on it, and added
 *                on the host where the device would have added it
 *   the step     what worked on the device's streams is the host's; the issuing thread waits for it
 *
 * Copies of pageable memory hold the issuing thread (cudaMemcpyAsync returns once such bytes are staged). */
#ifndef DPX_SCHEDULE_STATES_H
#define DPX_SCHEDULE_STATES_H

#include "model/schedule/schedule.h"

/* What travels by itself, of the first instance: a tensor's shard, or a unit's. */
struct states_part {
    int64_t up, used, down;             /* bytes: parameters as they wait, and as they are used; a gradient, */
    bool trains;                        /* which only such a part has, though on this rank it may be empty */
    int staged, cast;                   /* families on the device, in both dtypes: one where they are the same */
    int unsharded;                      /* where each is unsharded by itself */
    int shard, grad, reduced, arrived;  /* layouts: its part of `params` and `grads`; of what was reduced; of what is to be added */
};

/* Families of a class of units, -1: there are none. */
struct states_unit {
    const char *name;                   /* "unit", "root": an instance's name; whether there is more than one */
    bool many;
    int params, born;                   /* the host's; as first weights appear there, before they are pinned */
    int64_t pinned;                     /* bytes that pinning copies */
    int brought;                        /* as the framework sees it, a temporary of its own: it goes where this one goes */
    int unsharded;                      /* `apart`: each part has its own in its place */
    int grads;                          /* as the framework sees them */
    int home;                           /* the host's, which the optimizer reads */
    int landing, sum;                   /* on the device: where they land; what is to be added, in its place */
    int arrived;                        /* on the host: what is to be added there */
    const struct states_part *part;
    int nparts;
};

struct states_away {
    const struct states_unit *unit;
    int nunits;
    bool pageable;                      /* the memory of parameters and gradients: copies hold the issuing thread */
    bool apart;                         /* parameters are brought, and unsharded, one by one: the ranks do not gather */
    bool held;                          /* what was reduced stays until the framework frees it */
    bool stays;                         /* the host's gradients stay; the device's go at the end of backward */
    uint16_t also;                      /* AFTER(): what the end of backward waits for beside the streams that reduce */
};

void schedules_states_away(struct schedules *s, const struct states_away *w);

#endif

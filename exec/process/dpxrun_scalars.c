/* dpxrun_scalars.c -- --tensorboard: each step's figures beside those predicted, for TensorBoard and Weights & Biases. */
#include "exec/process/dpxrun.h"

#include <math.h>

#include "exec/process/tfevents.h"

int scalars_check(const struct dpxrun *r) { return r->o.tensorboard ? tfevents_check(r->o.tensorboard) : 0; }

int scalars_begin(struct dpxrun *r)
{
    if (r->o.tensorboard && r->rank == 0)
        r->scalars = tfevents_open(r->o.tensorboard);
    return r->o.tensorboard && r->rank == 0 && !r->scalars ? -1 : 0;
}

/* A figure that the prediction lacks is not written, and neither is one that was not measured. */
int scalars_step(struct dpxrun *r, const struct scalars *s)
{
    struct tfevents *t = r->scalars;

    if (!t)
        return 0;
    tfevents_scalar(t, s->step, "loss", s->loss);
    tfevents_scalar(t, s->step, "learning_rate", s->lr);
    tfevents_scalar(t, s->step, "grad_norm", s->grad_norm);
    tfevents_scalar(t, s->step, "step_s", s->seconds);
    tfevents_scalar(t, s->step, "tokens_per_s", (double)s->tokens / s->seconds);
    tfevents_scalar(t, s->step, "memory_bytes", s->bytes > 0 ? (double)s->bytes : NAN);
    tfevents_scalar(t, s->step, "predicted/step_s", s->predicted_s > 0 ? s->predicted_s : NAN);
    tfevents_scalar(t, s->step, "predicted/memory_bytes", s->predicted_bytes > 0 ? (double)s->predicted_bytes : NAN);
    return tfevents_flush(t);
}

void scalars_end(struct dpxrun *r)
{
    tfevents_close(r->scalars);
    r->scalars = NULL;
}

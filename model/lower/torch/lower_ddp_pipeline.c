/* lower_ddp_pipeline.c -- DistributedDataParallel around a stage of a pipeline.
 *
 * Source: torch/distributed/pipelining/stage.py (PyTorch 2.15; the same in 2.9).  Every forward and all backwards but the
 * last run under no_sync(); before the last, Reducer::prepare_for_backward() arms the buckets, which are reduced
 * beside it.  The reducer was built from a stage's outputs, which live until their backward.  Each chunk of a rank is wrapped by itself. */
#include "model/lower/common/stage_ports.h"
#include "model/lower/torch/lower_ddp.h"

int ddp_pipeline(struct ddp *d, bool first_step)
{
    bool old = plan_version(d->p) < 2015;
    struct stage_ports ports;
    int rc = stage_ports_open(&ports, d->local, d->s, d->p->parallel.pipeline_schedule > PIPELINE_1F1B ? old ? PIPE_LOCK_STEP_29 : PIPE_RUNTIME :
                              old ? PIPE_OWN_LOOP_29 : PIPE_OWN_LOOP, &d->stage, first_step, true);
    int forwards[PLAN_MAX_CHUNKS] = { 0 }, backwards[PLAN_MAX_CHUNKS] = { 0 };

    if (rc == 0 && first_step && !old)
        stage_ports_connect(&ports);
    for (int i = 0; rc == 0 && i < ports.acts->n; i++) {
        const struct pipeline_act *a = &ports.acts->act[i];
        if (stage_ports_does(&ports, a) || (a->verb != PIPE_FORWARD && a->verb != PIPE_BACKWARD))
            continue;
        d->kept_blocks = (int)d->m->layers * a->step;
        d->kept_ends = a->step;
        d->at = &d->module[a->chunk];
        stage_ports_begin(&ports, a);
        if (a->verb == PIPE_FORWARD) {
            ddp_forward(d, first_step && forwards[a->chunk]++ == 0);
        } else {
            ddp_backward(d, backwards[a->chunk] == 0, backwards[a->chunk] == ports.pipe.steps - 1);
            backwards[a->chunk]++;
        }
        stage_ports_end(&ports, a);
    }
    if (rc == 0)
        stage_ports_finish(&ports);
    stage_ports_close(&ports);
    return rc;
}

/* lower_ddp_pipeline.c -- DistributedDataParallel around a stage of a pipeline.
 *
 * Source: torch/distributed/pipelining/stage.py (PyTorch 2.15; the same in 2.9).  Every forward and all backwards but the
 * last run under no_sync(); before the last, Reducer::prepare_for_backward() arms the buckets, which are reduced
 * beside it.  The reducer was built from a stage's outputs, which live until their backward.  Each chunk of a rank is wrapped by itself. */
#include "model/lower/common/stage_ports.h"
#include "model/lower/torch/lower_ddp.h"

struct stage { struct ddp *d; struct stage_ports ports; bool first_step; };

static void act(void *stage, const struct pipeline_act *a)
{
    struct stage *g = stage;
    struct ddp *d = g->d;

    if (stage_ports_does(&g->ports, a) || (a->verb != PIPE_FORWARD && a->verb != PIPE_BACKWARD))
        return;
    int64_t before = stage_ports_passed(&g->ports, (enum pipeline_verb)a->verb, a->chunk);
    d->kept_blocks = (int)d->m->layers * a->step;
    d->kept_ends = a->step;
    d->at = &d->module[a->chunk];
    stage_ports_begin(&g->ports, a);
    if (a->verb == PIPE_FORWARD)
        ddp_forward(d, g->first_step && before == 0);
    else
        ddp_backward(d, before == 0, before == g->ports.pipe.steps - 1);
    stage_ports_end(&g->ports, a);
}

int ddp_pipeline(struct ddp *d, bool first_step)
{
    bool old = plan_version(d->p) < 2015;
    struct stage g = { .d = d, .first_step = first_step };
    int rc = stage_ports_open(&g.ports, d->local, d->s, d->p->parallel.pipeline_schedule > PIPELINE_1F1B ? old ? PIPE_LOCK_STEP_29 : PIPE_RUNTIME :
                              old ? PIPE_OWN_LOOP_29 : PIPE_OWN_LOOP, &d->stage, first_step, true);

    if (rc == 0 && first_step && !old)
        stage_ports_connect(&g.ports);
    if (rc == 0) {
        stage_ports_run(&g.ports, act, &g);
        stage_ports_finish(&g.ports);
    }
    stage_ports_close(&g.ports);
    return rc;
}

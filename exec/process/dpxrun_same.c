/* dpxrun_same.c -- what must be the same on all ranks, before anything is trained. */
#include "exec/process/dpxrun.h"

#include <mpi.h>
#include <stdlib.h>

#include "base/files.h"
#include "base/opts.h"
#include "base/version.h"
#include "exec/data/adapter_folder.h"
#include "exec/process/build_info.h"
#include "exec/process/same_run.h"

/* All that changes the numbers or the order in which ranks meet.  Not here: what may differ from machine to
 * machine (memory, threads, cores), and what rank 0 does alone (trace, database, printing). */
static json_t *options(const struct options *o)
{
    return json_pack("{s:I, s:I, s:f, s:f, s:I, s:[f,f], s:f, s:f, s:b, s:b, s:b, s:I, s:i, s:i, s:i, s:i, s:b, s:b, s:b, s:f}",
                     "--steps", (json_int_t)o->steps, "--seed", (json_int_t)o->seed, "--lr", o->lr, "--min-lr", o->min_lr,
                     "--warmup", (json_int_t)o->warmup, "--betas", o->beta1, o->beta2, "--weight-decay", o->weight_decay,
                     "--clip", o->clip, "--sequential", o->sequential, "--save", o->save != NULL, "--save-grads",
                     o->save_grads != NULL, "--grads-step", (json_int_t)o->grads_step, "--device", o->device, "--comm", o->comm, "--algorithm", o->algorithm,
                     "--bf16-sum", o->sum, "--reference", o->reference, "--no-compute", o->no_compute,
                     "--no-check-for-nan", o->allow_nan, "--loss-scale", o->loss_scale);
}

/* The plan as it is written, and what it names: a model's config may be another file's. */
json_t *dpxrun_same_document(const struct dpxrun *r)
{
    json_t *all = json_object(), *opts = options(&r->o);
    char adapters[ADAPTER_PATH];

    json_object_set_new(all, "dpx version", json_string(version_text()));
    json_object_set_new(all, "the plan's", files_read_json_file(r->o.plan));
    json_object_set_new(all, "the model's", model_to_config(&r->plan.model));
    if (!r->plan.cluster.is_host)           /* a host's memory is what it has left */
        json_object_set_new(all, "the cluster's", cluster_to_json(&r->plan.cluster));
    json_object_update(all, opts);
    json_decref(opts);
    json_object_set_new(all, "--data", same_run_file(r->o.data));
    json_object_set_new(all, "--init", same_run_file(r->o.init));
    if (r->o.adapters && adapter_folder_weights(r->o.adapters, adapters) == 0)
        json_object_set_new(all, "--adapters", same_run_file(adapters));
    return all;
}

int dpxrun_check_same(const struct dpxrun *r)
{
    json_t *mine = dpxrun_same_document(r);
    int rc = same_run_check(MPI_COMM_WORLD, mine);

    json_decref(mine);
    return rc;
}

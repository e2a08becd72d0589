/* admit.h -- would a job fit that waits in a queue?  A Kubeflow TrainJob or an sbatch script, with the recipe that it runs.
 *
 *     struct admit_args a = { .file = "job.yaml" };
 *     json_t *doc;
 *     int rc = admit_ask(&a, &doc);       EXIT_DONE: it fits, perhaps tightly; EXIT_NO: it does not; else reported
 *
 * Nodes and GPUs come from the job: spec.trainer.numNodes, numProcPerNode or the limit nvidia.com/gpu; #SBATCH --nodes, --gres, --gpus-per-node.
 * The type of GPU comes from the job (gpu:h100:8, a node selector nvidia.com/gpu.product) or from --gpu.  The plan comes from --recipe, or
 * from the command that the job runs, read as `dpxplan import` reads it. */
#ifndef DPX_ADMIT_H
#define DPX_ADMIT_H

#include <stdint.h>

#include <jansson.h>

struct admit_args { const char *file, *recipe, *gpu, *model; int64_t seq; };

int admit_ask(const struct admit_args *a, json_t **doc);

#endif

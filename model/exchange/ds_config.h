/* ds_config.h -- a plan from a DeepSpeed config, and back.
 *
 *     p.model, p.cluster and p.seq are set; p.micro_batch, p.accumulation and
 *     p.precision too where the command line gives them (0 otherwise): they fill
 *     in Hugging Face's "auto"
 *     if (ds_config_import(config, "ds.json", &p) < 0)
 *         return 2;
 *
 * What a DeepSpeed config does not say (kernels, recompute, dropout) stands in
 * an object "dpx" of an exported file, which DeepSpeed ignores, so that reading
 * an exported file gives the plan that wrote it. */
#ifndef DPX_DS_CONFIG_H
#define DPX_DS_CONFIG_H

#include <jansson.h>

#include "base/notes.h"
#include "model/plan/plan.h"

/* Completes `p`, which keeps its model and cluster on error too.  0, or -1 with
 * the key named.  Notes go to stderr. */
int ds_config_import(const json_t *config, const char *where, struct plan *p);

/* The same; notes are added to `notes`, which may be NULL. */
int ds_config_read(const json_t *config, const char *where, struct plan *p, struct notes *notes);

/* New reference; NULL when DeepSpeed cannot express the plan, with the option
 * that it lacks reported. */
json_t *ds_config_export(const struct plan *p);

#endif

/* accelerate.h -- a plan from an accelerate YAML config, and back.
 *
 * The distributed types FSDP (versions 1 and 2), DEEPSPEED, MULTI_GPU and NO.
 * The file does not say batch sizes, so p.micro_batch and p.accumulation come
 * from the command line (0: taken as 1, with a note). */
#ifndef DPX_ACCELERATE_H
#define DPX_ACCELERATE_H

#include <stdio.h>

#include <jansson.h>

#include "base/notes.h"
#include "model/plan/plan.h"

/* p.model, p.cluster and p.seq are set and kept.  `where` names the file; its
 * folder is where deepspeed_config_file is looked for. */
int accelerate_read(const json_t *config, const char *where, struct plan *p, struct notes *notes);

/* fsdp.root_units as fsdp2_prepare_model() has them since accelerate 1.14, with a note: once the plan's loss is known.  Nothing of other strategies. */
void accelerate_root_units(struct plan *p, struct notes *notes);

/* Of the config that `accelerate launch` stands for: without a file it starts a process for each GPU, and who shares what it leaves to the
 * script. */
bool accelerate_starts_ranks_alone(const json_t *launch);

/* The same from a YAML (or .json) file. */
int accelerate_import_file(const char *path, struct plan *p);

/* The config (new reference), or NULL with the option reported that accelerate
 * has no words for. */
json_t *accelerate_export(const struct plan *p);

#endif

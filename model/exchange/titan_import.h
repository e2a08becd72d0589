/* titan_import.h -- a plan from torchtitan's configs.
 *
 * Sections [model], [training], [parallelism], [activation_checkpoint], [optimizer], [compile] of torchtitan 0.2.2's
 * config/job_config.py, and options of 0.3.0's config/configs.py; keys that moved between sections are found where they were
 * (training, experimental: 2024).  What is left out takes 0.2.2's default; what a plan has no word for is refused by name, and
 * what nobody reads is listed (titan_keys.h). */
#ifndef DPX_TITAN_IMPORT_H
#define DPX_TITAN_IMPORT_H

#include <jansson.h>

#include "base/notes.h"
#include "model/plan/plan.h"

/* The built-in model that the config names, or NULL (nothing reported). */
const char *titan_model(const json_t *config);
/* A config.json of the flavor of its own tests that the config names (new reference), or NULL (nothing reported). */
json_t *titan_config(const json_t *config);
/* 0, or -1 reported: a model of pictures. */
int titan_check_model(const json_t *config, const char *where);
/* -1, reported: why the config's model is not known, where titan_model() is NULL. */
int titan_refuse_model(const json_t *config, const char *where);

/* p.model and p.cluster are set and kept; p.seq is a default for training.seq_len.  0, or -1 with the key reported. */
int titan_import(const json_t *config, const char *where, struct plan *p);
int titan_read(const json_t *config, const char *where, struct plan *p, struct notes *notes);

/* The config of a file: TOML, or options (titan_text.h), which go over the file that their job.config_file names.  New reference, or
 * NULL reported. */
json_t *titan_read_file(const char *path);
/* The same of text that was read already; `path` names it, and is where a named file is looked for. */
json_t *titan_read_text(const char *text, const char *path);

#endif

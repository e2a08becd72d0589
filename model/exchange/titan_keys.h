/* titan_keys.h -- the keys of torchtitan's configs: which are read, and what the others do. */
#ifndef DPX_TITAN_KEYS_H
#define DPX_TITAN_KEYS_H

#include <jansson.h>

#include "base/notes.h"
#include "model/plan/knob.h"

/* "--parallelism.tensor-parallel-degree" of a knob: section and key; false: torchtitan has none for it. */
bool titan_keys_named(const struct knob *k, char section[64], char key[96]);

/* 0, or -1 where [parallelism] has a key that torchtitan has not: a degree that nobody follows is another plan. */
int titan_keys_check(const json_t *config, const char *where);

/* Is the key of a section ("training.seq_len") read? */
bool titan_keys_reads(const char *path);

/* Lists what was not read, in all sections. */
void titan_keys_list_rest(const json_t *config, struct notes *notes);

#endif

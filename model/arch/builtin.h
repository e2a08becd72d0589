/* builtin.h -- models that dpx knows by name. */
#ifndef DPX_BUILTIN_H
#define DPX_BUILTIN_H

#include <stdbool.h>
#include <stddef.h>

#include "model/arch/transformer.h"

bool builtin_exists(const char *name);

/* The name must exist.  0, or -1 when out of memory. */
int builtin_load(const char *name, struct model *out);

/* The built-in that a name in any case stands for: its own, or an id of the Hugging Face hub with or without the
 * organisation ("meta-llama/Llama-3.1-8B"); NULL. */
const char *hf_ids_find(const char *name);

/* Letters of a model's name before the head that it asks for (":score", ":value"); all of them where it asks for none. */
size_t model_name_length(const char *spec);

/* The hub's first id of a built-in, its base model's; NULL: it has none, or is not built in. */
const char *hf_ids_of(const char *builtin);

/* Where the hub's client keeps the config.json of "org/name" on this machine (hf_cache.c); false: it does not. */
bool hf_cache_find(const char *id, char *path, size_t size);

/* Why a model of this id of the hub is not planned, where its name alone says so; NULL: it says nothing. */
const char *hf_unplanned(const char *id);

/* The built-in's name or the id that is nearest to what was typed, or NULL when none is near. */
const char *hf_ids_nearest(const char *name);

#endif

/* builtin.h -- models that dpx knows by name. */
#ifndef DPX_BUILTIN_H
#define DPX_BUILTIN_H

#include <stdbool.h>

#include "model/arch/transformer.h"

bool builtin_exists(const char *name);

/* The name must exist.  0, or -1 when out of memory. */
int builtin_load(const char *name, struct model *out);

#endif

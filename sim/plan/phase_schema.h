/* phase_schema.h -- a phase plan ("dpx_phases": 1) as a JSON Schema.
 *
 *     json_t *schema = phase_schema();         (new reference)
 *
 * What it refuses dpxplan phases refuses, not the other way round: whether a role is there that a phase names only the program says. */
#ifndef DPX_PHASE_SCHEMA_H
#define DPX_PHASE_SCHEMA_H

#include <jansson.h>

json_t *phase_schema(void);

#endif

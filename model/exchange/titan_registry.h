/* titan_registry.h -- torchtitan's configs by name (0.3.0: --config llama3_70b, CONFIG=llama3_70b). */
#ifndef DPX_TITAN_REGISTRY_H
#define DPX_TITAN_REGISTRY_H

#include <jansson.h>

/* The config with what its "config" names below it: options given beside the name take the place of the registry's.  The
 * config itself where it names none.  New reference, or NULL: a name that is not known, which is reported. */
json_t *titan_registry(const json_t *config, const char *where);
/* JSON of this program's own, with ' for ".  New reference. */
json_t *titan_registry_parse(const char *config);

#endif

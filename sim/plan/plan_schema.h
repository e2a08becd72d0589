/* plan_schema.h -- plan.json as a JSON Schema.
 *
 *     json_t *schema = plan_schema();          (new reference)
 *
 * Whatever plan dpxplan takes, the schema takes; see plan_schema.c for what it cannot say. */
#ifndef DPX_PLAN_SCHEMA_H
#define DPX_PLAN_SCHEMA_H

#include <jansson.h>

json_t *plan_schema(void);

#endif

/* megatron_sections.h -- recipes of NeMo 2 and Megatron-Bridge, as their YAML has them, in the words of Megatron-LM's command line.
 *
 * Both write configuration in sections: Megatron-Bridge's ConfigContainer has model, train, ddp, optimizer, mixed_precision,
 * comm_overlap, dataset (src/megatron/bridge/training/{config,mixed_precision}.py; its override files say model_config and so on);
 * NeMo 2 has model (its config within), trainer (strategy, in it ddp; plugins; callbacks; devices, num_nodes), data, optim.config.  Their
 * names are megatron-core's fields, which for some options differ from the command line's. */
#ifndef DPX_MEGATRON_SECTIONS_H
#define DPX_MEGATRON_SECTIONS_H

#include <jansson.h>
#include <stdbool.h>

/* Does a document have such sections? */
bool megatron_has_sections(const json_t *doc);

/* Its options, as a command line would give them (new reference), and "world_size" where it says how many GPUs; NULL, reported: two sections
 * say different things.  "partly_stated" stands for a model of which it does not say everything. */
json_t *megatron_from_sections(const json_t *doc, const char *where);
/* Says which fields that decide are not stated, and taken as megatron-core has them. */
void megatron_sections_tell(const json_t *doc, const char *where);

#endif

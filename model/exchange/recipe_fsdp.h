/* recipe_fsdp.h -- the Trainer's "fsdp" and "fsdp_config" as accelerate's config, with the Trainer's defaults. */
#ifndef DPX_RECIPE_FSDP_H
#define DPX_RECIPE_FSDP_H

#include <jansson.h>

#include "base/notes.h"
#include "model/exchange/recipe.h"

/* Is "fsdp" words, or true or false, or not there? */
bool recipe_fsdp_is_said(const json_t *fsdp);
/* "fsdp" as words: in recipes a text, a list or true. */
void recipe_fsdp_words(const json_t *fsdp, char out[160]);

struct recipe_fsdp {
    enum recipe_form form;
    const char   *where, *words;
    const json_t *config;       /* the recipe: axolotl's mesh lies beside "fsdp_config" */
    const json_t *section;      /* "fsdp_config" */
    int64_t       version;      /* as said beside it; 0: not */
    const char   *mixed;        /* "bf16", "fp16", "no" */
    int64_t       ranks;
    struct notes *notes;
};

/* accelerate's document for accelerate_read(); NULL where it is refused, reported. */
json_t *recipe_fsdp_document(const struct recipe_fsdp *of);

/* axolotl's ExpertParallelPlugin beside FSDP2, once that is read: as torchtitan's experts, a rank's are sharded over the dp_shard ranks that have the
 * same (integrations/expert_parallel/plugin.py, fully_shard_experts()). */
void recipe_fsdp_experts(const json_t *config, enum recipe_form form, struct plan *p, struct notes *notes);

/* Which units the root has, and what it does behind forward. */
void recipe_fsdp_root(enum recipe_form form, struct plan *p, struct notes *notes);

/* Ranks that share more than FSDP2's mesh does are another plan: refused, as a mesh is without FSDP2, and experts that are shared out in another way
 * than above (alone the plugin leaves them to no wrapper).  0, or -1 reported. */
int recipe_fsdp_check_mesh(const json_t *config, enum recipe_form form, const char *where, const struct plan *p);

#endif

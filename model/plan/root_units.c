/* root_units.c -- see root_units.h. */
#include "model/plan/root_units.h"

#include <string.h>

#include "model/arch/training.h"
#include "model/plan/knob.h"
#include "model/plan/loss_check.h"

const char *root_units_name(enum root_units u) { return knob_find("fsdp", "root_units", CELL(STRAT_FSDP, DIALECT_TORCH))->words[u]; }

/* A stage's root has the embedding, or the last norm and head: apart from the order of its reductions it is one of these units. */
const char *root_units_refused(const struct plan *p)
{
    bool blocks = false;

    if (p->parallel.pipeline > 1)
        return "a pipeline's stages have the embedding or the head, not both";
    if (p->parallel.expert > 1)
        return "beside parallel.expert the root is planned as one unit";
    if (p->unit == UNIT_MODEL)
        return "with \"unit\": \"model\" all is one unit";
    if (p->model.recorded)
        return "a recorded module has the units that it was recorded with";
    for (int t = 0; t < p->model.ntensors; t++)
        blocks = blocks || (p->model.tensors[t].block >= 0 && !p->model.tensors[t].frozen);
    return blocks ? NULL : "no block trains, so the head's input needs no gradient";
}

/* The loss reads the head's weight, and its module is not called: gathered with the last norm, or not at all. */
static bool skips_head(const struct plan *p)
{
    return p->loss == LOSS_LINEAR_CHUNKS || loss_reads_head(p->loss);
}

static const struct tensor *outside(const struct plan *p, enum tensor_role role)
{
    for (int t = 0; t < p->model.ntensors; t++)
        if (p->model.tensors[t].block < 0 && p->model.tensors[t].role == role)
            return &p->model.tensors[t];
    return NULL;
}

/* _find_final_norm(): a child of the base model ("model.norm", not OPT's "model.decoder.final_layer_norm").  PEFT's model has for
 * base_model_prefix "model" the whole causal language model, whose children have no norm. */
static bool finds_norm(const struct plan *p)
{
    const struct tensor *norm = outside(p, ROLE_NORM_FINAL);
    const char *first = norm ? strchr(norm->name, '.') : NULL, *second = first ? strchr(first + 1, '.') : NULL;

    if (!second || strchr(second + 1, '.'))
        return false;
    return !training_is_lora(&p->train) || strncmp(norm->name, "model.", 6) != 0;
}

enum root_units root_units_of_accelerate(const struct plan *p)
{
    return root_units_refused(p) ? ROOT_TOGETHER : finds_norm(p) ? ROOT_APART : skips_head(p) ? ROOT_TOGETHER : ROOT_EMBED_HEAD;
}

enum root_units root_units_of_torchtitan(const struct plan *p) { return root_units_refused(p) ? ROOT_TOGETHER : ROOT_APART; }

enum root_units root_units_of_primerl(const struct plan *p) { return root_units_refused(p) || p->model.tied ? ROOT_TOGETHER : ROOT_APART; }

/* Tables that train and are not tied. */
enum root_units root_units_of_automodel(const struct plan *p)
{
    const struct tensor *embed = outside(p, ROLE_TOKENS), *head = outside(p, ROLE_HEAD);

    return root_units_refused(p) || p->model.tied || !embed || embed->frozen || !head || head->frozen || skips_head(p) ? ROOT_TOGETHER : ROOT_EMBED_HEAD;
}

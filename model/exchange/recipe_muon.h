/* recipe_muon.h -- LLaMA-Factory's Muon (use_muon). */
#ifndef DPX_RECIPE_MUON_H
#define DPX_RECIPE_MUON_H

#include "model/exchange/recipe.h"

/* Does the recipe ask for it? */
bool recipe_has_muon(const json_t *config, enum recipe_form form);

/* p->optimizer; 0, or -1 where it is not what the plan's Muon is. */
int recipe_read_muon(const char *where, struct plan *p, struct notes *notes);

/* Bytes that its step of a tensor of so many numbers holds at its fullest; side: the shorter one of a matrix, 0 where AdamW steps. */
int64_t recipe_muon_moment(int64_t numel, int64_t side);

/* What its fullest moment has above the plan's. */
double recipe_muon_more(const struct plan *p);

#endif

/* recipe_notes.h -- what a recipe's framework does of itself and the plan has otherwise: said, each in a line. */
#ifndef DPX_RECIPE_NOTES_H
#define DPX_RECIPE_NOTES_H

#include "model/exchange/recipe.h"

/* `adapts`: PEFT's adapters train; `launched`: accelerate's config was beside the recipe. */
struct recipe_about { const json_t *config; enum recipe_form form; bool adapts, pure, launched; };

/* An attention that the framework does not have is refused.  0, or -1 reported. */
int  recipe_check_attention(const json_t *config, enum recipe_form form, const char *where);

/* Does it leave the weights' dtype to the checkpoint by null?  TRL's ModelConfig and the handbook's get_model() hand that on as it is, which is "auto" since
 * transformers 5 (from_pretrained()). */
bool recipe_asks_checkpoint(const json_t *config, enum recipe_form form);

/* Who computes attention, where that is planned. */
void recipe_read_attention(const struct recipe_about *of, struct plan *p);

/* axolotl: full fine-tuning of which some weights would be widened is refused.  0, or -1 reported. */
int  recipe_check_embedding(const struct recipe_about *of, const struct plan *p, const char *where);
/* TRL: layers in int8 of a model in fp32 are refused.  0, or -1 reported. */
int  recipe_check_int8(const struct recipe_about *of, const struct plan *p, const char *where);

void recipe_note(const struct recipe_about *of, const struct plan *p, struct notes *notes);

/* Keys that TRL 1.16's configs do not have: its parser takes none that it does not know (TrlParser). */
void recipe_note_removed(const json_t *config, struct notes *notes);
/* What of TRL's engine is not planned. */
void recipe_note_engine(const json_t *config, struct notes *notes);

#endif

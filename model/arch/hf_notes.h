/* hf_notes.h -- what a Hugging Face config says that no plan follows. */
#ifndef DPX_HF_NOTES_H
#define DPX_HF_NOTES_H

#include <jansson.h>

/* Notes (base/notes.h), each once, on the config of a model that was read: weights that are published quantised, and keys that
 * no config class of transformers has, which may be those of a model that was changed.  `where` names the config. */
void hf_notes_say(const json_t *config, const char *where, const char *family);

#endif

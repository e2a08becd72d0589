/* form_trl_launch.h -- TRL's `--accelerate_config`, or accelerate_config of a recipe: a file, or the name of one that TRL ships. */
#ifndef DPX_FORM_TRL_LAUNCH_H
#define DPX_FORM_TRL_LAUNCH_H

#include "model/form/form.h"

/* Takes the key out of the document and reads what it names as the config that launches it.  0; -1, reported. */
int form_trl_launch(struct form_file *f);

#endif

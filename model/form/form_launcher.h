/* form_launcher.h -- the options of torchrun and deepspeed before the program that trains.
 *
 *     launcher_list_unknown(words, program, "train.sh");
 *
 * Notes those that no launcher has: words[0] to words[program - 1] are the command before the program. */
#ifndef DPX_FORM_LAUNCHER_H
#define DPX_FORM_LAUNCHER_H

#include "model/form/form.h"

/* Options of a script that are neither of the command that is read nor of its launcher: of its other commands, of branches that are not taken, of
 * arrays that nothing names. */
void launcher_list_elsewhere(const struct form_file *f, struct notes *notes);

void launcher_list_unknown(const json_t *words, int program, const char *where);

#endif

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

/* Is the program behind a command's first words one with subcommands, of which this one trains nothing? */
bool launcher_does_else(const json_t *words, int program);
/* Of such a command, and of variables that make LLaMA-Factory start another program: 0, or -1 reported. */
int  launcher_check(const struct form_file *f);
/* Variables that start another number of ranks than the plan has. */
void launcher_list_places(const struct form_file *f, const struct plan *p, struct notes *notes);

#endif

/* form_launcher.h -- the options of torchrun and deepspeed before the program that trains.
 *
 *     launcher_list_unknown(words, program, "train.sh");
 *
 * Notes those that no launcher has: words[0] to words[program - 1] are the command before the program. */
#ifndef DPX_FORM_LAUNCHER_H
#define DPX_FORM_LAUNCHER_H

#include <jansson.h>

void launcher_list_unknown(const json_t *words, int program, const char *where);

#endif

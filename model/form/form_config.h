/* form_config.h -- files that a command names.
 *
 *     if (form_follow(&f) < 0)             a command's own config, read, and the command's options over it
 *         return -1; */
#ifndef DPX_FORM_CONFIG_H
#define DPX_FORM_CONFIG_H

#include "model/form/form.h"

/* f.doc and f.words are the command's.  0, also where it names no config; -1 reported: it is not there, or cannot be read. */
int  form_follow(struct form_file *f);

#endif

/* opts_internal.h -- what the printers of an option table share. */
#ifndef DPX_OPTS_INTERNAL_H
#define DPX_OPTS_INTERNAL_H

#include <stddef.h>

#include "base/opts.h"

/* "a|b|c" into buf, cut at its size. */
const char *opts_join(char *buf, size_t size, const char *const *words, const char *with);

/* "fsdp.reshard_after_forward=true": a key before the sign. */
bool opts_is_pair(const char *s);

/* The text of a value into the variable of row `o`; `what` is how messages name the option: "--bucket" or "PLAN.json".
 * 0, or -1 reported. */
int opts_set_value(const struct opt *o, const char *what, const char *value);

/* Neither a positional nor an example. */
static inline bool opts_is_option(const struct opt *o) { return !o->positional && !o->example; }

/* What --help of a command prints; a program without commands alone; --help of a program of several. */
void opts_print_help(const char *command, const char *about, const struct opt *opts);
void opts_print_overview(const char *program, const char *about, const struct opt *opts);
void opts_print_commands(const char *program, const char *about, const struct command *commands);

/* "FILE", "N", "bf16|fp16|fp32". */
const char *opts_value_name(const struct opt *o, char *buf, size_t size);

/* " (default 8)", or "" where the variable holds none. */
const char *opts_default_text(const struct opt *o, char *buf, size_t size);

/* Prints what --help-format=FORMAT asks for; OPTS_DONE, or OPTS_ERROR with the reason reported.
 * Of a program (`command` is one word) the whole page or script, of one of its commands the part
 * that belongs into it. */
int opts_print_as(const char *format, const char *command, const char *about, const struct opt *opts);

/* The same of a program of several commands. */
int commands_print_as(const char *format, const char *program, const char *about,
                      const struct command *commands);

#endif

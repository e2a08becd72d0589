/* toml.h -- the TOML of configuration files, as JSON values.
 *
 *     json_t *j = toml_read(text, "train.toml");
 *
 * Tables, arrays of tables, inline tables, dotted keys, strings of one line and of several, numbers (1_000, 1e-5,
 * inf and nan as texts), true and false, arrays.  Dates and times are refused with their line. */
#ifndef DPX_TOML_H
#define DPX_TOML_H

#include <stddef.h>

#include <jansson.h>

/* New reference, or NULL with line and what was expected reported; `where` names the input. */
json_t *toml_read(const char *text, const char *where);

/* A bare word: a number, true or false ("True" as Python prints it, too), None, else itself as a text.  New reference;
 * NULL: it is not UTF-8. */
json_t *toml_word(const char *word, size_t n);

#endif

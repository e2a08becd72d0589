/* training_names.h -- PEFT's lists of names of modules, separated by commas, and its regular expressions of a module's whole name. */
#ifndef DPX_TRAINING_NAMES_H
#define DPX_TRAINING_NAMES_H

#include "model/arch/transformer.h"

/* The i-th name of a list; false after the last. */
bool training_name_at(const char *list, int i, char out[TRAINING_LIST]);

/* Is `name` all of a module's name, or what is behind a point in it?  `anywhere`: behind any letter
 * (PEFT matches modules to save by str.endswith()). */
bool training_ends_with(const char *module, const char *name, bool anywhere);

/* Names of modules have none of an expression's letters. */
bool training_is_expression(const char *name);

/* re.fullmatch(); < 0: the expression is not understood. */
int  training_whole_name_matches(const char *expression, const char *module);
/* re.match(): of a name's beginning. */
int  training_begin_matches(const char *expression, const char *name);

/* Does one of the names, or the expression that the list is, mean the module? */
bool training_listed(const char *list, const char *module, bool anywhere);

#endif

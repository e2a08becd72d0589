/* unread.h -- what an import did not read of a config, told so that nobody takes it for followed.
 *
 *     struct unread u = { .notes = notes };
 *     for each key that was not read, and (where it is known) asks for something: !unread_asks_nothing(value)
 *         unread_add(&u, key, "why it matters, or NULL", it says nothing of a step);
 *     for each section that says nothing of a step: unread_section(&u, path, value);
 *     unread_end(&u);
 *
 * What matters has a line of its own; keys that are not known share lines; what says nothing of a step is not listed. */
#ifndef DPX_UNREAD_H
#define DPX_UNREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/notes.h"

struct unread {
    struct notes *notes;
    char   text[240];
    size_t n;
};

/* null, false, 0, "", "none", [] and {}: a key that is known, and of which that is the usual value, asks for nothing with it. */
bool unread_asks_nothing(const json_t *v);
/* Is it the name of a key that lies in sections on data, logs, checkpoints, profiles and machines?  (unread_names.c) */
bool unread_is_name(const char *key);
/* Is the key (a path, or its last name) one of the names, or (with *) does it begin as one does and have a name that unread_is_name() knows? */
bool unread_is_among(const char *key, const char *const *names, size_t n);

/* A note where the file starts another number of ranks than the plan has: --cluster decides, in every form.  `key` says where it stands. */
void unread_ranks(struct notes *notes, const char *key, int64_t stated, int64_t ranks);

void unread_add(struct unread *u, const char *key, const char *why, bool silent);
/* Keys below a section that says nothing of a step, in mappings and lists of mappings, whose names nobody knows. */
void unread_section(struct unread *u, const char *path, const json_t *v);
void unread_end(struct unread *u);

#endif

/* unread.h -- what an import did not read of a config, told so that nobody takes it for followed.
 *
 *     struct unread u = { .notes = notes };
 *     for each key that was not read and asks for something (!unread_asks_nothing(value); of one that is not known !unread_says_nothing(value))
 *         unread_add(&u, key, "why it matters, or NULL", it says nothing of a step);
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
/* null, "", [] and {}: not even a misspelt key says something with it. */
bool unread_says_nothing(const json_t *v);
/* Is the key one of the names, or (with *) does it begin as one does? */
bool unread_is_among(const char *key, const char *const *names, size_t n);

/* A note where the file starts another number of ranks than the plan has: --cluster decides, in every form.  `key` says where it stands. */
void unread_ranks(struct notes *notes, const char *key, int64_t stated, int64_t ranks);

void unread_add(struct unread *u, const char *key, const char *why, bool silent);
void unread_end(struct unread *u);

#endif

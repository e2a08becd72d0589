/* printable.h -- text of others (names in files, paths, databases) on one line of a terminal, of a
 * message or of a written file.
 *
 * Not printable: control characters (C0, DEL, C1: escape sequences and line ends), Unicode's line
 * and paragraph separators and its overrides of direction, and what is not UTF-8. */
#ifndef DPX_PRINTABLE_H
#define DPX_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

bool printable(const char *s);

/* The string with what is not printable as \n, \t, \r or \xNN a byte; cut at `size`, terminated, and
 * neither a character nor an escape cut apart.  Returns the length written. */
size_t printable_copy(char *to, size_t size, const char *s);

#endif

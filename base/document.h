/* document.h -- a JSON document as text that every reader accepts.
 *
 * Many readers hold every number as a double (JavaScript, jq), and int64_t ones stop at 2^63.  So no integer
 * beyond 2^53 = 9007199254740992, up to which a double has all of them, is written as one: it becomes the nearest
 * double with a decimal point or an exponent (1.8014398509481984e+16), the same to all.  Where a figure means "without
 * a limit" its writer puts null. */
#ifndef DPX_DOCUMENT_H
#define DPX_DOCUMENT_H

#include <jansson.h>

/* The text with keys in their order and an indent of `indent` (0: one line); free() it.  NULL: no memory, or no
 * document.  Integers of `doc` that are too large are replaced in it. */
char *document_text(json_t *doc, int indent);

#endif

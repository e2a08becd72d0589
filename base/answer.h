/* answer.h -- what a program prints under --json: one document, an error too.
 *
 *     answers_begin(argc, argv, modelled_add);
 *     ...
 *     status = answer_print(doc, EXIT_DONE);
 *     ...
 *     return answers_end(status);
 *
 * Of one thread: that which prints. */
#ifndef DPX_ANSWER_H
#define DPX_ANSWER_H

#include <stdbool.h>

#include <jansson.h>

/* Is --json on the command line?  Then what fail() prints is kept from now on.  `rests_on` adds what every answer names: versions. */
void answers_begin(int argc, char **argv, void (*rests_on)(json_t *answer));

/* Whether a document was asked for. */
bool answers_asked(void);

/* Prints `doc` with what answers rest on, and gives the reference back.  `status`, or 1 where standard output cannot be written. */
int answer_print(json_t *doc, int status);

/* The same of a file of the user's (a plan, a schema), to which nothing is added. */
int answer_print_file(json_t *doc, int status);

/* Another prints the document, or another process did: answers_end() prints none. */
void answer_given(void);

/* Where a document was asked for, `status` is not 0 and none was printed: {"dpx": 1, "error": {"status": 2, "kind": "usage",
 * "messages": [...]}} with what fail() said.  kind: "usage" (2), "no" (3), "failed".  Returns `status`. */
int answers_end(int status);

#endif

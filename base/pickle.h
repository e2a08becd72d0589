/* pickle.h -- writes Python's pickle, protocol 2: dicts, lists, texts and integers, by opcodes that simple readers know, too (MemoryViz.js).
 *
 *     struct pickle p = pickle_begin(f);
 *     pickle_open(&p, PICKLE_DICT);
 *     pickle_text(&p, "size");
 *     pickle_int(&p, 512);
 *     pickle_close(&p, PICKLE_DICT);
 *     pickle_end(&p);                          {"size": 512}
 *
 * A dict's content is keys and values in turn.  A text that comes again is written once. */
#ifndef DPX_PICKLE_H
#define DPX_PICKLE_H

#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

enum pickle_kind { PICKLE_DICT, PICKLE_LIST };
struct pickle { FILE *f; json_t *texts; };

struct pickle pickle_begin(FILE *f);
void pickle_end(struct pickle *p);

void pickle_open(struct pickle *p, enum pickle_kind k);
void pickle_close(struct pickle *p, enum pickle_kind k);
/* Before element i of a long list: readers take so many at once. */
void pickle_element(struct pickle *p, int64_t i);

void pickle_text(struct pickle *p, const char *utf8);
void pickle_int(struct pickle *p, int64_t v);
void pickle_false(struct pickle *p);

#endif

/* list.h -- what dpx knows by name, as a document.  dpxplan list and dpx_list() are both this.
 *
 *     json_t *doc;
 *     if (list_json("gpus", &doc) < 0)
 *         return 2;                        { "gpus": [ { "name", "title", "memory_bytes", ... }, ... ] } */
#ifndef DPX_LIST_H
#define DPX_LIST_H

#include <stddef.h>

#include <jansson.h>

#include "model/plan/knob.h"

/* models, clusters, gpus, strategies, parallel, keys, options, refused; ended by NULL. */
extern const char *const list_words[];

/* 0, or -1 reported: another word, with the nearest named. */
int list_json(const char *what, json_t **doc);

/* A row of the table of knobs where a person reads it. */
struct list_key { char key[64], values[KNOB_RANGE_TEXT], usual[96], cells[512]; };
void list_key_text(const struct knob *k, struct list_key *t);

/* "fsdp/torch zero3/deepspeed ...": the cells of a row that has them, as a person reads them. */
void list_cells_text(const json_t *cells, char *to, size_t size);

#endif

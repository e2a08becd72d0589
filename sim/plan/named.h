/* named.h -- a model and a cluster, as a command names them: a built-in name, a file, or a document that came with a request. */
#ifndef DPX_NAMED_H
#define DPX_NAMED_H

#include <jansson.h>

#include "model/arch/transformer.h"
#include "model/cluster/cluster.h"

/* doc, where it is not NULL, is read in the name's place: a config.json, a cluster file.  0, or -1 reported. */
int named_model(const char *name, const json_t *doc, struct model *out);
int named_cluster(const char *name, const json_t *doc, struct cluster *out);

#endif

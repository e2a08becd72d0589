/* checkpoint_file.h -- one rank's part of a checkpoint: parts of its state one after the other, each with its place and hash.
 *
 *     struct checkpoint_file *f = checkpoint_file_create(path);          (or checkpoint_file_open())
 *     checkpoint_file_write(f, &part, bytes) ...                         (or checkpoint_file_read(), in the same order)
 *     rc = checkpoint_file_close(f, rc, &sum);                           (written: it is on disk)
 *
 * A file is of one machine's byte order and of one plan: a part that is not the one that is read next is refused. */
#ifndef DPX_CHECKPOINT_FILE_H
#define DPX_CHECKPOINT_FILE_H

#include "exec/run/executor.h"

struct checkpoint_file;
/* Bytes of the file, and of buffers in it; of all parts' hashes. */
struct checkpoint_file_sum { int64_t bytes, state; uint64_t hash; };

/* NULL with the reason reported. */
struct checkpoint_file *checkpoint_file_create(const char *path);
struct checkpoint_file *checkpoint_file_open(const char *path);
/* 0, or -1 reported: damaged, too short, of something else. */
int checkpoint_file_write(struct checkpoint_file *f, const struct exec_part *part, const void *bytes);
int checkpoint_file_read(struct checkpoint_file *f, const struct exec_part *part, void *bytes);
/* rc: how writing or reading ended.  Below 0 the file is only closed. */
int checkpoint_file_close(struct checkpoint_file *f, int rc, struct checkpoint_file_sum *sum);

#endif

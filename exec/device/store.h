/* store.h -- the disk of a rank: one file without a name, read and written at offsets.
 *
 *     struct store *f = store_open("/local", bytes);
 *     store_write(f, 4096, from, n) ... store_read(f, 4096, to, n)
 *     store_close(f);
 *
 * The file has no name from its first moment on: however the process ends, nothing is left.  Its bytes are
 * reserved when it is opened, so a full disk is reported then.  Several threads may call at once, for ranges that do
 * not overlap.  Offsets and lengths in bytes. */
#ifndef DPX_STORE_H
#define DPX_STORE_H

#include <stdint.h>

struct store;

/* A new file of `bytes` bytes in a folder.  NULL with the reason reported. */
struct store *store_open(const char *folder, int64_t bytes);
void          store_close(struct store *s);         /* accepts NULL */

/* All of it, or -1 with the reason reported. */
int store_read(struct store *s, int64_t offset, void *to, int64_t bytes);
int store_write(struct store *s, int64_t offset, const void *from, int64_t bytes);

/* Bytes read and written since it was opened. */
int64_t store_bytes_read(const struct store *s);
int64_t store_bytes_written(const struct store *s);

#endif

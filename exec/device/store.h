/* store.h -- the disk of a rank: files in a folder of its own, one for each instance of a buffer.
 *
 *     struct store_file files[] = { { "master-sub-group-0", bytes }, ... };
 *     struct store *f = store_open(&(struct store_args){ .folder = "/local", .rank = 3, .file = files, .n = 2 });
 *     store_write(f, store_begin(f, 1) + 4096, from, n) ... store_read(f, store_begin(f, 1) + 4096, to, n)
 *     store_close(f);                                  (the folder and its files are removed)
 *
 * The folder is FOLDER/dpx-rank3-XXXXXX, locked (flock) by the process that made it.  Folders of this user that
 * no process has locked are those of runs that crashed: store_open() removes them first, as store_sweep() does.
 *
 * All of a store has one range of addresses; file i has those from store_begin(f, i) on.  Files are opened with O_DIRECT
 * where the file system has it, reserved in full, and moved in blocks of 1 MiB of which 8 are under way at once (or as
 * a plan's aio section says; these are its defaults), through block_io.h.  Memory that begins and ends at
 * multiples of 4096 is read and written in place; the rest goes through a buffer of as many blocks, and the ends of a
 * range that are no whole blocks are read before they are written.
 *
 * One thread may read while another writes, ranges that do not overlap in the same 4096 bytes. */
#ifndef DPX_STORE_H
#define DPX_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/device/block_io.h"

struct store;

enum { STORE_ALIGN = 4096, STORE_BLOCK = 1 << 20, STORE_DEPTH = 8 };

struct store_file { char name[128]; int64_t bytes; };
struct store_args {
    const char *folder;
    int         rank;
    enum block_io_kind io;
    int64_t     block;                  /* bytes, a multiple of STORE_ALIGN; 0: STORE_BLOCK */
    int         depth;                  /* blocks under way at once; 0: STORE_DEPTH */
    bool        each;                   /* each block is given to the system by itself (aio's single_submit) */
    const struct store_file *file;      /* copied */
    int         n;
};

/* NULL with the reason reported. */
struct store *store_open(const struct store_args *a);
void          store_close(struct store *s);         /* accepts NULL */

/* Where files begin: they follow each other, each rounded up to STORE_ALIGN; begin[n]: the end of all. */
void    store_begins(const struct store_file *file, int n, int64_t *begin);
int64_t store_begin(const struct store *s, int i);

/* All of it, within one file, or -1 with the reason reported: also where a file does not have the size that it was
 * made with. */
int store_read(struct store *s, int64_t at, void *to, int64_t bytes);
int store_write(struct store *s, int64_t at, const void *from, int64_t bytes);

/* f(arg) is called after each block: a slow disk is not a hang. */
void store_on_progress(struct store *s, void (*f)(void *arg), void *arg);

/* Bytes read and written for callers since it was opened; bytes that the files' system was asked for, whole blocks. */
int64_t store_bytes_read(const struct store *s);
int64_t store_bytes_written(const struct store *s);
int64_t store_blocks_read(const struct store *s);
int64_t store_blocks_written(const struct store *s);
/* Whether files were opened with O_DIRECT; by what they are moved; bytes of the buffers of both directions. */
bool        store_direct(const struct store *s);
const char *store_engine(const struct store *s);
int64_t     store_buffers(const struct store_args *a);

/* ---- store_folder.c ---- */

/* Removes what crashed runs of this user left below a folder.  How many folders there are locked: of runs that live. */
int  store_sweep(const char *folder);
/* A locked folder of rank r below `folder`: its path into `path`; its descriptor, or -1 with the reason reported. */
int  store_folder_make(const char *folder, int rank, char *path, int size);
/* Removes it with all that is in it, and closes it. */
void store_folder_remove(int fd, const char *path);

#endif

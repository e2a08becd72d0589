/* mpirun_words.h -- what mpirun writes on stderr, without its remarks about ranks that ended.
 *
 * mpirun passes on what ranks write and adds blocks of its own between two lines of dashes.
 * Those that say only that a rank ended, which the rank has said itself, are dropped; all
 * else passes as it comes. */
#ifndef DPX_MPIRUN_WORDS_H
#define DPX_MPIRUN_WORDS_H

#include <stdbool.h>
#include <stddef.h>

struct mpirun_words {
    int    to;                  /* the file descriptor that gets what remains */
    bool   in_block;
    bool   ending;              /* a signal was passed on to mpirun: 4.1 may crash of it when all ranks
                                 * have ended (PMIx_Finalize), and say where */
    bool   open;                /* of this line a part has passed already */
    bool   aborted;             /* a rank did: empty lines from then on are of its block */
    size_t nline, nblock;
    char   line[1024], block[8192];

    bool   failed;              /* it broke while it said something: what it knew of ranks that ended is lost */
    bool   ended;               /* it said that ranks have ended before their time: what it does last */
    int    killed_rank, signal;         /* the rank that a signal killed; signal 0: none */
    char   killed_host[256];
};

void mpirun_words_add(struct mpirun_words *w, const char *bytes, size_t n);
/* What is still held back goes out: nothing more comes, or not soon. */
void mpirun_words_flush(struct mpirun_words *w);

#endif

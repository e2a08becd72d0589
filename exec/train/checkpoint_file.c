/* checkpoint_file.c -- see checkpoint_file.h. */
#include "exec/train/checkpoint_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/hash.h"
#include "base/input.h"
#include "base/room.h"
#include "exec/data/xxh64.h"

static const char magic[8] = "dpxstat1";

struct checkpoint_file {
    FILE *f;
    char *path;
    bool  writes;
    struct checkpoint_file_sum sum;
};

struct head { struct exec_part part; uint64_t hash; };

static struct checkpoint_file *opened(const char *path, FILE *f, bool writes)
{
    struct checkpoint_file *c;

    if (!f)
        return NULL;
    c = room_new(1, sizeof *c);
    *c = (struct checkpoint_file){ f, strdup(path), writes, { .bytes = sizeof magic, .hash = HASH_BEGIN } };
    return c;
}

struct checkpoint_file *checkpoint_file_create(const char *path)
{
    FILE *f = fopen(path, "wbx");

    if (!f)
        fail("%s: cannot be written: %s (all ranks must see the folder of checkpoints)", path, strerror(errno));
    else if (fwrite(magic, sizeof magic, 1, f) != 1) {
        fail("%s: %s", path, strerror(errno));
        fclose(f);
        f = NULL;
    }
    return opened(path, f, true);
}

struct checkpoint_file *checkpoint_file_open(const char *path)
{
    FILE *f = input_open(path);
    char begin[sizeof magic];

    if (f && (fread(begin, sizeof begin, 1, f) != 1 || memcmp(begin, magic, sizeof magic) != 0)) {
        fail("%s: is not a rank's state", path);
        fclose(f);
        f = NULL;
    }
    return opened(path, f, false);
}

static void count(struct checkpoint_file *c, const struct head *h)
{
    c->sum.bytes += (int64_t)sizeof *h + h->part.n;
    c->sum.state += h->part.family >= 0 ? h->part.n : 0;
    c->sum.hash = hash_mix(c->sum.hash, h->hash);
}

int checkpoint_file_write(struct checkpoint_file *c, const struct exec_part *part, const void *bytes)
{
    const struct head h = { *part, xxh64(bytes, (size_t)part->n) };

    if (fwrite(&h, sizeof h, 1, c->f) != 1 || fwrite(bytes, 1, (size_t)part->n, c->f) != (size_t)part->n)
        return fail("%s: %s", c->path, strerror(errno));
    count(c, &h);
    return 0;
}

int checkpoint_file_read(struct checkpoint_file *c, const struct exec_part *part, void *bytes)
{
    struct head h;

    if (fread(&h, sizeof h, 1, c->f) != 1)
        return fail("%s: ends too early", c->path);
    if (memcmp(&h.part, part, sizeof *part) != 0)
        return fail("%s: holds the state of another plan, or of another version", c->path);
    if (fread(bytes, 1, (size_t)part->n, c->f) != (size_t)part->n)
        return fail("%s: ends too early", c->path);
    if (xxh64(bytes, (size_t)part->n) != h.hash)
        return fail("%s: is damaged: bytes from %lld on are not what was saved", c->path, (long long)c->sum.bytes);
    count(c, &h);
    return 0;
}

int checkpoint_file_close(struct checkpoint_file *c, int rc, struct checkpoint_file_sum *sum)
{
    if (rc == 0 && c->writes && (fflush(c->f) != 0 || fsync(fileno(c->f)) < 0))
        rc = fail("%s: %s", c->path, strerror(errno));
    if (rc == 0 && !c->writes && fgetc(c->f) != EOF)
        rc = fail("%s: is longer than this plan's state", c->path);
    fclose(c->f);
    *sum = c->sum;
    free(c->path);
    free(c);
    return rc;
}

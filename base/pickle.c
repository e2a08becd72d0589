/* pickle.c -- see pickle.h.  Opcodes are those of Python's Lib/pickletools.py. */
#include "base/pickle.h"

#include <string.h>

enum { PROTO = 0x80, EMPTY_DICT = '}', EMPTY_LIST = ']', MARK = '(', SETITEMS = 'u', APPENDS = 'e', BINUNICODE = 'X', LONG_BINPUT = 'r',
       LONG_BINGET = 'j', BININT = 'J', LONG1 = 0x8a, NEWFALSE = 0x89, STOP = '.' };

/* Elements that one APPENDS takes, as Python's own pickler has it. */
enum { BATCH = 1000 };

static void put(struct pickle *p, int byte) { fputc(byte, p->f); }

static void little_endian(struct pickle *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put(p, (int)(v >> 8 * i & 255));
}

struct pickle pickle_begin(FILE *f)
{
    struct pickle p = { f, json_object() };

    put(&p, PROTO);
    put(&p, 2);
    return p;
}

void pickle_end(struct pickle *p)
{
    put(p, STOP);
    json_decref(p->texts);
}

void pickle_open(struct pickle *p, enum pickle_kind k)
{
    put(p, k == PICKLE_DICT ? EMPTY_DICT : EMPTY_LIST);
    put(p, MARK);
}

void pickle_close(struct pickle *p, enum pickle_kind k) { put(p, k == PICKLE_DICT ? SETITEMS : APPENDS); }

void pickle_element(struct pickle *p, int64_t i)
{
    if (i == 0 || i % BATCH)
        return;
    put(p, APPENDS);
    put(p, MARK);
}

void pickle_text(struct pickle *p, const char *utf8)
{
    json_t *known = json_object_get(p->texts, utf8);
    size_t n = strlen(utf8);

    if (known) {
        put(p, LONG_BINGET);
        little_endian(p, (uint64_t)json_integer_value(known), 4);
        return;
    }
    put(p, BINUNICODE);
    little_endian(p, n, 4);
    fwrite(utf8, 1, n, p->f);
    put(p, LONG_BINPUT);
    little_endian(p, json_object_size(p->texts), 4);
    json_object_set_new(p->texts, utf8, json_integer((json_int_t)json_object_size(p->texts)));
}

void pickle_int(struct pickle *p, int64_t v)
{
    if (v >= INT32_MIN && v <= INT32_MAX) {
        put(p, BININT);
        little_endian(p, (uint64_t)v, 4);
        return;
    }
    put(p, LONG1);
    put(p, 8);
    little_endian(p, (uint64_t)v, 8);
}

void pickle_false(struct pickle *p) { put(p, NEWFALSE); }

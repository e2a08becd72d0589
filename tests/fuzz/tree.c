/* tree.c -- documents changed by their structure: keys and values swapped, dropped, made extreme. */
#define _GNU_SOURCE             /* memfd_create */
#include "tests/fuzz/tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jansson.h>

#include "tests/fuzz/fuzz.h"

/* ---- inputs that were taken, and those that were refused ---- */

enum { KEPT = 64, LONGEST = 1 << 15, REFUSED = 1 << 20 };

static struct { uint8_t data[LONGEST]; size_t size; } kept[KEPT];    /* in place: libFuzzer counts allocations */
static int64_t taken_so_far, seen_so_far;
static uint8_t refused[REFUSED];        /* by hash: a rare mistake costs nothing */

static uint64_t hash_of(const uint8_t *data, size_t size)
{
    uint64_t h = UINT64_C(14695981039346656037);        /* FNV-1a */

    for (size_t i = 0; i < size; i++)
        h = (h ^ data[i]) * UINT64_C(1099511628211);
    return h % REFUSED;
}

static void print_share(void)
{
    fprintf(stderr, "accepted %" PRId64 " of %" PRId64 " inputs, %.0f %%\n", taken_so_far, seen_so_far,
            100.0 * (double)taken_so_far / (double)(seen_so_far ? seen_so_far : 1));
}

int fuzz_count(const uint8_t *data, size_t size, bool taken)
{
    if (seen_so_far++ == 0)
        atexit(print_share);
    refused[hash_of(data, size)] = !taken;
    if (!taken)
        return 0;
    int at = (int)(taken_so_far++ % KEPT);
    if (size <= LONGEST) {
        memcpy(kept[at].data, data, size);
        kept[at].size = size;
    }
    return 0;
}

const char *fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;

    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        must_hold(fd >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    must_hold(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    return path;
}

/* ---- chance ---- */

static uint64_t state;

static uint64_t chance(void)
{
    state += UINT64_C(0x9e3779b97f4a7c15);              /* splitmix64 */
    uint64_t z = state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t below(size_t n) { return n ? (size_t)(chance() % n) : 0; }

static int nwords(void)
{
    int n = 0;

    while (fuzz_words[n])
        n++;
    return n;
}

/* ---- values ---- */

/* Near what was there three times in four, else a boundary of what fits anywhere. */
static int64_t other_integer(int64_t was)
{
    static const int64_t edges[] = { 0, 1, -1, 2, 127, 128, 255, 256, 32767, 32768, 65535, 65536, INT32_MAX,
        INT64_C(1) << 31, UINT32_MAX, INT64_C(1) << 32, INT64_C(1) << 53, INT64_C(4000000000000000000), INT64_MAX - 1,
        INT64_MAX, INT64_MIN };
    uint64_t u = (uint64_t)was;

    switch (below(12)) {
    case 0: case 8: return (int64_t)(u + 1);
    case 1: return (int64_t)(u - 1);
    case 2: case 9: return (int64_t)(u * 2);
    case 3: case 10: return was / 2;
    case 4: return (int64_t)(u + below(17) - 8);
    case 5: return (int64_t)((UINT64_C(1) << below(64)) - below(2));
    case 6: return (int64_t)(u * (1 + below(10)));
    default: return edges[below(sizeof edges / sizeof *edges)];
    }
}

static double other_real(double was)
{
    static const double edges[] = { 0, 1, -1, 0.5, 1e-3, 1e-300, 1e300, 4.9e-324, 1.7e308, 9.3e18, 1e15, -1e15 };

    switch (below(4)) {
    case 0: return was * 2;
    case 1: return was / 2;
    case 2: return was + 1;
    default: return edges[below(sizeof edges / sizeof *edges)];
    }
}

static json_t *any_value(void)
{
    static const char *const strings[] = { "", " ", "\n--module evil", "\x1b[31m", "nan", "%s%n", "a\"b'c\\", "\xc3\xa9", "<b>", "=1+1" };
    char longer[300];

    switch (below(9)) {
    case 0: return json_null();
    case 1: return json_boolean(below(2));
    case 2: return json_integer(other_integer(0));
    case 3: return json_real(other_real(1));
    case 4: return json_array();
    case 5: return json_object();
    case 6:
        memset(longer, 'x', sizeof longer - 1);
        longer[sizeof longer - 1] = '\0';
        return json_string(longer);
    default: return json_string(strings[below(sizeof strings / sizeof *strings)]);
    }
}

/* A string cut, doubled, or another one. */
static json_t *other_string(const char *was)
{
    size_t n = strlen(was);
    char text[256];

    if (below(3) == 0 || n == 0)
        return any_value();
    if (below(2)) {
        snprintf(text, sizeof text, "%.*s", (int)below(n < 200 ? n : 200), was);
        json_t *cut = json_string(text);
        return cut ? cut : json_string("");             /* cut inside a character */
    }
    snprintf(text, sizeof text, "%.100s %.100s", was, was);
    json_t *twice = json_string(text);
    return twice ? twice : json_string("");
}

/* ---- a JSON document ---- */

/* One member or element of the document, and where it is. */
struct place { json_t *in; const char *key; size_t at; json_t *value; };

struct places { struct place *p; size_t n, cap; };

static void collect(struct places *all, json_t *in)
{
    const char *key;
    json_t *v;
    size_t i;

#define COLLECT(k, a) do { \
        if (all->n == all->cap) { \
            all->cap = all->cap ? 2 * all->cap : 256; \
            all->p = realloc(all->p, all->cap * sizeof *all->p); \
            must_hold(all->p); \
        } \
        all->p[all->n++] = (struct place){ in, k, a, v }; \
        collect(all, v); \
    } while (0)
    json_object_foreach(in, key, v)
        COLLECT(key, 0);
    json_array_foreach(in, i, v)
        COLLECT(NULL, i);
#undef COLLECT
}

static void set(const struct place *p, json_t *value)
{
    if (p->key)
        json_object_set_new(p->in, p->key, value);
    else
        json_array_set_new(p->in, p->at, value);
}

/* Another member of the same name, or another element of any list; NULL where there is none. */
static json_t *alike(const struct places *all, const struct place *p)
{
    size_t from = below(all->n);

    for (size_t i = 0; i < all->n; i++) {
        const struct place *q = &all->p[(from + i) % all->n];
        if (q != p && (p->key && q->key ? !strcmp(p->key, q->key) : !p->key && !q->key))
            return json_deep_copy(q->value);
    }
    return NULL;
}

/* What the target's words say for this key; NULL: nothing. */
static json_t *worded(const char *key)
{
    size_t from = below((size_t)nwords()), n = (size_t)nwords(), length = key ? strlen(key) : 0;

    for (size_t i = 0; key && i < n; i++) {
        const char *word = fuzz_words[(from + i) % n];
        if (word[0] == '"' && !strncmp(word + 1, key, length) && word[1 + length] == '"')
            return json_loads(word + length + 3, JSON_DECODE_ANY, NULL);
    }
    return NULL;
}

static void change_value(const struct places *all, const struct place *p)
{
    size_t how = below(16);
    json_t *to = NULL;

    if (how < 4)
        to = worded(p->key);
    if (!to && how < 7)
        to = alike(all, p);
    if (!to && how == 15 && below(3) == 0)
        to = any_value();
    if (!to && json_is_integer(p->value))
        to = json_integer(other_integer(json_integer_value(p->value)));
    else if (!to && json_is_real(p->value))
        to = json_real(other_real(json_real_value(p->value)));
    else if (!to && json_is_boolean(p->value))
        to = json_boolean(!json_boolean_value(p->value));
    else if (!to && json_is_string(p->value))
        to = other_string(json_string_value(p->value));
    if (!to && json_is_null(p->value))
        to = any_value();
    if (to)
        set(p, to);
}

static void change_array(json_t *a)
{
    size_t n = json_array_size(a), i = below(n), j = below(n);
    json_t *one = json_array_get(a, i);

    if (n == 0) {
        json_array_append_new(a, any_value());
        return;
    }
    switch (below(4)) {
    case 0:
        json_array_remove(a, i);
        break;
    case 1:
        json_array_insert_new(a, j, json_deep_copy(one));
        break;
    case 2: {
        json_t *copy = json_deep_copy(one);
        json_array_set_new(a, i, json_deep_copy(json_array_get(a, j)));
        json_array_set_new(a, j, copy);
        break;
    }
    default:
        for (size_t k = below(6); k > 0; k--)
            json_array_append_new(a, json_deep_copy(json_array_get(a, (i + k) % n)));
    }
}

static void change_object(const struct places *all, json_t *o)
{
    const struct place *other = &all->p[below(all->n)];
    const char *word = nwords() ? fuzz_words[below((size_t)nwords())] : "";
    json_t *more;
    char text[512];

    switch (below(3)) {
    case 0:                             /* a member of the target's, where there is one of its name */
        snprintf(text, sizeof text, "{%s}", word);
        more = json_loads(text, 0, NULL);
        for (size_t i = 0, from = below(all->n); more && i < all->n; i++) {
            const struct place *p = &all->p[(from + i) % all->n];
            if (p->key && json_object_get(more, p->key)) {
                o = p->in;
                break;
            }
        }
        if (more)
            json_object_update(o, more);
        json_decref(more);
        break;
    case 1:                             /* one that another object has; rarely, for it is seldom known here */
        if (other->key && below(8) == 0)
            json_object_set_new(o, other->key, json_deep_copy(other->value));
        break;
    default:                            /* without one of its own */
        for (size_t i = 0, k = below(json_object_size(o)); i < all->n; i++)
            if (all->p[i].in == o && k-- == 0) {
                json_object_del(o, all->p[i].key);
                break;
            }
    }
}

/* The dump is at most `most` bytes, else 0. */
static size_t dump(const json_t *j, uint8_t *to, size_t most)
{
    size_t n = json_dumpb(j, NULL, 0, JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);

    return n <= most ? json_dumpb(j, (char *)to, most, JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY) : 0;
}

static void change_json(json_t *doc)
{
    struct places all = { NULL, 0, 0 };
    size_t how = below(8);

    collect(&all, doc);
    if (all.n == 0) {
        free(all.p);
        return;
    }
    const struct place *p = &all.p[below(all.n)];
    if (how == 0 && json_is_array(p->in))
        change_array(p->in);
    else if (how == 0 || how == 1)
        change_object(&all, json_is_object(p->in) ? p->in : doc);
    else {
        for (int tries = 0; tries < 8 && (json_is_object(p->value) || json_is_array(p->value)); tries++)
            p = &all.p[below(all.n)];
        if (json_is_array(p->value))
            change_array(p->value);
        else
            change_value(&all, p);
    }
    free(all.p);
}

static size_t mutate_json(json_t *doc, uint8_t *data, size_t size, size_t most)
{
    static json_t *before;              /* crossed with the one before, now and then */
    size_t n;

    change_json(doc);           /* once: libFuzzer calls up to five times before it runs the input */
    if (before && below(32) == 0) {
        struct places from = { NULL, 0, 0 };
        collect(&from, before);
        if (from.n > 0 && json_is_object(doc)) {
            const struct place *p = &from.p[below(from.n)];
            if (p->key)
                json_object_set_new(doc, p->key, json_deep_copy(p->value));
        }
        free(from.p);
    }
    n = dump(doc, data, most);
    json_decref(before);
    before = json_incref(doc);
    return n ? n : size;
}

/* ---- text: lines of words ---- */

enum { LINES = 512 };
struct text { char *line[LINES]; int n; };

static void split(struct text *t, char *text)
{
    t->n = 0;
    while (t->n < LINES && *text) {
        size_t length = strcspn(text, "\n");
        bool last = text[length] == '\0';
        text[length] = '\0';
        t->line[t->n++] = text;
        text += length + !last;
    }
}

/* Word k of the line: where it starts, its length in *n; NULL: there are fewer. */
static const char *word_of(const char *line, size_t k, size_t *n)
{
    for (line += strspn(line, " \t"); *line; line += *n, line += strspn(line, " \t")) {
        *n = strcspn(line, " \t");
        if (k-- == 0)
            return line;
    }
    return NULL;
}

static size_t count_words(const char *line)
{
    size_t n, k = 0;

    while (word_of(line, k, &n))
        k++;
    return k;
}

/* The line with one word changed: a number into another one, a word into that of the same place in
 * another line or into one of the target's. */
static void change_word(char *to, size_t size, const char *line, const char *other)
{
    size_t n = 0, on = 0, k = below(count_words(line));
    const char *at = word_of(line, k, &n), *theirs = word_of(other, k, &on);
    char word[128], *end;

    if (!at) {
        snprintf(to, size, "%s", line);
        return;
    }
    snprintf(word, sizeof word, "%.*s", (int)n, at);
    double real = strtod(word, &end);
    if (*end == '\0' && below(4))
        strpbrk(word, ".eEn") ? snprintf(word, sizeof word, "%.6g", other_real(real))
                              : snprintf(word, sizeof word, "%lld", (long long)other_integer(strtoll(word, NULL, 10)));
    else if (theirs && below(4))
        snprintf(word, sizeof word, "%.*s", (int)on, theirs);
    else
        snprintf(word, sizeof word, "%.127s", fuzz_words[below((size_t)nwords())]);
    snprintf(to, size, "%.*s%s%s", (int)(at - line), line, word, at + n);
}

static size_t mutate_text(uint8_t *data, size_t size, size_t most)
{
    static char text[1 << 20], changed[2048];
    struct text t;
    size_t n = 0;

    if (size >= sizeof text)
        return size;
    memcpy(text, data, size);
    text[size] = '\0';
    split(&t, text);
    int at = (int)below((size_t)t.n), to = (int)below((size_t)t.n), rows = 1 + (int)below(4);
    size_t how = below(8);
    for (int i = 0; i < t.n; i++) {
        const char *line = t.line[i];
        int times = 1;
        if (i >= at && i < at + rows && how == 0)
            times = 0;                          /* lines dropped, */
        else if (i == at && how == 1)
            times = 1 + (int)below(5);          /* repeated, */
        else if (how == 2 && (i == at || i == to))
            line = t.line[i == at ? to : at];   /* swapped, */
        else if (i == at) {
            change_word(changed, sizeof changed, line, t.line[to]);
            line = changed;
        }
        for (; times > 0; times--) {
            size_t length = strlen(line);
            if (n + length + 1 > most)
                return size;
            memcpy(data + n, line, length);
            data[n + length] = '\n';
            n += length + 1;
        }
    }
    return n ? n : size;
}

/* ---- any input ---- */

static size_t mutate_bytes(uint8_t *data, size_t size)
{
    static const char bytes[] = "\0\n\"{}[],:0-9e.nN\x1b\xff ";

    for (size_t k = 1 + below(3); k > 0 && size > 0; k--)
        data[below(size)] = (uint8_t)bytes[below(sizeof bytes - 1)];
    return size > 1 && below(4) == 0 ? 1 + below(size - 1) : size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed)
{
    json_t *doc;

    state = seed;
    if ((size == 0 || refused[hash_of(data, size)]) && taken_so_far > 0) {
        int at = (int)below((size_t)(taken_so_far < KEPT ? taken_so_far : KEPT));
        if (kept[at].size > 0 && kept[at].size <= most) {
            memcpy(data, kept[at].data, kept[at].size);
            size = kept[at].size;
        }
    }
    if (below(32) == 0)
        return mutate_bytes(data, size);
    doc = json_loadb((const char *)data, size, 0, NULL);
    if (doc)
        size = mutate_json(doc, data, size, most);
    else
        size = mutate_text(data, size, most);
    json_decref(doc);
    return size;
}

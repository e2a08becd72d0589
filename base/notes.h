/* notes.h -- what a conversion has to tell besides its result.
 *
 *     struct notes n = { 0 };
 *     if (ds_config_read(config, "ds.json", &plan, &n) < 0)
 *         return 2;
 *     notes_print(&n, "ds.json");              on stderr, one line each
 *
 * A note is not an error: an "auto" that was filled in, a key that is not
 * known and changes nothing that a plan describes. */
#ifndef DPX_NOTES_H
#define DPX_NOTES_H

struct json_t;

struct notes {
    int  n;                 /* all of them; text[] holds the first few */
    char text[32][320];
};

/* `to` may be NULL: notes are dropped. */
void notes_add(struct notes *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void notes_print(const struct notes *n, const char *where);

/* One line on stderr, wrapped where its width is known, what is not printable escaped; or where this thread's notes go otherwise. */
void notes_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same, unless the line is among the last 16 that notes_say_once() said in this thread: many plans of one command meet it. */
void notes_say_once(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* From now on lines of this thread become strings of a JSON array (NULL: stderr again), each only once.  Returns the
 * array before. */
struct json_t *notes_divert(struct json_t *into);

#endif

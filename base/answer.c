/* answer.c -- see answer.h. */
#include "base/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/document.h"
#include "base/fail.h"

static void (*rests)(json_t *answer);
static bool asked;
static char said[8192];
/* A document was printed; none follows it. */
static _Thread_local bool answered;

/* Words behind -- are names. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--json"))
            return true;
    return false;
}

void answers_begin(int argc, char **argv, void (*rests_on)(json_t *answer))
{
    rests = rests_on;
    asked = wants_json(argc, argv);
    answered = false;
    if (asked)
        fail_copies(said, sizeof said);
}

bool answers_asked(void) { return asked; }

void answer_given(void) { answered = true; }

int answer_print_file(json_t *doc, int status)
{
    answered = true;
    char *text = document_text(doc, 2);
    bool written = text && puts(text) != EOF && fflush(stdout) == 0;

    free(text);
    json_decref(doc);
    if (written)
        return status;
    fail("cannot write to standard output");
    return 1;
}

int answer_print(json_t *doc, int status)
{
    if (rests)
        rests(doc);
    return answer_print_file(doc, status);
}

int answers_end(int status)
{
    if (!asked || answered || status == 0)
        return status;
    json_t *messages = json_array();
    for (const char *at = said; *at; at += strspn(at, "\n")) {
        size_t n = strcspn(at, "\n");
        json_array_append_new(messages, json_stringn(at, n));
        at += n;
    }
    return answer_print(json_pack("{s:i, s:{s:i, s:s, s:o}}", "dpx", 1, "error", "status", status, "kind",
                                  status == 2 ? "usage" : status == 3 ? "no" : "failed", "messages", messages), status);
}

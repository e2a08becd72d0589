/* Expected escapes: two hexadecimal digits of each byte, as a reader can write them down. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/printable.h"

static void is(const char *from, const char *to)
{
    char got[128];

    assert_int_equal(printable_copy(got, sizeof got, from), strlen(to));
    assert_string_equal(got, to);
    assert_int_equal(printable(from), !strcmp(from, to));
}

static void text_of_any_language_stays_as_it_is(void **state)
{
    (void)state;
    is("llama-3.1-8b", "llama-3.1-8b");
    is("Gr\xc3\xb6\xc3\x9f" "e \xe6\xa8\xa1 \xf0\x9f\x98\x80 \\n", "Gr\xc3\xb6\xc3\x9f" "e \xe6\xa8\xa1 \xf0\x9f\x98\x80 \\n");
    is("", "");
}

static void what_a_terminal_would_obey_is_escaped(void **state)
{
    (void)state;
    is("a\nb\tc\rd", "a\\nb\\tc\\rd");
    is("\x1b[31m", "\\x1b[31m");
    is("\x7f", "\\x7f");
    is("\xc2\x9b" "31m", "\\xc2\\x9b" "31m");           /* U+009B: CSI in one character */
    is("\xe2\x80\xa8", "\\xe2\\x80\\xa8");              /* U+2028: line separator */
    is("\xe2\x80\xae", "\\xe2\\x80\\xae");              /* U+202E: right-to-left override */
}

static void what_is_not_utf8_is_escaped(void **state)
{
    (void)state;
    is("\xff", "\\xff");
    is("\xc3", "\\xc3");                                /* cut off */
    is("\xc0\xaf", "\\xc0\\xaf");                       /* '/' in two bytes */
    is("\xed\xa0\x80", "\\xed\\xa0\\x80");              /* a surrogate */
}

static void a_copy_is_cut_between_characters_and_escapes(void **state)
{
    (void)state;
    char got[6];

    assert_int_equal(printable_copy(got, sizeof got, "abc\nd"), 5);
    assert_string_equal(got, "abc\\n");
    assert_int_equal(printable_copy(got, sizeof got, "abcd\n"), 4);
    assert_string_equal(got, "abcd");
    assert_int_equal(printable_copy(got, sizeof got, "abcd\xc3\xb6"), 4);
    assert_string_equal(got, "abcd");
}

/* What fail() prints; the caller frees it. */
static char *printed(const char *name)
{
    FILE *to = tmpfile();
    char *text = calloc(1, 1 << 18);
    int was;

    assert_non_null(to);
    assert_non_null(text);
    fflush(stderr);
    was = dup(STDERR_FILENO);
    dup2(fileno(to), STDERR_FILENO);
    fail("in.json: \"%s\" is no name: a shorter one is wanted", name);
    fflush(stderr);
    dup2(was, STDERR_FILENO);
    close(was);
    rewind(to);
    text[fread(text, 1, (1 << 18) - 1, to)] = '\0';
    fclose(to);
    return text;
}

static void a_message_is_one_line_whatever_name_it_holds(void **state)
{
    (void)state;
    char said[200], *text = printed("a\n\x1b[2Jb");

    assert_string_equal(text, "dpx: in.json: \"a\\n\\x1b[2Jb\" is no name: a shorter one is wanted\n");
    free(text);
    fail_capture(said, sizeof said);
    fail("%s", "a\nb");
    fail_capture(NULL, 0);
    assert_string_equal(said, "a\\nb");
}

static void a_long_name_leaves_beginning_and_end_of_the_message(void **state)
{
    (void)state;
    static char name[70001];

    memset(name, 'x', sizeof name - 1);
    for (int i = 0; i < 2; i++) {
        char *text = printed(name);
        if (strlen(text) > 1600)
            fail_msg("a message of %zu bytes", strlen(text));
        assert_int_equal(strncmp(text, "dpx: in.json: \"x", 15), 0);
        assert_non_null(strstr(text, "is no name: a shorter one is wanted\n"));
        free(text);
        memset(name, '\n', sizeof name - 1);            /* four times as long when it is escaped */
        name[0] = 'x';
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_of_any_language_stays_as_it_is),
        cmocka_unit_test(what_a_terminal_would_obey_is_escaped),
        cmocka_unit_test(what_is_not_utf8_is_escaped),
        cmocka_unit_test(a_copy_is_cut_between_characters_and_escapes),
        cmocka_unit_test(a_message_is_one_line_whatever_name_it_holds),
        cmocka_unit_test(a_long_name_leaves_beginning_and_end_of_the_message),
    };
    return cmocka_run_group_tests_name("model/printable", tests, NULL, NULL);
}

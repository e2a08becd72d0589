/* Lines that wrap at words, and tables whose columns fall away by rank. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/page.h"
#include "base/columns.h"

/* What a page of so many columns makes of a text; the caller frees it. */
static char *through(const char *columns, const char *text)
{
    char *out = NULL;
    size_t size = 0;
    FILE *to = tmpfile(), *page;
    long n;

    assert_non_null(to);
    setenv("COLUMNS", columns, 1);
    page = page_open(to);
    assert_non_null(page);
    fputs(text, page);
    page_close(page);
    n = ftell(to);
    rewind(to);
    out = calloc(1, (size_t)n + 1);
    size = fread(out, 1, (size_t)n, to);
    assert_int_equal((long)size, n);
    fclose(to);
    return out;
}

static void assert_page(const char *columns, const char *text, const char *expected)
{
    char *got = through(columns, text);

    assert_string_equal(got, expected);
    free(got);
}

static void lines_wrap_at_words(void **state)
{
    (void)state;
    assert_page("60", "short\n", "short\n");
    /* 12 words of 4 and their blanks are 59 columns, a 13th does not fit. */
    assert_page("60", "abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd\n",
                "abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd\n  abcd abcd\n");
    /* A number keeps its %: "100 %" would have begun in column 57. */
    assert_page("60", "abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd a 100 %.\n",
                "abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd a\n  100 %.\n");
    /* Under the mark. */
    assert_page("60", "  name   " PAGE_HANG "abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd\n",
                "  name   abcd abcd abcd abcd abcd abcd abcd abcd abcd abcd\n         abcd\n");
    /* A line without an end, and a word that is wider than the page. */
    assert_page("60", "a 0123456789012345678901234567890123456789012345678901234567890123456789 b",
                "a\n  0123456789012345678901234567890123456789012345678901234567890123456789\n  b");
}

/* Letters of several bytes are one column, colours none. */
static void columns_are_what_a_terminal_shows(void **state)
{
    static const char bar[] = "\u2588\u2588", red[] = "\033[31mred\033[0m";

    (void)state;
    assert_int_equal(page_columns(bar, sizeof bar - 1), 2);
    assert_int_equal(page_columns(red, sizeof red - 1), 3);
}

/* No line is wider than the page, whatever the width, and no word is lost. */
static void nothing_is_lost(void **state)
{
    static const char text[] = "    one row with   wide gaps " PAGE_HANG "and a last column that says a great deal more than fits on it, by far, at any of these widths\n";

    (void)state;
    for (int columns = 60; columns < 200; columns++) {
        char width[16];
        snprintf(width, sizeof width, "%d", columns);
        char *got = through(width, text), *again = strdup(text), *a, *b, *x, *y;
        for (const char *line = got; *line; line = strchr(line, '\n') + 1)
            assert_true(strchr(line, '\n') - line <= columns);
        for (a = strtok_r(got, " \n" PAGE_HANG, &x), b = strtok_r(again, " \n" PAGE_HANG, &y); a && b;
             a = strtok_r(NULL, " \n" PAGE_HANG, &x), b = strtok_r(NULL, " \n" PAGE_HANG, &y))
            assert_string_equal(a, b);
        assert_true(!a && !b);
        free(got);
        free(again);
    }
}

static void columns_fall_away_by_rank(void **state)
{
    static const struct column columns[] = { { "plan", .rank = 0 }, { "step", .right = true }, { "interval", .rank = 2 }, { "note", .rank = 1 } };
    static const struct { int width; const char *expected; } cases[] = {
        { 40, "  plan    step  interval  note\n  first    1 s  0 to 2    plain\n  second  10 s  9 to 11\n" },
        { 25, "  plan    step  note\n  first    1 s  plain\n  second  10 s\n" },
        { 15, "  plan    step\n  first    1 s\n  second  10 s\n" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct columns *t = columns_new(columns, 4);
        char got[200] = "";
        FILE *to = fmemopen(got, sizeof got, "w");
        columns_cell(t, "first"), columns_cell(t, "%d s", 1), columns_cell(t, "0 to 2"), columns_cell(t, "plain");
        columns_cell(t, "second"), columns_cell(t, "%d s", 10), columns_cell(t, "9 to 11"), columns_cell(t, "%s", "");
        columns_print(t, to, cases[i].width);
        fclose(to);
        char plain[200] = "";
        for (size_t k = 0, at = 0; got[k]; k++)
            if (got[k] != PAGE_HANG[0])
                plain[at++] = got[k];
        assert_string_equal(plain, cases[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_wrap_at_words),
        cmocka_unit_test(columns_are_what_a_terminal_shows),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(columns_fall_away_by_rank),
    };

    return cmocka_run_group_tests_name("model/page", tests, NULL, NULL);
}

/* test_text.c -- text for pages and scripts: escaping, tables, units. */
#include "tests/check.h"

#include <string.h>

#include "reports/page/table.h"
#include "base/chart/text.h"
#include "base/chart/unit.h"

static void becomes(void (*as)(struct text *, const char *), const char *s, const char *want)
{
    struct text t = { 0 };

    text_put(&t, "");
    as(&t, s);
    assert_string_equal(t.s, want);
    text_free(&t);
}

static void markup_stays_text(void **state)
{
    (void)state;
    becomes(text_html, "<script>alert('x')</script>", "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;");
    becomes(text_html, "\" onload=\"x", "&quot; onload=&quot;x");
    becomes(text_html, "&lt;", "&amp;lt;");
    becomes(text_html, "]]>--><!--", "]]&gt;--&gt;&lt;!--");
}

static void foreign_characters_are_kept(void **state)
{
    (void)state;
    becomes(text_html, "Modèle 模型 модель 🦙", "Modèle 模型 модель 🦙");
    becomes(text_csv, "模型", "模型");
}

static void what_is_not_a_character_is_replaced(void **state)
{
    (void)state;
    becomes(text_html, "a\xff" "b", "a\xEF\xBF\xBD" "b");               /* never in UTF-8 */
    becomes(text_html, "\xC0\xBC", "\xEF\xBF\xBD\xEF\xBF\xBD");         /* '<' in two bytes */
    becomes(text_html, "\xE2\x82", "\xEF\xBF\xBD\xEF\xBF\xBD");         /* cut off */
    becomes(text_html, "\xED\xA0\x80", "\xEF\xBF\xBD");                 /* half of a surrogate pair */
    becomes(text_html, "a\x1b[31m", "a\xEF\xBF\xBD[31m");
    becomes(text_html, "x\xE2\x80\xAEgnp.exe", "x\xEF\xBF\xBDgnp.exe"); /* right-to-left override */
}

static void a_csv_field_is_one_field_and_no_formula(void **state)
{
    (void)state;
    becomes(text_csv, "a,b", "\"a,b\"");
    becomes(text_csv, "a\"b", "\"a\"\"b\"");
    becomes(text_csv, "=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\"");
    becomes(text_csv, "plain", "plain");
}

static void a_markdown_cell_is_one_cell(void **state)
{
    (void)state;
    becomes(text_markdown, "a|b", "a\\|b");
    becomes(text_markdown, "a\nb", "a b");
    becomes(text_markdown, "[x](javascript:y)", "\\[x\\](javascript:y)");
    becomes(text_markdown, "<img>", "&lt;img&gt;");
    becomes(text_markdown, "http://x", "http\\://x");
}

static void long_names_are_cut_by_what_they_take(void **state)
{
    struct text t = { 0 };

    (void)state;
    assert_int_equal(text_columns("abc"), 3);
    assert_int_equal(text_columns("模型"), 4);
    text_cut(&t, "abcdef", 4);
    assert_string_equal(t.s, "abc…");
    t.n = 0;
    text_cut(&t, "模型名", 4);
    assert_string_equal(t.s, "模…");
    text_free(&t);
}

static void numbers_have_units_and_three_digits(void **state)
{
    (void)state;
    assert_string_equal(unit_shown(UNIT_SECONDS, 1.2345).s, "1.23 s");
    assert_string_equal(unit_shown(UNIT_SECONDS, 0.0456).s, "45.6 ms");
    assert_string_equal(unit_shown(UNIT_SECONDS, 1e-5).s, "10.0 µs");
    assert_string_equal(unit_shown(UNIT_SECONDS, 12345).s, "12345 s");
    assert_string_equal(unit_shown(UNIT_SECONDS, -0.5).s, "-500 ms");
    assert_string_equal(unit_shown(UNIT_BYTES, 1.5 * 1048576).s, "1.50 MiB");
    assert_string_equal(unit_shown(UNIT_CHANGE, 0.123).s, "+12.3 %");
    assert_string_equal(unit_shown(UNIT_SHARE, 0.25).s, "25.0 %");
    assert_string_equal(unit_shown(UNIT_COUNT, 12).s, "12");
    assert_string_equal(unit_shown(UNIT_SECONDS, NAN).s, "–");
    assert_string_equal(unit_shown(UNIT_TOKENS_S, INFINITY).s, "–");
    assert_string_equal(unit_shown(UNIT_TOKENS_S, 477).s, "477 tokens/s");
    assert_string_equal(unit_shown(UNIT_TOKENS_S, 3082366).s, "3.08M tokens/s");
    assert_string_equal(unit_shown_tick(UNIT_TOKENS_S, 1e6).s, "1M");
    assert_string_equal(unit_shown_tick(UNIT_COUNT, 9999).s, "9999");
    assert_string_equal(unit_shown_tick(UNIT_COUNT, 150000).s, "150k");
}

static void a_table_names_its_numbers(void **state)
{
    struct text t = { 0 };
    struct table *x = table_new("t", "T");

    (void)state;
    table_column(x, "name", "Name", UNIT_TEXT, SHOWN);
    table_column(x, "s", "Time", UNIT_SECONDS, SHOWN);
    table_column(x, "hidden", "Hidden", UNIT_COUNT, CSV_ONLY);
    table_row(x, "%d.%s", 7, "a b<");
    table_text(x, "<i>");
    table_number(x, 0.5);
    table_number(x, NAN);
    table_html(x, &t, 10);
    assert_non_null(
        strstr(t.s, "<td class=\"name\">&lt;i&gt;</td><td data-q=\"t/7.a_b_/s\">500 ms</td></tr>"));
    t.n = 0;
    table_csv(x, &t);
    assert_string_equal(t.s, "row,name,s,hidden\r\n7.a_b_,<i>,0.5,\r\n");
    text_free(&t);
    table_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(markup_stays_text),
        cmocka_unit_test(foreign_characters_are_kept),
        cmocka_unit_test(what_is_not_a_character_is_replaced),
        cmocka_unit_test(a_csv_field_is_one_field_and_no_formula),
        cmocka_unit_test(a_markdown_cell_is_one_cell),
        cmocka_unit_test(long_names_are_cut_by_what_they_take),
        cmocka_unit_test(numbers_have_units_and_three_digits),
        cmocka_unit_test(a_table_names_its_numbers),
    };
    return cmocka_run_group_tests_name("reports/text", tests, NULL, NULL);
}

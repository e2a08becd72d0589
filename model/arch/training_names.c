/* training_names.c -- see training_names.h. */
#include "model/arch/training_names.h"

#include <regex.h>
#include <stdio.h>
#include <string.h>

/* ---- names in a list ---- */

bool training_name_at(const char *list, int i, char out[TRAINING_LIST])
{
    size_t n;

    for (; i > 0 && *list; i--) {
        list += strcspn(list, ",");
        list += *list == ',';
    }
    n = strcspn(list, ",");
    memcpy(out, list, n);
    out[n] = '\0';
    return n > 0;
}

bool training_ends_with(const char *module, const char *name, bool anywhere)
{
    size_t n = strlen(name), all = strlen(module);

    if (n > all || strcmp(module + all - n, name) != 0)
        return false;
    return anywhere || n == all || module[all - n - 1] == '.';
}

/* ---- PEFT's target_modules as one text: a regular expression of a module's whole name (re.fullmatch()) ---- */

bool training_is_expression(const char *name) { return strpbrk(name, "\\[](){}*+?|^$") != NULL; }

/* Python's \d and (?: in POSIX words; false: another of its own, or too long. */
static bool posix_of(const char *s, bool whole, char *out, size_t size)
{
    bool in_set = false;
    size_t n = (size_t)snprintf(out, size, "^(");

    for (; *s && n + 8 < size; s++) {
        if (*s == '\\' && s[1] == 'd')
            n += (size_t)snprintf(out + n, size - n, in_set ? "0-9" : "[0-9]"), s++;
        else if (*s == '\\' && s[1] == 'w')
            n += (size_t)snprintf(out + n, size - n, in_set ? "A-Za-z0-9_" : "[A-Za-z0-9_]"), s++;
        else if (*s == '\\' && (!s[1] || in_set || strchr("abcefghijklmnopqrstuvxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", s[1])))
            return false;
        else if (*s == '\\')
            out[n++] = *s++, out[n++] = *s;
        else if (*s == '(' && s[1] == '?' && s[2] == ':')
            out[n++] = '(', s += 2;
        else if ((*s == '(' || *s == '*' || *s == '+' || *s == '?') && s[1] == '?')
            return false;                               /* lookahead, non-greedy */
        else {
            in_set = *s == '[' || (in_set && *s != ']');
            out[n++] = *s;
        }
    }
    snprintf(out + n, size - n, whole ? ")$" : ")");
    return !*s;
}

static int expression_matches(const char *expression, bool whole, const char *module)
{
    char text[4 * TRAINING_LIST];
    regex_t as;
    int found;

    if (!posix_of(expression, whole, text, sizeof text) || regcomp(&as, text, REG_EXTENDED | REG_NOSUB) != 0)
        return -1;
    found = regexec(&as, module, 0, NULL, 0) == 0;
    regfree(&as);
    return found;
}

int training_whole_name_matches(const char *expression, const char *module) { return expression_matches(expression, true, module); }

int training_begin_matches(const char *expression, const char *name) { return expression_matches(expression, false, name); }

bool training_listed(const char *list, const char *module, bool anywhere)
{
    char name[TRAINING_LIST];

    if (!anywhere && training_is_expression(list))
        return training_whole_name_matches(list, module) > 0;
    for (int i = 0; training_name_at(list, i, name); i++)
        if (training_ends_with(module, name, anywhere))
            return true;
    return false;
}

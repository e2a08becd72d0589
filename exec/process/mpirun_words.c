/* mpirun_words.c -- mpirun's stderr line by line: what ranks wrote passes, its blocks about ended ranks do not. */
#include "exec/process/mpirun_words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* In the words of Open MPI 4.1 (orte/tools/orterun/help-orterun.txt, ompi/mpi/help-mpi-api.txt) and
 * of PRRTE 3, which is the launcher of 5.0 (src/tools/prte/help-prun.txt). */
static const char *const ended_blocks[] = {
    "MPI_ABORT was invoked on rank",            /* a rank's own, while others still run */
    "Primary job  terminated normally, but",
    "detected that one or more processes exited with non-zero status",
    "noticed that process rank",
    "has exited due to process rank",
};
static const char *const ended_lines[] = {
    "Set MCA parameter \"orte_base_help_aggregate\" to 0",
    "has sent help message help-",
    "have sent help message help-",
    "abort is already in progress...hit ctrl-c again",
    "Forcibly killing job...",
    ": Forwarding signal ",
    "/util/show_help.c at line",        /* 4.1: two ranks that abort at once spoil each other's block */
    "Read -1, expected ",               /* 4.1, btl vader: a rank that was being read from is gone */
    "/ptl_base_connection_hdlr.c at line",      /* PMIx 4: a rank that was being welcomed is gone */
    "total processes failed to start",
    "total process failed to start",
    "total processes killed (some possibly by",
    "total process killed (some possibly by",
};

static bool has_one_of(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

static void pass(const struct mpirun_words *w, const char *bytes, size_t n)
{
    while (n) {
        ssize_t k = write(w->to, bytes, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return;             /* stderr has no reader any more */
        bytes += k;
        n -= (size_t)k;
    }
}

static void look_for_signal(struct mpirun_words *w)
{
    const char *at = strstr(w->block, "process rank ");
    int rank, signal;
    char host[256];

    if (!at || w->signal)
        return;
    if (sscanf(at, "process rank %d with PID %*d on node %255s exited on signal %d",
               &rank, host, &signal) == 3) {
        w->killed_rank = rank;
        w->signal = signal;
        memcpy(w->killed_host, host, sizeof host);
    }
}

static void end_block(struct mpirun_words *w)
{
    w->block[w->nblock] = '\0';
    if (has_one_of(w->block, ended_blocks, sizeof ended_blocks / sizeof *ended_blocks)) {
        w->ended |= !strstr(w->block, ended_blocks[0]);
        look_for_signal(w);
    } else
        pass(w, w->block, w->nblock);
    w->nblock = 0;
    w->in_block = false;
}

static bool is_rule(const char *line)
{
    size_t n = strspn(line, "-");

    return n >= 70 && strspn(line + n, "\r\n") == strlen(line + n);
}

/* "[host:pid] *** Process received signal ***" and what follows. */
static bool is_trace(const struct mpirun_words *w)
{
    const char *at = w->ending && w->line[0] == '[' ? strstr(w->line, "] ") : NULL;

    return at && (strncmp(at, "] ***", 5) == 0 || strncmp(at, "] Signal", 8) == 0 ||
                  strncmp(at, "] Failing at", 12) == 0 || strncmp(at, "] [", 3) == 0);
}

static void hold(struct mpirun_words *w)
{
    if (w->nblock + w->nline >= sizeof w->block) {      /* longer than any that is dropped */
        pass(w, w->block, w->nblock);
        w->nblock = 0;
    }
    memcpy(w->block + w->nblock, w->line, w->nline);
    w->nblock += w->nline;
}

static void end_line(struct mpirun_words *w)
{
    bool rule;

    w->line[w->nline] = '\0';
    rule = is_rule(w->line);
    if (rule || w->in_block)
        hold(w);
    else if (!has_one_of(w->line, ended_lines, sizeof ended_lines / sizeof *ended_lines) && !is_trace(w))
        pass(w, w->line, w->nline);
    w->nline = 0;
    if (rule && w->in_block)
        end_block(w);
    else if (rule)
        w->in_block = true;
}

void mpirun_words_add(struct mpirun_words *w, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        /* PRRTE ends a block with the end of its string. */
        if (bytes[i] == '\0')
            continue;
        w->line[w->nline++] = bytes[i];
        if (bytes[i] == '\n' || w->nline == sizeof w->line - 1)
            end_line(w);
    }
    /* A progress line has no end; mpirun's own come whole. */
    if (w->nline && !w->in_block && w->line[0] != '-' && w->line[0] != '[') {
        pass(w, w->line, w->nline);
        w->nline = 0;
    }
}

void mpirun_words_flush(struct mpirun_words *w)
{
    w->line[w->nline] = '\0';
    pass(w, w->block, w->nblock);
    if (!is_trace(w))
        pass(w, w->line, w->nline);
    w->nblock = w->nline = 0;
    w->in_block = false;
}

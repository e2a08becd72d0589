/* gnuplot.c -- a gnuplot of its own process, fed through a pipe. */
#include "base/gnuplot.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fail.h"

static int feed(int fd, const char *s)
{
    size_t n = strlen(s);

    while (n > 0) {
        ssize_t w = write(fd, s, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -1;
        s += w;
        n -= (size_t)w;
    }
    return 0;
}

/* The child: exits with 127 where there is no gnuplot, as env does.  Scripts are UTF-8, of which gnuplot warns line by line in a locale
 * that is not. */
static void become_gnuplot(const char *folder, const int pipe_fd[2])
{
    if (dup2(pipe_fd[0], STDIN_FILENO) < 0 || chdir(folder) < 0)
        _exit(126);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    execlp("env", "env", "LC_ALL=C.UTF-8", "gnuplot", "-", (char *)NULL);
    _exit(127);
}

int gnuplot_run(const char *folder, const char *script)
{
    int fd[2], status = 0, rc;
    struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
    pid_t child;

    if (pipe(fd) < 0)
        return fail("gnuplot: %s", strerror(errno));
    child = fork();
    if (child == 0)
        become_gnuplot(folder, fd);
    close(fd[0]);
    if (child < 0) {
        close(fd[1]);
        return fail("gnuplot: %s", strerror(errno));
    }
    sigaction(SIGPIPE, &ignore, &before);       /* it may be gone before it has read all */
    rc = feed(fd[1], script);
    close(fd[1]);
    sigaction(SIGPIPE, &before, NULL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return 1;
    if (rc < 0 || status != 0)
        return fail("gnuplot could not draw the figures in %s (exit status %d)", folder,
                    WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}

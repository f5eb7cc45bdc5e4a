/* Turning a process that is root, or the user who is asked for, into the command that was ordered. */
#include "sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../supervisor/users.h"

static int take_places(const struct order *order)
{
    for (int i = 0; i < 3; i++)
        if (order->fd[i] >= 0 && dup2(order->fd[i], i) < 0)
            return errno;
    return order->fd[3] >= 0 && fchdir(order->fd[3]) ? errno : 0;
}

static void default_signals(void)
{
    sigset_t none;
    for (int n = 1; n < NSIG; n++)
        signal(n, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

int run_order(const struct order *order)
{
    struct user who;
    int err = user_find(order->user, &who);
    if (!err)
        err = take_places(order);
    if (err)
        return err;
    default_signals();
    umask(order->mask);
    if (!getuid() && (setgroups(who.group_count, who.groups) || setresgid(who.gid, who.gid, who.gid)
                      || setresuid(who.uid, who.uid, who.uid)))
        return errno;
    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    environ = order->env;
    execvp(order->argv[0], order->argv);
    return errno;
}

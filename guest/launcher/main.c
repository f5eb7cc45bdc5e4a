/* The launcher: a small resident process that makes sandboxes for the server.
 *
 * It takes orders over a socket pair (one datagram each), forks a worker per order, and ends when the server
 * does; sandboxes go on. It exists because the acts need a fork without a Python heap behind it, several
 * processes that are not threads, and single milliseconds. It decides nothing: see launcher.h, struct order.
 *
 *     launcher ORDERS_FD SUPERVISOR [LOCK_FD]
 *     launcher steers          says whether this kernel can lead connections to a way out, and why not
 *     launcher shows           says whether it can show a sandbox its own limits in /proc, and why not
 *
 * Answers: `tag=…` then `made=1 pid= start= t.<step>=<ms>…`, or `failed=<step> errno= text=`.
 * LOCK_FD is only held: whoever can lock it knows that no worker is left. */
#include "launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char data[ORDER_BYTES];
static struct order order;

static void reap(int signals) {
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == sizeof info) {}
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
}

static void serve_one(const struct stage *stage) {
    const char *why = NULL;
    ssize_t size = recv(stage->orders, data, sizeof data, MSG_TRUNC);
    if (size == 0) exit(0);
    if (size < 0) {
        if (errno == EINTR || errno == EAGAIN) return;
        exit(1);
    }
    pid_t worker = fork();
    if (worker > 0) return;
    bool fits = (size_t)size <= sizeof data;
    bool parsed = fits && order_parse(&order, data, (size_t)size, &why);
    answer_begin(stage->orders, order.tag ? order.tag : "");
    /* Without a worker this is the resident process: answer, and live on. */
    if (worker < 0) {
        char text[256];
        int n = snprintf(text, sizeof text, "tag=%s%cfailed=fork%cerrno=%d%ctext=fork", order.tag ? order.tag : "", 0, 0, errno, 0);
        send(stage->orders, text, (size_t)n + 1, MSG_NOSIGNAL);
        return;
    }
    if (!parsed) answer_failed("order", EINVAL, fits ? why : "order too large");
    if (!stage->steers) order.way_out = 0; /* its programs have the proxy's variables alone; `doctor` says so */
    if (stage->shows < 0) order.view_count = 0; /* they see the host's files; the same */
    order_perform(&order, stage);
}

static struct stage prepare(char **argv) {
    struct stage stage = {.orders = atoi(argv[1])};
    /* Sockets made for sandboxes must not belong to the host's network. */
    if (unshare(CLONE_NEWNET)) perror("launcher: network namespace"), exit(1);
    stage.time = !access("/proc/self/ns/time", F_OK);
    stage.steers = steering_try();
    stage.shows = shown_try() ? shown_device() : -1;
    for (unsigned which = 0; which < FILTERS; which++)
        if (!filter_make(&stage.filters[which], which)) fprintf(stderr, "launcher: seccomp filter\n"), exit(1);
    stage.mounts = stage_make(argv[2]);
    if (stage.mounts < 0) fprintf(stderr, "launcher: stage\n"), exit(1);
    fcntl(stage.orders, F_SETFD, FD_CLOEXEC);
    return stage;
}

static int say_whether_it_shows(void) {
    return shown_try() ? 0 : (perror("launcher: shown"), 1);
}

static int say_whether_it_steers(void) {
    if (!unshare(CLONE_NEWNET) && steering_try()) return 0;
    return perror("launcher: steering"), 1;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "steers")) return say_whether_it_steers();
    if (argc == 2 && !strcmp(argv[1], "shows")) return say_whether_it_shows();
    if (argc < 3) return fprintf(stderr, "usage: launcher ORDERS_FD SUPERVISOR [LOCK_FD]\n"), 2;
    if (argc > 3) fcntl(atoi(argv[3]), F_SETFD, FD_CLOEXEC);
    /* The stage must be passable for every sandbox's uid, whatever umask the server runs with. */
    umask(022);
    /* The server's loop comes first; what runs in sandboxes does not. */
    setpriority(PRIO_PROCESS, 0, 0);
    /* Sandboxes outlive their worker and become ours to reap. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct stage stage = prepare(argv);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    int signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    struct pollfd polled[] = {{.fd = stage.orders, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    if (send(stage.orders, "ready=1", 8, MSG_NOSIGNAL) != 8) return 1;
    for (;;) {
        if (poll(polled, 2, -1) < 0 && errno != EINTR) return 1;
        if (polled[1].revents) reap(signals);
        if (polled[0].revents) serve_one(&stage);
    }
}

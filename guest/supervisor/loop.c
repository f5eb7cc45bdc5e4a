#include "loop.h"
#include "names.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int epoll_fd = -1;
static void **graves;
static size_t grave_count, grave_cap;

bool loop_open(void)
{
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return epoll_fd >= 0;
}

uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void loop_watch(struct source *s, uint32_t events)
{
    if (s->fd < 0 || s->armed == events)
        return;
    struct epoll_event e = {.events = events, .data.ptr = s};
    int op = !events ? EPOLL_CTL_DEL : s->armed ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(epoll_fd, op, s->fd, &e) == 0)
        s->armed = events;
}

void loop_close(struct source *s)
{
    if (s->fd < 0)
        return;
    loop_watch(s, 0);
    close(s->fd);
    s->fd = -1;
}

void loop_free_later(void *memory)
{
    if (grave_count == grave_cap) {
        size_t cap = grave_cap ? grave_cap * 2 : 16;
        void **more = realloc(graves, cap * sizeof *more);
        if (!more)
            return;                     /* a small leak is better than a dangling event */
        graves = more;
        grave_cap = cap;
    }
    graves[grave_count++] = memory;
}

/* Every orphan of the sandbox ends up as our child, so everything is waited for. */
static void reap(int signal_fd)
{
    struct signalfd_siginfo drained[8];
    while (read(signal_fd, drained, sizeof drained) > 0)
        ;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (!proc_reaped(pid, status)) {
            worker_reaped(pid);
            names_reaped(pid);
        }
}

static void dispatch(struct source *s, uint32_t events)
{
    if (s->fd < 0)
        return;                         /* closed earlier in this round */
    switch (s->kind) {
    case SRC_LISTEN: conn_accept(s); break;
    case SRC_SIGNAL: reap(s->fd); break;
    case SRC_CONN: conn_event(s->owner, events); break;
    case SRC_OUTPUT: proc_output_ready(s->owner); break;
    case SRC_STDIN: stdin_ready(s->owner); break;
    case SRC_STATUS: proc_status_ready(s->owner); break;
    case SRC_RELAY: relay_call(s); break;
    case SRC_ASK: ask_ready(s); break;
    case SRC_NAMES: names_asked(); break;
    case SRC_SHOWN: shown_asked(); break;
    }
}

void loop_turn(int timeout_ms)
{
    struct epoll_event ready[32];
    int n = epoll_wait(epoll_fd, ready, 32, timeout_ms);
    for (int i = 0; i < n; i++)
        dispatch(ready[i].data.ptr, ready[i].events);
    while (stdin_stirred())
        proc_stirred();
    proc_hangups();
    while (grave_count)
        free(graves[--grave_count]);
}

void loop_run(void)
{
    for (;;)
        loop_turn(proc_timeout_ms());
}

/* The client's side of an order that somebody else carries out: it looks as if the command were its own child.
 *
 * On a terminal the command gets one of its own, so that it can control it (keys that interrupt and stop, shells with
 * jobs), and what is typed and printed is passed between the two. Anything else is handed over as it is. */
#include "sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

enum { TYPED = 1024, PRINTED = 16384, NOBODY = 1 };

struct terminal {
    int master;                         /* -1: the command has none */
    int slave;
    int shown;                          /* where its output goes */
    struct termios before;
    bool raw;
    bool deaf, dark;                    /* nothing comes any more, of what is typed or of what is printed */
    char typed[TYPED];
    size_t waiting;                     /* of `typed`, what it has not taken yet */
};

/* ---- the terminal ---- */

static bool in_foreground(void)
{
    return tcgetpgrp(0) == getpgrp();
}

static void set_raw(struct terminal *t, bool raw)
{
    struct termios now = t->before;
    if (t->master < 0 || t->raw == raw || !in_foreground())
        return;
    if (raw)
        cfmakeraw(&now);
    t->raw = !tcsetattr(0, TCSADRAIN, &now) ? raw : t->raw;
}

static void fit_size(const struct terminal *t)
{
    struct winsize size;
    if (t->master >= 0 && !ioctl(0, TIOCGWINSZ, &size))
        ioctl(t->master, TIOCSWINSZ, &size);
}

/* A terminal for the command where we have one ourselves; its end goes into `order`. */
static void open_terminal(struct terminal *t, struct order *order)
{
    int unlock = 0;
    t->master = -1;
    if (tcgetattr(0, &t->before))
        return;
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock)
        || (t->slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0)
        return;                         /* none is left: it gets ours, without control over it */
    tcsetattr(t->slave, TCSANOW, &t->before);
    t->master = master;
    t->shown = isatty(1) ? 1 : isatty(2) ? 2 : 0;
    fit_size(t);
    for (int i = 0; i < 3; i++)
        if (isatty(i))
            order->fd[i] = t->slave;
    order->terminal = true;
}

static void write_all(int fd, const char *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, data + done, size - done);
        if (n < 0 && errno == EAGAIN)
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        else if (n < 0 && errno != EINTR)
            return;
        done += n > 0 ? n : 0;
    }
}

/* Shows what the command printed. False when there is no more at the moment, or never will be. */
static bool show(struct terminal *t)
{
    char data[PRINTED];
    ssize_t n = t->master < 0 ? 0 : read(t->master, data, sizeof data);
    if (n > 0)
        write_all(t->shown, data, n);
    return n > 0;
}

static void pass_typed(struct terminal *t)
{
    ssize_t n = write(t->master, t->typed, t->waiting);
    if (n > 0)
        memmove(t->typed, t->typed + n, t->waiting -= n);
}

/* ---- the order ---- */

static int dial(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SUDO_SOCKET};
    struct ucred server;
    socklen_t size = sizeof server;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) {
        if (errno == EACCES || errno == EPERM)
            fprintf(stderr, "sudo: only members of the group " SUDO_MEMBER " may use it in this sandbox\n");
        else
            fprintf(stderr, "sudo: nobody becomes another user in this sandbox; start the command as that user instead\n");
        exit(NOBODY);
    }
    /* Our descriptors go to root and to nobody else. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) || server.uid) {
        fprintf(stderr, "sudo: what answers at " SUDO_SOCKET " is not root's\n");
        exit(NOBODY);
    }
    return fd;
}

static char *add(char *at, const char *text)
{
    return stpcpy(at, text) + 1;
}

/* All texts in one piece, as they are sent. */
static char *body_of(const struct order *order, struct head *head)
{
    size_t size = strlen(order->user) + 1;
    for (head->args = 0; order->argv[head->args]; head->args++)
        size += strlen(order->argv[head->args]) + 1;
    for (head->envs = 0; order->env[head->envs]; head->envs++)
        size += strlen(order->env[head->envs]) + 1;
    char *body = size > SUDO_BYTES || head->args > SUDO_TEXTS || head->envs > SUDO_TEXTS ? NULL : malloc(size);
    if (!body) {
        fprintf(stderr, "sudo: command line and environment are too long: %zu bytes, at most %d\n", size, SUDO_BYTES);
        exit(1);
    }
    char *at = add(body, order->user);
    for (uint32_t i = 0; i < head->args; i++)
        at = add(at, order->argv[i]);
    for (uint32_t i = 0; i < head->envs; i++)
        at = add(at, order->env[i]);
    head->size = size;
    return body;
}

static void send_order(int fd, const struct order *order)
{
    struct head head = {.magic = SUDO_MAGIC, .flags = order->terminal ? HEAD_TERMINAL : 0, .mask = order->mask};
    char *body = body_of(order, &head);
    union { char room[CMSG_SPACE(SUDO_FDS * sizeof(int))]; struct cmsghdr align; } control = {0};
    struct iovec part = {.iov_base = &head, .iov_len = sizeof head};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    *rights = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                               .cmsg_len = CMSG_LEN(SUDO_FDS * sizeof(int))};
    memcpy(CMSG_DATA(rights), order->fd, SUDO_FDS * sizeof(int));
    if (sendmsg(fd, &message, MSG_NOSIGNAL) != sizeof head) {
        fprintf(stderr, "sudo: it could not be asked for: %s\n", strerror(errno));
        exit(1);
    }
    write_all(fd, body, head.size);
    free(body);
}

/* ---- until it ends ---- */

static void send_signal(int fd, uint32_t number)
{
    if (send(fd, &number, sizeof number, MSG_NOSIGNAL) < 0)
        errno = 0;                      /* it has ended: its note is on the way */
}

static int ended(const struct note *note, const char *command)
{
    if (note->kind == NOTE_EXITED)
        return note->number;
    if (note->kind == NOTE_KILLED) {
        sigset_t one;
        signal(note->number, SIG_DFL);
        sigemptyset(&one);
        sigaddset(&one, note->number);
        raise(note->number);
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        return 128 + note->number;
    }
    if (note->number == ENOENT)
        fprintf(stderr, "sudo: %s: command not found\n", command);
    else
        fprintf(stderr, "sudo: %s could not be started: %s\n", command, strerror(note->number));
    return 1;
}

/* The next word of the server. The exit code once it is the last one, else -1. */
static int hear(int fd, struct terminal *t, const char *command)
{
    struct note note;
    if (recv(fd, &note, sizeof note, MSG_WAITALL) != sizeof note)
        note = (struct note){NOTE_FAILED, ECONNRESET};
    if (note.kind == NOTE_STOPPED) {
        set_raw(t, false);
        raise(SIGSTOP);                 /* goes on when somebody says so; SIGCONT is passed on like any other */
        return -1;
    }
    while (show(t)) {}
    set_raw(t, false);
    return ended(&note, command);
}

static void take_signal(int signals, int fd, struct terminal *t)
{
    struct signalfd_siginfo got;
    if (read(signals, &got, sizeof got) != sizeof got)
        return;
    if (got.ssi_signo == SIGWINCH) {
        fit_size(t);
        return;
    }
    if (got.ssi_signo == SIGCONT)
        set_raw(t, true);
    send_signal(fd, got.ssi_signo);
}

static int open_signals(void)
{
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGTSTP, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaddset(&set, passed[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGTTOU, SIG_IGN);           /* what the command prints is shown from the background too */
    return signalfd(-1, &set, SFD_CLOEXEC);
}

static int follow(int fd, int signals, struct terminal *t, const char *command)
{
    enum { NOTES, SIGNALS, KEYS, SCREEN };
    for (;;) {
        struct pollfd watched[] = {
            [NOTES] = {.fd = fd, .events = POLLIN},
            [SIGNALS] = {.fd = signals, .events = POLLIN},
            [KEYS] = {.fd = t->raw && !t->deaf && !t->waiting ? 0 : -1, .events = POLLIN},
            [SCREEN] = {.fd = t->dark ? -1 : t->master, .events = POLLIN | (t->waiting ? POLLOUT : 0)},
        };
        poll(watched, sizeof watched / sizeof *watched, -1);
        if (watched[SIGNALS].revents)
            take_signal(signals, fd, t);
        if (watched[KEYS].revents) {
            ssize_t n = read(0, t->typed, sizeof t->typed);
            t->waiting = n > 0 ? n : 0;
            t->deaf = n <= 0;
        }
        if (watched[SCREEN].revents & POLLOUT)
            pass_typed(t);
        if (watched[SCREEN].revents & POLLIN)
            show(t);
        else if (watched[SCREEN].revents & (POLLHUP | POLLERR))
            t->dark = true;
        int code = watched[NOTES].revents ? hear(fd, t, command) : -1;
        if (code >= 0)
            return code;
    }
}

int ask_server(struct order *order)
{
    static struct terminal terminal;
    int fd = dial(), signals = open_signals();
    open_terminal(&terminal, order);
    send_order(fd, order);
    if (terminal.master >= 0)
        close(terminal.slave);
    set_raw(&terminal, true);
    return follow(fd, signals, &terminal, order->argv[0]);
}

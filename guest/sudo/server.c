/* The server's side: root from birth, one process for each that asks, and nothing read before that one is alone.
 *
 * The attendant of a command is the reaper of everything that the command leaves behind: when the client goes, which
 * it also does when its own command is ended from outside, all of that is killed, wherever it hid. When the command ends
 * by itself, what it left goes on, as anywhere. */
#include "sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../supervisor/users.h"

enum { PATIENCE_S = 10, WAITING = 128 };

/* ---- what is asked ---- */

static bool read_all(int conn, char *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = read(conn, data + done, size - done);
        if (n <= 0 && !(n < 0 && errno == EINTR))
            return false;
        done += n > 0 ? n : 0;
    }
    return true;
}

/* The head and the descriptors that come with it: all four, or it is no head of ours. */
static bool read_head(int conn, struct head *head, int fd[SUDO_FDS])
{
    union { char room[CMSG_SPACE(SUDO_FDS * sizeof(int))]; struct cmsghdr align; } control = {0};
    struct iovec part = {.iov_base = head, .iov_len = sizeof *head};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    if (recvmsg(conn, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof *head || message.msg_flags & MSG_CTRUNC)
        return false;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (!rights || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS
        || rights->cmsg_len != CMSG_LEN(SUDO_FDS * sizeof(int)))
        return false;
    memcpy(fd, CMSG_DATA(rights), SUDO_FDS * sizeof(int));
    return head->magic == SUDO_MAGIC && head->size && head->size <= SUDO_BYTES && head->args
        && head->args <= SUDO_TEXTS && head->envs <= SUDO_TEXTS;
}

/* `count` texts from *at on, as a vector; NULL if there are fewer before `end`. */
static char **texts(char **at, const char *end, uint32_t count)
{
    char **all = calloc(count + 1, sizeof *all);
    for (uint32_t i = 0; all && i < count; i++) {
        if (*at >= end)
            return NULL;
        all[i] = *at;
        *at += strlen(*at) + 1;
    }
    return all;
}

static bool read_order(int conn, struct order *order)
{
    struct head head;
    if (!read_head(conn, &head, order->fd))
        return false;
    char *body = malloc(head.size), *at = body;
    if (!body || !read_all(conn, body, head.size) || body[head.size - 1])
        return false;
    order->user = at;
    at += strlen(at) + 1;
    order->argv = texts(&at, body + head.size, head.args);
    order->env = texts(&at, body + head.size, head.envs);
    order->mask = head.mask & 0777;
    order->terminal = head.flags & HEAD_TERMINAL;
    return order->argv && order->env && at == body + head.size;
}

/* ---- a command and its attendant ---- */

static void tell(int conn, enum note_kind kind, uint32_t number)
{
    struct note note = {kind, number};
    if (send(conn, &note, sizeof note, MSG_NOSIGNAL) < 0)
        errno = 0;                      /* it has gone: the next look at it says so */
}

/* A session of its own, for us and the command, so that it can be stopped and continued by somebody within. */
static void begin_session(const struct order *order)
{
    setsid();
    signal(SIGHUP, SIG_IGN);            /* its terminal ends before we have ended everything else */
    signal(SIGTTOU, SIG_IGN);
    if (order->terminal)
        ioctl(order->fd[0], TIOCSCTTY, 0);
}

/* The command, started. -1 after the client was told why not. */
static pid_t start(int conn, const struct order *order)
{
    int status[2], err = 0;
    if (pipe2(status, O_CLOEXEC))
        return -1;
    begin_session(order);
    pid_t pid = fork();
    if (!pid) {
        setpgid(0, 0);
        if (order->terminal)
            tcsetpgrp(order->fd[0], getpid());
        err = run_order(order);
        if (write(status[1], &err, sizeof err) < 0)
            _exit(126);
        _exit(127);
    }
    if (pid < 0)
        err = errno;
    close(status[1]);
    if (pid > 0 && read(status[0], &err, sizeof err) <= 0)
        err = 0;
    close(status[0]);
    for (int i = 0; i < SUDO_FDS; i++)
        close(order->fd[i]);
    if (err)
        tell(conn, NOTE_FAILED, err);
    return err ? -1 : pid;
}

/* Signals every child of ours that there is. False if the kernel does not say which. */
static bool kill_children(void)
{
    char list[65536];
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, list, sizeof list - 1);
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return false;
    while (n && list[n - 1] != ' ')     /* a list that did not fit: the last number may be half of one */
        n--;
    list[n] = 0;
    char *at = list;
    for (long pid; (pid = strtol(at, &at, 10)) > 0;)
        kill(pid, SIGKILL);
    return true;
}

/* Whoever loses its parent becomes our child, so that this ends only when nobody is left. */
static _Noreturn void end_all(pid_t command)
{
    kill(-command, SIGKILL);
    while (kill_children() && waitpid(-1, NULL, 0) > 0) {}
    _exit(0);
}

/* Passes on what became of the command. Ends with it. */
static void look(int conn, pid_t command)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
        if (pid != command)
            continue;
        if (WIFSTOPPED(status)) {
            tell(conn, NOTE_STOPPED, WSTOPSIG(status));
            continue;
        }
        tell(conn, WIFSIGNALED(status) ? NOTE_KILLED : NOTE_EXITED,
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        _exit(0);
    }
}

static void pass_signal(int conn, pid_t command)
{
    uint32_t number;
    if (recv(conn, &number, sizeof number, MSG_WAITALL) != sizeof number)
        end_all(command);
    if (number > 0 && number < NSIG)
        kill(-command, number);
}

static _Noreturn void attend(int conn)
{
    struct order order;
    struct timeval patience = {.tv_sec = PATIENCE_S};
    sigset_t children;
    setsockopt(conn, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (!read_order(conn, &order)) {
        tell(conn, NOTE_FAILED, EBADMSG);
        _exit(1);
    }
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    struct pollfd watched[2] = {{.fd = conn, .events = POLLIN},
                                {.fd = signalfd(-1, &children, SFD_CLOEXEC), .events = POLLIN}};
    pid_t command = start(conn, &order);
    if (command < 0)
        _exit(1);
    for (;;) {
        struct signalfd_siginfo died;
        poll(watched, 2, -1);
        if (watched[1].revents && read(watched[1].fd, &died, sizeof died) > 0)
            look(conn, command);
        if (watched[0].revents)
            pass_signal(conn, command);
    }
}

/* ---- the server ---- */

/* Members of the group connect, the kernel sees to it; nobody else. */
static int listen_for(const struct user *member)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SUDO_SOCKET};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mkdir("/run", 0755);
    unlink(SUDO_SOCKET);
    mode_t mask = umask(0177);
    int failed = fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address)
        || chown(SUDO_SOCKET, 0, member->gid) || chmod(SUDO_SOCKET, 0660) || listen(fd, WAITING);
    umask(mask);
    return failed ? -1 : fd;
}

static void hold_nothing(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    setsid();
    if (chdir("/"))
        errno = 0;
    signal(SIGCHLD, SIG_IGN);           /* attendants end by themselves, and nobody asks how */
    signal(SIGPIPE, SIG_IGN);
}

/* Returns once it listens; it goes on in the background. `folder`s are given to the member: places of volumes. */
int serve(int folders, char **folder)
{
    struct user member;
    if (user_find(SUDO_MEMBER, &member)) {
        fprintf(stderr, "there is no user " SUDO_MEMBER " in this image\n");
        return 1;
    }
    for (int i = 0; i < folders; i++)
        if (lchown(folder[i], member.uid, member.gid))
            errno = 0;                  /* one that is only read */
    if (access("/usr/bin/sudo", F_OK) && symlink("/usr/local/bin/sudo", "/usr/bin/sudo"))
        errno = 0;                      /* who asks by that path finds nothing; by the other it is there */
    int fd = listen_for(&member);
    if (fd < 0) {
        fprintf(stderr, "no socket for sudo: %s\n", strerror(errno));
        return 1;
    }
    pid_t pid = fork();
    if (pid)
        return pid < 0;
    hold_nothing();
    for (;;) {
        int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (conn < 0) {
            poll(NULL, 0, 10);          /* no memory at the moment */
            continue;
        }
        if (!fork()) {
            close(fd);
            attend(conn);
        }
        close(conn);
    }
}

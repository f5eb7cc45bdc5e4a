/* The supervisor's loop, connections, requests, processes and their input, without processes: bytes of several hosts in
 * any order, pipes that fill and drain, ends in between. What it hands to workers ends there.
 *
 * An input is a run of acts: one byte that says what to do and with whom, then what that needs. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "loop.h"
#include "names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_kill(pid_t pid, int number);

enum { HOSTS = 4, MAX_PROCS = 64, FIRST_PID = 1 << 24 };

static struct source listener = {.kind = SRC_LISTEN, .fd = -1};
static struct sockaddr_un address;
static socklen_t address_size;
static int hosts[HOSTS];

/* The inner ends of what a spawned process would have. */
static struct { pid_t pid; int in, out, err, status; } inside[MAX_PROCS];
static pid_t next_pid = FIRST_PID;

/* ---- what the supervisor would do to the world ---- */

int fuzz_kill(pid_t pid, int number)
{
    (void)pid;
    (void)number;
    return 0;
}

static bool pipe_ends(int *ours, int *theirs, bool we_write)
{
    int fd[2];
    if (pipe2(fd, O_CLOEXEC | O_NONBLOCK))
        return false;
    fcntl(fd[1], F_SETPIPE_SZ, 4096);   /* full soon */
    *ours = fd[we_write];
    *theirs = fd[!we_write];
    return true;
}

int spawn(struct proc *p, const struct request *r, int cgroup_fd, int group_fd, enum stage *stage)
{
    (void)cgroup_fd;
    (void)group_fd;
    *stage = S_FORK;
    int at = 0;
    while (at < MAX_PROCS && inside[at].pid)
        at++;
    if (at == MAX_PROCS)
        return EAGAIN;
    inside[at].in = -1;
    char **argv = request_strings(r, T_ARG, r->args, 0), **env = request_strings(r, T_ENV, r->envs, 7);
    request_strings_free(argv);
    request_strings_free(env);
    if (!pipe_ends(&p->out[0].src.fd, &inside[at].out, false) || !pipe_ends(&p->out[1].src.fd, &inside[at].err, false) ||
        !pipe_ends(&p->status.fd, &inside[at].status, false) ||
        ((r->flags & (FLAG_STDIN | FLAG_TERMINAL)) && !pipe_ends(&p->in.fd, &inside[at].in, true)))
        abort();                        /* descriptors leak */
    p->pid = inside[at].pid = next_pid++;
    return 0;
}

int worker_start(struct conn *c, uint8_t type, const struct request *r, uint32_t frame_len, int call_fd)
{
    (void)type;
    (void)frame_len;
    (void)call_fd;
    free(text_dup(r->path));
    free(text_dup(r->target));
    free(text_dup(r->after));
    conn_close(c);
    return 0;
}

void worker_reaped(pid_t pid)
{
    (void)pid;
}

void names_reaped(pid_t pid)
{
    (void)pid;
}

void names_asked(void) {}

/* Ports would be the host's own: they are left out. */
int relay_listen(struct conn *c, const struct request *r)
{
    (void)c;
    return r->port ? EADDRINUSE : EINVAL;
}

int relay_unlisten(const struct request *r)
{
    (void)r;
    return ENOENT;
}

void relay_call(struct source *s)
{
    (void)s;
}

void relay_left(struct conn *c)
{
    (void)c;
}

int relay_take(uint64_t call)
{
    (void)call;
    return -1;
}

/* ---- the acts ---- */

static void hang_up(int i)
{
    if (hosts[i] >= 0)
        close(hosts[i]);
    hosts[i] = -1;
}

static void dial(int i)
{
    hang_up(i);
    hosts[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (hosts[i] < 0 || connect(hosts[i], (struct sockaddr *)&address, address_size))
        abort();
}

static void drain(int fd)
{
    static char bytes[65536];
    while (fd >= 0 && read(fd, bytes, sizeof bytes) > 0)
        ;
}

static void close_inside(int at)
{
    int *ends[] = {&inside[at].in, &inside[at].out, &inside[at].err, &inside[at].status};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (*ends[i] >= 0)
            close(*ends[i]);
        *ends[i] = -1;
    }
}

static void end_process(int at, int status)
{
    pid_t pid = inside[at].pid;
    if (!pid)
        return;
    close_inside(at);
    inside[at].pid = 0;
    proc_reaped(pid, status);
}

static void say(int at, uint8_t len, int fd)
{
    static const char words[256];
    if (inside[at].pid && fd >= 0 && write(fd, words, len) < 0)
        errno = 0;
}

static void fail_to_start(int at)
{
    uint32_t failure[2] = {S_EXEC, ENOENT};
    if (inside[at].status >= 0 && write(inside[at].status, failure, sizeof failure) < 0)
        errno = 0;
}

static void act(uint8_t what, uint8_t whom)
{
    int host = whom % HOSTS, at = whom % MAX_PROCS;
    switch (what % 10) {
    case 0: dial(host); break;
    case 1: hang_up(host); break;
    case 2: drain(hosts[host]); break;
    case 3: drain(inside[at].pid ? inside[at].in : -1); break;
    case 4: end_process(at, whom << 8); break;
    case 5: say(at, whom, inside[at].out); break;
    case 6:
        if (inside[at].pid && inside[at].status >= 0) {
            if (whom & 128)
                fail_to_start(at);
            close(inside[at].status);
            inside[at].status = -1;
        }
        break;
    case 7:
        if (inside[at].pid && inside[at].in >= 0) {
            close(inside[at].in);       /* it closes its stdin */
            inside[at].in = -1;
        }
        break;
    case 8:
        if (hosts[host] >= 0)
            shutdown(hosts[host], SHUT_WR);
        break;
    default: break;
    }
}

static void settle(void)
{
    for (int i = 0; i < 4; i++)
        loop_turn(0);
}

/* What the sandbox would read of where it is. */
static DIR *described;

static void open_described(void)
{
    char place[] = "fuzz-inside-XXXXXX";
    if (!mkdtemp(place) || !(described = opendir(place)))
        abort();
    inside_open(dirfd(described));
}

/* Each file is whole and nobody's to write, under a name that is no path; the next run finds none. */
static void forget_described(void)
{
    struct stat about;
    rewinddir(described);
    for (struct dirent *entry; (entry = readdir(described));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "api.sock") ||
            fstatat(dirfd(described), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) || !S_ISREG(about.st_mode) ||
            (about.st_mode & 0777) != 0444)
            abort();
        unlinkat(dirfd(described), entry->d_name, 0);
    }
}

static void open_once(void)
{
    if (listener.fd >= 0)
        return;
    open_described();
    signal(SIGPIPE, SIG_IGN);
    listener.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    address.sun_family = AF_UNIX;       /* bound to no name: the kernel gives it an abstract one of its own */
    address_size = sizeof address;
    if (!loop_open() || bind(listener.fd, (struct sockaddr *)&address, sizeof address.sun_family) ||
        listen(listener.fd, 16) || getsockname(listener.fd, (struct sockaddr *)&address, &address_size))
        abort();
    loop_watch(&listener, EPOLLIN);
    for (int i = 0; i < HOSTS; i++)
        hosts[i] = -1;
    for (int i = 0; i < MAX_PROCS; i++)
        inside[i].in = inside[i].out = inside[i].err = inside[i].status = -1;
}

/* Everything a run left behind goes by the ways of the supervisor itself. */
static void leave_nothing(void)
{
    for (int i = 0; i < HOSTS; i++)
        hang_up(i);
    settle();
    for (int i = 0; i < MAX_PROCS; i++)
        end_process(i, 0);
    settle();
    if (conn_count())
        abort();                        /* a connection outlived its host */
    forget_described();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_once();
    dial(0);
    for (size_t at = 0; at + 2 <= size;) {
        uint8_t what = data[at], whom = data[at + 1];
        at += 2;
        if (what < 128) {               /* bytes for one of the hosts to send */
            size_t len = (size_t)what * 8 + (whom / HOSTS) % 8 + 1;
            if (len > size - at)
                len = size - at;
            int fd = hosts[whom % HOSTS];
            if (fd >= 0 && send(fd, data + at, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
                errno = 0;
            at += len;
        } else {
            act(what, whom);
        }
        loop_turn(0);
    }
    settle();
    leave_nothing();
    return 0;
}

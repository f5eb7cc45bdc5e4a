/* Forked workers serve what may block: one connection each, plain blocking code. */
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fence.h"
#include "loop.h"

static pid_t workers[MAX_WORKERS];

void worker_reaped(pid_t pid)
{
    for (int i = 0; i < MAX_WORKERS; i++)
        if (workers[i] == pid)
            workers[i] = 0;
}

/* Holding our copies of pipes open would keep other processes from ever seeing their end. */
void keep_only(int fd, int other)
{
    int low = other < 0 || fd < other ? fd : other, high = fd < other ? other : fd;
    if (low > 3)
        close_range(3, low - 1, 0);
    if (high > low + 1)
        close_range(low + 1, high - 1, 0);
    close_range(high + 1, ~0u, 0);
}

/* Best effort: where the kernel has no Landlock, the walls are as they were. Relays dial first; see carry(). */
static void fence_in(uint8_t type)
{
    if (type == F_CONNECT || type == F_ACCEPT)
        return;
    bool reads = type == F_STAT || type == F_LISTDIR || type == F_READ || type == F_WATCH;
    fence(reads ? FENCE_READ : FENCE_WRITE);
}

static _Noreturn void work(struct line *l, uint8_t type, const struct request *r)
{
    fence_in(type);
    switch (type) {
    case F_STAT: file_stat(l, r);
    case F_LISTDIR: file_list(l, r);
    case F_READ: file_read(l, r);
    case F_WRITE: file_write(l, r);
    case F_MKDIR: file_mkdir(l, r);
    case F_MOVE: file_move(l, r);
    case F_REMOVE: file_remove(l, r);
    case F_WATCH: file_watch(l, r);
    case F_CONNECT: port_connect(l, r);
    case F_ACCEPT: port_accept(l);
    default: work_fail(l, ENOSYS, S_REQUEST);
    }
}

static _Noreturn void worker_main(struct conn *c, uint8_t type, const struct request *r, uint32_t frame_len,
                                  int call_fd)
{
    struct line l = {.fd = c->src.fd, .call_fd = call_fd, .in = c->in};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_NAME, "supervisor-io");
    keep_only(l.fd, call_fd);
    fcntl(l.fd, F_SETFL, 0);
    umask(0);
    l.in.off += frame_len;
    work_send(&l, &c->out);             /* the welcome that is still waiting */
    work(&l, type, r);
}

int worker_start(struct conn *c, uint8_t type, const struct request *r, uint32_t frame_len, int call_fd)
{
    int slot = 0;
    while (slot < MAX_WORKERS && workers[slot])
        slot++;
    if (slot == MAX_WORKERS)
        return EAGAIN;
    pid_t pid = fork();
    if (pid < 0)
        return errno;
    if (pid == 0)
        worker_main(c, type, r, frame_len, call_fd);
    workers[slot] = pid;
    conn_close(c);
    return 0;
}

/* ---- in the worker ---- */

static void send_all(struct line *l, struct iovec *iov, int n)
{
    while (n) {
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
        ssize_t sent = sendmsg(l->fd, &m, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            _exit(0);                   /* the host has gone */
        for (; n && sent >= (ssize_t)iov->iov_len; n--)
            sent -= (iov++)->iov_len;
        if (n && sent > 0) {
            iov->iov_base = (char *)iov->iov_base + sent;
            iov->iov_len -= sent;
        }
    }
}

void work_send(struct line *l, struct buf *b)
{
    if (b->broken)
        _exit(1);
    struct iovec iov = {b->data + b->off, buf_left(b)};
    if (iov.iov_len)
        send_all(l, &iov, 1);
    b->off = b->len = 0;
}

void work_send_data(struct line *l, const void *data, uint32_t len)
{
    uint8_t head[HEADER_SIZE];
    frame_header(head, F_DATA, len);
    struct iovec iov[2] = {{head, sizeof head}, {(void *)data, len}};
    send_all(l, iov, 2);
}

void work_done(struct line *l)
{
    struct buf b = {0};
    frame_end(&b, frame_begin(&b, F_DONE));
    work_send(l, &b);
    _exit(0);
}

/* Waits for the host to hang up: closing on unread data would reset the line under the answer. */
void work_fail(struct line *l, int err, enum stage stage)
{
    static char unread[16384];
    struct buf b = {0};
    frame_error(&b, err, stage);
    work_send(l, &b);
    shutdown(l->fd, SHUT_WR);
    while (read(l->fd, unread, sizeof unread) > 0)
        ;
    _exit(0);
}

bool work_receive(struct line *l, void *into, uint32_t len)
{
    uint8_t *data = into;
    size_t early = buf_left(&l->in) < len ? buf_left(&l->in) : len;
    if (early) {
        memcpy(data, l->in.data + l->in.off, early);
        l->in.off += early;
    }
    while (early < len) {
        ssize_t n = recv(l->fd, data + early, len - early, MSG_WAITALL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        early += n;
    }
    return true;
}

bool work_header(struct line *l, uint8_t *type, uint32_t *len)
{
    uint8_t head[HEADER_SIZE];
    if (!work_receive(l, head, sizeof head))
        return false;
    *len = get_u32(head);
    *type = head[4];
    return *len <= MAX_PAYLOAD;
}

const struct user *work_owner(struct line *l, const struct request *r)
{
    static struct user owner;
    char *who = text_dup(r->user);
    int err = !who ? ENOMEM : *who ? user_find(who, &owner) : 0;
    if (err)
        work_fail(l, err, S_USER);
    return *who ? &owner : NULL;
}

char *work_path(struct line *l, struct text t)
{
    char *path = text_dup(t);
    if (!path)
        work_fail(l, ENOMEM, S_PATH);
    if (path[0] != '/')
        work_fail(l, EINVAL, S_PATH);
    /* "/a/b/" is "/a/b": a trailing slash would make the parent of a path hard to name. */
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/';)
        path[--n] = 0;
    return path;
}

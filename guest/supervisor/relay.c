/* A stream to or from a port inside: after OK the connection is nothing but bytes, each direction closing by itself. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fence.h"
#include "own_kernel.h"
#include "worker.h"

enum { CONNECT_PATIENCE_MS = 10000, RELAY_CHUNK = 65536 };

/* One direction: what was read from `from` and not yet written to `to`. */
struct way {
    int from, to;
    size_t off, len;
    bool ended;
    uint8_t data[RELAY_CHUNK];
};

static int dial(int family, const struct sockaddr *address, socklen_t size, int *err)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof *err;
    *err = fd < 0 ? errno : 0;
    if (fd >= 0 && connect(fd, address, size))
        *err = errno;
    if (*err == EINPROGRESS) {
        struct pollfd p = {fd, POLLOUT, 0};
        if (poll(&p, 1, CONNECT_PATIENCE_MS) <= 0)
            *err = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, err, &len))
            *err = errno;
    }
    if (!*err)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* 127.0.0.1 first, then ::1: some servers listen on one of the two only. */
static int dial_loopback(uint16_t port, int *err)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback};
    int ignored, fd = dial(AF_INET, (struct sockaddr *)&v4, sizeof v4, err);
    if (fd < 0 && *err == ECONNREFUSED)
        fd = dial(AF_INET6, (struct sockaddr *)&v6, sizeof v6, &ignored);
    return fd;
}

/* One direction broke: what the other still carries arrives all the same. */
static void give_up(struct way *w)
{
    if (errno == EAGAIN || errno == EINTR)
        return;
    w->off = w->len = 0;
    w->ended = true;
    shutdown(w->to, SHUT_WR);
    shutdown(w->from, SHUT_RD);
}

/* Moves what can be moved now. */
static void move(struct way *w)
{
    if (w->off == w->len && !w->ended) {
        ssize_t n = read(w->from, w->data, sizeof w->data);
        if (n < 0) {
            give_up(w);
            return;
        }
        w->off = 0;
        w->len = n;
        w->ended = n == 0;
        if (w->ended)
            shutdown(w->to, SHUT_WR);
    }
    while (w->off < w->len) {
        ssize_t n = send(w->to, w->data + w->off, w->len - w->off, MSG_NOSIGNAL);
        if (n < 0) {
            give_up(w);
            return;
        }
        w->off += n;
    }
}

/* a leads in from the host, b out to it. */
static void relay(struct way *a, struct way *b)
{
    struct pollfd on[2] = {{.fd = a->from}, {.fd = b->from}};
    bool host_gone = false;
    while (!a->ended || (!b->ended && !host_gone)) {
        bool a_full = a->len > a->off, b_full = b->len > b->off;
        on[0].events = (a_full || a->ended ? 0 : POLLIN) | (b_full ? POLLOUT : 0);
        on[1].events = (b_full || b->ended ? 0 : POLLIN) | (a_full ? POLLOUT : 0);
        /* A side with nothing to wait for would report its hang-up for ever. The host is listened to all the
         * same, until it has hung up: a server inside that never answers its half-close must not keep us. */
        on[0].fd = on[0].events || !host_gone ? a->from : -1;
        on[1].fd = on[1].events ? b->from : -1;
        if (poll(on, 2, -1) < 0 && errno != EINTR)
            return;
        host_gone |= on[0].fd >= 0 && on[0].revents & (POLLHUP | POLLERR);
        move(a);
        move(b);
    }
}

static void begin_to_carry(struct line *l)
{
    struct buf b = {0};
    fence(FENCE_CARRY);
    frame_end(&b, frame_begin(&b, F_DONE));
    work_send(l, &b);
    fcntl(l->fd, F_SETFL, O_NONBLOCK);
}

static _Noreturn void carry(struct line *l, int fd)
{
    static struct way inward, outward;
    inward.from = outward.to = l->fd;
    inward.to = outward.from = fd;
    size_t early = buf_left(&l->in);    /* never more than one small read */
    if (early > sizeof inward.data)
        _exit(1);
    if (early)
        memcpy(inward.data, l->in.data + l->in.off, early);
    inward.len = early;
    relay(&inward, &outward);
    _exit(0);
}

/* A socket in the file system, named instead of a port. */
static _Noreturn void socket_connect(struct line *l, const struct request *r)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *path = work_path(l, r->path);
    if (strlen(path) >= sizeof to.sun_path)
        work_fail(l, ENAMETOOLONG, S_CONNECT);
    strcpy(to.sun_path, path);
    int err, fd = dial(AF_UNIX, (struct sockaddr *)&to, sizeof to, &err);
    if (fd < 0)
        work_fail(l, err, S_CONNECT);
    begin_to_carry(l);
    carry(l, fd);
}

void port_connect(struct line *l, const struct request *r)
{
    if (r->path.len)
        socket_connect(l, r);
    if (!r->port || r->port > 65535)
        work_fail(l, EINVAL, S_CONNECT);
    int err, fd = dial_loopback(r->port, &err), on = 1;
    if (fd < 0)
        work_fail(l, err, S_CONNECT);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    begin_to_carry(l);
    carry(l, fd);
}

/* Whoever calls without knowing of a proxy did not call our address: it is asked for in its name. */
void port_accept(struct line *l)
{
    struct sockaddr_in to;
    socklen_t size = sizeof to;
    bool known = groups_are() ? own_kernel_meant(l->call_fd, &to) :
                 !getsockname(l->call_fd, (struct sockaddr *)&to, &size) && to.sin_family == AF_INET;
    begin_to_carry(l);
    if (known && ntohl(to.sin_addr.s_addr) >> 24 != IN_LOOPBACKNET)
        ask_for(l, &to);
    carry(l, l->call_fd);
}

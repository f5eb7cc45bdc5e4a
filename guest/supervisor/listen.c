/* Inside ports that lead outwards, and one socket in a folder: whoever connects to one is announced to the host, which
 * dials a stream for each. A port outlives the connection that asked for it: while a new server starts, callers wait in
 * its queue. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"

enum { BACKLOG = 128 };

struct relayed {
    uint32_t port;                      /* 0: free; PORT_INSIDE: the socket in our folder */
    struct source at[2];                /* 127.0.0.1 and ::1; the second may be missing */
    struct conn *told;
    bool inherited;                     /* open from the first to the last, whoever asks for it */
    bool unused;                        /* nobody asked for it so far: callers are sent away */
};

struct call {
    uint64_t number;
    int fd;
    struct relayed *by;                 /* NULL: free */
};

static struct relayed ports[MAX_RELAYED];
static struct call calls[MAX_CALLS];
static uint64_t last_call;

static int open_port(int family, const void *address, socklen_t size)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (!bind(fd, address, size) && !listen(fd, BACKLOG))
        return fd;
    int err = errno;
    close(fd);
    errno = err;
    return -1;
}

static struct source at_port(struct relayed *p, int fd)
{
    return (struct source){.kind = SRC_RELAY, .fd = fd, .owner = p};
}

static int open_socket(struct relayed *p)
{
    int fd = inside_listen(BACKLOG);
    if (fd < 0)
        return errno;
    p->at[0] = at_port(p, fd);
    p->at[1] = at_port(p, -1);
    p->port = PORT_INSIDE;
    return 0;
}

/* Which one a request means; 0: none that there can be. */
static uint32_t meant(const struct request *r)
{
    if (r->path.len)
        return inside_is_socket(r->path) && !r->port ? PORT_INSIDE : 0;
    return r->port <= 65535 ? r->port : 0;
}

static struct relayed *find_port(uint32_t port)
{
    for (int i = 0; i < MAX_RELAYED; i++)
        if (ports[i].port == port)
            return &ports[i];
    return NULL;
}

static struct call *find_call(uint64_t number)
{
    for (int i = 0; i < MAX_CALLS; i++)
        if (number ? calls[i].by && calls[i].number == number : !calls[i].by)
            return &calls[i];
    return NULL;
}

/* Calls are taken while somebody is told of them and there is room to remember them. */
static void watch_for_calls(void)
{
    bool has_room = find_call(0) != NULL;
    for (int i = 0; i < MAX_RELAYED; i++)
        for (int k = 0; k < 2; k++)
            if (ports[i].port)
                loop_watch(&ports[i].at[k], ports[i].unused || (ports[i].told && has_room) ? EPOLLIN : 0);
}

static int open_six(uint16_t port)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback};
    return open_port(AF_INET6, &v6, sizeof v6);
}

static int open_both(struct relayed *p, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int first = open_port(AF_INET, &v4, sizeof v4);
    if (first < 0)
        return errno;
    p->at[0] = at_port(p, first);
    p->at[1] = at_port(p, open_six(port));
    p->port = port;
    return 0;
}

void relay_inherit(int fd, uint16_t port)
{
    struct relayed *p = &ports[0];
    *p = (struct relayed){.port = port, .inherited = true, .unused = true};
    p->at[0] = at_port(p, fd);
    p->at[1] = at_port(p, open_six(port));
    watch_for_calls();
}

/* Nobody may hope to be answered some day: a reset says so at once. */
static void send_away(int listener)
{
    struct linger at_once = {.l_onoff = 1};
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

int relay_listen(struct conn *c, const struct request *r)
{
    uint32_t port = meant(r);
    if (!port || c->relayed)
        return EINVAL;
    struct relayed *p = find_port(port);
    if (!p) {
        p = find_port(0);
        int err = !p ? ENOSPC : port == PORT_INSIDE ? open_socket(p) : open_both(p, (uint16_t)port);
        if (err)
            return err;
    }
    if (p->told)
        conn_close(p->told);            /* the newest server is the one that lives */
    p->told = c;
    p->unused = false;
    c->relayed = p;
    watch_for_calls();
    return 0;
}

static void drop_calls(const struct relayed *p)
{
    for (int i = 0; i < MAX_CALLS; i++)
        if (calls[i].by == p) {
            close(calls[i].fd);
            calls[i].by = NULL;
        }
}

void relay_left(struct conn *c)
{
    struct relayed *p = c->relayed;
    if (!p)
        return;
    c->relayed = NULL;
    p->told = NULL;
    drop_calls(p);
    watch_for_calls();
}

int relay_unlisten(const struct request *r)
{
    uint32_t port = meant(r);
    struct relayed *p = port ? find_port(port) : NULL;
    if (!p)
        return ENOENT;
    if (port == PORT_INSIDE)
        inside_unlisten();
    if (p->told)
        conn_close(p->told);
    if (p->inherited) {
        p->unused = true;
        watch_for_calls();
        return 0;
    }
    loop_close(&p->at[0]);
    loop_close(&p->at[1]);
    p->port = 0;
    return 0;
}

void relay_call(struct source *s)
{
    struct relayed *p = s->owner;
    struct call *call = find_call(0);
    if (p->unused) {
        send_away(s->fd);
        return;
    }
    if (!call || !p->told) {
        watch_for_calls();
        return;
    }
    int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE)
            loop_watch(s, 0);           /* until the next call is taken */
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *call = (struct call){.number = ++last_call, .fd = fd, .by = p};
    struct buf *out = &p->told->out;
    size_t mark = frame_begin(out, F_ANNOUNCE);
    tlv_u32(out, T_PORT, p->port);
    tlv_u64(out, T_CALL, call->number);
    frame_end(out, mark);
    watch_for_calls();
    conn_flush(p->told);
}

int relay_take(uint64_t number)
{
    struct call *call = number ? find_call(number) : NULL;
    if (!call)
        return -1;
    int fd = call->fd;
    call->by = NULL;
    watch_for_calls();
    return fd;
}

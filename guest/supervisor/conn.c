/* Connections from the host: bounded input, ordered output. Garbage ends the connection and nothing else. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"

static struct conn *conns;
static int count;
static struct source *paused_listener;

enum { SMALL_READ = 4096, MAX_UNSENT = 8 << 20 };

static bool is_demanded;
static uint8_t demanded[SECRET_SIZE];

void conn_demand(const uint8_t *secret)
{
    memcpy(demanded, secret, sizeof demanded);
    is_demanded = true;
}

int conn_count(void)
{
    return count;
}

static void refuse(int fd)
{
    struct buf b = {0};
    frame_error(&b, EAGAIN, S_LIMIT);
    if (!b.broken && send(fd, b.data, b.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        errno = 0;                      /* it is told best effort; closing tells the rest */
    buf_free(&b);
    close(fd);
}

void conn_accept(struct source *listener)
{
    int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) {
            paused_listener = listener; /* until a connection closes */
            loop_watch(listener, 0);
        }
        return;
    }
    struct conn *c = count < MAX_CONNS ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        refuse(fd);
        return;
    }
    c->src = (struct source){.kind = SRC_CONN, .fd = fd, .owner = c};
    c->passed_fd = -1;
    c->known = !is_demanded;
    if (is_demanded) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    c->next = conns;
    conns = c;
    count++;
    loop_watch(&c->src, EPOLLIN);
    conn_event(c, EPOLLIN);             /* the request usually comes with the dial */
}

void conn_close(struct conn *c)
{
    if (c->dead)
        return;
    c->dead = true;
    loop_close(&c->src);
    if (c->passed_fd >= 0)
        close(c->passed_fd);
    for (struct conn **at = &conns; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    count--;
    proc_detach(c);
    relay_left(c);
    buf_free(&c->in);
    buf_free(&c->out);
    buf_free(&c->told);
    loop_free_later(c);
    if (paused_listener) {
        loop_watch(paused_listener, EPOLLIN);
        paused_listener = NULL;
    }
}

void conn_error(struct conn *c, int err, enum stage stage)
{
    frame_error(&c->out, err, stage);
}

/* Keeps the first fd that comes; all others are closed at once. */
static void take_fds(struct conn *c, struct msghdr *m)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
            if (c->passed_fd < 0)
                c->passed_fd = fd;
            else
                close(fd);
        }
    }
}

/* How much more is wanted: the rest of a frame whose header is here, or a small amount. */
static size_t wanted(const struct conn *c)
{
    size_t have = buf_left(&c->in);
    if (have < HEADER_SIZE || !c->known)
        return SMALL_READ;
    size_t whole = HEADER_SIZE + (size_t)get_u32(c->in.data + c->in.off);
    return whole > have + SMALL_READ ? whole - have : SMALL_READ;
}

static ssize_t receive(struct conn *c)
{
    union { struct cmsghdr align; char space[CMSG_SPACE(4 * sizeof(int))]; } control;
    size_t more = wanted(c);
    if (!buf_reserve(&c->in, more))
        return 0;
    struct iovec iov = {c->in.data + c->in.len, more};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(c->src.fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n >= 0)
        take_fds(c, &m);
    if (n > 0)
        c->in.len += n;
    return n;
}

void conn_event(struct conn *c, uint32_t events)
{
    if (events & EPOLLIN && !c->stdin_blocked) {
        ssize_t n = receive(c);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            conn_close(c);
            return;
        }
        if (n > 0)
            conn_parse(c);
    } else if (events & (EPOLLHUP | EPOLLERR)) {
        conn_close(c);
        return;
    }
    if (!c->dead)
        conn_flush(c);
}

static size_t unsent(const struct conn *c)
{
    return buf_left(&c->out) + buf_left(&c->told);
}

/* Whoever begins with anything else is no host: the connection ends without a word. */
static bool is_known(struct conn *c)
{
    uint8_t differs = 0;
    if (c->known)
        return true;
    if (buf_left(&c->in) < SECRET_SIZE)
        return false;
    for (size_t i = 0; i < SECRET_SIZE; i++)
        differs |= c->in.data[c->in.off + i] ^ demanded[i];
    c->in.off += SECRET_SIZE;
    c->known = !differs;
    if (differs)
        conn_close(c);
    return c->known;
}

void conn_parse(struct conn *c)
{
    c->stdin_blocked = false;
    if (!is_known(c))
        return;
    while (!c->dead && buf_left(&c->in) >= HEADER_SIZE && unsent(c) <= MAX_UNSENT) {
        const uint8_t *at = c->in.data + c->in.off;
        uint32_t len = get_u32(at);
        if (len > MAX_PAYLOAD) {
            conn_close(c);
            return;
        }
        if (buf_left(&c->in) < HEADER_SIZE + len)
            break;
        if (!request_handle(c, at[4], at + HEADER_SIZE, len)) {
            c->stdin_blocked = !c->dead;
            return;
        }
        c->stdin_done = 0;
        if (!c->dead)
            c->in.off += HEADER_SIZE + len;
    }
    if (!c->dead && !buf_left(&c->in) && c->in.cap > SMALL_READ)
        buf_free(&c->in);
}

/* Puts the header of the next piece of output into `out`; the bytes themselves go straight from the ring. */
static bool next_chunk(struct conn *c)
{
    struct proc *p = c->proc;
    for (int i = 0; i < 2 && !c->input_only; i++) {
        uint64_t avail = p->out[i].ring.head - c->cursor[i];
        if (!avail)
            continue;
        uint8_t head[HEADER_SIZE];
        c->chunk_stream = i;
        c->chunk_left = avail < MAX_PAYLOAD ? avail : MAX_PAYLOAD;
        frame_header(head, i ? F_STDERR : F_STDOUT, c->chunk_left);
        buf_put(&c->out, head, sizeof head);
        return true;
    }
    if (p->state != PROC_COMPLETE)
        return false;
    proc_exit_frame(p, &c->out);
    proc_detach(c);
    proc_exit_sent(p);
    return true;
}

static ssize_t send_some(struct conn *c)
{
    struct iovec iov[3];
    int n = 0;
    if (buf_left(&c->out))
        iov[n++] = (struct iovec){c->out.data + c->out.off, buf_left(&c->out)};
    if (c->chunk_left)
        n += ring_bytes(&c->proc->out[c->chunk_stream].ring, c->cursor[c->chunk_stream], c->chunk_left, iov + n);
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
    return sendmsg(c->src.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void sent(struct conn *c, size_t n)
{
    size_t control = buf_left(&c->out) < n ? buf_left(&c->out) : n;
    c->out.off += control;
    if (!buf_left(&c->out))
        c->out.off = c->out.len = 0;
    if (c->chunk_left) {
        c->chunk_left -= n - control;
        c->cursor[c->chunk_stream] += n - control;
    }
}

void conn_flush(struct conn *c)
{
    struct proc *p = c->proc;
    uint32_t events = c->stdin_blocked ? 0 : EPOLLIN;
    while (!c->dead && !(c->proc && c->proc->state == PROC_STARTING)) {
        if (c->out.broken || c->told.broken || unsent(c) > MAX_UNSENT) {
            conn_close(c);
            return;
        }
        if (!c->chunk_left && buf_left(&c->told)) {
            buf_put(&c->out, c->told.data, c->told.len);
            buf_free(&c->told);
        }
        if (!c->chunk_left && !(c->proc && next_chunk(c)) && !buf_left(&c->out))
            break;
        ssize_t n = send_some(c);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            conn_close(c);
            return;
        }
        if (n < 0) {
            events |= EPOLLOUT;
            break;
        }
        sent(c, n);
    }
    if (c->out.cap > SMALL_READ && !buf_left(&c->out))
        buf_free(&c->out);
    /* Never 0: a closed line must be noticed even while stdin is blocked. */
    loop_watch(&c->src, events ? events : EPOLLHUP);
    if (p && c->proc == p)
        proc_pace(p);
}

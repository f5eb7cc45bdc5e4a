/* Carries many lines to PID 1 over its own stdin and stdout, where the host can start a program inside and talk with it,
 * and nothing else (an engine that is far away). Started as `supervisor lines=N`; N is the port that PID 1 listens on.
 *
 * A piece is a header of 12 bytes (line, kind, size; each 32 bits, little-endian) and `size` bytes. The host opens lines
 * under numbers of its choice; whoever sends DATA has ROOM for that much, WINDOW at first, and gets more as it is
 * taken: a line that nobody reads holds up no other. END: the sender sends no more. CLOSE: nor does it read. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lines.h"
#include "loop.h"

enum piece { OPEN = 1, DATA, END, CLOSE, ROOM };
enum { HEAD = 12, WINDOW = 128 * 1024, PIECE = 32 * 1024 };

struct line {
    uint32_t id;
    int fd;
    struct buf in;                      /* from the host, for PID 1 */
    uint32_t room, owed;                /* what the host still takes; what it was not told that it may send */
    bool host_ended, host_left, shut, ended;
};

static struct line lines[MAX_CONNS];
static int line_count;
static struct buf from_host;

static void put(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> 8 * i);
}

/* Waits: the host reads whatever comes, each line has only so much on its way. */
static void tell(uint32_t id, enum piece kind, const uint8_t *data, uint32_t size)
{
    static uint8_t piece[HEAD + PIECE];
    put(piece, id);
    put(piece + 4, kind);
    put(piece + 8, size);
    if (data)
        memcpy(piece + HEAD, data, size);
    size_t left = HEAD + (data ? size : 0);
    for (uint8_t *at = piece; left;) {
        ssize_t n = write(1, at, left);
        if (n < 0 && errno != EINTR)
            exit(0);                    /* the host has gone */
        at += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
}

static void forget(struct line *l)
{
    if (l->fd >= 0)
        close(l->fd);
    buf_free(&l->in);
    *l = lines[--line_count];
}

static struct line *find(uint32_t id)
{
    for (int i = 0; i < line_count; i++)
        if (lines[i].id == id)
            return &lines[i];
    return NULL;
}

static void open_line(uint32_t id, uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, fd = line_count < MAX_CONNS ? socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0 || find(id) || (connect(fd, (struct sockaddr *)&at, sizeof at) && errno != EINPROGRESS)) {
        if (fd >= 0)
            close(fd);
        tell(id, CLOSE, NULL, 0);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    lines[line_count++] = (struct line){.id = id, .fd = fd, .room = WINDOW};
}

static void heard(uint16_t port, uint32_t id, uint32_t kind, const uint8_t *data, uint32_t size)
{
    struct line *l = find(id);
    if (kind == OPEN)
        open_line(id, port);
    if (!l)
        return;                         /* it ended, and the host does not know yet */
    if (kind == DATA && size) {
        if (buf_left(&l->in) + size > WINDOW)
            exit(1);
        buf_put(&l->in, data, size);
        if (l->in.broken)
            exit(1);
    }
    l->host_ended |= kind == END || kind == CLOSE;
    l->host_left |= kind == CLOSE;
    l->room += kind == ROOM ? size : 0;
}

static bool hear(uint16_t port)
{
    if (!buf_reserve(&from_host, HEAD + PIECE))
        return false;
    ssize_t n = read(0, from_host.data + from_host.len, HEAD + PIECE);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    from_host.len += (size_t)n;
    while (buf_left(&from_host) >= HEAD) {
        const uint8_t *at = from_host.data + from_host.off;
        uint32_t kind = get_u32(at + 4), size = get_u32(at + 8), body = kind == DATA ? size : 0;
        if (kind < OPEN || kind > ROOM || (kind == DATA && size > PIECE) || (kind == ROOM && size > WINDOW))
            return false;
        if (buf_left(&from_host) < HEAD + body)
            break;
        heard(port, get_u32(at), kind, at + HEAD, size);
        from_host.off += HEAD + body;
    }
    return true;
}

/* Returns whether the line goes on. */
static bool pass_in(struct line *l)
{
    if (buf_left(&l->in)) {
        ssize_t n = send(l->fd, l->in.data + l->in.off, buf_left(&l->in), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        l->in.off += n > 0 ? (size_t)n : 0;
        l->owed += n > 0 ? (uint32_t)n : 0;
    }
    if (!buf_left(&l->in))
        buf_free(&l->in);
    if (l->owed >= WINDOW / 4 && !l->host_ended) {
        tell(l->id, ROOM, NULL, l->owed);
        l->owed = 0;
    }
    if (l->host_ended && !buf_left(&l->in) && !l->shut) {
        l->shut = true;
        shutdown(l->fd, SHUT_WR);
    }
    return !(l->host_left && l->shut);
}

static bool pass_out(struct line *l)
{
    static uint8_t data[PIECE];
    ssize_t n = recv(l->fd, data, l->room < PIECE ? l->room : PIECE, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    l->ended = !n;
    l->room -= (uint32_t)n;
    tell(l->id, n ? DATA : END, data, (uint32_t)n);
    return true;
}

static short wanted(const struct line *l)
{
    bool reads = !l->ended && l->room && !l->host_left;
    return (short)((reads ? POLLIN : 0) | (buf_left(&l->in) || (l->host_ended && !l->shut) ? POLLOUT : 0));
}

static void serve(struct line *l, short events)
{
    bool goes_on = true;
    if (events & (POLLOUT | POLLERR))
        goes_on = pass_in(l);
    if (goes_on && events & (POLLIN | POLLHUP | POLLERR) && wanted(l) & POLLIN)
        goes_on = pass_out(l);
    else if (goes_on && events & POLLERR)
        goes_on = false;
    if (goes_on && l->ended && l->shut)
        goes_on = false;
    if (!goes_on) {
        tell(l->id, CLOSE, NULL, 0);
        forget(l);
    }
}

int lines_run(uint16_t port)
{
    static struct pollfd ready[1 + MAX_CONNS];
    for (;;) {
        ready[0] = (struct pollfd){.fd = 0, .events = POLLIN};
        for (int i = 0; i < line_count; i++) {
            short events = wanted(&lines[i]);
            /* A hang-up is told whether it is asked for or not: who waits for neither is not looked at. */
            ready[i + 1] = (struct pollfd){.fd = events ? lines[i].fd : -1, .events = events};
        }
        int count = line_count;
        if (poll(ready, 1 + (nfds_t)count, -1) < 0 && errno != EINTR)
            return 1;
        /* From the last: whoever is forgotten is replaced by one that was served. */
        for (int i = count; i > 0; i--)
            if (ready[i].revents)
                serve(&lines[i - 1], ready[i].revents);
        if (ready[0].revents && !hear(port))
            return 0;
    }
}

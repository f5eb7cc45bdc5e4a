/* Input for processes. A full pipe blocks only the connections that fill it, never the loop.
 *
 * Every STDIN and STDIN_EOF is settled before the next frame of its connection is looked at, and the host is told
 * how (TAKEN): all of it is in the process's pipe, or how much of it is and why no more will be. */
#include <errno.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

#include "loop.h"

static bool stirred;

bool stdin_stirred(void)
{
    bool was = stirred;
    stirred = false;
    return was;
}

void stdin_stir(struct proc *p)
{
    p->stirred = stirred = true;
}

/* Whoever attached for input only has the input to itself, one after the other; others wait for their end, and
 * all wait for a frame that is half in the pipe. */
static bool is_its_turn(const struct conn *c)
{
    const struct proc *p = c->proc;
    if (p->state == PROC_STARTING)
        return false;                   /* STARTED comes first */
    if (p->in.fd < 0)
        return true;                    /* there is nothing to keep in order any more */
    if (p->amid)
        return p->amid == c;
    for (const struct conn *other = p->attached; other; other = other->next_attached)
        if (other->input_only && other != c && (!c->input_only || other->ticket < c->ticket))
            return false;
    return true;
}

static bool settled(struct conn *c, uint64_t count, int err)
{
    if (c->proc->amid == c) {
        c->proc->amid = NULL;
        stdin_stir(c->proc);
    }
    if (c->version < VERSION_TAKEN)
        return true;
    size_t mark = frame_begin(&c->told, F_TAKEN);
    tlv_u64(&c->told, T_COUNT, count);
    if (err)
        tlv_u32(&c->told, T_ERRNO, err);
    frame_end(&c->told, mark);
    return true;
}

static int why_closed(const struct proc *p)
{
    return p->state >= PROC_ENDED ? ESRCH : EPIPE;
}

/* What a connection that knows its place repeats is not written twice; false: bytes before its place are missing. */
static bool skip_repeated(struct conn *c, uint32_t len)
{
    const struct proc *p = c->proc;
    if (!c->placed || c->place == p->taken || c->stdin_done == len)
        return true;
    if (c->place > p->taken)
        return false;
    uint64_t known = p->taken - c->place, left = len - c->stdin_done;
    uint32_t skip = known < left ? known : left;
    c->stdin_done += skip;
    c->place += skip;
    return true;
}

bool stdin_write(struct conn *c, const uint8_t *data, uint32_t len)
{
    struct proc *p = c->proc;
    if (!is_its_turn(c))
        return false;
    if (!skip_repeated(c, len))
        return settled(c, c->stdin_done, ERANGE);
    while (c->stdin_done < len && p->in.fd >= 0) {
        ssize_t n = write(p->in.fd, data + c->stdin_done, len - c->stdin_done);
        if (n > 0) {
            c->stdin_done += n;
            c->place += n;
            p->taken += n;
        } else if (n < 0 && errno == EAGAIN) {
            p->amid = c->stdin_done ? c : NULL;
            loop_watch(&p->in, EPOLLOUT);
            return false;
        } else if (n == 0 || errno != EINTR) {
            loop_close(&p->in);         /* nobody reads any more */
            stdin_stir(p);
        }
    }
    return settled(c, c->stdin_done, c->stdin_done < len ? why_closed(p) : 0);
}

void stdin_ready(struct proc *p)
{
    loop_watch(&p->in, 0);
    for (struct conn *c = p->attached, *next; c; c = next) {
        next = c->next_attached;
        if (!c->stdin_blocked || c->proc != p)
            continue;
        conn_parse(c);
        if (!c->dead)
            conn_flush(c);
    }
}

void stdin_detached(struct conn *c, struct proc *p)
{
    c->stdin_done = 0;
    if (p->amid == c)
        p->amid = NULL;
    c->input_only = c->placed = false;
    stdin_stir(p);
}

/* A terminal has no end of file, only a key for it. False: its input queue is full, the key must wait. */
static bool press_end(struct proc *p)
{
    struct termios t;
    if (p->in.fd < 0 || tcgetattr(p->in.fd, &t) || !(t.c_lflag & ICANON))
        return true;
    ssize_t n;
    do
        n = write(p->in.fd, &t.c_cc[VEOF], 1);
    while (n < 0 && errno == EINTR);
    return n >= 0 || errno != EAGAIN;
}

bool stdin_close(struct conn *c)
{
    struct proc *p = c->proc;
    if (!is_its_turn(c))
        return false;
    if (p->terminal && !press_end(p)) {
        loop_watch(&p->in, EPOLLOUT);
        return false;
    }
    if (!p->terminal && p->in.fd >= 0) {
        loop_close(&p->in);
        stdin_stir(p);
    }
    return settled(c, 0, 0);
}

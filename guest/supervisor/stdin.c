/* Input for processes. A full pipe blocks only the connection that fills it, never the loop. */
#include <errno.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

#include "loop.h"

bool stdin_write(struct conn *c, const uint8_t *data, uint32_t len)
{
    struct proc *p = c->proc;
    while (c->stdin_done < len && p->in.fd >= 0) {
        ssize_t n = write(p->in.fd, data + c->stdin_done, len - c->stdin_done);
        if (n > 0) {
            c->stdin_done += n;
        } else if (n < 0 && errno == EAGAIN) {
            loop_watch(&p->in, EPOLLOUT);
            return false;
        } else if (n == 0 || errno != EINTR) {
            loop_close(&p->in);         /* nobody reads any more: the rest is thrown away, as a pipe would */
        }
    }
    return true;
}

void stdin_ready(struct proc *p)
{
    loop_watch(&p->in, 0);
    for (struct conn *c = p->attached, *next; c; c = next) {
        next = c->next_attached;
        if (!c->stdin_blocked)
            continue;
        conn_parse(c);
        if (!c->dead)
            conn_flush(c);
    }
}

void stdin_close(struct proc *p)
{
    struct termios t;
    if (!p->terminal) {
        loop_close(&p->in);
        return;
    }
    /* A terminal has no end of file, only a key for it. */
    if (p->in.fd >= 0 && tcgetattr(p->in.fd, &t) == 0 && t.c_lflag & ICANON)
        if (write(p->in.fd, &t.c_cc[VEOF], 1) < 0)
            errno = 0;                  /* its input queue is full: it has other things to read first */
}

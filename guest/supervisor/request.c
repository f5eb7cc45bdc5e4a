/* What each frame asks for. Anything slow (files, watches, relays) goes to a worker. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "loop.h"
#include "own_kernel.h"

static void ok(struct conn *c)
{
    frame_end(&c->out, frame_begin(&c->out, F_DONE));
}

static void hello(struct conn *c, const struct request *r)
{
    uint32_t version = r->version < PROTOCOL_VERSION ? r->version : PROTOCOL_VERSION;
    if (version < PROTOCOL_OLDEST || version < r->oldest) {
        conn_error(c, EPROTONOSUPPORT, S_VERSION);
        return;
    }
    size_t mark = frame_begin(&c->out, F_WELCOME);
    tlv_u32(&c->out, T_VERSION, version);
    tlv_u32(&c->out, T_OLDEST, PROTOCOL_OLDEST);
    frame_end(&c->out, mark);
    c->greeted = true;
    c->version = version;
}

static void answer(struct conn *c, int err, enum stage stage)
{
    if (err)
        conn_error(c, err, stage);
    else
        ok(c);
}

static int send_signal(const struct request *r)
{
    struct proc *p = proc_find(r->id);
    bool whole = p && p->group && r->signal == SIGKILL && r->flags & FLAG_GROUP;
    if (whole)
        group_kill(p);
    if (!p || p->state >= PROC_ENDED)
        return whole ? 0 : ESRCH;
    if (r->signal < 1 || r->signal > 64)
        return EINVAL;
    /* Not reaped yet, so the pid is still its own. */
    pid_t target = r->flags & FLAG_GROUP ? -p->pid : p->pid;
    return kill(target, r->signal) ? errno : 0;
}

static int resize(const struct request *r)
{
    struct proc *p = proc_find(r->id);
    if (!p || p->state >= PROC_ENDED)
        return ESRCH;
    if (!p->terminal)
        return ENOTTY;
    if (r->cols < 1 || r->cols > 65535 || r->rows < 1 || r->rows > 65535)
        return EINVAL;
    struct winsize size = {.ws_col = r->cols, .ws_row = r->rows};
    return ioctl(p->out[0].src.fd, TIOCSWINSZ, &size) ? errno : 0;
}

static int forget(const struct request *r)
{
    struct proc *p = proc_find(r->id);
    if (!p)
        return ESRCH;
    return proc_forget(p) ? 0 : EBUSY;
}

/* While a process is attached only its stdin may come in: an answer would get between its output frames. */
static bool attached(struct conn *c, uint8_t type, const uint8_t *payload, uint32_t len)
{
    if (type == F_STDIN)
        return stdin_write(c, payload, len);
    if (type == F_STDIN_EOF)
        return stdin_close(c);
    conn_close(c);
    return true;
}

static void control(struct conn *c, uint8_t type, const struct request *r)
{
    switch (type) {
    case F_PING: ok(c); break;
    case F_RUN: proc_run(c, r); break;
    case F_ATTACH: proc_attach(c, r); break;
    case F_LIST: proc_list(c); break;
    case F_SIGNAL: answer(c, send_signal(r), S_PROCESS); break;
    case F_RESIZE: answer(c, resize(r), S_PROCESS); break;
    case F_FORGET: answer(c, forget(r), S_PROCESS); break;
    case F_LISTEN: answer(c, relay_listen(c, r), S_LISTEN); break;
    case F_UNLISTEN: answer(c, relay_unlisten(r), S_LISTEN); break;
    case F_DESCRIBE: answer(c, inside_write(r), S_REQUEST); break;
    default: conn_error(c, ENOSYS, S_REQUEST); break;
    }
}

static void delegate(struct conn *c, uint8_t type, const struct request *r, uint32_t frame_len)
{
    int call_fd = type == F_ACCEPT ? relay_take(r->call) : -1;
    if (type == F_ACCEPT && call_fd < 0) {
        conn_error(c, ENOENT, S_LISTEN);
        return;
    }
    int err = worker_start(c, type, r, frame_len, call_fd);
    if (call_fd >= 0)
        close(call_fd);                 /* the worker has its own; without one the caller inside is sent away */
    if (err)
        conn_error(c, err, S_FORK);
}

bool request_handle(struct conn *c, uint8_t type, const uint8_t *payload, uint32_t len)
{
    if (c->proc)
        return attached(c, type, payload, len);
    if (c->relayed && type != F_PING) {
        conn_close(c);                  /* an answer would get between its announcements */
        return true;
    }
    if (type == F_STDIN || type == F_STDIN_EOF)
        return true;                    /* late: the process has ended meanwhile */
    struct request r;
    int err = request_parse(&r, payload, len);
    if (err == EBADMSG || (type == F_HELLO) == c->greeted) {
        conn_close(c);
        return true;
    }
    if (err)
        conn_error(c, err, S_REQUEST);
    else if (type == F_HELLO)
        hello(c, &r);
    else if ((type >= F_STAT && type <= F_WATCH) || type == F_CONNECT || type == F_ACCEPT)
        delegate(c, type, &r, HEADER_SIZE + len);
    else
        control(c, type, &r);
    return true;
}

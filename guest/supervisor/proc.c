/* The table of processes: their life, who is attached, and what is kept of them after they end. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "own_kernel.h"
#include "output.h"

enum { HANGUP_PATIENCE_MS = 200 };

static struct proc *procs;              /* listed, newest first */
static struct proc *ghosts;             /* forgotten, but children of theirs still hold an output pipe */
static int running, hanging_up;

struct proc *proc_find(struct text id)
{
    for (struct proc *p = procs; p; p = p->next)
        if (strlen(p->id) == id.len && !memcmp(p->id, id.at, id.len))
            return p;
    return NULL;
}

static void unlink_from(struct proc **list, struct proc *p)
{
    for (; *list; list = &(*list)->next)
        if (*list == p) {
            *list = p->next;
            return;
        }
}

static void proc_free(struct proc *p)
{
    for (int i = 0; i < 2; i++) {
        loop_close(&p->out[i].src);
        ring_drop(&p->out[i].ring);
    }
    loop_close(&p->in);
    loop_close(&p->status);
    if (p->slave >= 0)
        close(p->slave);
    buf_free(&p->about);
    loop_free_later(p);
}

static struct proc *proc_new(const struct request *r)
{
    struct proc *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    memcpy(p->id, r->id.at, r->id.len);
    p->in = (struct source){.kind = SRC_STDIN, .fd = -1, .owner = p};
    p->status = (struct source){.kind = SRC_STATUS, .fd = -1, .owner = p};
    p->slave = -1;
    p->terminal = r->flags & FLAG_TERMINAL;
    p->forget = r->flags & FLAG_FORGET;
    for (int i = 0; i < 2; i++) {
        p->out[i].proc = p;
        p->out[i].src = (struct source){.kind = SRC_OUTPUT, .fd = -1, .owner = &p->out[i]};
    }
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    p->started_at_ns = (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
    output_describe(&p->about, r);
    return p;
}

static void attach(struct conn *c, struct proc *p)
{
    c->proc = p;
    c->next_attached = p->attached;
    p->attached = c;
}

static int refusal(const struct request *r, enum stage *stage)
{
    *stage = S_REQUEST;
    if (!r->id.len || !r->args)
        return EINVAL;
    *stage = S_PROCESS;
    if (proc_find(r->id))
        return EEXIST;
    *stage = S_LIMIT;
    return running < MAX_RUNNING ? 0 : EAGAIN;
}

void proc_run(struct conn *c, const struct request *r)
{
    enum stage stage;
    int err = refusal(r, &stage), cgroup_fd = c->passed_fd, own = -1;
    struct proc *p = NULL;
    if (!err && r->flags & FLAG_CGROUP && cgroup_fd < 0) {
        stage = S_CGROUP;
        err = EBADF;
    }
    if (!err && !(p = proc_new(r)))
        err = ENOMEM;
    if (!err && groups_are() && (own = group_make(p)) < 0) {
        stage = S_CGROUP;
        err = errno;
    }
    if (!err)
        err = spawn(p, r, r->flags & FLAG_CGROUP ? cgroup_fd : -1, own, &stage);
    if (own >= 0)
        close(own);
    if (cgroup_fd >= 0)
        close(cgroup_fd);
    c->passed_fd = -1;
    if (err) {
        if (p)
            proc_free(p);
        conn_error(c, err, stage);
        return;
    }
    p->next = procs;
    procs = p;
    running++;
    attach(c, p);
    loop_watch(&p->status, EPOLLIN);
    proc_pace(p);
}

void proc_attach(struct conn *c, const struct request *r)
{
    struct proc *p = proc_find(r->id);
    if (!p || p->state == PROC_STARTING) {
        conn_error(c, ESRCH, S_PROCESS);
        return;
    }
    output_started(p, &c->out);
    for (int i = 0; i < 2 && !(r->flags & FLAG_INPUT && c->version >= VERSION_TAKEN); i++) {
        struct ring *ring = &p->out[i].ring;
        uint64_t from = r->from[i] < ring->head ? r->from[i] : ring->head;
        c->cursor[i] = from > ring->tail ? from : ring->tail;
        if (c->cursor[i] > from)
            output_dropped(&c->out, i, c->cursor[i] - from);
    }
    if (r->flags & FLAG_INPUT && c->version >= VERSION_TAKEN) {
        c->input_only = true;
        c->ticket = ++p->tickets;
        c->placed = r->has_offset;
        c->place = r->offset;
    }
    attach(c, p);
}

void proc_detach(struct conn *c)
{
    struct proc *p = c->proc;
    if (!p)
        return;
    for (struct conn **at = &p->attached; *at; at = &(*at)->next_attached)
        if (*at == c) {
            *at = c->next_attached;
            break;
        }
    c->proc = NULL;
    c->chunk_left = 0;
    stdin_detached(c, p);
    /* Not started yet (its cgroup may be frozen) and the host gave up waiting: it must not start later. */
    if (p->state == PROC_STARTING && !p->attached && p->pid > 0)
        kill(p->pid, SIGKILL);
    proc_pace(p);
}

void proc_list(struct conn *c)
{
    for (struct proc *p = procs; p; p = p->next)
        if (p->state != PROC_STARTING)
            output_process(p, &c->out);
    frame_end(&c->out, frame_begin(&c->out, F_DONE));
}

/* ---- what is kept after the end ---- */

/* Children left behind may still write: their pipe is kept and drained, for closing it would kill them. */
static void bury(struct proc *p)
{
    unlink_from(&procs, p);
    if (p->out[0].src.fd < 0 && p->out[1].src.fd < 0) {
        proc_free(p);
        return;
    }
    ring_drop(&p->out[0].ring);
    ring_drop(&p->out[1].ring);
    buf_free(&p->about);
    p->next = ghosts;
    ghosts = p;
    int n = 0;
    for (struct proc *g = ghosts; g; g = g->next)
        if (++n > MAX_GHOSTS) {
            unlink_from(&ghosts, g);
            proc_free(g);
            return;
        }
}

bool proc_forget(struct proc *p)
{
    if (p->state != PROC_COMPLETE || p->attached)
        return false;
    bury(p);
    return true;
}

void proc_exit_sent(struct proc *p)
{
    if (p->forget)
        proc_forget(p);
}

static void retain(void)
{
    int ended = 0;
    uint64_t bytes = 0;
    for (struct proc *p = procs, *next; p; p = next) {
        next = p->next;
        if (p->state != PROC_COMPLETE || p->attached)
            continue;
        for (int i = 0; i < 2; i++) {
            bytes += p->out[i].ring.head - p->out[i].ring.tail;
            if (bytes > MAX_ENDED_BYTES)
                ring_drop(&p->out[i].ring);
        }
        if (++ended > MAX_ENDED)
            bury(p);
    }
}

/* ---- starting, output, end ---- */

static void serve(struct proc *p)
{
    for (struct conn *c = p->attached, *next; c; c = next) {
        next = c->next_attached;
        conn_flush(c);
    }
}

static void complete_if_drained(struct proc *p)
{
    if (p->state == PROC_ENDED && p->out[0].done && p->out[1].done) {
        p->state = PROC_COMPLETE;
        unlink_from(&procs, p);         /* to the front: the last ended are kept, not the last started */
        p->next = procs;
        procs = p;
        retain();
    }
}

void proc_status_ready(struct proc *p)
{
    uint32_t failure[2];
    ssize_t n = read(p->status.fd, failure, sizeof failure);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    loop_close(&p->status);
    struct conn *c = p->attached;
    if (n != sizeof failure) {
        p->state = PROC_RUNNING;
        stdin_stir(p);
        for (; c; c = c->next_attached)
            output_started(p, &c->out);
        serve(p);
        return;
    }
    p->pid = 0;
    running--;
    unlink_from(&procs, p);
    while ((c = p->attached)) {
        proc_detach(c);
        conn_error(c, failure[1], failure[0]);
        if (c->stdin_blocked)
            conn_parse(c);
        if (!c->dead)
            conn_flush(c);
    }
    proc_free(p);
}

static uint64_t space(const struct stream *s)
{
    uint64_t room = RING_SIZE;
    int i = s == &s->proc->out[1];
    for (struct conn *c = s->proc->attached; c; c = c->next_attached) {
        if (c->input_only)
            continue;
        uint64_t free_here = RING_SIZE - (s->ring.head - c->cursor[i]);
        if (free_here < room)
            room = free_here;
    }
    return room;
}

void proc_pace(struct proc *p)
{
    for (int i = 0; i < 2; i++) {
        struct stream *s = &p->out[i];
        loop_watch(&s->src, s->done || space(s) ? EPOLLIN : 0);
    }
}

static void ghost_output(struct stream *s)
{
    struct proc *p = s->proc;
    if (output_discard(s))
        return;
    loop_close(&s->src);
    bool is_ghost = false;
    for (struct proc *g = ghosts; g; g = g->next)
        is_ghost |= g == p;
    if (is_ghost && p->out[0].src.fd < 0 && p->out[1].src.fd < 0) {
        unlink_from(&ghosts, p);
        proc_free(p);
    }
}

void proc_output_ready(struct stream *s)
{
    if (s->done) {
        ghost_output(s);
        return;
    }
    struct proc *p = s->proc;
    output_read(s, space(s));
    complete_if_drained(p);
    serve(p);
    proc_pace(p);
}

bool proc_reaped(pid_t pid, int wait_status)
{
    struct proc *p = procs;
    while (p && (p->pid != pid || p->state >= PROC_ENDED))
        p = p->next;
    if (!p)
        return false;
    if (p->state == PROC_STARTING) {
        proc_status_ready(p);
        if (p->state == PROC_STARTING)
            return true;                /* it could not start, and was told so */
    }
    p->state = PROC_ENDED;
    p->wait_status = wait_status;
    group_ended(p);
    running--;
    loop_close(&p->in);
    stdin_ready(p);                     /* what waited is settled, and told before EXIT */
    if (p->slave >= 0)
        close(p->slave);
    p->slave = -1;
    for (int i = 0; i < 2; i++)
        output_last_words(&p->out[i]);
    if (p->terminal && !p->out[0].done) {
        p->hangup_at_ms = now_ms() + HANGUP_PATIENCE_MS;
        hanging_up++;
    }
    complete_if_drained(p);
    serve(p);
    proc_pace(p);
    return true;
}

void proc_stirred(void)
{
    for (struct proc *p = procs, *next; p; p = next) {
        next = p->next;
        if (!p->stirred)
            continue;
        p->stirred = false;
        stdin_ready(p);
    }
}

int proc_timeout_ms(void)
{
    return hanging_up ? HANGUP_PATIENCE_MS / 4 : -1;
}

/* A terminal whose inner end somebody managed to keep open must not delay EXIT for ever. */
void proc_hangups(void)
{
    if (!hanging_up)
        return;
    uint64_t now = now_ms();
    hanging_up = 0;
    for (struct proc *p = procs, *next; p; p = next) {
        next = p->next;
        if (p->state != PROC_ENDED || !p->hangup_at_ms)
            continue;
        if (now < p->hangup_at_ms || !space(&p->out[0])) {
            hanging_up++;
            continue;
        }
        p->out[0].done = true;
        loop_close(&p->out[0].src);
        complete_if_drained(p);
        serve(p);
    }
}

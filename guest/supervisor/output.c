#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BIG_READ = 32 * 1024, PIPE_SIZE = 256 * 1024, MAX_ABOUT = 4096 };

static void finish(struct stream *s)
{
    s->done = true;
    loop_close(&s->src);
}

void output_read(struct stream *s, uint64_t room)
{
    struct proc *p = s->proc;
    bool draining = p->state >= PROC_ENDED && !p->terminal;
    if (draining && s->drain_left < room)
        room = s->drain_left;
    if (!room)
        return;
    if (!ring_open(&s->ring))
        return;                         /* no memory now: the pipe keeps it, we come back */
    struct iovec iov[2];
    int parts = ring_space(&s->ring, room, iov);
    ssize_t n = readv(s->src.fd, iov, parts);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        finish(s);
        return;
    }
    if (n >= BIG_READ && !s->grown && !p->terminal) {
        s->grown = true;                /* a talker: fewer, larger reads from now on */
        fcntl(s->src.fd, F_SETPIPE_SZ, PIPE_SIZE);
    }
    ring_filled(&s->ring, n);
    if (draining && !(s->drain_left -= n))
        s->done = true;                 /* the fd stays: see output_discard */
}

void output_last_words(struct stream *s)
{
    if (s->done || s->proc->terminal)
        return;
    int readable = 0;
    if (ioctl(s->src.fd, FIONREAD, &readable) < 0)
        readable = 0;
    s->drain_left = readable;
    if (!readable)
        s->done = true;
}

bool output_discard(struct stream *s)
{
    static int null_fd = -1;
    if (null_fd < 0)
        null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ssize_t n = splice(s->src.fd, NULL, null_fd, NULL, PIPE_SIZE, SPLICE_F_NONBLOCK);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

void output_describe(struct buf *about, const struct request *r)
{
    char **argv = request_strings(r, T_ARG, r->args, 0);
    for (char **a = argv; a && *a && about->len < MAX_ABOUT; a++) {
        size_t len = strlen(*a), room = MAX_ABOUT - about->len;
        tlv_bytes(about, T_ARG, *a, len < room ? len : room);
    }
    request_strings_free(argv);
    tlv_bytes(about, T_TAG, r->tag.at, r->tag.len);
}

void output_started(const struct proc *p, struct buf *b)
{
    size_t mark = frame_begin(b, F_STARTED);
    tlv_text(b, T_ID, p->id);
    tlv_u32(b, T_PID, p->pid);
    tlv_u64(b, T_STARTED_AT, p->started_at_ns);
    tlv_u32(b, T_FLAGS, p->terminal ? FLAG_TERMINAL : 0);
    tlv_u64(b, T_TAKEN, p->taken);
    frame_end(b, mark);
}

void output_dropped(struct buf *b, int stream, uint64_t count)
{
    size_t mark = frame_begin(b, F_DROPPED);
    tlv_u32(b, T_STREAM, stream);
    tlv_u64(b, T_COUNT, count);
    frame_end(b, mark);
}

static void exit_tlvs(const struct proc *p, struct buf *b)
{
    int s = p->wait_status;
    if (WIFSIGNALED(s))
        tlv_u32(b, T_SIGNAL, WTERMSIG(s));
    else
        tlv_u32(b, T_CODE, WEXITSTATUS(s));
    if (p->refused)
        tlv_u32(b, T_FLAGS, FLAG_REFUSED);
}

void proc_exit_frame(const struct proc *p, struct buf *b)
{
    size_t mark = frame_begin(b, F_EXIT);
    exit_tlvs(p, b);
    frame_end(b, mark);
}

void output_process(const struct proc *p, struct buf *b)
{
    size_t mark = frame_begin(b, F_PROCESS);
    tlv_text(b, T_ID, p->id);
    tlv_u32(b, T_PID, p->pid);
    tlv_u64(b, T_STARTED_AT, p->started_at_ns);
    tlv_u32(b, T_FLAGS, p->terminal ? FLAG_TERMINAL : 0);
    tlv_u64(b, T_TAKEN, p->taken);
    if (p->state >= PROC_ENDED)
        exit_tlvs(p, b);
    buf_put(b, p->about.data, p->about.len);
    frame_end(b, mark);
}

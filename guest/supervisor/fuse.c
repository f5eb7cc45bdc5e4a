/* A file system of a handful of files that can only be read: what the kernel asks when somebody inside opens one.
 *
 * Whoever asks is hostile, though the kernel puts the questions: a file has neither size nor content but what view.c
 * says, nothing is kept for anybody who opens one, and what is not in this list is not there. The launcher answers the
 * first questions with this very code (its shown.c). */
#include "view.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Nothing ever changes but the content, so the kernel need not ask again. */
enum { FOR_EVER_S = 1 << 30, FIRST_NODE = FUSE_ROOT_ID + 1, MOST_WRITTEN = 4096, MINOR = 31, NAME_MAX_BYTES = 255 };

const char *const view_names[SHOWN] = {"meminfo", "stat", "cpuinfo", "loadavg", "uptime"};

static bool is_node(uint64_t node)
{
    return node >= FUSE_ROOT_ID && node < FIRST_NODE + SHOWN;
}

static struct fuse_attr attributes(uint64_t node)
{
    bool is_root = node == FUSE_ROOT_ID;
    return (struct fuse_attr){
        .ino = node, .mode = is_root ? S_IFDIR | 0555 : S_IFREG | 0444, .nlink = 1, .blksize = MOST_WRITTEN,
    };
}

static size_t look_up(uint64_t folder, const char *name, size_t len, struct fuse_entry_out *out)
{
    if (folder != FUSE_ROOT_ID || !memchr(name, 0, len))
        return 0;
    for (unsigned i = 0; i < SHOWN; i++) {
        if (strcmp(name, view_names[i]))
            continue;
        *out = (struct fuse_entry_out){
            .nodeid = FIRST_NODE + i, .generation = 1, .entry_valid = FOR_EVER_S, .attr_valid = FOR_EVER_S,
            .attr = attributes(FIRST_NODE + i),
        };
        return sizeof *out;
    }
    return 0;
}

static size_t begin(const struct fuse_init_in *in, struct fuse_init_out *out)
{
    *out = (struct fuse_init_out){
        .major = FUSE_KERNEL_VERSION, .minor = in->minor < MINOR ? in->minor : MINOR, .max_background = 4,
        .congestion_threshold = 3, .max_write = MOST_WRITTEN, .time_gran = 1,
    };
    return sizeof *out;
}

/* The body of an answer, by what was asked; or an errno. The fixed part of a question is as long as the kernel has it. */
static size_t answer_body(const struct fuse_in_header *in, const uint8_t *rest, size_t len, struct fuse_reply *r, int *err)
{
    size_t size = 0;
    *err = 0;
    switch (in->opcode) {
    case FUSE_INIT:
        /* The fields that are read have been there from the first. */
        if (len >= offsetof(struct fuse_init_in, flags))
            return begin((const void *)rest, &r->body.init);
        break;
    case FUSE_LOOKUP:
        if ((size = look_up(in->nodeid, (const char *)rest, len, &r->body.entry)))
            return size;
        *err = ENOENT;
        return 0;
    case FUSE_GETATTR:
        if (!is_node(in->nodeid))
            break;
        r->body.attr = (struct fuse_attr_out){.attr_valid = FOR_EVER_S, .attr = attributes(in->nodeid)};
        return sizeof r->body.attr;
    case FUSE_OPEN:
        if (!is_node(in->nodeid) || in->nodeid < FIRST_NODE)
            break;
        /* Nothing is cached, nothing is mapped: a file has no size. */
        r->body.open = (struct fuse_open_out){.open_flags = FOPEN_DIRECT_IO};
        return sizeof r->body.open;
    case FUSE_STATFS:
        r->body.statfs = (struct fuse_statfs_out){.st = {.bsize = MOST_WRITTEN, .namelen = NAME_MAX_BYTES}};
        return sizeof r->body.statfs;
    case FUSE_RELEASE:
    case FUSE_DESTROY:
        return 0;
    default:
        /* The kernel remembers, and does not ask again. */
        *err = ENOSYS;
        return 0;
    }
    *err = EINVAL;
    return 0;
}

static void answer_read(const struct fuse_in_header *in, const uint8_t *rest, size_t len, struct fuse_reply *r)
{
    struct fuse_read_in asked;
    const char *text = NULL;
    if (!is_node(in->nodeid) || in->nodeid < FIRST_NODE || len < sizeof asked) {
        r->head.error = -EINVAL;
        return;
    }
    memcpy(&asked, rest, sizeof asked);
    size_t there = view_text(in->nodeid - FIRST_NODE, asked.offset, &text);
    r->parts[1] = (struct iovec){(void *)text, there < asked.size ? there : asked.size};
}

void fuse_answer(const uint8_t *question, size_t len, struct fuse_reply *r)
{
    struct fuse_in_header in;
    int err = 0;
    r->count = 0;
    if (len < sizeof in)
        return;
    memcpy(&in, question, sizeof in);
    if (in.opcode == FUSE_FORGET || in.opcode == FUSE_BATCH_FORGET || in.opcode == FUSE_INTERRUPT)
        return;
    r->head = (struct fuse_out_header){.unique = in.unique};
    r->parts[0] = (struct iovec){&r->head, sizeof r->head};
    r->parts[1] = (struct iovec){&r->body, 0};
    if (in.opcode == FUSE_READ) {
        answer_read(&in, question + sizeof in, len - sizeof in, r);
    } else {
        r->parts[1].iov_len = answer_body(&in, question + sizeof in, len - sizeof in, r, &err);
        r->head.error = -err;
    }
    r->count = 2;
    r->head.len = r->parts[0].iov_len + r->parts[1].iov_len;
}

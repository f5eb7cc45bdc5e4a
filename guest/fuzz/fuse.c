/* What the kernel may ask about the files that show a sandbox its limits, and whatever the figures say meanwhile.
 *
 * An input is a run of pieces: one byte that says what, two that say how long, then that many bytes, which are what a
 * figure says from there on, or a question. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "view.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FIRST_FD = 200, GIVEN = VIEW_FIRST_FIGURE + FIGURES, QUESTION = 128, REPLY_MOST = 1 << 20 };

static void open_once(void)
{
    static bool opened;
    if (opened)
        return;
    opened = true;
    for (int i = 0; i < GIVEN; i++) {
        int fd = memfd_create("figure", MFD_CLOEXEC);
        if (fd < 0 || dup2(fd, FIRST_FD + i) < 0)
            abort();
        close(fd);
    }
    if (view_open(FIRST_FD) != FIRST_FD)
        abort();
}

static void say(int which, const uint8_t *text, size_t len)
{
    int fd = FIRST_FD + which % GIVEN;
    if (ftruncate(fd, 0) || pwrite(fd, text, len, 0) != (ssize_t)len)
        abort();
}

/* All that is answered is read, so that a checker sees it. */
static void ask(const uint8_t *question, size_t len)
{
    static volatile uint8_t sum;
    uint8_t *copy = malloc(len ? len : 1);
    if (!copy)
        return;
    if (len)
        memcpy(copy, question, len);
    struct fuse_reply reply;
    fuse_answer(copy, len, &reply);
    size_t total = 0;
    for (int i = 0; i < reply.count; i++) {
        const uint8_t *part = reply.parts[i].iov_base;
        for (size_t at = 0; at < reply.parts[i].iov_len; at++)
            sum += part[at];
        total += reply.parts[i].iov_len;
    }
    if (reply.count && (total != reply.head.len || total > REPLY_MOST || reply.head.error > 0 ||
                        (reply.head.error && total != sizeof reply.head)))
        abort();                        /* the kernel would refuse it, and whoever asked wait for ever */
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_once();
    for (size_t at = 0; at + 3 <= size;) {
        uint8_t what = data[at];
        size_t len = data[at + 1] | (size_t)data[at + 2] << 8;
        at += 3;
        if (len > size - at)
            len = size - at;
        if (what < QUESTION)
            say(what, data + at, len);
        else
            ask(data + at, len);
        at += len;
    }
    return 0;
}

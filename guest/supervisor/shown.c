/* Serves the files of the sandbox's own limits (view.h) that lie over those of /proc. One question in each round of the
 * loop: however many read, commands and connections have their turn. Nothing is waited for, and neither we nor our
 * workers ever read these files as our own work: whoever opens a path for the host is a worker, which we can answer. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "loop.h"
#include "view.h"

static struct source device = {.kind = SRC_SHOWN, .fd = -1};

void shown_open(int fd)
{
    if (fd < 0 || fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK))
        return;
    device.fd = fd;
    loop_watch(&device, EPOLLIN);
}

/* In a program that is begun, before it looks for anything by a path, which may lead to one of these files. Killed
 * together with us amid a question it would wait for an answer while the file system lived by its own descriptor: for
 * ever, and the sandbox with it. */
void shown_leave(void)
{
    if (device.fd >= 0)
        close(device.fd);
}

void shown_asked(void)
{
    static uint8_t question[FUSE_QUESTION_ROOM] __attribute__((aligned(8)));
    struct fuse_reply reply;
    ssize_t n = read(device.fd, question, sizeof question);
    if (n < 0) {
        /* Gone while we came; otherwise the file system has ended, which reports itself for ever. */
        if (errno != EAGAIN && errno != EINTR && errno != ENOENT)
            loop_close(&device);
        return;
    }
    fuse_answer(question, (size_t)n, &reply);
    if (reply.count && writev(device.fd, reply.parts, reply.count) < 0)
        errno = 0;                      /* whoever asked was killed meanwhile */
}

/* Calls that the filter hands to us.
 *
 * Sockets whose buffers the kernel charges to nobody: what netlink answers (up to the receive buffer of each) and
 * datagrams that are held back (MSG_MORE, 64 KB each). The filter asks us before each of them is made, and we let it be
 * made while the sandbox has few sockets of any kind: one more cannot hide from that count, whatever is done with it.
 * The kernel then makes the socket for the caller, as if nobody had been asked: its arguments are numbers, which nobody
 * can change meanwhile. Calls that were let go and are not done yet are at most one for each thread.
 *
 * How many processors there are, and how much memory (told.c): we write the answer for the caller. Writing into memory
 * of whoever is hostile may wait for a disk, so a thread does it, which the first question brings forth. It holds nothing
 * that the loop needs, and nobody inside can stop or kill it: it is part of PID 1. */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loop.h"
#include "told.h"

enum { NETLINK_WHILE = 128, DATAGRAM_WHILE = 1024, STACK = 128 << 10 };

static int questions = -1;

/* All that are open in this network namespace; a number beyond every limit when that cannot be told. */
static long sockets_open(void)
{
    static const char begin[] = "sockets: used ";
    char text[64];
    int fd = open("/proc/net/sockstat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n < 0)
        n = 0;
    text[n] = 0;
    return strncmp(text, begin, sizeof begin - 1) ? INT32_MAX : atol(text + sizeof begin - 1);
}

static bool may_have_socket(const struct seccomp_notif *ask)
{
    return sockets_open() < ((uint32_t)ask->data.args[0] == AF_NETLINK ? NETLINK_WHILE : DATAGRAM_WHILE);
}

/* False when there is nothing more to come. */
static bool answer_one(bool may_write)
{
    struct seccomp_notif ask;
    memset(&ask, 0, sizeof ask);        /* the kernel refuses anything else */
    if (ioctl(questions, SECCOMP_IOCTL_NOTIF_RECV, &ask))
        return errno == EINTR || errno == ENOENT; /* whoever asked is gone */
    struct seccomp_notif_resp answer = {.id = ask.id};
    if (ask.data.nr == SYS_socket && !may_have_socket(&ask))
        answer.error = -ENOBUFS;
    else if (ask.data.nr == SYS_socket || !may_write || !told(questions, &ask, &answer))
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE; /* the kernel's own answer */
    ioctl(questions, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    return true;
}

static void *answer_for_ever(void *nothing)
{
    while (answer_one(true))
        ;
    return nothing;
}

/* Where there is no room for the thread, this question gets what can be said without it. */
void ask_ready(struct source *s)
{
    pthread_t thread;
    pthread_attr_t attributes;
    questions = s->fd;
    loop_watch(s, 0);
    if (!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, STACK) &&
        !pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) &&
        !pthread_create(&thread, &attributes, answer_for_ever, NULL))
        return;
    answer_one(false);
    loop_watch(s, EPOLLIN);
}

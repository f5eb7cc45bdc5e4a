/* Sockets whose buffers the kernel charges to nobody: what netlink answers (up to the receive buffer of each) and
 * datagrams that are held back (MSG_MORE, 64 KB each). The filter asks us before each of them is made, and we let it be
 * made while the sandbox has few sockets of any kind: one more cannot hide from that count, whatever is done with it.
 *
 * The kernel then makes the socket for the caller, as if nobody had been asked: its arguments are numbers, which nobody
 * can change meanwhile. Calls that were let go and are not done yet are at most one for each thread. */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"

enum { NETLINK_WHILE = 128, DATAGRAM_WHILE = 1024 };

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

void ask_ready(struct source *s)
{
    struct seccomp_notif ask;
    memset(&ask, 0, sizeof ask);        /* the kernel refuses anything else */
    if (ioctl(s->fd, SECCOMP_IOCTL_NOTIF_RECV, &ask))
        return;                         /* whoever asked is gone */
    bool few = sockets_open() < ((uint32_t)ask.data.args[0] == AF_NETLINK ? NETLINK_WHILE : DATAGRAM_WHILE);
    struct seccomp_notif_resp answer = {
        .id = ask.id, .error = few ? 0 : -ENOBUFS, .flags = few ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0,
    };
    ioctl(s->fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

/* /run/sandboxer: a folder that everybody inside can read and only we can write, as the host says. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "loop.h"

#define UNFINISHED ".new"
#define SOCKET "api.sock"

static int folder = -1;

void inside_open(int fd)
{
    folder = fd;
}

bool inside_is_socket(struct text name)
{
    return name.len == sizeof SOCKET - 1 && !memcmp(name.at, SOCKET, name.len);
}

/* One name, of a file that is seen: not a path, not what is being written, and not the socket. */
static bool is_name(struct text t)
{
    return t.len && t.len <= MAX_NAME && t.at[0] != '.' && !memchr(t.at, '/', t.len) && !inside_is_socket(t);
}

static int fill(int fd, struct text content)
{
    size_t done = 0;
    while (done < content.len) {
        ssize_t n = write(fd, content.at + done, content.len - done);
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        done += n;
    }
    return fchmod(fd, 0444) ? errno : 0;
}

/* Whole or as it was: whoever reads it meanwhile has the former one. */
int inside_write(const struct request *r)
{
    char name[MAX_NAME + 1] = {0};
    if (folder < 0)
        return ENOSYS;
    if (!is_name(r->path))
        return EINVAL;
    memcpy(name, r->path.at, r->path.len);
    int fd = openat(folder, UNFINISHED, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (fd < 0)
        return errno;
    int err = fill(fd, r->content);
    close(fd);
    if (!err && renameat(folder, UNFINISHED, folder, name))
        err = errno;
    if (err)
        unlinkat(folder, UNFINISHED, 0);
    return err;
}

/* Root's alone before anybody can connect. By its name in the folder, which is at no path that we could bind. */
int inside_listen(int backlog)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = SOCKET};
    if (folder < 0) {
        errno = ENOSYS;
        return -1;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    unlinkat(folder, SOCKET, 0);
    int failed = fchdir(folder) || bind(fd, (struct sockaddr *)&at, sizeof at) || fchmodat(folder, SOCKET, 0600, 0) ||
                 listen(fd, backlog);
    int err = errno;
    if (chdir("/"))
        _exit(1);                       /* never: it is the root */
    if (!failed)
        return fd;
    close(fd);
    errno = err;
    return -1;
}

void inside_unlisten(void)
{
    unlinkat(folder, SOCKET, 0);
}

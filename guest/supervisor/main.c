/* The guest supervisor: PID 1 of a sandbox. Everything inside descends from it and inherits its walls.
 *
 * argv[1] is the number of the inherited listening socket (default 3), argv[2] that of the filter's questions, if it
 * asks any (ask.c), argv[3] the port of the proxy in a sandbox with a way out, whose sockets are the next (FD_STEERED
 * of the launcher), else 0; argv[4] that of the folder which only we can write (inside.c); argv[5] that of the first of
 * those by which programs see their limits (view.h). See PROTOCOL.md.
 *
 * Where nothing can be inherited (behind a kernel of another's, whose state is saved and restored) argv[1] is
 * `port=N`: we open that port of 127.0.0.1 ourselves, and every connection to it begins with the secret that our stdin
 * holds; argv[5] is then how many processes there may be, and what a launcher does elsewhere we settle ourselves
 * (own_kernel.c). As `lines=N` it is not PID 1, but what carries lines to that port (lines.c). Where a container engine of another
 * host starts us it is `socket=PATH`: we listen there, in a folder which that host sees too. argv[4] may be a path then. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "lines.h"
#include "loop.h"
#include "names.h"
#include "own_kernel.h"
#include "view.h"

/* Given by the launcher; FD_STEERING is only held. */
enum { FD_PROXY = 5, FD_NAMES, FD_NAMES_STREAM, FD_STEERING };

/* 0, 1 and 2 must be taken, or a socket could land there and be inherited as somebody's stdout. */
static void hold_stdio(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
}

static void default_signals(void)
{
    /* The plain call: libc refuses to touch 32 and 33, which its posix_spawn (make uses it) leaves ignored. */
    static const struct { unsigned long handler, flags, restorer, mask; } standard;
    for (int n = 1; n < NSIG; n++)
        syscall(SYS_rt_sigaction, n, &standard, NULL, 8);
    signal(SIGPIPE, SIG_IGN);
}

/* Of a way out: handed to us, or ours to open. */
static bool open_way_out(uint16_t port, bool is_ours)
{
    int proxy = FD_PROXY, names = FD_NAMES, names_stream = FD_NAMES_STREAM;
    if (is_ours && !own_kernel_open(port, &proxy, &names, &names_stream))
        return false;
    relay_inherit(proxy, port);
    names_open(names, names_stream);
    return true;
}

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_SETMASK, &set, NULL);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static void many_files(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

/* Whoever starts us may leave the bounding set full: what we may not do now, no child may ever gain. */
static void bound_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    if (syscall(SYS_capget, &head, data)) return;
    for (unsigned cap = 0; cap < 64 && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (!(data[cap / 32].permitted & (1u << (cap % 32)))) prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

/* Everybody inside can dial a port: only who knows the secret is the host. Read before anything else can run. */
static int open_door(const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t secret[SECRET_SIZE];
    size_t have = 0;
    for (ssize_t n = 1; n > 0 && have < sizeof secret; have += n > 0 ? (size_t)n : 0)
        n = read(0, secret + have, sizeof secret - have);
    close(0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (have < sizeof secret || fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, MAX_CONNS))
        return -1;
    conn_demand(secret);
    /* Whoever waits for us to listen hears of it. */
    if (write(1, "1", 1) != 1)
        return -1;
    close(1);
    return fd;
}

/* Its folder says who may come: the socket itself is for all. One of before a restart is replaced. */
static int open_socket(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || strlen(path) >= sizeof at.sun_path)
        return -1;
    strcpy(at.sun_path, path);
    unlink(path);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || chmod(path, 0666) || listen(fd, MAX_CONNS))
        return -1;
    return fd;
}

int main(int argc, char **argv)
{
    /* First: nobody inside may look into us or take our socket (pidfd_getfd, /proc/1/fd). */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    const char *port = argc > 1 && !strncmp(argv[1], "port=", 5) ? argv[1] + 5 : NULL;
    int way_out = argc > 3 ? atoi(argv[3]) : 0, folder = -1;
    if (port && argc > 5 && (folder = own_kernel_settle((uint16_t)way_out, (uint32_t)atoi(argv[5]))) < 0) {
        perror("supervisor: this kernel is not as it must be");
        return 1;
    }
    bound_capabilities();
    if (argc > 1 && !strncmp(argv[1], "lines=", 6))
        return lines_run((uint16_t)atoi(argv[1] + 6));
    const char *place = argc > 1 && !strncmp(argv[1], "socket=", 7) ? argv[1] + 7 : NULL;
    int listen_fd = argc > 1 ? atoi(argv[1]) : 3;
    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    int device = argc > 5 && !port ? view_open(atoi(argv[5])) : -1;
    if (port || place)
        listen_fd = port ? open_door(port) : open_socket(place);
    if (listen_fd >= 0 && listen_fd < 3 && (port || place)) {
        int low = listen_fd;
        listen_fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
        close(low);
    }
    hold_stdio();
    default_signals();
    many_files();
    umask(022);
    if (chdir("/") || listen_fd < 3 || fcntl(listen_fd, F_SETFD, FD_CLOEXEC) || fcntl(listen_fd, F_SETFL, O_NONBLOCK)) {
        fprintf(stderr, "supervisor: no listening socket on fd %d\n", listen_fd);
        return 1;
    }
    struct source listener = {.kind = SRC_LISTEN, .fd = listen_fd};
    struct source questions = {.kind = SRC_ASK, .fd = argc > 2 ? atoi(argv[2]) : -1};
    struct source signals = {.kind = SRC_SIGNAL, .fd = open_signals()};
    if (signals.fd < 0 || !loop_open()) {
        perror("supervisor");
        return 1;
    }
    loop_watch(&signals, EPOLLIN);
    loop_watch(&listener, EPOLLIN);
    if (questions.fd >= 0)
        loop_watch(&questions, EPOLLIN);
    if (way_out && !open_way_out((uint16_t)way_out, port)) {
        perror("supervisor: the way out");
        return 1;
    }
    if (argc > 4)
        inside_open(folder >= 0 ? folder : argv[4][0] == '/' ? open(argv[4], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : atoi(argv[4]));
    shown_open(device);
    loop_run();
}

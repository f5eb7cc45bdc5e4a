/* What can be done behind a fence: one letter for each thing that still works. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fence.h"

static int runs(void)
{
    pid_t pid = fork();
    int status = 1;
    if (!pid) {
        execl("/bin/true", "true", NULL);
        _exit(9);
    }
    waitpid(pid, &status, 0);
    return !status;
}

static int connects(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), failed = connect(fd, (struct sockaddr *)&to, sizeof to);
    close(fd);
    return !failed;
}

static int opens(const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int main(int argc, char **argv)
{
    struct timespec a, b;
    int port = argc > 3 ? atoi(argv[3]) : 0;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (chdir(argv[2]))
        return 2;
    clock_gettime(CLOCK_MONOTONIC, &a);
    int fenced = strcmp(argv[1], "none") && fence(*argv[1] == 'r' ? FENCE_READ : *argv[1] == 'w' ? FENCE_WRITE : FENCE_CARRY);
    clock_gettime(CLOCK_MONOTONIC, &b);
    struct stat st;
    printf("%d %.1f ", fenced, (b.tv_sec - a.tv_sec) * 1e6 + (b.tv_nsec - a.tv_nsec) / 1e3);
    if (!stat("file", &st)) putchar('s');
    if (opens("file", O_RDONLY)) putchar('r');
    if (opens(".", O_RDONLY | O_DIRECTORY)) putchar('l');
    if (opens("file", O_WRONLY)) putchar('w');
    if (opens("new", O_WRONLY | O_CREAT | O_EXCL)) putchar('c');
    if (!mkdir("folder", 0700)) putchar('d');
    if (!rename("file", "folder/file") && !rename("folder/file", "file")) putchar('m');
    if (!unlink("new")) putchar('u');
    if (!mknod("device", S_IFCHR | 0600, 0x103)) putchar('D');
    if (runs()) putchar('x');
    if (connects(port)) putchar('t');
    if (!kill(getppid(), 0)) putchar('k');
    putchar('\n');
    return 0;
}

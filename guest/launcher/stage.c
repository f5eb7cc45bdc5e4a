/* The clean mount namespace every sandbox starts from, made once: a small read-only tmpfs with the supervisor,
 * device nodes, /proc, and empty places for an order's mounts. Nothing of the host is in it.
 *
 * Starting from the host's mounts instead costs time for every mount the host has, twice per sandbox. */
#include "launcher.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOT "/tmp"
#define MUST(call) do { if ((call) < 0) { perror("launcher: stage: " #call); _exit(1); } } while (0)

static const char *const folders[] = {
    "proc", "old", "stage", "stage/image", "stage/disk", "stage/root", "stage/dev", "stage/volume", "stage/nothing",
    "stage/dev/pts", "stage/dev/shm", "stage/dev/mqueue", "stage/dev/.sandboxer",
};
static const struct { const char *name; unsigned major, minor; } nodes[] = {
    {"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
};
static const char *const links[][2] = {
    {"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
    {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"}, {"/proc/kcore", "core"},
};

static void make_devices(const char *where) {
    char path[256];
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        snprintf(path, sizeof path, "%s/%s", where, nodes[i].name);
        MUST(mknod(path, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)));
        MUST(chmod(path, 0666));
    }
}

static void copy_program(const char *from, const char *to) {
    struct stat info;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    MUST(in);
    int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0555);
    MUST(out);
    MUST(fstat(in, &info));
    for (off_t left = info.st_size; left > 0; ) {
        ssize_t n = sendfile(out, in, NULL, (size_t)left);
        MUST(n);
        if (!n) break;
        left -= n;
    }
    close(in);
    close(out);
}

static void build(const char *supervisor) {
    char path[256];
    MUST(unshare(CLONE_NEWNS));
    MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    int program = open(supervisor, O_PATH | O_CLOEXEC);
    MUST(program);
    MUST(mount("sandboxer", ROOT, "tmpfs", MS_NOSUID, "mode=0755,size=16m"));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, ROOT "/%s", folders[i]);
        MUST(mkdir(path, 0755));
    }
    int empty = open(ROOT STAGE_EMPTY, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
    MUST(empty);
    close(empty);
    make_devices(ROOT STAGE_DEV);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        snprintf(path, sizeof path, ROOT "/stage/dev/%s", links[i][1]);
        MUST(symlink(links[i][0], path));
    }
    /* A copy: an upgrade may replace the file while sandboxes run it, and its folder may be closed to others. */
    snprintf(path, sizeof path, "/proc/self/fd/%d", program);
    copy_program(path, ROOT "/stage" SUPERVISOR);
    MUST(mount("proc", ROOT "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
    MUST(chdir(ROOT));
    MUST(syscall(SYS_pivot_root, ".", "old"));
    MUST(chdir("/"));
    MUST(umount2("/old", MNT_DETACH));
    MUST(mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID, "mode=0755,size=16m"));
}

/* An fd of the namespace, which lives as long as somebody holds it. */
int stage_make(const char *supervisor) {
    int done[2], hold[2];
    char path[64], ok;
    if (pipe2(done, O_CLOEXEC) || pipe2(hold, O_CLOEXEC)) return -1;
    pid_t pid = fork();
    if (pid < 0) return -1;
    if (!pid) {
        close(done[0]);
        close(hold[1]);
        build(supervisor);
        MUST(write(done[1], "k", 1));
        (void)!read(hold[0], &ok, 1);
        _exit(0);
    }
    close(done[1]);
    close(hold[0]);
    int fd = -1;
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", pid);
    if (read(done[0], &ok, 1) == 1) fd = open(path, O_RDONLY | O_CLOEXEC);
    close(done[0]);
    close(hold[1]);
    waitpid(pid, NULL, 0);
    return fd;
}

/* The clean mount namespace every sandbox starts from, made once: a small read-only tmpfs with the supervisor,
 * /proc, and empty places for an order's mounts. Nothing of the host is in it, and nothing of it is left in a
 * sandbox but the supervisor's program, which runs from a file without a name there.
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
#include <sys/wait.h>
#include <unistd.h>

#define ROOT "/tmp"
#define MUST(call) do { if ((call) < 0) { perror("launcher: stage: " #call); _exit(1); } } while (0)

static const char *const folders[] = {
    "proc", "old", "stage", "stage/image", "stage/disk", "stage/root", "stage/volume", "stage/nothing", "stage/programs",
    "stage/tools", "stage/inside", "stage/view",
};

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
    MUST(mount("sandboxer", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16m"));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, ROOT "/%s", folders[i]);
        MUST(mkdir(path, 0755));
    }
    /* A copy: an upgrade may replace the file while sandboxes run it, and its folder may be closed to others. */
    snprintf(path, sizeof path, "/proc/self/fd/%d", program);
    copy_program(path, ROOT STAGE_PROGRAMS "/" SUPERVISOR);
    MUST(mount("proc", ROOT "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
    MUST(chdir(ROOT));
    MUST(syscall(SYS_pivot_root, ".", "old"));
    MUST(chdir("/"));
    MUST(umount2("/old", MNT_DETACH));
    MUST(mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=0755,size=16m"));
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

/* Entries of /proc that show the sandbox's own limits: files of a small file system (FUSE) of its own, which the
 * supervisor answers for as long as it lives. It is mounted by the sandbox's root, so the kernel trusts it no more than
 * that: it is read-only, without devices and programs, and no process outside the sandbox's user namespace can be made
 * to wait for it.
 *
 * Its root is at no path, only the files are. To find them the kernel has to be answered, before there is a supervisor:
 * the worker's child does it, which has nothing else left to do. Meanwhile nobody else holds the device: were the child
 * killed, for its memory perhaps, whoever waits for an answer would do so for ever, and could not be killed. */
#include "launcher.h"

#include "../supervisor/view.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

_Static_assert((int)FIGURES == (int)ORDER_FIGURES, "an order names them in the order of view.h");
#define MUST(call) do { if ((call) < 0) complain(kept->sync, "shown"); } while (0)
enum { FUSE_MAJOR = 10, FUSE_MINOR = 229 };

/* fuse.c asks for no text before a file was read, and none is while we answer. */
size_t view_text(enum shown what, uint64_t offset, const char **text) {
    (void)what, (void)offset;
    *text = "";
    return 0;
}

/* A node of our own, in a file system that is at no path: the host's may be closed to all but its root. */
int shown_device(void) {
    int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
    if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0)) return -1;
    int folder = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    mode_t mask = umask(0);
    int failed = mknodat(folder, "fuse", S_IFCHR | 0666, makedev(FUSE_MAJOR, FUSE_MINOR));
    umask(mask);
    int node = failed ? -1 : openat(folder, "fuse", O_PATH | O_CLOEXEC);
    int err = errno;
    close(context);
    close(folder);
    errno = err;
    return node;
}

/* By whoever shall own the file system: the kernel looks at who opened it. */
static int open_device(int node) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", node);
    return open(path, O_RDWR | O_CLOEXEC);
}

static int new_view(int device) {
    char number[16];
    snprintf(number, sizeof number, "%d", device);
    const char *const options[][2] = {
        {"source", "sandboxer"}, {"fd", number}, {"rootmode", "40555"}, {"user_id", "0"}, {"group_id", "0"},
    };
    int context = fsopen("fuse", FSOPEN_CLOEXEC);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (fsconfig(context, FSCONFIG_SET_STRING, options[i][0], options[i][1], 0)) return -1;
    if (fsconfig(context, FSCONFIG_SET_FLAG, "ro", NULL, 0)
        || fsconfig(context, FSCONFIG_SET_FLAG, "default_permissions", NULL, 0)
        || fsconfig(context, FSCONFIG_SET_FLAG, "allow_other", NULL, 0)
        || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
        return -1;
    int mounted = fsmount(context, FSMOUNT_CLOEXEC,
                          MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    close(context);
    return mounted;
}

static bool write_own(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return done;
}

/* As in a sandbox, in a process that ends with it. */
static bool can_mount(int node) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) || !write_own("/proc/self/setgroups", "deny")
        || !write_own("/proc/self/uid_map", "0 0 1") || !write_own("/proc/self/gid_map", "0 0 1"))
        return false;
    int device = open_device(node);
    return device >= 0 && new_view(device) >= 0;
}

/* Whether this host can, or errno. */
bool shown_try(void) {
    int status = 0, node = shown_device();
    if (node < 0) return false;
    pid_t pid = fork();
    if (!pid) _exit(can_mount(node) ? 0 : errno ? errno : EINVAL);
    close(node);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return false;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINVAL;
    return !errno;
}

/* ---- the child ---- */

void shown_begin(const struct order *order, const struct stage *stage, struct kept *kept) {
    kept->device = -1;
    if (!order->view_count) return;
    MUST(kept->device = open_device(stage->shows));
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, kept->answering));
}

/* Until every file was found; then the device goes to whoever answers from there on. When the first process fails
 * meanwhile its file system ends, and we with it. */
void shown_answer(const struct order *order, struct kept *kept) {
    static uint8_t question[FUSE_QUESTION_ROOM] __attribute__((aligned(8)));
    char is_mounted;
    if (kept->device < 0) return;
    close(kept->answering[1]);
    if (read(kept->answering[0], &is_mounted, 1) != 1) return;
    for (size_t found = 0; found < order->view_count; ) {
        struct fuse_reply reply;
        ssize_t n = read(kept->device, question, sizeof question);
        if (n < 0 && (errno == EINTR || errno == ENOENT)) continue;
        if (n < (ssize_t)sizeof(struct fuse_in_header)) return;
        fuse_answer(question, (size_t)n, &reply);
        if (reply.count && writev(kept->device, reply.parts, reply.count) < 0 && errno != ENOENT) return;
        if (((struct fuse_in_header *)question)->opcode == FUSE_LOOKUP) found++;
    }
    line_send(kept->answering[0], "d", 1, &kept->device, 1);
}

/* ---- the first process ---- */

/* While the clean namespace's root is there: what is mounted in it goes with it. */
void shown_mount(const struct order *order, struct kept *kept, int *views) {
    if (kept->device < 0) return;
    char is_found;
    close(kept->answering[0]);
    int view = new_view(kept->device);
    MUST(view);
    close(kept->device);
    MUST(line_send(kept->answering[1], "m", 1, NULL, 0) ? 0 : -1);
    MUST(move_mount(view, "", AT_FDCWD, STAGE_VIEW, MOVE_MOUNT_F_EMPTY_PATH));
    close(view);
    for (size_t i = 0; i < order->view_count; i++) {
        char path[128];
        snprintf(path, sizeof path, STAGE_VIEW "/%s", order->views[i]);
        MUST(views[i] = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    }
    if (line_receive(kept->answering[1], &is_found, 1, &kept->device, 1) != 1) errno = ECHILD, kept->device = -1;
    MUST(kept->device);
    close(kept->answering[1]);
}

void shown_place(const struct order *order, const struct kept *kept, const int *views) {
    for (size_t i = 0; kept->device >= 0 && i < order->view_count; i++) {
        char path[128];
        snprintf(path, sizeof path, "/proc/%s", order->views[i]);
        MUST(move_mount(views[i], "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH));
        close(views[i]);
    }
}

void shown_keep(struct kept *kept, int (*aside)(int, const struct kept *)) {
    if (kept->device >= 0) kept->device = aside(kept->device, kept);
    if (kept->cpuinfo >= 0) kept->cpuinfo = aside(kept->cpuinfo, kept);
    for (size_t i = 0; i < ORDER_FIGURES; i++)
        if (kept->figures[i] >= 0) kept->figures[i] = aside(kept->figures[i], kept);
}

void shown_hand_over(const struct kept *kept) {
    if (kept->device >= 0) MUST(dup2(kept->device, FD_DEVICE));
    if (kept->cpuinfo >= 0) MUST(dup2(kept->cpuinfo, FD_CPUINFO));
    for (int i = 0; i < ORDER_FIGURES; i++)
        if (kept->figures[i] >= 0) MUST(dup2(kept->figures[i], FD_FIGURES + i));
}

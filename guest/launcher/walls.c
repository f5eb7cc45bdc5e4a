/* The sandbox's first process, from birth to the supervisor: the last walls go up here, in an order that matters.
 * It is already in every namespace and in the sandbox's cgroup, and root of its user namespace; what it still has
 * is every capability over those, a way back to the clean namespace, and no filter. */
#include "launcher.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, of Linux 5.19, which headers may be older than. */
#define WAIT_KILLABLE (1u << 5)
#define MUST(call, step_name) do { if ((call) < 0) complain(kept->sync, step_name); } while (0)

/* Made while the clean namespace's /proc is in sight: the kernel gives a new one only where one is. */
static int new_proc(const struct kept *kept) {
    int context = fsopen("proc", FSOPEN_CLOEXEC);
    MUST(context, "proc");
    MUST(fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0), "proc");
    int proc = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    MUST(proc, "proc");
    close(context);
    return proc;
}

/* Mounts that came from outside are locked in place; a copy of the whole tree is not, and becomes the root. */
static void change_root(const struct kept *kept) {
    MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "root");
    MUST(mount(STAGE_ROOT, STAGE_ROOT, NULL, MS_BIND | MS_REC, NULL), "root");
    MUST(chdir(STAGE_ROOT), "root");
    MUST(syscall(SYS_pivot_root, ".", "."), "pivot_root");
    MUST(umount2(".", MNT_DETACH), "old_root");
    MUST(chdir("/"), "root");
}

/* Something else in place of an entry of /proc: a file that is empty, or a folder with nothing in it. */
static void cover(const char *name, const struct kept *kept) {
    char path[128];
    struct stat seen;
    if ((size_t)snprintf(path, sizeof path, "/proc/%s", name) >= sizeof path) {
        errno = ENAMETOOLONG;
        complain(kept->sync, "proc_masks");
    }
    MUST(lstat(path, &seen), "proc_masks");
    MUST(mount(S_ISDIR(seen.st_mode) ? COVER_FOLDER : COVER_FILE, path, NULL, MS_BIND, NULL), "proc_masks");
}

/* Its own view of processes; what tells of the host covered, kernel settings read-only. The place in the root may be
 * a tenant's making, so no link is followed to it; from there on all is the kernel's, or ours. */
static void place_proc(const struct order *order, int proc, const struct kept *kept) {
    const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    int where = (int)syscall(SYS_openat2, AT_FDCWD, "/proc", &how, sizeof how);
    MUST(where, "proc");
    MUST(move_mount(proc, "", where, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH), "proc");
    MUST(mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL), "proc_sys");
    MUST(mount(NULL, "/proc/sys", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | flags, NULL), "proc_sys");
    MUST(mount(COVER_BOOT_ID, "/proc/sys/kernel/random/boot_id", NULL, MS_BIND, NULL), "boot_id");
    for (size_t i = 0; i < order->mask_count; i++) cover(order->masks[i], kept);
}

static void limit(int resource, rlim_t soft, rlim_t hard) {
    struct rlimit now;
    if (getrlimit(resource, &now)) return;
    if (hard > now.rlim_max) hard = now.rlim_max;
    struct rlimit want = {.rlim_cur = soft < hard ? soft : hard, .rlim_max = hard};
    setrlimit(resource, &want);
}

static void forget_the_past(const struct order *order, const struct kept *kept) {
    sigset_t none;
    MUST(setsid(), "session");
    MUST(setgroups(0, NULL), "groups");
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS) complain(kept->sync, "keyring");
    for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    limit(RLIMIT_SIGPENDING, order->sigpending, order->sigpending);
    limit(RLIMIT_NOFILE, 65536, order->open_files);
    limit(RLIMIT_CORE, 1, 1); /* not 0: see hold_core_limit */
}

/* Out of the way first, so that no target number is one of the sources. */
static int aside(int fd, const struct kept *kept) {
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, 64);
    MUST(moved, "fds");
    return moved;
}

/* What belongs to the way out, if there is one. */
static void keep_steered(const struct kept *kept) {
    for (int i = 0; i < STEERED; i++) MUST(dup2(kept->steered[i], FD_STEERED + i), "fds");
    MUST(dup2(kept->steering, FD_STEERING), "fds");
}

/* stdio, the listening socket, the way out, the folder that tells of it, and the line to the worker, which closes
 * itself at exec. */
static void keep_only(const struct order *order, struct kept *kept, int *program_folder) {
    int listen = aside(kept->listen, kept);
    /* The sandbox's own: a node that came from outside would be one that all sandboxes share with the host. */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    MUST(null, "fds");
    null = aside(null, kept);
    *program_folder = aside(*program_folder, kept);
    for (int i = 0; order->way_out && i < STEERED; i++) kept->steered[i] = aside(kept->steered[i], kept);
    if (order->way_out) kept->steering = aside(kept->steering, kept);
    kept->inside = aside(kept->inside, kept);
    shown_keep(kept, aside);
    kept->sync = aside(kept->sync, kept);
    MUST(dup2(null, 0), "fds");
    MUST(dup2(null, 1), "fds");
    MUST(dup2(null, 2), "fds");
    MUST(dup2(listen, FD_LISTEN), "fds");
    MUST(close_range(FD_FIRST_CLOSED, ~0u, CLOSE_RANGE_CLOEXEC), "fds");
    if (order->way_out) keep_steered(kept);
    MUST(dup2(kept->inside, FD_INSIDE), "fds");
    shown_hand_over(kept);
}

/* From the bounding set too: root inside gets at every exec what that set holds. */
static void drop_capabilities(const struct order *order, const struct kept *kept) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    for (unsigned cap = 0; cap < 64 && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (!(order->capabilities >> cap & 1)) MUST(prctl(PR_CAPBSET_DROP, cap, 0, 0, 0), "capabilities");
    MUST(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "capabilities");
    for (unsigned half = 0; half < 2; half++)
        data[half].permitted = data[half].effective = (uint32_t)(order->capabilities >> (32 * half));
    MUST(syscall(SYS_capset, &head, data), "capabilities");
}

/* The filter, and the descriptor on which the supervisor is asked about some calls. Where whoever started us has such
 * a descriptor already there is no second one: then some sockets do not exist inside, and calls tell of the host. Once a
 * question was taken no signal interrupts whoever asks: its answer is written into memory that must still be meant. */
static bool filter_with_questions(const struct sock_fprog *filters, const struct kept *kept) {
    const unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE;
    int questions = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filters[0]);
    if (questions < 0 && errno == EBUSY) {
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filters[FILTER_ALONE], 0, 0), "filter");
        return false;
    }
    MUST(questions, "filter");
    if (questions == FD_QUESTIONS) MUST(fcntl(questions, F_SETFD, 0), "filter");
    else MUST(dup2(questions, FD_QUESTIONS), "filter");
    return true;
}

_Noreturn void first_process(const struct order *order, const struct stage *stage, struct kept *kept) {
    char way_out[8], *nothing[] = {NULL};
    char *argv[] = {SUPERVISOR, "3" /* FD_LISTEN */, "4" /* FD_QUESTIONS */, way_out, "9" /* FD_INSIDE */,
                    "10" /* FD_DEVICE */, NULL};
    int views[VIEWS_MAX];
    int programs = open(STAGE_PROGRAMS, O_PATH | O_DIRECTORY | O_CLOEXEC);
    MUST(programs, "supervisor");
    int proc = new_proc(kept);
    kept->cpuinfo = openat(proc, "cpuinfo", O_RDONLY | O_CLOEXEC);
    shown_mount(order, kept, views);
    change_root(kept);
    place_proc(order, proc, kept);
    shown_place(order, kept, views);
    MUST(sethostname(order->hostname, strlen(order->hostname)), "hostname");
    forget_the_past(order, kept);
    keep_only(order, kept, &programs);
    drop_capabilities(order, kept);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    /* Last: everything above is among what it refuses. */
    if (!filter_with_questions(&stage->filters[order->nests ? FILTER_NESTS : 0], kept)) argv[2] = "-1";
    snprintf(way_out, sizeof way_out, "%u", order->way_out);
    /* By its folder, which closes: no path inside leads to the file, which all sandboxes share. */
    syscall(SYS_execveat, programs, SUPERVISOR, argv, nothing, 0);
    complain(kept->sync, "supervisor");
}

/* One order, from cgroup to running sandbox, in a worker forked for it.
 *
 * The worker stays host root and makes everything from outside. Its child gives up the host first (uid, then
 * user namespace, so that the kernel counts its namespaces, watches and timers against the sandbox's own user),
 * waits until its world is mounted, and becomes bwrap. */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child inherits by intention, by the numbers it has in the worker. */
struct child_fds {
    int sync, listen, filter, info, errors, null;
    int joins[LIST_MAX];
};

struct complaint {
    int err;
    char step[28];
};

static void write_file(const char *path, const char *value) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd);
    CHECK(write(fd, value, strlen(value)));
    close(fd);
}

static void do_acts(const struct order *order) {
    for (size_t i = 0; i < order->act_count; i++) {
        const struct act *act = &order->acts[i];
        if (act->value) write_file(act->path, act->value);
        else if (mkdir(act->path, 0755) && errno != EEXIST) CHECK(-1);
    }
}

/* Bound by a name relative to its folder: a host path may be longer than an address can hold. */
static int listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *slash = strrchr(path, '/');
    char folder[4096];
    if (!slash || (size_t)(slash - path) >= sizeof folder || strlen(slash + 1) >= sizeof address.sun_path)
        answer_failed(step_current(), ENAMETOOLONG, NULL);
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = 0;
    strcpy(address.sun_path, slash + 1);
    CHECK(chdir(folder));
    unlink(address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd);
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof address));
    CHECK(chmod(address.sun_path, 0600));
    CHECK(listen(fd, 128));
    return fd;
}

static void limit(int resource, rlim_t soft, rlim_t hard) {
    struct rlimit now;
    if (getrlimit(resource, &now)) return;
    if (hard > now.rlim_max) hard = now.rlim_max;
    struct rlimit want = {.rlim_cur = soft < hard ? soft : hard, .rlim_max = hard};
    setrlimit(resource, &want);
}

static _Noreturn void complain(int sync, const char *step_name) {
    struct complaint complaint = {.err = errno};
    snprintf(complaint.step, sizeof complaint.step, "%s", step_name);
    send(sync, &complaint, sizeof complaint, MSG_NOSIGNAL);
    _exit(1);
}

static void clear_signals(void) {
    sigset_t none;
    for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void arrange_fds(struct child_fds *fds) {
    /* Out of the way first, so that no target number is one of the sources. */
    int sync = fcntl(fds->sync, F_DUPFD_CLOEXEC, 64);
    int listen = fcntl(fds->listen, F_DUPFD_CLOEXEC, 64);
    int filter = fcntl(fds->filter, F_DUPFD_CLOEXEC, 64);
    int info = fcntl(fds->info, F_DUPFD_CLOEXEC, 64);
    int errors = fcntl(fds->errors, F_DUPFD_CLOEXEC, 64);
    int null = fcntl(fds->null, F_DUPFD_CLOEXEC, 64);
    fds->sync = sync;
    if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(errors, 2) < 0 || dup2(listen, FD_LISTEN) < 0
        || dup2(filter, FD_SECCOMP) < 0 || dup2(info, FD_INFO) < 0
        || close_range(FD_FIRST_CLOSED, ~0u, CLOSE_RANGE_CLOEXEC))
        complain(sync, "fds");
}

static void give_up_the_host(const struct order *order, const struct child_fds *fds) {
    for (size_t i = 0; i < order->join_count; i++)
        /* A task moving itself through `tasks` takes no global lock; `cgroup.procs` waits for an RCU period. */
        if (write(fds->joins[i], "0", 1) != 1) complain(fds->sync, "cgroup_join");
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)) complain(fds->sync, "securebits");
    if (setgroups(0, NULL) || setresgid(order->base, order->base, order->base)
        || setresuid(order->base, order->base, order->base))
        complain(fds->sync, "uid");
    if (unshare(CLONE_NEWUSER)) complain(fds->sync, "user_namespace");
}

static _Noreturn void child_main(const struct order *order, const struct stage *stage, struct child_fds *fds) {
    char *nothing[] = {NULL};
    char go;
    give_up_the_host(order, fds);
    if (send(fds->sync, "u", 1, MSG_NOSIGNAL) != 1 || recv(fds->sync, &go, 1, 0) != 1) _exit(1);
    if (setsid() < 0) complain(fds->sync, "session");
    /* The maps are in place: our uid now reads 0 here. Groups follow. */
    if (setgroups(0, NULL)) complain(fds->sync, "groups");
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS) complain(fds->sync, "keyring");
    clear_signals();
    umask(022);
    limit(RLIMIT_SIGPENDING, order->sigpending, order->sigpending);
    limit(RLIMIT_NOFILE, 65536, order->open_files);
    limit(RLIMIT_CORE, 1, 1); /* not 0: see hold_core_limit */
    if (chdir("/")) complain(fds->sync, "chdir");
    arrange_fds(fds);
    execve(stage->bwrap, order->argv, nothing);
    complain(fds->sync, "exec");
}

static pid_t spawn_child(int cgroup) {
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)cgroup,
    };
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static void wait_for_child(int sync) {
    union { struct complaint complaint; char ready; } message;
    ssize_t n = recv(sync, &message, sizeof message, 0);
    if (n == sizeof message.complaint) {
        message.complaint.step[sizeof message.complaint.step - 1] = 0;
        static char name[sizeof message.complaint.step];
        strcpy(name, message.complaint.step);
        answer_failed(name, message.complaint.err, NULL);
    }
    if (n != 1) answer_failed(step_current(), ECHILD, "the child ended early");
}

static int map_ids(const struct order *order, pid_t child) {
    char path[64], map[64];
    snprintf(map, sizeof map, "0 %u %u", order->base, order->count);
    snprintf(path, sizeof path, "/proc/%d/uid_map", child);
    write_file(path, map);
    snprintf(path, sizeof path, "/proc/%d/gid_map", child);
    write_file(path, map);
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", child);
    write_file(path, "0");
    snprintf(path, sizeof path, "/proc/%d/ns/user", child);
    int userns = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(userns);
    return userns;
}

static void wait_for_exec(int sync) {
    struct complaint complaint;
    if (recv(sync, &complaint, sizeof complaint, 0) == sizeof complaint) {
        static char name[sizeof complaint.step];
        complaint.step[sizeof complaint.step - 1] = 0;
        strcpy(name, complaint.step);
        answer_failed(name, complaint.err, NULL);
    }
}

/* bwrap says the host's pid of the sandbox's first process as soon as it exists. */
static pid_t read_pid(int info, int errors) {
    char text[1024];
    size_t used = 0;
    for (ssize_t n; used < sizeof text - 1 && (n = read(info, text + used, sizeof text - 1 - used)) > 0; ) {
        used += (size_t)n;
        text[used] = 0;
        char *at = strstr(text, "\"child-pid\":");
        if (at && strpbrk(at, ",}\n")) return (pid_t)atoi(at + strlen("\"child-pid\":"));
    }
    ssize_t n = read(errors, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    answer_failed("bwrap", ECHILD, text);
}

/* Until bwrap's monitor ends (the server kills it once the supervisor answers): tell what it complained of. */
static _Noreturn void watch_monitor(const struct stage *stage, pid_t monitor, int errors) {
    char text[1024];
    int status = 0, handle = (int)syscall(SYS_pidfd_open, monitor, 0);
    struct pollfd polled[] = {{.fd = handle, .events = POLLIN}, {.fd = stage->orders, .events = POLLRDHUP}};
    while (handle >= 0 && poll(polled, 2, -1) >= 0 && !polled[0].revents)
        if (polled[1].revents & (POLLHUP | POLLRDHUP | POLLERR)) _exit(0);
    waitpid(monitor, &status, 0);
    fcntl(errors, F_SETFL, O_NONBLOCK);
    ssize_t n = read(errors, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    answer_on_failure_kill(0);
    answer_failed("bwrap", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text);
}

void order_perform(const struct order *order, const struct stage *stage) {
    struct child_fds fds = {.null = stage->null};
    int sync[2], info[2], errors[2];
    char path[64];
    step("cgroup");
    do_acts(order);
    int cgroup = open(order->cgroup, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(cgroup);
    for (size_t i = 0; i < order->join_count; i++)
        CHECK(fds.joins[i] = open(order->joins[i], O_WRONLY | O_CLOEXEC));
    step("socket");
    fds.listen = listen_at(order->socket);
    step("trees");
    int image = tree_clone(order->image), disk = tree_clone(order->disk);
    step("mount_namespace");
    snprintf(path, sizeof path, "/proc/self/fd/%d", stage->filter);
    CHECK(fds.filter = open(path, O_RDONLY | O_CLOEXEC)); /* anew, for an offset of its own */
    CHECK(setns(stage->mounts, CLONE_NEWNS));
    CHECK(unshare(CLONE_NEWNS));
    step("fork");
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sync));
    CHECK(pipe2(info, O_CLOEXEC));
    CHECK(pipe2(errors, O_CLOEXEC));
    fds.sync = sync[1];
    fds.info = info[1];
    fds.errors = errors[1];
    pid_t child = spawn_child(cgroup);
    CHECK(child);
    if (!child) child_main(order, stage, &fds);
    answer_on_failure_kill(child);
    close(sync[1]);
    close(info[1]);
    close(errors[1]);
    close(fds.listen);
    step("user_namespace");
    wait_for_child(sync[0]);
    int userns = map_ids(order, child);
    step("idmap");
    tree_place(image, userns, true, "/stage/image");
    tree_place(disk, userns, false, "/stage/disk");
    step("overlay");
    overlay_mount(order->base);
    step("terminals");
    terminals_mount(order->base, order->ptys);
    step("exec");
    CHECK(send(sync[0], "g", 1, MSG_NOSIGNAL));
    wait_for_exec(sync[0]);
    step("bwrap");
    pid_t pid = read_pid(info[0], errors[0]);
    answer_made(pid, child);
    /* The sandbox has its own copy of this mount by now. While ours is there, its disk counts as in use, and a
     * resume right after a stop would lay a second overlay over it. */
    umount2("/stage/root", MNT_DETACH);
    watch_monitor(stage, child, errors[0]);
}

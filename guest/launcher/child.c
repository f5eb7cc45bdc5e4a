/* The worker's child: gives up the host, makes the sandbox's namespaces, and brings forth its first process.
 *
 * First the uid, then the user namespace: namespaces, watches, timers and queues made after that are counted
 * against the sandbox's own user. Made as host root they would be counted against all sandboxes together, and one
 * could starve the rest. */
#include "launcher.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PASSED_MAX = STEERED };

bool line_send(int sync, const void *data, size_t size, const int *fds, size_t count) {
    char control[CMSG_SPACE(PASSED_MAX * sizeof *fds)] = {0};
    struct iovec part = {(void *)data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof *fds);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(count * sizeof *fds)};
        memcpy(CMSG_DATA(head), fds, count * sizeof *fds);
    }
    return sendmsg(sync, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

ssize_t line_receive(int sync, void *data, size_t size, int *fds, size_t count) {
    char control[CMSG_SPACE(PASSED_MAX * sizeof *fds)] = {0};
    struct iovec part = {data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(sync, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = n < 0 ? NULL : CMSG_FIRSTHDR(&message);
    for (size_t i = 0; i < count; i++) fds[i] = -1;
    if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(count * sizeof *fds))
        memcpy(fds, CMSG_DATA(head), count * sizeof *fds);
    return n;
}

static void say(int sync, enum word word, int number, const char *step_name, const int *fds, size_t count) {
    struct message message = {.word = word, .number = number};
    snprintf(message.step, sizeof message.step, "%s", step_name);
    if (!line_send(sync, &message, sizeof message, fds, count)) _exit(1);
}

_Noreturn void complain(int sync, const char *step_name) {
    say(sync, WORD_FAILED, errno, step_name, NULL, 0);
    _exit(1);
}

static void give_up_the_host(const struct order *order, const struct stage *stage, const struct kept *kept) {
    for (size_t i = 0; i < order->join_count; i++)
        /* A task moving itself through `tasks` takes no global lock; `cgroup.procs` waits for an RCU period. */
        if (write(kept->joins[i], "0", 1) != 1) complain(kept->sync, "cgroup_join");
    /* A private copy of the clean namespace, still the host's to mount in. */
    if (setns(stage->mounts, CLONE_NEWNS) || unshare(CLONE_NEWNS)) complain(kept->sync, "mount_namespace");
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)) complain(kept->sync, "securebits");
    if (setgroups(0, NULL) || setresgid(order->base, order->base, order->base)
        || setresuid(order->base, order->base, order->base))
        complain(kept->sync, "uid");
    if (unshare(CLONE_NEWUSER | (stage->time ? CLONE_NEWTIME : 0))) complain(kept->sync, "user_namespace");
}

/* A sibling of ours, so that the worker and then the launcher are its parent. */
static pid_t spawn_first(void) {
    struct clone_args args = {
        .flags = CLONE_PARENT | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWCGROUP, .exit_signal = 0,
    };
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

_Noreturn void child_main(const struct order *order, const struct stage *stage, struct kept *kept) {
    char go;
    give_up_the_host(order, stage, kept);
    say(kept->sync, WORD_USERNS, 0, "", NULL, 0);
    if (unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)) complain(kept->sync, "namespaces");
    network_make(order, kept);
    if (order->way_out) say(kept->sync, WORD_NETWORK, 0, "", kept->steered, STEERED);
    int given[GIVEN];
    if (line_receive(kept->sync, &go, 1, given, order->way_out ? GIVEN : GIVEN - 1) != 1) _exit(1);
    kept->inside = given[GIVEN_INSIDE];
    if (order->way_out) kept->steering = given[GIVEN_STEERING];
    shown_begin(order, stage, kept);
    pid_t pid = spawn_first();
    if (pid < 0) complain(kept->sync, "first_process");
    if (!pid) first_process(order, stage, kept);
    say(kept->sync, WORD_PID, pid, "", NULL, 0);
    close(kept->sync);
    shown_answer(order, kept);
    _exit(0);
}

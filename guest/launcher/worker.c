/* One order, from cgroup to running sandbox, in a worker forked for it.
 *
 * The worker stays host root and makes everything from outside; its child gives up the host (child.c) and brings
 * forth the sandbox's first process (walls.c). Both work at the same time: while the child makes its namespaces,
 * the worker makes the disk. */
#include "launcher.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pid_t spawn_child(int cgroup) {
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)cgroup,
    };
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* The next word from the other side, with the descriptors that come with it; false when it closed the line. */
static bool hear(int sync, struct message *message, int *fds, size_t count) {
    ssize_t n = line_receive(sync, message, sizeof *message, fds, count);
    if (n == 0) return false;
    if (n != sizeof *message) answer_failed(step_current(), EPROTO, "a torn word from the child");
    if (message->word == WORD_FAILED) {
        message->step[sizeof message->step - 1] = 0;
        answer_failed(message->step, message->number, NULL);
    }
    return true;
}

static void expect(int sync, enum word word, struct message *message, int *fds, size_t count) {
    if (!hear(sync, message, fds, count) || message->word != word)
        answer_failed(step_current(), ECHILD, "the child ended early");
}

static int open_of(pid_t child, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", child, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd);
    return fd;
}

static void map_ids(const struct order *order, pid_t child) {
    char path[64], map[64];
    snprintf(map, sizeof map, "0 %u %u", order->base, order->count);
    snprintf(path, sizeof path, "/proc/%d/uid_map", child);
    write_file(path, map);
    snprintf(path, sizeof path, "/proc/%d/gid_map", child);
    write_file(path, map);
    /* Whatever the server has: the kernel must not spare a sandbox for it. */
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", child);
    write_file(path, "0");
}

/* Its uptime is its own: the host's would tell who shares a host. A namespace of its own it needs in any case, as
 * a shared one is a file that all can lock. */
static void start_clocks(pid_t child) {
    char path[64], offsets[128];
    struct timespec mono, boot;
    clock_gettime(CLOCK_MONOTONIC, &mono);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    snprintf(path, sizeof path, "/proc/%d/timens_offsets", child);
    snprintf(offsets, sizeof offsets, "monotonic -%ld 0\nboottime -%ld 0\n", mono.tv_sec, boot.tv_sec);
    write_file(path, offsets);
}

static pid_t begin(const struct order *order, const struct stage *stage, struct kept *kept, int *sync) {
    int line[2];
    step("cgroup");
    acts_perform(&order->cgroups);
    int cgroup = open(order->cgroup, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(cgroup);
    for (size_t i = 0; i < order->join_count; i++)
        CHECK(kept->joins[i] = open(order->joins[i], O_WRONLY | O_CLOEXEC));
    for (size_t i = 0; i < ORDER_FIGURES; i++)
        if (order->figures[i]) CHECK(kept->figures[i] = open(order->figures[i], O_RDONLY | O_CLOEXEC));
        else kept->figures[i] = -1;
    step("socket");
    kept->listen = listen_at(order->socket);
    step("fork");
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line));
    kept->sync = line[1];
    pid_t child = spawn_child(cgroup);
    CHECK(child);
    if (!child) child_main(order, stage, kept);
    answer_on_failure_kill(child);
    close(line[1]);
    close(kept->listen);
    *sync = line[0];
    return child;
}

/* Leads the connections of a sandbox with a way out to the sockets it made; what keeps that so is its own to hold. */
static int steer(const struct steering *steering, pid_t child, int sync) {
    struct message message;
    int sockets[STEERED];
    step("steering");
    expect(sync, WORD_NETWORK, &message, sockets, STEERED);
    int steered = steering_attach(steering, sockets, open_of(child, "ns/net"));
    CHECK(steered);
    return steered;
}

void order_perform(const struct order *order, const struct stage *stage) {
    struct kept kept = {0};
    struct steering steering;
    struct message message;
    int sync;
    pid_t child = begin(order, stage, &kept, &sync);
    step("disk");
    acts_perform(&order->disks);
    step("trees");
    int image = tree_clone(order->image), disk = tree_clone(order->disk);
    int tools = order->tools ? tree_clone(order->tools) : -1;
    int volumes[VOLUMES_MAX];
    volumes_clone(order, volumes);
    if (order->way_out) {
        step("steering_program");
        CHECK(steering_load(&steering) ? 0 : -1);
    }
    step("user_namespace");
    expect(sync, WORD_USERNS, &message, NULL, 0);
    map_ids(order, child);
    if (stage->time) start_clocks(child);
    int userns = open_of(child, "ns/user");
    step("mounts");
    CHECK(setns(open_of(child, "ns/mnt"), CLONE_NEWNS));
    tree_place(image, userns, true, STAGE_IMAGE);
    tree_place(disk, userns, false, STAGE_DISK);
    if (order->tools) tree_place(tools, userns, true, STAGE_TOOLS);
    step("overlay");
    overlay_mount(order);
    if (order->folder_count) step("folders");
    folders_mount(order);
    if (order->volume_count) step("volumes");
    volumes_mount(order, volumes, userns);
    step("devices");
    devices_mount(order);
    step("inside");
    int given[GIVEN] = {[GIVEN_INSIDE] = inside_mount(order)};
    if (order->way_out) given[GIVEN_STEERING] = steer(&steering, child, sync);
    step("walls");
    CHECK(line_send(sync, "g", 1, given, order->way_out ? GIVEN : GIVEN - 1) ? 0 : -1);
    expect(sync, WORD_PID, &message, NULL, 0);
    pid_t pid = message.number;
    answer_on_failure_kill(pid);
    /* The sandbox has its own copy of this mount by now. As long as ours is there its disk counts as in use, and a
     * resume right after a stop would lay a second overlay over it. */
    CHECK(umount2(STAGE_ROOT, MNT_DETACH));
    /* Silence is success: its end of the line closes when the supervisor is executed. */
    while (hear(sync, &message, NULL, 0)) {}
    answer_made(pid);
    _exit(0);
}

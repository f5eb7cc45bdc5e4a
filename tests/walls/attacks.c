/* Attacks on the walls, one per word. Prints "allowed" when the kernel let it pass, "refused ERRNO" otherwise.
 * The same program runs outside for comparison. None aims at something that would hurt a host whose wall is
 * missing: arguments are such that a permitted call fails harmlessly or acts on the caller alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long clone_with(unsigned long flags) {
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    if (pid > 0) waitpid((pid_t)pid, NULL, 0);
    return pid;
}

static long clone3_plain(void) {
    uint64_t args[11] = {0};
    args[4] = SIGCHLD;
    long pid = syscall(435, args, sizeof args);
    if (pid == 0) _exit(0);
    if (pid > 0) waitpid((pid_t)pid, NULL, 0);
    return pid;
}

static long in_child(long (*act)(void)) {
    int out[2];
    if (pipe(out)) return -1;
    pid_t pid = fork();
    if (!pid) {
        long answer[2];
        answer[0] = act();
        answer[1] = errno;
        fflush(stdout);
        if (write(out[1], answer, sizeof answer) < 0) _exit(1);
        _exit(0);
    }
    long answer[2] = {-1, EIO};
    close(out[1]);
    if (read(out[0], answer, sizeof answer) < 0) answer[1] = EIO;
    waitpid(pid, NULL, 0);
    errno = (int)answer[1];
    return answer[0];
}

static long unshare_user(void) { return unshare(CLONE_NEWUSER); }
static long unshare_mounts(void) { return unshare(CLONE_NEWNS); }
static long unshare_network(void) { return unshare(CLONE_NEWNET); }
static long enter_namespace(void) {
    int fd = open("/proc/self/ns/uts", O_RDONLY);
    return fd < 0 ? -1 : setns(fd, 0);
}
static long mount_tmpfs(void) {
    mkdir("/tmp/attack-mount", 0700);
    long result = mount("none", "/tmp/attack-mount", "tmpfs", 0, NULL);
    int err = errno;
    if (!result) umount2("/tmp/attack-mount", MNT_DETACH);
    rmdir("/tmp/attack-mount");
    errno = err;
    return result;
}
static long umount_nothing(void) { return umount2("/tmp", MNT_EXPIRE); }
static long pivot(void) { return syscall(SYS_pivot_root, "/nowhere", "/nowhere"); }
static long tree(void) { return syscall(428, AT_FDCWD, "/", 1 /* OPEN_TREE_CLONE */); }
static long new_filesystem(void) { return syscall(430, "tmpfs", 0); }
static long set_mount(void) { return syscall(442, AT_FDCWD, "/nowhere", 0, NULL, 0); }
static long tree_with_attributes(void) { return syscall(467, AT_FDCWD, "/nowhere", 0, NULL, 0); }
static long io_uring(void) {
    char params[120] = {0};
    return syscall(425, 1, params);
}
static long aio(void) {
    unsigned long context = 0;
    return syscall(SYS_io_setup, 1, &context);
}
static long fault_descriptor(void) { return syscall(SYS_userfaultfd, O_CLOEXEC); }
static long keyring(void) { return syscall(SYS_keyctl, 0 /* GET_KEYRING_ID */, -3 /* session */, 1); }
static long new_key(void) { return syscall(SYS_add_key, "user", "attack", "x", 1, -2 /* process */); }
static long wanted_key(void) { return syscall(SYS_request_key, "user", "attack-none", NULL, 0); }
static long bpf_map(void) {
    uint32_t attr[32] = {2 /* array */, 4, 4, 1};
    return syscall(SYS_bpf, 0 /* MAP_CREATE */, attr, sizeof attr);
}
static long perf(void) {
    uint32_t attr[32] = {1 /* software */, 128, 0};
    return syscall(SYS_perf_event_open, attr, 0, -1, -1, 0);
}
/* More segments than any kernel takes: refused as invalid where it is permitted at all. */
static long kexec(void) { return syscall(SYS_kexec_load, 0, 1000000, NULL, 0); }
static long load_module(void) { return syscall(SYS_init_module, NULL, 0, ""); }
static long load_module_file(void) { return syscall(SYS_finit_module, -1, "", 0); }
static long unload_module(void) { return syscall(SYS_delete_module, "no-such-module", O_NONBLOCK); }
static long by_handle(void) {
    struct { unsigned bytes; int type; char handle[64]; } handle = {.bytes = 8, .type = 1};
    return syscall(SYS_open_by_handle_at, AT_FDCWD, &handle, O_RDONLY);
}
static long kernel_log(void) {
    static char text[1 << 16];
    return syscall(SYS_syslog, 3 /* READ_ALL */, text, sizeof text);
}
static long swap(void) { return syscall(SYS_swapon, "/nowhere", 0); }
static long accounting(void) { return acct("/nowhere/at/all"); }
static long quota(void) { return syscall(SYS_quotactl, 0x800001 << 8, NULL, 0, NULL); }
static long host_name(void) {
    char name[65] = "";
    if (gethostname(name, sizeof name)) return -1;
    return sethostname(name, strlen(name));
}
static long steal_descriptor(void) {
    int fd = (int)syscall(434, 1, 0);
    return fd < 0 ? -1 : syscall(438, fd, 3, 0);
}
static long trace_first(void) { return ptrace(PTRACE_SEIZE, 1, 0, 0); }
static long read_first(void) {
    char here[8];
    struct iovec local = {here, 8}, remote = {(void *)0x400000, 8};
    return process_vm_readv(1, &local, 1, &remote, 1, 0);
}
static long memory_of_first(void) { return open("/proc/1/mem", O_RDONLY); }
static long root_of_first(void) { return open("/proc/1/root", O_PATH | O_DIRECTORY); }
static long environment_of_first(void) { return open("/proc/1/environ", O_RDONLY); }
static long descriptors_of_first(void) { return open("/proc/1/fd/3", O_RDONLY); }
static long foreign_uid(void) { return setresuid(70000, 70000, 70000); }
static long device_node(void) {
    unlink("/tmp/attack-null");
    return mknod("/tmp/attack-null", S_IFCHR | 0666, makedev(1, 3));
}
static long block_node(void) {
    unlink("/tmp/attack-block");
    return mknod("/tmp/attack-block", S_IFBLK | 0600, makedev(7, 250));
}
static long raise_capability(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data)) return -1;
    data[0].permitted |= 1u << CAP_SYS_ADMIN;
    data[0].effective |= 1u << CAP_SYS_ADMIN;
    return syscall(SYS_capset, &head, data);
}
static long more_priority(void) { return setpriority(PRIO_PROCESS, 0, -20); }
static long realtime(void) {
    struct sched_param param = {.sched_priority = 1};
    return sched_setscheduler(0, SCHED_FIFO, &param);
}
static long inject_terminal(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master)) return -1;
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    return ioctl(slave, TIOCSTI, "x");
}
static long make_subvolume(void) {
    char args[4096] = {0};
    strcpy(args + 8, "attack");
    int fd = open("/tmp", O_RDONLY | O_DIRECTORY);
    return ioctl(fd, 0x5000940e, args);
}
static long write_sysctl(void) {
    char text[64];
    int fd = open("/proc/sys/kernel/threads-max", O_RDWR);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    return n < 0 ? -1 : pwrite(fd, text, (size_t)n, 0); /* the value it has */
}
static long overwrite_supervisor(void) { return open("/proc/1/exe", O_WRONLY); }
static long new_device_file(void) { return open("/dev/attack", O_WRONLY | O_CREAT, 0600); }
static long set_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_nsec = 2000000000; /* invalid where permitted */
    return syscall(SYS_clock_settime, CLOCK_REALTIME, &now);
}
static long interrupt_80(void) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L /* getpid */) : "memory", "r8", "r9", "r10", "r11");
    return result;
}
static long x32_call(void) { return syscall(0x40000000 | 39); }
static long wide_vsock(void) { return syscall(SYS_socket, 0x100000000L | 40, SOCK_STREAM, 0); }

/* With a second word the greedy one keeps what it has, until killed. */
static bool holds;
static void hold(void) {
    if (!holds) return;
    puts("held");
    fflush(stdout);
    for (;;) pause();
}

static long exhaust_inotify(void) {
    long count = 0;
    while (count < 100000 && inotify_init1(0) >= 0) count++;
    printf("%ld ", count);
    hold();
    return count >= 100000 ? 0 : -1;
}
static long one_inotify(void) { return inotify_init1(0); }
static long exhaust_terminals(void) {
    long count = 0;
    while (count < 5000 && posix_openpt(O_RDWR | O_NOCTTY) >= 0) count++;
    printf("%ld ", count);
    hold();
    return count >= 5000 ? 0 : -1;
}
static long one_terminal(void) { return posix_openpt(O_RDWR | O_NOCTTY); }
static long exhaust_signals(void) {
    long count = 0;
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    while (count < 1000000 && !sigqueue(getpid(), SIGRTMIN, (union sigval){0})) count++;
    printf("%ld ", count);
    hold();
    return count >= 1000000 ? 0 : -1;
}
/* The classic: keep a folder open, change root below it, walk up. */
static long leave_chroot(void) {
    struct stat before, after;
    if (stat("/", &before)) return -1;
    mkdir("/tmp/attack-root", 0700);
    int fd = open("/", O_RDONLY | O_DIRECTORY);
    if (chroot("/tmp/attack-root") || fchdir(fd)) return -1;
    for (int i = 0; i < 64; i++) if (chdir("..")) return -1;
    if (chroot(".") || stat("/", &after)) return -1;
    rmdir("/tmp/attack-root");
    errno = EXDEV;
    return before.st_dev == after.st_dev && before.st_ino == after.st_ino ? -1 : 0;
}

static const struct { const char *name; long (*act)(void); } attacks[] = {
    {"mount", mount_tmpfs}, {"umount", umount_nothing}, {"pivot_root", pivot}, {"open_tree", tree},
    {"fsopen", new_filesystem}, {"mount_setattr", set_mount}, {"open_tree_attr", tree_with_attributes},
    {"unshare_user", unshare_user}, {"unshare_mounts", unshare_mounts}, {"unshare_network", unshare_network},
    {"setns", enter_namespace}, {"clone3", clone3_plain}, {"io_uring", io_uring}, {"io_setup", aio},
    {"userfaultfd", fault_descriptor}, {"keyctl", keyring}, {"add_key", new_key}, {"request_key", wanted_key},
    {"bpf", bpf_map}, {"perf_event_open", perf}, {"kexec_load", kexec}, {"init_module", load_module},
    {"finit_module", load_module_file}, {"delete_module", unload_module}, {"open_by_handle_at", by_handle},
    {"syslog", kernel_log}, {"swapon", swap}, {"acct", accounting}, {"quotactl", quota}, {"sethostname", host_name},
    {"pidfd_getfd", steal_descriptor}, {"ptrace", trace_first}, {"process_vm_readv", read_first},
    {"proc_1_mem", memory_of_first}, {"proc_1_root", root_of_first}, {"proc_1_environ", environment_of_first},
    {"proc_1_fd", descriptors_of_first}, {"foreign_uid", foreign_uid}, {"mknod_char", device_node},
    {"mknod_block", block_node}, {"capset", raise_capability}, {"setpriority", more_priority},
    {"realtime", realtime}, {"tiocsti", inject_terminal}, {"btrfs_subvolume", make_subvolume},
    {"sysctl", write_sysctl}, {"overwrite_supervisor", overwrite_supervisor}, {"dev_file", new_device_file},
    {"clock_settime", set_clock}, {"int80", interrupt_80}, {"x32", x32_call}, {"wide_vsock", wide_vsock},
    {"exhaust_inotify", exhaust_inotify}, {"one_inotify", one_inotify},
    {"exhaust_terminals", exhaust_terminals}, {"one_terminal", one_terminal},
    {"exhaust_signals", exhaust_signals}, {"leave_chroot", leave_chroot},
};

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    long result = -1;
    unsigned long number;
    holds = argc > 2;
    errno = EINVAL;
    if (sscanf(name, "clone:%lx", &number) == 1) result = clone_with(number);
    else if (sscanf(name, "socket:%lu", &number) == 1) result = socket((int)number, number == AF_PACKET ? SOCK_RAW : number == AF_ALG ? SOCK_SEQPACKET : number == 15 ? SOCK_RAW : SOCK_STREAM, number == 15 ? 2 : 0);
    else for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++)
        if (!strcmp(name, attacks[i].name)) result = in_child(attacks[i].act);
    /* A child that a filter killed leaves no answer: die of the same. */
    if (result < 0 && errno == EIO) raise(SIGSYS);
    if (result >= 0) puts("allowed");
    else printf("refused %s\n", strerrorname_np(errno));
    return 0;
}

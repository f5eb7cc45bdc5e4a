/* The system calls nobody inside may make. Allowed by default, refused by name: dpkg, compilers and debuggers
 * must work, and what a refused call guards is guarded by namespaces and capabilities too. */
#include "launcher.h"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Newest call number we know of. What comes after does not exist inside until someone has looked at it. */
enum { LAST_KNOWN_CALL = 452, LAST_REFUSED_CALL = 540 };

static const char *const refused[] = {
    /* mounts and namespaces */
    "mount", "umount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount",
    "fspick", "mount_setattr", "unshare", "setns",
    /* large attack surface, or objects shared with the host */
    "io_uring_setup", "io_uring_enter", "io_uring_register", "io_setup", "userfaultfd", "keyctl", "add_key",
    "request_key", "bpf", "perf_event_open", "fanotify_init", "open_by_handle_at", "pidfd_getfd", "lookup_dcookie",
    /* the host's kernel, clock, disks and log */
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module", "syslog",
    "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "nfsservctl", "iopl", "ioperm", "settimeofday",
    "stime", "clock_settime", "clock_settime64", "adjtimex", "clock_adjtime", "clock_adjtime64", "_sysctl", "sysfs",
    "ustat", "uselib", "vhangup", "vm86", "vm86old",
};

static const unsigned long namespace_flags[] = {
    CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET,
};

static int refuse_calls(scmp_filter_ctx ctx) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int number = seccomp_syscall_resolve_name(refused[i]);
        /* A negative number is a call this architecture never had. */
        if (number < 0) continue;
        if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), number, 0)) return -1;
    }
    /* Its flags are in memory, out of a filter's sight: callers fall back to clone. */
    if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0)) return -1;
    for (int number = LAST_KNOWN_CALL + 1; number <= LAST_REFUSED_CALL; number++)
        if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), number, 0)) return -1;
    return 0;
}

static int refuse_clone_flags(scmp_filter_ctx ctx) {
    for (size_t i = 0; i < sizeof namespace_flags / sizeof *namespace_flags; i++) {
        struct scmp_arg_cmp flag = SCMP_A0(SCMP_CMP_MASKED_EQ, namespace_flags[i], namespace_flags[i]);
        if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, flag)) return -1;
    }
    return 0;
}

/* Only AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK: AF_VSOCK, for one, leaves an empty network namespace.
 * Comparisons are 64 bits wide while the kernel reads 32, so everything above the last good one is refused. */
static int refuse_families(scmp_filter_ctx ctx) {
    int calls[] = {SCMP_SYS(socket), SCMP_SYS(socketpair)};
    for (size_t c = 0; c < 2; c++) {
        for (unsigned family = 0; family <= AF_NETLINK; family++) {
            if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK) continue;
            if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), calls[c], 1, SCMP_A0(SCMP_CMP_EQ, family)))
                return -1;
        }
        if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), calls[c], 1, SCMP_A0(SCMP_CMP_GT, AF_NETLINK)))
            return -1;
    }
    return 0;
}

/* Within those families, only protocols that ordinary programs use: opening another makes the host's kernel load
 * a module for it. */
static int refuse_protocols(scmp_filter_ctx ctx) {
    static const unsigned netlink[] = {0 /* route */, 4 /* sock_diag */, 9 /* audit */, 15 /* uevent */, 16 /* generic */};
    static const unsigned internet[] = {33 /* dccp */, 115 /* l2tp */, 132 /* sctp */};
    for (unsigned protocol = 0; protocol < 32; protocol++) {
        bool used = false;
        for (size_t i = 0; i < sizeof netlink / sizeof *netlink; i++) used |= netlink[i] == protocol;
        if (!used && seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPROTONOSUPPORT), SCMP_SYS(socket), 2,
                SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), SCMP_A2(SCMP_CMP_MASKED_EQ, 0xffffffffu, protocol)))
            return -1;
    }
    for (size_t i = 0; i < sizeof internet / sizeof *internet; i++) {
        struct scmp_arg_cmp protocol = SCMP_A2(SCMP_CMP_MASKED_EQ, 0xffffffffu, internet[i]);
        if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPROTONOSUPPORT), SCMP_SYS(socket), 1, protocol)) return -1;
    }
    return 0;
}

/* The core limit stays at 1, which keeps the kernel from starting the host's crash handler, as the host's root, for
 * a process of ours; 0 would not. Programs that set it are told it worked. */
static int hold_core_limit(scmp_filter_ctx ctx) {
    struct scmp_arg_cmp core = SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffffu, RLIMIT_CORE);
    struct scmp_arg_cmp core_of = SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, RLIMIT_CORE);
    return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(0), SCMP_SYS(setrlimit), 1, core)
        || seccomp_rule_add(ctx, SCMP_ACT_ERRNO(0), SCMP_SYS(prlimit64), 2, core_of, SCMP_A2(SCMP_CMP_NE, 0));
}

static int refuse_terminal_injection(scmp_filter_ctx ctx) {
    unsigned long commands[] = {TIOCSTI, TIOCLINUX};
    for (size_t i = 0; i < 2; i++) {
        struct scmp_arg_cmp command = SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, commands[i]);
        if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1, command)) return -1;
    }
    return 0;
}

/* The program, kept in memory for every sandbox to come. */
bool filter_make(struct sock_fprog *program) {
    static struct sock_filter code[BPF_MAXINSNS];
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    int fd = memfd_create("seccomp", MFD_CLOEXEC);
    if (!ctx || fd < 0) return false;
    int failed = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS)
        || seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2)
        || refuse_calls(ctx) || refuse_clone_flags(ctx) || refuse_families(ctx) || refuse_protocols(ctx)
        || hold_core_limit(ctx) || refuse_terminal_injection(ctx)
        || seccomp_export_bpf(ctx, fd);
    seccomp_release(ctx);
    ssize_t size = failed ? -1 : pread(fd, code, sizeof code, 0);
    close(fd);
    if (size <= 0 || (size_t)size == sizeof code || (size_t)size % sizeof *code) return false;
    program->len = (unsigned short)((size_t)size / sizeof *code);
    program->filter = code;
    return true;
}

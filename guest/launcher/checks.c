/* Calls that depend on their arguments. The kernel reads these arguments as 32 bits wide, and so do we: bits above
 * can hide nothing. */
#define _GNU_SOURCE

#include "calls.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define REFUSE(number) (SECCOMP_RET_ERRNO | (number))
/* The supervisor says whether (its ask.c). */
#define ASK SECCOMP_RET_USER_NOTIF
#define COUNT(list) (sizeof(list) / sizeof *(list))

static void answer_if_one_of(const uint32_t *values, size_t count, uint32_t verdict) {
    for (size_t i = 0; i < count; i++) answer_if(values[i], verdict);
}

static void check_clone(void) {
    load_argument(0);
    answer_if_any_bit(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID
                      | CLONE_NEWNET, REFUSE(EPERM));
    answer(SECCOMP_RET_ALLOW);
}

/* Namespaces of users, mounts, names, messages and processes. A network namespace of its own would open the kernel's
 * packet filters and tunnels to whoever is root in it. */
static void check_nested_clone(void) {
    load_argument(0);
    answer_if_any_bit(CLONE_NEWCGROUP | CLONE_NEWNET, REFUSE(EPERM));
    answer(SECCOMP_RET_ALLOW);
}

/* Only what is there already, at another place or with other flags: no file system's parser is reached. The kernel drops
 * the upper half of the flags where it is the mark of old programs, whose bits would look like propagation here. */
static void check_nested_mount(void) {
    load_argument(3);
    keep_bits(MS_MGC_MSK);
    size_t marked = begin_if(MS_MGC_VAL);
    load_argument(3);
    answer_if_any_bit(MS_BIND | MS_REMOUNT, SECCOMP_RET_ALLOW);
    answer(REFUSE(EPERM));
    end_if(marked);
    load_argument(3);
    answer_if_any_bit(MS_BIND | MS_REMOUNT | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE, SECCOMP_RET_ALLOW);
    answer(REFUSE(EPERM));
}

/* AF_VSOCK, for one, leaves an empty network namespace. Within the families, only protocols that ordinary programs
 * use: opening another makes the host's kernel load a module for it, and so does asking generic netlink for a name.
 * Types too: protocol 0 of another type is SCTP or DCCP. */
static void check_socket(void) {
    static const uint32_t netlink[] = {0 /* route */, 4 /* sock_diag */, 9 /* audit */, 15 /* uevent */};
    static const uint32_t internet[] = {
        0, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6, IPPROTO_RAW,
    };
    load_argument(0);
    answer_if(AF_UNIX, SECCOMP_RET_ALLOW);
    size_t begun = begin_if(AF_NETLINK);
    load_argument(2);
    answer_if_one_of(netlink, COUNT(netlink), ASK);
    answer(REFUSE(EPROTONOSUPPORT));
    end_if(begun);
    const uint32_t families[] = {AF_INET, AF_INET6};
    for (size_t i = 0; i < COUNT(families); i++) {
        begun = begin_if(families[i]);
        load_argument(1);
        keep_bits(0xf); /* the rest are flags */
        answer_if_above(SOCK_RAW, REFUSE(ESOCKTNOSUPPORT));
        size_t datagram = begin_if(SOCK_DGRAM);
        load_argument(2);
        answer_if_one_of(internet, COUNT(internet), ASK);
        answer(REFUSE(EPROTONOSUPPORT));
        end_if(datagram);
        load_argument(2);
        answer_if_one_of(internet, COUNT(internet), SECCOMP_RET_ALLOW);
        answer(REFUSE(EPROTONOSUPPORT));
        end_if(begun);
    }
    answer(REFUSE(EAFNOSUPPORT));
}

static void check_socketpair(void) {
    load_argument(0);
    answer_if(AF_UNIX, SECCOMP_RET_ALLOW);
    answer(REFUSE(EAFNOSUPPORT));
}

static void check_options(uint32_t level, const uint32_t *options, size_t count, uint32_t verdict) {
    size_t begun = begin_if(level);
    load_argument(2);
    answer_if_one_of(options, count, verdict);
    load_argument(1);
    end_if(begun);
}

/* Not what a socket can be made to hold in the kernel beyond its buffers (that memory is not charged to anybody:
 * filters, keys, groups, headers), and no protocol under another name. Filters also come out of one budget of the
 * whole host, from which every sandbox's own system call filter is taken. */
static void check_setsockopt(void) {
    static const uint32_t filters[] = {
        26 /* ATTACH_FILTER */, 50 /* ATTACH_BPF */, 51 /* ATTACH_REUSEPORT_CBPF */, 52 /* ATTACH_REUSEPORT_EBPF */,
    };
    static const uint32_t tcp[] = {14 /* MD5SIG */, 31 /* ULP */, 32 /* MD5SIG_EXT */, 38 /* AO_ADD_KEY */};
    static const uint32_t udp[] = {100 /* ENCAP */};
    static const uint32_t groups[] = {
        35 /* ADD_MEMBERSHIP */, 39 /* ADD_SOURCE_MEMBERSHIP */, 41 /* MSFILTER */, 42 /* JOIN_GROUP */,
        46 /* JOIN_SOURCE_GROUP */, 48 /* MCAST_MSFILTER */,
    };
    static const uint32_t groups6[] = {20 /* JOIN_GROUP */, 27 /* JOIN_ANYCAST */, 42, 46, 48};
    static const uint32_t headers6[] = {
        3, 4, 5, 6 /* those of RFC 2292 */, 32 /* FLOWLABEL_MGR */, 54 /* HOPOPTS */, 55 /* RTHDRDSTOPTS */,
        57 /* RTHDR */, 59 /* DSTOPTS */,
    };
    static const uint32_t levels[] = {
        SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_IPV6, IPPROTO_ICMPV6, IPPROTO_RAW,
        270 /* NETLINK */,
    };
    load_argument(1);
    check_options(SOL_SOCKET, filters, COUNT(filters), REFUSE(EPERM));
    check_options(IPPROTO_TCP, tcp, COUNT(tcp), REFUSE(ENOPROTOOPT));
    check_options(IPPROTO_UDP, udp, COUNT(udp), REFUSE(ENOPROTOOPT));
    /* What the kernel says where no way leads to a group, as none does from here. */
    check_options(IPPROTO_IP, groups, COUNT(groups), REFUSE(ENODEV));
    check_options(IPPROTO_IPV6, groups6, COUNT(groups6), REFUSE(ENODEV));
    check_options(IPPROTO_IPV6, headers6, COUNT(headers6), REFUSE(ENOPROTOOPT));
    answer_if_one_of(levels, COUNT(levels), SECCOMP_RET_ALLOW);
    answer(REFUSE(ENOPROTOOPT));
}

/* Typing into a terminal, and line disciplines, which are modules of the host. */
static void check_ioctl(void) {
    static const uint32_t commands[] = {TIOCSTI, TIOCLINUX, TIOCSETD};
    load_argument(1);
    answer_if_one_of(commands, COUNT(commands), REFUSE(EPERM));
    answer(SECCOMP_RET_ALLOW);
}

/* Leases and dnotify: kernel memory that hangs on files, wanted by file servers. */
static void check_fcntl(void) {
    static const uint32_t commands[] = {1024 /* F_SETLEASE */, 1026 /* F_NOTIFY */};
    load_argument(1);
    answer_if_one_of(commands, COUNT(commands), REFUSE(EINVAL));
    answer(SECCOMP_RET_ALLOW);
}

static void check_prctl(void) {
    static const uint32_t options[] = {PR_SET_MM, 62 /* PR_SCHED_CORE */, 67 /* PR_SET_MEMORY_MERGE */};
    load_argument(0);
    answer_if_one_of(options, COUNT(options), REFUSE(EINVAL));
    answer(SECCOMP_RET_ALLOW);
}

/* Debuggers and lisps switch address randomisation off; 8 and 0x20000 are what `setarch` asks for. */
static void check_personality(void) {
    static const uint32_t known[] = {0, 0x8, 0x20000, 0x20008, 0x40000, 0x40008, 0xffffffff};
    load_argument(0);
    answer_if_one_of(known, COUNT(known), SECCOMP_RET_ALLOW);
    answer(REFUSE(EPERM));
}

/* The kernel keeps the access list of a file in memory and charges it to nobody: 64 KB for each file of a tmpfs, of
 * which a sandbox has as many as it likes. So much is a list of 127 users; other attributes are as small. */
static void check_setxattr(void) {
    load_argument(3);
    answer_if_above(1024, REFUSE(E2BIG));
    answer(SECCOMP_RET_ALLOW);
}

/* Pages that are merged with equal ones of other tenants tell what those hold. */
static void check_madvise(void) {
    load_argument(2);
    answer_if(12 /* MADV_MERGEABLE */, REFUSE(EINVAL));
    answer(SECCOMP_RET_ALLOW);
}

/* The core limit stays at 1, which keeps the kernel from starting the host's crash handler, as the host's root, for
 * a process of ours; 0 would not. Programs that set it are told it worked. */
static void check_setrlimit(void) {
    load_argument(0);
    answer_if(RLIMIT_CORE, REFUSE(0));
    answer(SECCOMP_RET_ALLOW);
}

static void check_prlimit(void) {
    load_argument(1);
    size_t begun = begin_if(RLIMIT_CORE);
    load_argument(2);
    size_t low = begin_if(0);
    load_argument_high(2);
    answer_if(0, SECCOMP_RET_ALLOW);
    end_if(low);
    answer(REFUSE(0));
    end_if(begun);
    answer(SECCOMP_RET_ALLOW);
}

void emit_check(enum check check) {
    static void (*const checks[])(void) = {
        [CHECK_CLONE] = check_clone, [CHECK_SOCKET] = check_socket, [CHECK_SOCKETPAIR] = check_socketpair,
        [CHECK_SETSOCKOPT] = check_setsockopt, [CHECK_IOCTL] = check_ioctl, [CHECK_FCNTL] = check_fcntl,
        [CHECK_PRCTL] = check_prctl, [CHECK_PERSONALITY] = check_personality, [CHECK_MADVISE] = check_madvise,
        [CHECK_SETRLIMIT] = check_setrlimit, [CHECK_PRLIMIT] = check_prlimit, [CHECK_SETXATTR] = check_setxattr,
        [CHECK_NESTED_CLONE] = check_nested_clone, [CHECK_NESTED_MOUNT] = check_nested_mount,
    };
    checks[check]();
}

/* Landlock around workers: each may do what its request needs, and no more, should a bug hand it to somebody else.
 *
 * It is a second lock. Whoever takes a worker over is root inside already; but a worker runs outside what is frozen, and
 * none of them ever has a reason to run a program, to dial, or to signal. Where the kernel has no Landlock nothing
 * changes. The numbers are the kernel's own: headers of a build host may be older than the kernel it runs on. */
#include "fence.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    FS_EXECUTE = 1 << 0, FS_WRITE_FILE = 1 << 1, FS_READ_FILE = 1 << 2, FS_READ_DIR = 1 << 3, FS_REMOVE_DIR = 1 << 4,
    FS_REMOVE_FILE = 1 << 5, FS_MAKE_CHAR = 1 << 6, FS_MAKE_DIR = 1 << 7, FS_MAKE_REG = 1 << 8, FS_MAKE_SOCK = 1 << 9,
    FS_MAKE_FIFO = 1 << 10, FS_MAKE_BLOCK = 1 << 11, FS_MAKE_SYM = 1 << 12, FS_REFER = 1 << 13, FS_TRUNCATE = 1 << 14,
    FS_IOCTL_DEV = 1 << 15,
};
enum { NET_BIND_TCP = 1, NET_CONNECT_TCP = 2, SCOPE_ABSTRACT_SOCKETS = 1, SCOPE_SIGNALS = 2 };
enum { CREATE_VERSION = 1, RULE_PATH_BENEATH = 1, RESTRICT_LOG_OFF = 1 };
/* Which version of the kernel's interface brought what. */
enum { ABI_REFER = 2, ABI_TRUNCATE = 3, ABI_NET = 4, ABI_IOCTL = 5, ABI_SCOPE = 6, ABI_LOG = 7 };

struct ruleset {
    uint64_t fs, net, scoped;
};
struct __attribute__((packed)) beneath {
    uint64_t allowed;
    int32_t fd;
};

static const uint64_t reading = FS_READ_FILE | FS_READ_DIR;
static const uint64_t writing = FS_READ_FILE | FS_READ_DIR | FS_WRITE_FILE | FS_TRUNCATE | FS_REMOVE_DIR | FS_REMOVE_FILE |
                                FS_MAKE_DIR | FS_MAKE_REG | FS_MAKE_SYM | FS_MAKE_FIFO | FS_MAKE_SOCK | FS_REFER;

static uint64_t known_fs(long abi)
{
    return abi >= ABI_IOCTL ? (FS_IOCTL_DEV << 1) - 1 : abi >= ABI_TRUNCATE ? FS_IOCTL_DEV - 1 :
           abi >= ABI_REFER ? FS_TRUNCATE - 1 : FS_REFER - 1;
}

static int allow_below_root(int rules, uint64_t allowed)
{
    struct beneath rule = {.allowed = allowed, .fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (rule.fd < 0)
        return -1;
    int failed = syscall(SYS_landlock_add_rule, rules, RULE_PATH_BENEATH, &rule, 0);
    close(rule.fd);
    return failed;
}

bool fence(enum fence_kind kind)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_VERSION);
    /* The first version forbids every move between folders. */
    if (abi < ABI_REFER)
        return false;
    struct ruleset all = {.fs = known_fs(abi), .net = NET_BIND_TCP | NET_CONNECT_TCP,
                          .scoped = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS};
    size_t size = abi >= ABI_SCOPE ? sizeof all : abi >= ABI_NET ? 2 * sizeof all.fs : sizeof all.fs;
    int rules = syscall(SYS_landlock_create_ruleset, &all, size, 0);
    if (rules < 0)
        return false;
    uint64_t allowed = (kind == FENCE_READ ? reading : kind == FENCE_WRITE ? writing : 0) & all.fs;
    bool done = (!allowed || !allow_below_root(rules, allowed)) &&
                !syscall(SYS_landlock_restrict_self, rules, abi >= ABI_LOG ? RESTRICT_LOG_OFF : 0);
    close(rules);
    return done;
}

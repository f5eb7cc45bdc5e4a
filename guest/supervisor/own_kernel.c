/* Behind a kernel of another's (gVisor) PID 1 is the first who can: it takes what it needs from a kernel that is the
 * sandbox's alone, and gives up the capabilities for it before anybody else runs.
 *
 * - /sys goes, which that kernel mounts unasked: there is none elsewhere either.
 * - /run/sandboxer becomes read-only for everybody, while we hold it by a mount that is at no path.
 * - Two trees of groups (groups.c) are held the same way: one counts processes, the other knows whose they are.
 * - With a way out, every connection to an address far away is led to the proxy's port, and every question about a name to
 *   ours, by rules of that kernel's packet filter: what sk_lookup is in the launcher's walls. All addresses are `lo`'s
 *   there (the stager), nothing is routed anywhere, and what the filter keeps of connections is the sandbox's own memory. */
#include "own_kernel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_tcpudp.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FOLDER "/run/sandboxer"
#define DETOUR "/dev/shm"
/* Of the range for tests of networks, which is nobody's: as in the launcher's network.c. */
#define OWN_ADDRESS 0xc6120001u
enum { DNS = 53, WAITING = 128 };

/* Mounted for as long as it takes to open it: from then on it is at no path. */
static int hold_groups(const char *options)
{
    if (mount("none", FOLDER, "cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, options))
        return -1;
    int fd = open(FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (umount2(FOLDER, MNT_DETACH) && fd >= 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* What is seen is another mount of the same folder, by a detour: below it there is none that can be written to, which who
 * makes mounts in namespaces of their own could uncover. */
static int close_folder(void)
{
    const unsigned long seen = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    int fd = open(FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || mount(FOLDER, DETOUR, NULL, MS_BIND, NULL) || umount2(FOLDER, MNT_DETACH) ||
        mount(DETOUR, FOLDER, NULL, MS_BIND, NULL) || umount2(DETOUR, MNT_DETACH) ||
        mount(NULL, FOLDER, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | seen, NULL))
        return -1;
    return fd;
}

/* ---- where connections are led ---- */

struct to_verdict {
    struct ipt_entry entry;
    struct xt_standard_target target;
};

struct to_port {
    struct ipt_entry entry;
    struct xt_entry_match match;
    union { struct xt_tcp tcp; struct xt_udp udp; char room[XT_ALIGN(sizeof(struct xt_tcp))]; } ports;
    struct xt_entry_target target;
    struct nf_nat_ipv4_multi_range_compat range;
    char aligned[4];
};

static struct to_verdict let_alone(uint32_t address, uint32_t mask)
{
    return (struct to_verdict){
        .entry = {.ip = {.dst.s_addr = htonl(address), .dmsk.s_addr = htonl(mask)},
                  .target_offset = offsetof(struct to_verdict, target), .next_offset = sizeof(struct to_verdict)},
        .target = {.target.u.target_size = sizeof(struct xt_standard_target), .verdict = -NF_ACCEPT - 1},
    };
}

static struct to_port lead(uint16_t protocol, uint16_t first, uint16_t last, uint16_t port)
{
    struct to_port rule = {
        .entry = {.ip.proto = protocol, .target_offset = offsetof(struct to_port, target),
                  .next_offset = sizeof(struct to_port)},
        .match.u.match_size = offsetof(struct to_port, target) - offsetof(struct to_port, match),
        .target.u.target_size = sizeof(struct to_port) - offsetof(struct to_port, target),
        .range = {.rangesize = 1, .range = {{.flags = NF_NAT_RANGE_PROTO_SPECIFIED, .min.all = htons(port),
                                            .max.all = htons(port)}}},
    };
    strcpy(rule.match.u.user.name, protocol == IPPROTO_TCP ? "tcp" : "udp");
    strcpy(rule.target.u.user.name, "REDIRECT");
    if (protocol == IPPROTO_TCP)
        rule.ports.tcp = (struct xt_tcp){.spts = {0, 65535}, .dpts = {first, last}};
    else
        rule.ports.udp = (struct xt_udp){.spts = {0, 65535}, .dpts = {first, last}};
    return rule;
}

static bool lead_connections(uint16_t way_out)
{
    static struct {
        struct ipt_replace head;
        struct to_verdict elsewhere;    /* every hook but the one for what programs here send */
        struct to_verdict loopback;
        struct to_port names, names_stream;
        struct to_verdict own;
        struct to_port far;
        struct to_verdict rest;
    } rules;
    const unsigned at = offsetof(typeof(rules), elsewhere), loopback = offsetof(typeof(rules), loopback) - at,
                   rest = offsetof(typeof(rules), rest) - at;
    strcpy(rules.head.name, "nat");
    rules.head.valid_hooks = 1 << NF_INET_PRE_ROUTING | 1 << NF_INET_LOCAL_IN | 1 << NF_INET_LOCAL_OUT |
                             1 << NF_INET_POST_ROUTING;
    rules.head.num_entries = 7;
    rules.head.size = sizeof rules - at;
    rules.head.hook_entry[NF_INET_LOCAL_OUT] = loopback;
    rules.head.underflow[NF_INET_LOCAL_OUT] = rest;
    rules.elsewhere = rules.rest = let_alone(0, 0);
    rules.loopback = let_alone(INADDR_LOOPBACK & 0xff000000, 0xff000000);
    rules.names = lead(IPPROTO_UDP, DNS, DNS, NAMES_PORT);
    rules.names_stream = lead(IPPROTO_TCP, DNS, DNS, NAMES_PORT);
    rules.own = let_alone(OWN_ADDRESS, ~0u);
    rules.far = lead(IPPROTO_TCP, 0, 65535, way_out);
    int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    bool done = fd >= 0 && !setsockopt(fd, IPPROTO_IP, IPT_SO_SET_REPLACE, &rules, sizeof rules);
    if (fd >= 0)
        close(fd);
    return done;
}

static int bound(int type, uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof at) && (type != SOCK_STREAM || !listen(fd, WAITING)))
        return fd;
    return -1;
}

bool own_kernel_open(uint16_t way_out, int *proxy, int *datagrams, int *streams)
{
    *proxy = bound(SOCK_STREAM, way_out);
    *datagrams = bound(SOCK_DGRAM, NAMES_PORT);
    *streams = bound(SOCK_STREAM, NAMES_PORT);
    return *proxy >= 0 && *datagrams >= 0 && *streams >= 0;
}

bool own_kernel_meant(int call, struct sockaddr_in *to)
{
    socklen_t size = sizeof *to;
    return !getsockopt(call, IPPROTO_IP, SO_ORIGINAL_DST, to, &size) && to->sin_family == AF_INET;
}

/* ---- once ---- */

static bool give_up(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    if (syscall(SYS_capget, &head, data))
        return false;
    const int given[] = {CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        data[given[i] / 32].permitted &= ~(1u << given[i] % 32);
    for (int i = 0; i < 2; i++)
        data[i].effective = data[i].permitted;
    return !syscall(SYS_capset, &head, data);
}

int own_kernel_settle(uint16_t way_out, uint32_t processes)
{
    /* Nothing uses that kernel's jobs: a tree without any counter is left by whoever forks. */
    int limits = hold_groups("pids"), commands = hold_groups("job");
    umount2("/sys", MNT_DETACH);
    if (limits < 0 || commands < 0 || !groups_open(limits, commands, processes))
        return -1;
    int folder = close_folder();
    if (folder < 0 || (way_out && !lead_connections(way_out)) || !give_up())
        return -1;
    return folder;
}

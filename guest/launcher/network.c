/* The network of a sandbox: `lo`, and nothing else. One that has a way out gets three things more, so that programs
 * which know no proxy find it: an address, a route that takes every address for a local one, and a program of the kernel
 * (sk_lookup) that hands what is sent to them to sockets of ours, which the supervisor holds. Nothing is routed anywhere:
 * whoever connects to an address far away talks to the supervisor, which asks the proxy on the host for it.
 *
 * The child makes the sockets, inside; the worker, the host's root, attaches the program, which nobody inside may. */
#include "launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MUST(call) do { if ((call) < 0) complain(kept->sync, "network"); } while (0)

/* Of the range for tests of networks (RFC 2544), which is nobody's. The supervisor gives names addresses of the rest. */
#define OWN_ADDRESS 0xc6120001u /* 198.18.0.1 */
enum { LOOPBACK = 1, NAMES_PORT = 53, WAITING = 128 };

/* ---- inside: the child has every capability over its new namespace ---- */

struct request {
    struct nlmsghdr head;
    union { struct rtmsg route; struct ifaddrmsg address; };
    char attributes[32];
};

static void add_attribute(struct request *request, unsigned short kind, uint32_t value) {
    struct rtattr *at = (struct rtattr *)((char *)request + NLMSG_ALIGN(request->head.nlmsg_len));
    at->rta_type = kind;
    at->rta_len = RTA_LENGTH(sizeof value);
    memcpy(RTA_DATA(at), &value, sizeof value);
    request->head.nlmsg_len = NLMSG_ALIGN(request->head.nlmsg_len) + RTA_LENGTH(sizeof value);
}

/* 0, or -1 with the kernel's own errno. */
static int ask_kernel(int netlink, const struct request *request) {
    struct { struct nlmsghdr head; struct nlmsgerr error; char rest[256]; } answer;
    if (send(netlink, request, request->head.nlmsg_len, 0) < 0) return -1;
    if (recv(netlink, &answer, sizeof answer, 0) < (ssize_t)(sizeof answer.head + sizeof answer.error)) return -1;
    errno = -answer.error.error;
    return errno ? -1 : 0;
}

static void raise_loopback(const struct kept *kept) {
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    MUST(fd);
    MUST(ioctl(fd, SIOCGIFFLAGS, &request));
    request.ifr_flags |= IFF_UP | IFF_RUNNING;
    MUST(ioctl(fd, SIOCSIFFLAGS, &request));
    close(fd);
}

/* Connections come from the address: with that of their target for their own, one could connect to itself. */
static void make_all_local(const struct kept *kept) {
    const unsigned short flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
    struct request address = {
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof address.address), .nlmsg_type = RTM_NEWADDR, .nlmsg_flags = flags},
        .address = {.ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = LOOPBACK},
    };
    struct request route = {
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof route.route), .nlmsg_type = RTM_NEWROUTE, .nlmsg_flags = flags},
        .route = {.rtm_family = AF_INET, .rtm_table = RT_TABLE_LOCAL, .rtm_protocol = RTPROT_STATIC,
                  .rtm_scope = RT_SCOPE_HOST, .rtm_type = RTN_LOCAL},
    };
    int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    MUST(netlink);
    add_attribute(&address, IFA_LOCAL, htonl(OWN_ADDRESS));
    add_attribute(&route, RTA_OIF, LOOPBACK);
    add_attribute(&route, RTA_PREFSRC, htonl(OWN_ADDRESS));
    MUST(ask_kernel(netlink, &address));
    MUST(ask_kernel(netlink, &route));
    close(netlink);
}

static int bound(const struct kept *kept, int type, uint32_t address, uint16_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    MUST(fd);
    MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    MUST(bind(fd, (struct sockaddr *)&at, sizeof at));
    if (type == SOCK_STREAM) MUST(listen(fd, WAITING));
    return fd;
}

/* In the order of the program's map: see steer(). */
void network_make(const struct order *order, struct kept *kept) {
    raise_loopback(kept);
    if (!order->way_out) return;
    make_all_local(kept);
    kept->steered[TO_PROXY] = bound(kept, SOCK_STREAM, INADDR_LOOPBACK, (uint16_t)order->way_out);
    kept->steered[TO_NAMES] = bound(kept, SOCK_DGRAM, OWN_ADDRESS, NAMES_PORT);
    kept->steered[TO_NAMES_STREAM] = bound(kept, SOCK_STREAM, OWN_ADDRESS, NAMES_PORT);
}

/* ---- outside: the host's root ---- */

static int bpf(enum bpf_cmd command, union bpf_attr *attributes) {
    return (int)syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

#define OP(c, d, s, o, i) (struct bpf_insn){.code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (int)(i)}
#define LOAD(reg, field) OP(BPF_LDX | BPF_MEM | BPF_W, reg, BPF_REG_6, offsetof(struct bpf_sk_lookup, field), 0)
#define MOVE(to, from) OP(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0)
#define SET(reg, value) OP(BPF_ALU64 | BPF_MOV | BPF_K, reg, 0, 0, value)
/* Jumps say where they are and where they lead, counted from the first instruction. */
#define UNLESS(here, reg, value, to) OP(BPF_JMP32 | BPF_JNE | BPF_K, reg, 0, (to) - (here) - 1, value)
#define IF(here, reg, value, to) OP(BPF_JMP32 | BPF_JEQ | BPF_K, reg, 0, (to) - (here) - 1, value)
#define CALL(function) OP(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_##function)

/* Asked for whoever is to get a new connection or a datagram: names are answered by ours wherever they are asked, and
 * every other connection goes to the proxy. What is meant for loopback or the sandbox's own address is let alone, and
 * so is IPv6, which has no route: programs fall back at once. */
static int load_program(int map) {
    enum { OTHER_PORT = 14, LEAD = 17, LET_ALONE = 31 };
    struct bpf_insn program[] = {
        MOVE(BPF_REG_6, BPF_REG_1),
        LOAD(BPF_REG_2, family),
        UNLESS(2, BPF_REG_2, AF_INET, LET_ALONE),
        LOAD(BPF_REG_2, local_ip4),
        OP(BPF_ALU | BPF_MOV | BPF_X, BPF_REG_3, BPF_REG_2, 0, 0),
        OP(BPF_ALU | BPF_AND | BPF_K, BPF_REG_3, 0, 0, htonl(0xff000000)),
        IF(6, BPF_REG_3, htonl(0x7f000000), LET_ALONE),
        LOAD(BPF_REG_4, protocol),
        LOAD(BPF_REG_5, local_port),
        UNLESS(9, BPF_REG_5, NAMES_PORT, OTHER_PORT),
        SET(BPF_REG_7, TO_NAMES),
        IF(11, BPF_REG_4, IPPROTO_UDP, LEAD),
        SET(BPF_REG_7, TO_NAMES_STREAM),
        IF(13, BPF_REG_4, IPPROTO_TCP, LEAD),
        SET(BPF_REG_7, TO_PROXY),
        UNLESS(15, BPF_REG_4, IPPROTO_TCP, LET_ALONE),
        IF(16, BPF_REG_2, htonl(OWN_ADDRESS), LET_ALONE),
        OP(BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, BPF_REG_7, -4, 0),
        MOVE(BPF_REG_2, BPF_REG_10),
        OP(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4),
        OP(BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map),
        OP(0, 0, 0, 0, 0),
        CALL(map_lookup_elem),
        OP(BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, LET_ALONE - 23 - 1, 0),
        MOVE(BPF_REG_7, BPF_REG_0),
        MOVE(BPF_REG_1, BPF_REG_6),
        MOVE(BPF_REG_2, BPF_REG_0),
        SET(BPF_REG_3, 0),
        CALL(sk_assign),
        MOVE(BPF_REG_1, BPF_REG_7),
        CALL(sk_release),
        SET(BPF_REG_0, SK_PASS),
        OP(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    };
    union bpf_attr attributes = {
        .prog_type = BPF_PROG_TYPE_SK_LOOKUP, .expected_attach_type = BPF_SK_LOOKUP, .insns = (uintptr_t)program,
        .insn_cnt = sizeof program / sizeof *program, .license = (uintptr_t)"GPL",
    };
    return bpf(BPF_PROG_LOAD, &attributes);
}

bool steering_load(struct steering *steering) {
    union bpf_attr attributes = {
        .map_type = BPF_MAP_TYPE_SOCKMAP, .key_size = sizeof(uint32_t), .value_size = sizeof(uint64_t),
        .max_entries = STEERED,
    };
    steering->map = bpf(BPF_MAP_CREATE, &attributes);
    if (steering->map < 0) return false;
    steering->program = load_program(steering->map);
    return steering->program >= 0;
}

/* A descriptor that keeps it attached for as long as somebody has it. */
int steering_attach(const struct steering *steering, const int *sockets, int network) {
    for (uint32_t key = 0; sockets && key < STEERED; key++) {
        uint64_t value = (uint64_t)sockets[key];
        union bpf_attr update = {
            .map_fd = (uint32_t)steering->map, .key = (uintptr_t)&key, .value = (uintptr_t)&value,
        };
        if (bpf(BPF_MAP_UPDATE_ELEM, &update)) return -1;
    }
    union bpf_attr attributes = {
        .link_create = {.prog_fd = (uint32_t)steering->program, .target_fd = (uint32_t)network,
                        .attach_type = BPF_SK_LOOKUP},
    };
    return bpf(BPF_LINK_CREATE, &attributes);
}

/* Whether this kernel can. What it attaches to our own, empty namespace stays: the first one on a host changes code of
 * the kernel, which takes as long as all the rest of a start. */
bool steering_try(void) {
    struct steering steering;
    int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    bool can = own >= 0 && steering_load(&steering) && steering_attach(&steering, NULL, own) >= 0;
    int err = errno;
    if (own >= 0) close(own);
    errno = err;
    return can;
}

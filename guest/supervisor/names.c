/* Names for programs that know no proxy: whoever asks where a host is gets an address of a range that is nobody's
 * (198.18.0.0/15), and who connects there is led to that host by its name. Nothing is asked outside: whether there is such a
 * host, and whether it may be reached, is the proxy's answer to the connection.
 *
 * The answers are given by a process of their own, without rights, which the first question brings forth and the next
 * one after its end again. What it remembers is in memory that it shares with the workers. */
#include "names.h"

#include <errno.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "fence.h"
#include "loop.h"

enum { MAX_NAMES = 4096, NOBODY = 65534, STREAM_PATIENCE_S = 2, STREAM_QUESTIONS = 16 };
/* The first addresses are the sandbox's own (network.c of the launcher). An address is given again only after all. */
enum { RANGE = 0xc6120000, FIRST = 256, ADDRESSES = (1 << 17) - FIRST };

struct known {
    uint32_t address;                   /* 0: free, or being written */
    uint32_t hash, used;
    char name[MAX_HOST + 1];
};

static struct {
    uint32_t given, clock;
    struct known at[MAX_NAMES];
} *table;
static struct source asked[2];          /* datagrams, streams */
static pid_t resolver;

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

static uint32_t next_address(void)
{
    for (;;) {
        uint32_t address = RANGE + FIRST + table->given++ % ADDRESSES;
        int i = 0;
        while (i < MAX_NAMES && table->at[i].address != address)
            i++;
        if (i == MAX_NAMES)
            return address;
    }
}

/* The one that was asked for or connected to longest ago makes room. */
uint32_t names_address(const char *name)
{
    uint32_t hash = hash_of(name);
    struct known *oldest = &table->at[0];
    uint32_t now = __atomic_add_fetch(&table->clock, 1, __ATOMIC_RELAXED);
    for (struct known *k = table->at; k < table->at + MAX_NAMES; k++) {
        if (k->address && k->hash == hash && !strcmp(k->name, name)) {
            k->used = now;
            return k->address;
        }
        if (!k->address ? oldest->address : oldest->address && now - k->used > now - oldest->used)
            oldest = k;
    }
    uint32_t address = next_address();
    __atomic_store_n(&oldest->address, 0, __ATOMIC_SEQ_CST);
    oldest->hash = hash;
    oldest->used = now;
    strcpy(oldest->name, name);
    __atomic_store_n(&oldest->address, address, __ATOMIC_SEQ_CST);
    return address;
}

bool names_find(uint32_t address, char name[MAX_HOST + 1])
{
    if (!table || !address)
        return false;
    for (struct known *k = table->at; k < table->at + MAX_NAMES; k++) {
        if (__atomic_load_n(&k->address, __ATOMIC_SEQ_CST) != address)
            continue;
        memcpy(name, k->name, MAX_HOST + 1);
        name[MAX_HOST] = 0;
        k->used = __atomic_add_fetch(&table->clock, 1, __ATOMIC_RELAXED);
        /* Unless it was given to another meanwhile. */
        return __atomic_load_n(&k->address, __ATOMIC_SEQ_CST) == address;
    }
    return false;
}

/* ---- the process that answers ---- */

/* From the very address that was asked: whoever asks another server than ours gets its answer from there. */
static void answer_datagram(int fd)
{
    uint8_t question[DNS_ROOM], answer[DNS_ROOM];
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(struct in_pktinfo))]; } control;
    struct sockaddr_in from;
    struct iovec part = {question, sizeof question};
    struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1,
                       .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
    struct cmsghdr *head = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
    if (!head || head->cmsg_type != IP_PKTINFO)
        return;
    struct in_pktinfo *to = (struct in_pktinfo *)CMSG_DATA(head);
    to->ipi_spec_dst = to->ipi_addr;
    to->ipi_ifindex = 0;
    part = (struct iovec){answer, dns_answer(question, (size_t)n, answer)};
    if (part.iov_len)
        sendmsg(fd, &m, MSG_DONTWAIT);
}

static void answer_stream(int listener)
{
    struct timeval patience = {.tv_sec = STREAM_PATIENCE_S};
    uint8_t question[DNS_ROOM], answer[2 + DNS_ROOM], size[2];
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    for (int i = 0; i < STREAM_QUESTIONS && recv(fd, size, 2, MSG_WAITALL) == 2; i++) {
        size_t len = (size_t)size[0] << 8 | size[1];
        if (len > sizeof question || recv(fd, question, len, MSG_WAITALL) != (ssize_t)len)
            break;
        len = dns_answer(question, len, answer + 2);
        answer[0] = len >> 8;
        answer[1] = len;
        if (!len || send(fd, answer, len + 2, MSG_NOSIGNAL) != (ssize_t)len + 2)
            break;
    }
    close(fd);
}

static _Noreturn void answer_for_ever(void)
{
    struct pollfd on[2] = {{.fd = asked[0].fd, .events = POLLIN}, {.fd = asked[1].fd, .events = POLLIN}};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_NAME, "supervisor-dns");
    /* It is among what root inside can break. What it had would be worth nothing to them. */
    if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
        _exit(1);
    fence(FENCE_CARRY);
    while (poll(on, 2, -1) >= 0 || errno == EINTR) {
        if (on[0].revents)
            answer_datagram(on[0].fd);
        if (on[1].revents)
            answer_stream(on[1].fd);
    }
    _exit(1);
}

/* ---- the supervisor ---- */

void names_open(int datagrams, int streams)
{
    int on = 1;
    table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED) {
        table = NULL;
        return;
    }
    setsockopt(datagrams, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    asked[0] = (struct source){.kind = SRC_NAMES, .fd = datagrams};
    asked[1] = (struct source){.kind = SRC_NAMES, .fd = streams};
    names_watch();
}

void names_watch(void)
{
    loop_watch(&asked[0], EPOLLIN);
    loop_watch(&asked[1], EPOLLIN);
}

/* What cannot be answered is not asked again: each question brings forth one process at most, or one try. Else we would
 * try for as long as there is no room for a process, also while all others are frozen. */
static void drop_question(void)
{
    char taken;                         /* asked for no byte at all, a socket of a program's map gives no datagram away */
    recv(asked[0].fd, &taken, sizeof taken, MSG_DONTWAIT);
    int fd = accept4(asked[1].fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
}

void names_asked(void)
{
    loop_watch(&asked[0], 0);
    loop_watch(&asked[1], 0);
    resolver = fork();
    if (resolver == 0) {
        keep_only(asked[0].fd, asked[1].fd);
        answer_for_ever();
    }
    if (resolver < 0) {
        drop_question();
        names_watch();
    }
}

void names_reaped(pid_t pid)
{
    if (pid != resolver)
        return;
    resolver = 0;
    drop_question();
    names_watch();
}

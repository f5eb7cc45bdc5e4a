/* A connection that a program inside made to an address far away: the proxy on the host is asked for it by CONNECT, as by
 * a program that knows of it. The host judges it, names its reason in its log, and stays the only one who dials. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "names.h"
#include "worker.h"

enum { HTTP = 80, HTTPS = 443, MAX_HEAD = 8192, FAREWELL_MS = 2000 };

/* TLS can say no: access denied, as a fatal alert. */
static const uint8_t alert[] = {0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x31};

/* Over plain HTTP the host answers the requests themselves, and so can say in words what it refuses. */
static int write_question(char *text, size_t room, const struct sockaddr_in *to)
{
    char host[MAX_HOST + 1];
    if (!names_find(ntohl(to->sin_addr.s_addr), host))
        inet_ntop(AF_INET, &to->sin_addr, host, sizeof host);
    uint16_t port = ntohs(to->sin_port);
    return snprintf(text, room, "CONNECT %s:%u HTTP/1.1\r\nHost: %s:%u\r\n%s\r\n", host, port, host, port,
                    port == HTTP ? "Sandboxer-Plain: http\r\n" : "");
}

/* Waits until the host has something to say; false when either side has gone. */
static bool wait_for_host(const struct line *l)
{
    struct pollfd on[2] = {{l->fd, POLLIN, 0}, {l->call_fd, 0, 0}};
    while (poll(on, 2, -1) < 0)
        if (errno != EINTR)
            return false;
    return !on[1].revents;
}

/* The head of its answer, in `head`: looked at until all of it is there, then taken. 0: none came. */
static size_t read_head(const struct line *l, char head[MAX_HEAD + 1])
{
    size_t seen = 0;
    while (wait_for_host(l)) {
        ssize_t n = recv(l->fd, head, MAX_HEAD, MSG_PEEK);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || n == MAX_HEAD)
            return 0;
        if (n < 0)
            continue;
        head[n] = 0;
        char *end = strstr(head, "\r\n\r\n");
        if (end)
            return end + 4 - head;
        /* Nothing new: not to be asked again and again. */
        if ((size_t)n == seen)
            poll(NULL, 0, 1);
        seen = n;
    }
    return 0;
}

/* The caller shall read the last words: what it sent is taken until it hangs up, or a reset would overtake them. */
static void say_last(int fd, const void *words, size_t len)
{
    static char unread[16384];
    struct pollfd on = {fd, POLLIN, 0};
    if (send(fd, words, len, MSG_NOSIGNAL) < 0)
        return;
    shutdown(fd, SHUT_WR);
    while (poll(&on, 1, FAREWELL_MS) > 0 && recv(fd, unread, sizeof unread, 0) > 0)
        ;
}

static _Noreturn void refuse(const struct line *l, uint16_t port)
{
    struct linger at_once = {.l_onoff = 1};
    if (port == HTTPS)
        say_last(l->call_fd, alert, sizeof alert);
    else
        setsockopt(l->call_fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    _exit(0);
}

void ask_for(struct line *l, const struct sockaddr_in *to)
{
    static char text[MAX_HEAD + 1];
    uint16_t port = ntohs(to->sin_port);
    int len = write_question(text, sizeof text, to);
    if (len < 0 || buf_left(&l->in) || send(l->fd, text, len, MSG_NOSIGNAL) != len)
        refuse(l, port);
    size_t head = read_head(l, text);
    bool established = head > 12 && !strncmp(text, "HTTP/1.1 200", 12);
    /* A refusal is an answer to whoever speaks HTTP: it stays in the stream. */
    if (head && port == HTTP && !established)
        return;
    if (!established || recv(l->fd, text, head, 0) != (ssize_t)head)
        refuse(l, port);
}

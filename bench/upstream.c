/* A small fast web server to measure proxies with: one thread, epoll, keep-alive, one fixed answer.
 * It reads only as much HTTP as a load generator sends. usage: upstream PORT [ADDRESS] */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const char answer[] =
    "HTTP/1.1 200 OK\r\nServer: upstream\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, world\n";

int main(int argc, char **argv)
{
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 3000)};
    where.sin_addr.s_addr = argc > 2 ? inet_addr(argv[2]) : htonl(INADDR_LOOPBACK);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listening, (struct sockaddr *)&where, sizeof where) || listen(listening, 1024)) {
        perror("upstream");
        return 1;
    }
    int all = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, events[64];
    epoll_ctl(all, EPOLL_CTL_ADD, listening, &event);
    static char buffer[65536];
    for (;;) {
        int count = epoll_wait(all, events, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listening) {
                int client = accept4(listening, 0, 0, SOCK_NONBLOCK);
                if (client < 0)
                    continue;
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                event = (struct epoll_event){.events = EPOLLIN, .data.fd = client};
                epoll_ctl(all, EPOLL_CTL_ADD, client, &event);
                continue;
            }
            ssize_t got = read(fd, buffer, sizeof buffer - 1);
            if (got <= 0) {
                close(fd);
                continue;
            }
            buffer[got] = 0;
            for (char *at = buffer; (at = strstr(at, "\r\n\r\n")); at += 4)
                if (write(fd, answer, sizeof answer - 1) < 0)
                    break;
            if (strcasestr(buffer, "\r\nConnection: close\r\n"))
                close(fd);
        }
    }
}

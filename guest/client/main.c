/* The client of the inside: what a sandbox is, and the platform's API for one that may speak to it.
 *
 *     sandboxer discover [--json]           says where this program runs
 *     sandboxer api METHOD PATH [JSON | -]  asks the platform; `-`: the body is read from stdin
 *
 * It needs nothing but the kernel, whatever image it runs in. It lies below the image, so that an image with a program
 * of this name and place keeps its own; and if another program of its name is to be found in PATH, that is run instead:
 * nobody gets this one who asked for another. */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME "sandboxer"
#ifndef FOLDER
#define FOLDER "/run/sandboxer"
#endif
#define GAVE_WAY "SANDBOXER_CLIENT_GAVE_WAY"

enum { MAX_BODY = 64 << 20, MAX_METHOD = 16, MAX_PATH = 16 * 1024 };

static const char usage[] =
    "usage: " NAME " discover [--json]           say where this program runs\n"
    "       " NAME " api METHOD PATH [JSON | -]  ask the platform (-: the body is read from stdin)\n"
    "Exit codes: 0 done, 1 error, 2 wrong usage, 3 not authenticated, 4 refused by the platform, 5 unavailable.\n";

void die(enum exit_code code, const char *why, ...)
{
    va_list words;
    va_start(words, why);
    fputs(NAME ": ", stderr);
    vfprintf(stderr, why, words);
    fputc('\n', stderr);
    va_end(words);
    exit(code);
}

void put(struct message *m, const void *data, size_t len)
{
    if (m->cap - m->len < len) {
        size_t cap = (m->len + len) * 2;
        char *more = realloc(m->data, cap);
        if (!more)
            die(FAILED, "there is not enough memory");
        m->data = more;
        m->cap = cap;
    }
    memcpy(m->data + m->len, data, len);
    m->len += len;
}

void put_text(struct message *m, const char *text)
{
    put(m, text, strlen(text));
}

static void read_all(int fd, struct message *into)
{
    char piece[64 * 1024];
    for (;;) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            die(FAILED, "stdin cannot be read: %s", strerror(errno));
        if (!n)
            return;
        if (into->len + (size_t)n > MAX_BODY)
            die(FAILED, "a body has at most %d MB", MAX_BODY >> 20);
        put(into, piece, (size_t)n);
    }
}

static enum exit_code discover(int argc, char **argv)
{
    bool json = argc == 1 && !strcmp(argv[0], "--json");
    if (argc && !json)
        die(WRONG_USAGE, "discover takes nothing but --json");
    int fd = open(json ? FOLDER "/sandbox.json" : FOLDER "/README", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die(UNAVAILABLE, "nothing is said in " FOLDER " of where this runs (%s). A sandbox that was started by an "
                         "older platform is told when it is started again.", strerror(errno));
    struct message text = {0};
    read_all(fd, &text);
    fwrite(text.data, 1, text.len, stdout);
    return fflush(stdout) ? FAILED : DONE;
}

static int dial(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = FOLDER "/api.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof to))
        return fd;
    if (errno == ENOENT)
        die(UNAVAILABLE, "this sandbox may not speak to the platform: there is no %s. Who creates a sandbox can grant it "
                         "that (inception).", to.sun_path);
    if (errno == EACCES)
        die(UNAVAILABLE, "%s is root's alone: %s", to.sun_path, strerror(errno));
    die(UNAVAILABLE, "%s does not answer: %s", to.sun_path, strerror(errno));
}

/* What would end a line of the request is no part of one. */
static void check_words(const char *method, const char *path)
{
    size_t len = strlen(method);
    if (!len || len > MAX_METHOD || strspn(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != len)
        die(WRONG_USAGE, "METHOD is GET, POST, PUT, PATCH or DELETE, in capitals");
    if (*path != '/' || strlen(path) > MAX_PATH)
        die(WRONG_USAGE, "PATH begins with a slash: /v1/sandboxes");
    for (const char *c = path; *c; c++)
        if (*c <= ' ' || *c == 0x7f)
            die(WRONG_USAGE, "PATH has a blank in it; write %%20");
}

static void put_body(struct message *request, const struct message *body)
{
    char length[64];
    snprintf(length, sizeof length, "Content-Length: %zu\r\n", body->len);
    put_text(request, "Content-Type: application/json\r\n");
    put_text(request, length);
    put_text(request, "\r\n");
    put(request, body->data, body->len);
}

static enum exit_code api(int argc, char **argv)
{
    struct message request = {0}, body = {0};
    if (argc < 2 || argc > 3)
        die(WRONG_USAGE, "api takes METHOD PATH, and JSON or - for a body");
    check_words(argv[0], argv[1]);
    if (argc == 3 && !strcmp(argv[2], "-"))
        read_all(STDIN_FILENO, &body);
    else if (argc == 3)
        put_text(&body, argv[2]);
    put_text(&request, argv[0]);
    put_text(&request, " ");
    put_text(&request, argv[1]);
    put_text(&request, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: */*\r\nUser-Agent: sandboxer-inside\r\n");
    if (argc == 3)
        put_body(&request, &body);
    else
        put_text(&request, "\r\n");
    return exchange(dial(), &request, !strcmp(argv[0], "HEAD"));
}

/* Runs another program of this name that PATH leads to, if there is one that did not send us here itself. */
static void give_way(char **argv)
{
    struct stat self, other;
    char *path = getenv("PATH"), *rest = path ? strdup(path) : NULL, place[PATH_MAX];
    if (getenv(GAVE_WAY) || !rest || stat("/proc/self/exe", &self))
        return;
    for (char *folder; (folder = strsep(&rest, ":"));) {
        if (*folder != '/' || snprintf(place, sizeof place, "%s/" NAME, folder) >= (int)sizeof place)
            continue;
        if (stat(place, &other) || !S_ISREG(other.st_mode) || access(place, X_OK) ||
            (other.st_dev == self.st_dev && other.st_ino == self.st_ino))
            continue;
        setenv(GAVE_WAY, "1", 1);
        execv(place, argv);
        unsetenv(GAVE_WAY);
    }
}

int main(int argc, char **argv)
{
    give_way(argv);
    if (argc > 1 && !strcmp(argv[1], "discover"))
        return discover(argc - 2, argv + 2);
    if (argc > 1 && !strcmp(argv[1], "api"))
        return api(argc - 2, argv + 2);
    bool asked = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    fputs(usage, asked ? stdout : stderr);
    return asked ? DONE : WRONG_USAGE;
}

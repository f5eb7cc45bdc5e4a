/* One answer of HTTP/1.1, read from a socket and written to stdout as it comes: with a length, in chunks, or up to the
 * end of the line. The platform says it; all the same nothing in it is believed to fit. */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_HEAD = 64 * 1024, MAX_CHUNK_LINE = 1024 };

struct reader {
    int line;
    char data[MAX_HEAD];
    size_t off, len;
};

struct head {
    int status;
    bool chunked, has_length;
    unsigned long long length;
};

static void send_all(int line, const struct message *m)
{
    for (size_t done = 0; done < m->len;) {
        ssize_t n = send(line, m->data + done, m->len - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        /* Refused before it was read to its end: the answer says why. */
        if (n < 0)
            return;
        done += (size_t)n;
    }
}

/* False at the end of the line. */
static bool fill(struct reader *r)
{
    if (r->off) {
        memmove(r->data, r->data + r->off, r->len - r->off);
        r->len -= r->off;
        r->off = 0;
    }
    if (r->len == sizeof r->data)
        die(FAILED, "the answer cannot be understood: a line of it is too long");
    ssize_t n;
    do
        n = recv(r->line, r->data + r->len, sizeof r->data - r->len, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        r->len += (size_t)n;
    return n > 0;
}

static void write_out(const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(STDOUT_FILENO, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            die(FAILED, "the answer cannot be written: %s", strerror(errno));
        data += n;
        len -= (size_t)n;
    }
}

/* The next line without its end, terminated; NULL when the line ended before. */
static char *next_line(struct reader *r)
{
    for (size_t seen = 0;;) {
        char *end = memchr(r->data + r->off + seen, '\n', r->len - r->off - seen);
        if (end) {
            char *begin = r->data + r->off;
            r->off = (size_t)(end - r->data) + 1;
            if (end > begin && end[-1] == '\r')
                end--;
            *end = 0;
            return begin;
        }
        seen = r->len - r->off;
        if (!fill(r))
            return NULL;
    }
}

static void take_field(struct head *h, char *line)
{
    char *value = strchr(line, ':');
    if (!value)
        return;
    *value++ = 0;
    value += strspn(value, " \t");
    if (!strcasecmp(line, "transfer-encoding"))
        h->chunked = !strcasecmp(value, "chunked");
    if (!strcasecmp(line, "content-length")) {
        h->has_length = true;
        h->length = strtoull(value, NULL, 10);
    }
}

static struct head read_head(struct reader *r)
{
    struct head h;
    do {
        h = (struct head){0};
        char *line = next_line(r);
        if (!line || strncmp(line, "HTTP/1.", 7) || strlen(line) < 12)
            die(UNAVAILABLE, "the platform gave no answer");
        h.status = atoi(line + 9);
        while ((line = next_line(r)) && *line)
            take_field(&h, line);
        if (!line)
            die(UNAVAILABLE, "the answer of the platform broke off");
    } while (h.status >= 100 && h.status < 200 && h.status != 101);
    return h;
}

/* Passes on so many bytes; false when the line ended before. */
static bool pass(struct reader *r, unsigned long long left)
{
    while (left) {
        if (r->off == r->len && !fill(r))
            return false;
        size_t n = r->len - r->off;
        if (n > left)
            n = (size_t)left;
        write_out(r->data + r->off, n);
        r->off += n;
        left -= n;
    }
    return true;
}

static bool pass_chunks(struct reader *r)
{
    for (;;) {
        char *line = next_line(r), *end;
        if (!line || strlen(line) > MAX_CHUNK_LINE)
            return false;
        unsigned long long size = strtoull(line, &end, 16);
        if (end == line)
            return false;
        if (!size)
            return true;
        if (!pass(r, size) || !next_line(r))
            return false;
    }
}

static enum exit_code meaning(int status)
{
    if (status < 400)
        return DONE;
    if (status == 401)
        return NOT_AUTHENTICATED;
    return status < 500 ? REFUSED : UNAVAILABLE;
}

enum exit_code exchange(int line, const struct message *request, bool is_head)
{
    static struct reader r;
    r.line = line;
    r.off = r.len = 0;
    send_all(line, request);
    struct head h = read_head(&r);
    bool whole = true;
    if (is_head || h.status == 204 || h.status == 304)
        ;
    else if (h.chunked)
        whole = pass_chunks(&r);
    else if (h.has_length)
        whole = pass(&r, h.length);
    else
        while (r.off < r.len || fill(&r)) {
            write_out(r.data + r.off, r.len - r.off);
            r.off = r.len;
        }
    if (!whole)
        die(UNAVAILABLE, "the answer of the platform broke off");
    return meaning(h.status);
}

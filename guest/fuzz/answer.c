/* The inside client's reading of an answer, from a platform that lies: any bytes, in any pieces. It may say what it
 * likes and break off whenever it likes; the client passes on no more than it got, and ends with a code of its own.
 *
 * The first byte says how long the pieces are, and whether the request was a HEAD. */
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "client.h"

static const uint8_t *unread;
static size_t left, piece, passed;
static jmp_buf ended;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static ssize_t fuzz_recv(int line, void *into, size_t room, int flags)
{
    (void)line;
    (void)flags;
    size_t n = left < piece ? left : piece;
    if (!room)
        abort();                        /* asked for nothing: it would take that for the end */
    if (n > room)
        n = room;
    memcpy(into, unread, n);
    unread += n;
    left -= n;
    return (ssize_t)n;
}

static ssize_t fuzz_send(int line, const void *data, size_t len, int flags)
{
    (void)line;
    (void)data;
    (void)flags;
    return (ssize_t)len;
}

static ssize_t fuzz_write(int fd, const void *data, size_t len)
{
    volatile uint8_t seen = 0;
    (void)fd;
    for (size_t i = 0; i < len; i++)
        seen ^= ((const uint8_t *)data)[i];
    passed += len;
    return (ssize_t)len;
}

_Noreturn void die(enum exit_code code, const char *why, ...)
{
    if (!strlen(why) || code < FAILED || code > UNAVAILABLE)
        abort();
    longjmp(ended, 1);
}

#define recv fuzz_recv
#define send fuzz_send
#define write fuzz_write
#include "../client/http.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct message request = {0};
    if (!size)
        return 0;
    unread = data + 1;
    left = size - 1;
    piece = 1 + (data[0] >> 1) * 37u;
    passed = 0;
    if (!setjmp(ended)) {
        enum exit_code code = exchange(-1, &request, data[0] & 1);
        if (code > UNAVAILABLE || code == FAILED || code == WRONG_USAGE)
            abort();
    }
    if (passed > size)
        abort();                        /* made something up */
    return 0;
}

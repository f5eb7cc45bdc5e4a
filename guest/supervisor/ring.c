#include "ring.h"

#include <stddef.h>
#include <sys/mman.h>

bool ring_open(struct ring *r)
{
    if (r->data)
        return true;
    void *p = mmap(NULL, RING_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return false;
    /* Children never look at it: keeps fork cheap and spares copies on write. */
    madvise(p, RING_SIZE, MADV_DONTFORK);
    r->data = p;
    return true;
}

static int span(const struct ring *r, uint64_t from, uint64_t want, struct iovec iov[2])
{
    uint64_t at = from % RING_SIZE;
    uint64_t first = want < RING_SIZE - at ? want : RING_SIZE - at;
    iov[0] = (struct iovec){r->data + at, first};
    iov[1] = (struct iovec){r->data, want - first};
    return want > first ? 2 : 1;
}

int ring_space(const struct ring *r, uint64_t want, struct iovec iov[2])
{
    return span(r, r->head, want, iov);
}

void ring_filled(struct ring *r, uint64_t n)
{
    r->head += n;
    if (r->head - r->tail > RING_SIZE)
        r->tail = r->head - RING_SIZE;
}

int ring_bytes(const struct ring *r, uint64_t from, uint64_t want, struct iovec iov[2])
{
    return span(r, from, want, iov);
}

void ring_drop(struct ring *r)
{
    if (r->data)
        munmap(r->data, RING_SIZE);
    r->data = NULL;
    r->tail = r->head;
}

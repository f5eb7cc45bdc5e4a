/* The last bytes of one output stream. Memory comes with the first byte and only as far as bytes reach. */
#ifndef RING_H
#define RING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

enum { RING_SIZE = 256 * 1024 };

/* Offsets count bytes since the stream began: `tail` is the oldest byte kept, `head` the next to come. */
struct ring {
    uint8_t *data;
    uint64_t tail, head;
};

bool ring_open(struct ring *r);
/* Where the next `want` bytes go: fills iov, returns its length. May overwrite the oldest. */
int ring_space(const struct ring *r, uint64_t want, struct iovec iov[2]);
void ring_filled(struct ring *r, uint64_t n);
/* The bytes [from, from + want): fills iov, returns its length. The caller stays within tail and head. */
int ring_bytes(const struct ring *r, uint64_t from, uint64_t want, struct iovec iov[2]);
/* Gives the memory back; what it held counts as dropped. */
void ring_drop(struct ring *r);

#endif

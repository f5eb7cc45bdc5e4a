/* Frames and their TLV payloads: building, bounded reading, and the one parser of all requests. */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol.h"

/* A growing byte buffer; `off` is where the unread part begins. After a failed allocation it is `broken`. */
struct buf {
    uint8_t *data;
    size_t off, len, cap;
    bool broken;
};

bool buf_reserve(struct buf *b, size_t more);
void buf_put(struct buf *b, const void *data, size_t len);
void buf_free(struct buf *b);
static inline size_t buf_left(const struct buf *b) { return b->len - b->off; }

/* frame_begin … tlv_* … frame_end; the same pair nests TLVs (tlv_begin/tlv_end). */
size_t frame_begin(struct buf *b, uint8_t type);
void frame_end(struct buf *b, size_t mark);
size_t tlv_begin(struct buf *b, uint16_t tag);
void tlv_end(struct buf *b, size_t mark);
void tlv_bytes(struct buf *b, uint16_t tag, const void *data, size_t len);
void tlv_text(struct buf *b, uint16_t tag, const char *text);
void tlv_u32(struct buf *b, uint16_t tag, uint32_t value);
void tlv_u64(struct buf *b, uint16_t tag, uint64_t value);
void frame_header(uint8_t out[HEADER_SIZE], uint8_t type, uint32_t length);
void frame_error(struct buf *b, int err, enum stage stage);
uint32_t get_u32(const uint8_t *p);

/* A string inside a frame: not terminated, holds no NUL. */
struct text {
    const char *at;
    uint32_t len;
};

/* Everything any request can say. Pointers lead into the frame that was parsed. */
struct request {
    uint32_t version, oldest;
    struct text id, cwd, user, tag, path, target, after, attributes, content;
    uint32_t flags, cols, rows, signal, mode, depth, port, limit;
    bool has_mode, has_length, has_offset;
    uint64_t offset, length, from[2], call;
    uint32_t args, envs, attribute_count;   /* how many; walk them with request_strings */
    const uint8_t *payload;
    uint32_t payload_len;
};

/* 0, or the errno that says what is wrong with the payload. Unknown tags are skipped. */
int request_parse(struct request *r, const uint8_t *payload, uint32_t len);
/* Newly allocated NULL-terminated array of all strings of one tag, with room for `spare` more; NULL: no memory. */
char **request_strings(const struct request *r, uint16_t tag, size_t count, size_t spare);
void request_strings_free(char **list);
char *text_dup(struct text t);

#endif

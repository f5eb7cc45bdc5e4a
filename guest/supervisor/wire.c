#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool buf_reserve(struct buf *b, size_t more)
{
    if (b->broken)
        return false;
    if (b->off && b->off == b->len)
        b->off = b->len = 0;
    if (b->len + more <= b->cap)
        return true;
    if (b->off) {
        memmove(b->data, b->data + b->off, b->len - b->off);
        b->len -= b->off;
        b->off = 0;
        if (b->len + more <= b->cap)
            return true;
    }
    size_t cap = b->cap ? b->cap : 512;
    while (cap < b->len + more)
        cap *= 2;
    uint8_t *data = realloc(b->data, cap);
    if (!data) {
        b->broken = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void buf_put(struct buf *b, const void *data, size_t len)
{
    if (len && buf_reserve(b, len)) {
        memcpy(b->data + b->len, data, len);
        b->len += len;
    }
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}

static void put_u32(uint8_t *p, uint32_t v)
{
    p[0] = v; p[1] = v >> 8; p[2] = v >> 16; p[3] = v >> 24;
}

uint32_t get_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get_u64(const uint8_t *p)
{
    return get_u32(p) | (uint64_t)get_u32(p + 4) << 32;
}

void frame_header(uint8_t out[HEADER_SIZE], uint8_t type, uint32_t length)
{
    put_u32(out, length);
    out[4] = type;
}

/* Marks are relative to `off`, because reserving may move the unread part to the front. */
size_t frame_begin(struct buf *b, uint8_t type)
{
    uint8_t head[HEADER_SIZE];
    frame_header(head, type, 0);
    buf_put(b, head, sizeof head);
    return buf_left(b);
}

void frame_end(struct buf *b, size_t mark)
{
    if (!b->broken)
        put_u32(b->data + b->off + mark - HEADER_SIZE, buf_left(b) - mark);
}

size_t tlv_begin(struct buf *b, uint16_t tag)
{
    uint8_t head[TLV_HEADER] = {tag, tag >> 8};
    buf_put(b, head, sizeof head);
    return buf_left(b);
}

void tlv_end(struct buf *b, size_t mark)
{
    if (!b->broken)
        put_u32(b->data + b->off + mark - 4, buf_left(b) - mark);
}

void tlv_bytes(struct buf *b, uint16_t tag, const void *data, size_t len)
{
    size_t mark = tlv_begin(b, tag);
    buf_put(b, data, len);
    tlv_end(b, mark);
}

void tlv_text(struct buf *b, uint16_t tag, const char *text)
{
    tlv_bytes(b, tag, text, strlen(text));
}

void tlv_u32(struct buf *b, uint16_t tag, uint32_t value)
{
    uint8_t v[4];
    put_u32(v, value);
    tlv_bytes(b, tag, v, sizeof v);
}

void tlv_u64(struct buf *b, uint16_t tag, uint64_t value)
{
    uint8_t v[8];
    put_u32(v, value);
    put_u32(v + 4, value >> 32);
    tlv_bytes(b, tag, v, sizeof v);
}

void frame_error(struct buf *b, int err, enum stage stage)
{
    size_t mark = frame_begin(b, F_ERROR);
    tlv_u32(b, T_ERRNO, err);
    tlv_u32(b, T_STAGE, stage);
    frame_end(b, mark);
}

static int take_text(struct text *t, const uint8_t *v, uint32_t len, uint32_t most)
{
    if (len > most)
        return ENAMETOOLONG;
    if (memchr(v, 0, len))
        return EINVAL;
    *t = (struct text){(const char *)v, len};
    return 0;
}

static int take_u32(uint32_t *out, const uint8_t *v, uint32_t len)
{
    if (len != 4)
        return EINVAL;
    *out = get_u32(v);
    return 0;
}

static int take_u64(uint64_t *out, const uint8_t *v, uint32_t len)
{
    if (len != 8)
        return EINVAL;
    *out = get_u64(v);
    return 0;
}

static int take(struct request *r, uint16_t tag, const uint8_t *v, uint32_t len)
{
    struct text ignored;
    switch (tag) {
    case T_VERSION: return take_u32(&r->version, v, len);
    case T_OLDEST: return take_u32(&r->oldest, v, len);
    case T_ID: return take_text(&r->id, v, len, MAX_ID);
    case T_ARG: r->args++; return take_text(&ignored, v, len, MAX_PAYLOAD);
    case T_ENV: r->envs++; return take_text(&ignored, v, len, MAX_PAYLOAD);
    case T_CWD: return take_text(&r->cwd, v, len, 4095);
    case T_USER: return take_text(&r->user, v, len, 255);
    case T_TAG: return take_text(&r->tag, v, len, MAX_TAG);
    case T_COLS: return take_u32(&r->cols, v, len);
    case T_ROWS: return take_u32(&r->rows, v, len);
    case T_FLAGS: return take_u32(&r->flags, v, len);
    case T_SIGNAL: return take_u32(&r->signal, v, len);
    case T_FROM_STDOUT: return take_u64(&r->from[0], v, len);
    case T_FROM_STDERR: return take_u64(&r->from[1], v, len);
    case T_PATH: return take_text(&r->path, v, len, 4095);
    case T_TARGET: return take_text(&r->target, v, len, 4095);
    case T_MODE: r->has_mode = true; return take_u32(&r->mode, v, len);
    case T_OFFSET: r->has_offset = true; return take_u64(&r->offset, v, len);
    case T_LENGTH: r->has_length = true; return take_u64(&r->length, v, len);
    case T_AFTER: return take_text(&r->after, v, len, MAX_AFTER);
    case T_LIMIT: return take_u32(&r->limit, v, len);
    case T_ATTRIBUTES: return take_text(&r->attributes, v, len, MAX_ATTRIBUTE);
    case T_ATTRIBUTE: r->attribute_count++; return take_text(&ignored, v, len, MAX_ATTRIBUTES);
    case T_DEPTH: return take_u32(&r->depth, v, len);
    case T_PORT: return take_u32(&r->port, v, len);
    case T_CONTENT: return take_text(&r->content, v, len, MAX_CONTENT);
    case T_CALL: return take_u64(&r->call, v, len);
    default: return 0;
    }
}

/* Steps over one TLV; false at the end or when it does not fit. */
static bool tlv_next(const uint8_t **at, const uint8_t *end, uint16_t *tag, const uint8_t **v, uint32_t *len)
{
    if (end - *at < TLV_HEADER)
        return false;
    *tag = (*at)[0] | (*at)[1] << 8;
    *len = get_u32(*at + 2);
    *v = *at + TLV_HEADER;
    if (*len > (size_t)(end - *v))
        return false;
    *at = *v + *len;
    return true;
}

int request_parse(struct request *r, const uint8_t *payload, uint32_t len)
{
    *r = (struct request){.payload = payload, .payload_len = len};
    const uint8_t *at = payload, *end = payload + len, *v;
    uint16_t tag;
    uint32_t n;
    while (tlv_next(&at, end, &tag, &v, &n)) {
        int err = take(r, tag, v, n);
        if (err)
            return err;
    }
    return at == end ? 0 : EBADMSG;
}

char *text_dup(struct text t)
{
    char *s = malloc(t.len + 1);
    if (s) {
        if (t.len)
            memcpy(s, t.at, t.len);
        s[t.len] = 0;
    }
    return s;
}

char **request_strings(const struct request *r, uint16_t wanted, size_t count, size_t spare)
{
    char **list = calloc(count + spare + 1, sizeof *list);
    const uint8_t *at = r->payload, *end = at + r->payload_len, *v;
    uint16_t tag;
    uint32_t len;
    size_t i = 0;
    while (list && i < count && tlv_next(&at, end, &tag, &v, &len))
        if (tag == wanted && !(list[i++] = text_dup((struct text){(const char *)v, len})))
            return NULL;
    return list;
}

void request_strings_free(char **list)
{
    for (char **s = list; s && *s; s++)
        free(*s);
    free(list);
}

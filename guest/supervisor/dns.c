/* The wire of DNS, as far as a stub resolver speaks it: one question, and at most one answer. */
#include <string.h>

#include "names.h"

enum { HEADER = 12, QR = 0x80, OPCODE = 0x78, AUTHORITATIVE = 0x04, RECURSION_DESIRED = 0x01, RECURSION_AVAILABLE = 0x80 };
enum { NOERROR = 0, FORMERR = 1, NXDOMAIN = 3, NOTIMP = 4 };
enum { TYPE_A = 1, TYPE_ANY = 255, CLASS_IN = 1, MAX_LABEL = 63, LIFE_S = 60 };

static bool is_plain(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* The name as text in lower case: empty when no host is called so. The bytes it took, or 0 when it is none. */
static size_t read_name(const uint8_t *data, size_t len, char name[MAX_HOST + 1])
{
    size_t at = 0, used = 0;
    bool plain = true;
    while (at < len && data[at]) {
        size_t label = data[at++];
        /* Nothing came before that a pointer could lead to. */
        if (label > MAX_LABEL || label > len - at || used + !!used + label > MAX_HOST)
            return 0;
        if (used)
            name[used++] = '.';
        for (; label; label--, at++) {
            uint8_t c = data[at] >= 'A' && data[at] <= 'Z' ? data[at] | 0x20 : data[at];
            plain = plain && is_plain(c);
            name[used++] = (char)c;
        }
    }
    if (at >= len)
        return 0;
    name[plain ? used : 0] = 0;
    return at + 1;
}

static bool is_localhost(const char *name)
{
    static const char word[] = "localhost";
    size_t len = strlen(name), tail = sizeof word - 1;
    return len >= tail && !strcmp(name + len - tail, word) && (len == tail || name[len - tail - 1] == '.');
}

static size_t put_address(uint8_t *out, uint32_t address)
{
    const uint8_t record[] = {
        0xc0, HEADER, 0, TYPE_A, 0, CLASS_IN, 0, 0, 0, LIFE_S, 0, 4,
        address >> 24, address >> 16, address >> 8, address,
    };
    memcpy(out, record, sizeof record);
    return sizeof record;
}

size_t dns_answer(const uint8_t *question, size_t len, uint8_t *out)
{
    char name[MAX_HOST + 1];
    if (len < HEADER || len > DNS_ROOM || question[2] & QR)
        return 0;
    memset(out, 0, HEADER);
    memcpy(out, question, 2);
    out[2] = QR | AUTHORITATIVE | (question[2] & (OPCODE | RECURSION_DESIRED));
    out[3] = RECURSION_AVAILABLE | FORMERR;
    if (question[2] & OPCODE) {
        out[3] = RECURSION_AVAILABLE | NOTIMP;
        return HEADER;
    }
    size_t taken = read_name(question + HEADER, len - HEADER, name), end = HEADER + taken + 4;
    if (question[4] || question[5] != 1 || !taken || end > len)
        return HEADER;
    memcpy(out + HEADER, question + HEADER, end - HEADER);
    out[5] = 1;
    out[3] = RECURSION_AVAILABLE | NOERROR;
    const uint8_t *kind = question + end - 4;
    bool is_in = !kind[2] && kind[3] == CLASS_IN, is_a = !kind[0] && (kind[1] == TYPE_A || kind[1] == TYPE_ANY);
    if (!is_localhost(name) && !strchr(name, '.'))
        out[3] = RECURSION_AVAILABLE | NXDOMAIN;
    else if (is_in && is_a) {
        out[7] = 1;
        end += put_address(out + end, is_localhost(name) ? 0x7f000001 : names_address(name));
    }
    return end;
}

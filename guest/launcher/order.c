/* Reading an order: NUL-ended `key=value` fields in one datagram. Nothing here acts. */
#include "launcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool number(const char *text, unsigned long max, unsigned long *out) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || value > max) return false;
    *out = value;
    return true;
}

static bool take(struct order *o, const char *key, char *value) {
    unsigned long n;
    if (!strcmp(key, "tag")) o->tag = value;
    else if (!strcmp(key, "image")) o->image = value;
    else if (!strcmp(key, "disk")) o->disk = value;
    else if (!strcmp(key, "socket")) o->socket = value;
    else if (!strcmp(key, "cgroup")) o->cgroup = value;
    else if (!strcmp(key, "base") && number(value, UINT32_MAX, &n)) o->base = (uint32_t)n;
    else if (!strcmp(key, "count") && number(value, UINT32_MAX, &n)) o->count = (uint32_t)n;
    else if (!strcmp(key, "ptys") && number(value, 4096, &n)) o->ptys = (unsigned)n;
    else if (!strcmp(key, "sigpending") && number(value, 1u << 20, &n)) o->sigpending = n;
    else if (!strcmp(key, "open_files") && number(value, 1u << 20, &n)) o->open_files = n;
    else if (!strcmp(key, "mkdir") && o->act_count < LIST_MAX)
        o->acts[o->act_count++] = (struct act){.path = value};
    else if (!strcmp(key, "write") && o->act_count < LIST_MAX)
        o->acts[o->act_count++] = (struct act){.path = value, .value = ""};
    else if (!strcmp(key, "value") && o->act_count && o->acts[o->act_count - 1].value)
        o->acts[o->act_count - 1].value = value;
    else if (!strcmp(key, "join") && o->join_count < LIST_MAX) o->joins[o->join_count++] = value;
    else if (!strcmp(key, "arg") && o->argc < LIST_MAX) o->argv[o->argc++] = value;
    else return false;
    return true;
}

bool order_parse(struct order *order, char *data, size_t size, const char **why) {
    memset(order, 0, sizeof *order);
    order->tag = "";
    if (!size || data[size - 1]) return *why = "order does not end in NUL", false;
    for (char *field = data; field < data + size; ) {
        char *next = field + strlen(field) + 1;
        char *equals = strchr(field, '=');
        if (!equals) return *why = "field without =", false;
        *equals = 0;
        if (!take(order, field, equals + 1)) return *why = field, false;
        field = next;
    }
    if (!order->image || !order->disk || !order->socket || !order->cgroup || !order->argc)
        return *why = "field missing", false;
    /* Host root must never be part of a sandbox's range. */
    if (order->base < 65536 || !order->count || order->base > UINT32_MAX - order->count)
        return *why = "range", false;
    return true;
}

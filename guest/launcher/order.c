/* Reading an order: NUL-ended `key=value` fields in one datagram. Nothing here acts. */
#include "launcher.h"

#include <stdlib.h>
#include <string.h>

static bool number(const char *text, unsigned long max, unsigned long *out) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 0);
    if (errno || end == text || *end || *text == '-' || value > max) return false;
    *out = value;
    return true;
}

static bool add(struct acts *acts, enum act_kind kind, const char *path) {
    if (acts->count == LIST_MAX) return false;
    acts->list[acts->count++] = (struct act){.kind = kind, .path = path, .value = ""};
    return true;
}

static bool take_act(struct order *o, const char *key, char *value) {
    if (!strcmp(key, "cgroup.folder")) return add(&o->cgroups, ACT_FOLDER, value);
    if (!strcmp(key, "cgroup.write")) return add(&o->cgroups, ACT_WRITE, value);
    if (!strcmp(key, "disk.folder")) return add(&o->disks, ACT_FOLDER, value);
    if (!strcmp(key, "disk.create")) return add(&o->disks, ACT_CREATE, value);
    if (!strcmp(key, "disk.copy")) return add(&o->disks, ACT_COPY, value);
    if (!strcmp(key, "disk.append")) return add(&o->disks, ACT_APPEND, value);
    if (!strcmp(key, "disk.subvolume")) return add(&o->disks, ACT_SUBVOLUME, value);
    if (!strcmp(key, "disk.limit")) return add(&o->disks, ACT_LIMIT, value);
    if (!strcmp(key, "disk.snapshot")) return add(&o->disks, ACT_SNAPSHOT, value);
    if (!strcmp(key, "disk.renew")) return add(&o->disks, ACT_RENEW, value);
    if (!strcmp(key, "disk.renew_private")) return add(&o->disks, ACT_RENEW_PRIVATE, value);
    if (!strcmp(key, "disk.forget")) return add(&o->disks, ACT_FORGET, value);
    struct acts *acts = !strcmp(key, "cgroup.value") ? &o->cgroups : !strcmp(key, "disk.value") ? &o->disks : NULL;
    if (!acts || !acts->count) return false;
    acts->list[acts->count - 1].value = value;
    return true;
}

static bool take_volume(struct order *o, const char *key, char *value) {
    if (!strcmp(key, "volume")) {
        if (o->volume_count == VOLUMES_MAX) return false;
        o->volumes[o->volume_count++] = (struct volume){.disk = value, .path = ""};
        return true;
    }
    if (!o->volume_count) return false;
    struct volume *last = &o->volumes[o->volume_count - 1];
    if (!strcmp(key, "volume.path")) last->path = value;
    else if (!strcmp(key, "volume.read_only")) last->read_only = true;
    else return false;
    return true;
}

static bool take_folder(struct order *o, const char *key, char *value) {
    if (!strcmp(key, "folder")) {
        if (o->folder_count == FOLDERS_MAX) return false;
        o->folders[o->folder_count++] = (struct folder){.path = value};
        return true;
    }
    if (!o->folder_count || strcmp(key, "folder.read_only")) return false;
    return o->folders[o->folder_count - 1].read_only = true;
}

static bool take_figure(struct order *o, const char *name, char *value) {
    static const char *const names[ORDER_FIGURES] = {"memory_limit", "memory_used", "memory_stat", "cpu_limit", "cpu_used"};
    for (size_t i = 0; i < ORDER_FIGURES; i++)
        if (!strcmp(name, names[i])) return o->figures[i] = value, true;
    return false;
}

static bool take(struct order *o, const char *key, char *value) {
    unsigned long n;
    if (!strcmp(key, "tag")) o->tag = value;
    else if (!strcmp(key, "image")) o->image = value;
    else if (!strcmp(key, "tools")) o->tools = value;
    else if (!strcmp(key, "disk")) o->disk = value;
    else if (!strcmp(key, "socket")) o->socket = value;
    else if (!strcmp(key, "cgroup")) o->cgroup = value;
    else if (!strcmp(key, "hostname")) o->hostname = value;
    else if (!strcmp(key, "boot_id")) o->boot_id = value;
    else if (!strcmp(key, "base") && number(value, UINT32_MAX, &n)) o->base = (uint32_t)n;
    else if (!strcmp(key, "count") && number(value, UINT32_MAX, &n)) o->count = (uint32_t)n;
    else if (!strcmp(key, "capabilities") && number(value, ~0ul, &n)) o->capabilities = n;
    else if (!strcmp(key, "nests")) o->nests = !strcmp(value, "1");
    else if (!strcmp(key, "way_out") && number(value, 65535, &n)) o->way_out = (unsigned)n;
    else if (!strcmp(key, "shm_bytes") && number(value, ~0ul, &n)) o->shm_bytes = n;
    else if (!strcmp(key, "ptys") && number(value, 4096, &n)) o->ptys = (unsigned)n;
    else if (!strcmp(key, "sigpending") && number(value, 1u << 20, &n)) o->sigpending = n;
    else if (!strcmp(key, "open_files") && number(value, 1u << 20, &n)) o->open_files = n;
    else if (!strcmp(key, "join") && o->join_count < LIST_MAX) o->joins[o->join_count++] = value;
    else if (!strcmp(key, "mask") && o->mask_count < LIST_MAX) o->masks[o->mask_count++] = value;
    else if (!strcmp(key, "view") && o->view_count < VIEWS_MAX) o->views[o->view_count++] = value;
    else if (!strncmp(key, "figure.", 7)) return take_figure(o, key + 7, value);
    else if (!strncmp(key, "volume", 6)) return take_volume(o, key, value);
    else if (!strncmp(key, "folder", 6)) return take_folder(o, key, value);
    else return take_act(o, key, value);
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
    if (!order->image || !order->disk || !order->socket || !order->cgroup || !order->hostname
        || !order->boot_id)
        return *why = "field missing", false;
    /* Host root must never be part of a sandbox's range. */
    if (order->base < 65536 || !order->count || order->base > UINT32_MAX - order->count)
        return *why = "range", false;
    return true;
}

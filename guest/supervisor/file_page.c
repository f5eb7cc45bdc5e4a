/* One page of a listing: the smallest paths above a given one. A folder of any size costs the host no more than its
 * page; the walk and the sorting are paid for by the sandbox that asked. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker.h"

enum { MAX_PAGE = 10000, PAGE_BYTES = 4 << 20, LOOK_UP_EVERY = 4096, ONE_CALL = 4096 };

/* A heap with the largest path at the top. `bound` is the smallest path that had to go: nothing from it on is kept,
 * or the page would have a gap. */
struct page {
    struct line *line;
    char **kept;
    size_t count, limit, bytes;
    char *bound;
    const char *after;
    struct text attributes;
    uint32_t seen;
    char path[LONGEST_PATH];
};

static void sift_down(struct page *g)
{
    size_t at = 0, child;
    while ((child = 2 * at + 1) < g->count) {
        if (child + 1 < g->count && strcmp(g->kept[child + 1], g->kept[child]) > 0)
            child++;
        if (strcmp(g->kept[at], g->kept[child]) >= 0)
            return;
        char *swap = g->kept[at];
        g->kept[at] = g->kept[child];
        g->kept[child] = swap;
        at = child;
    }
}

static void evict(struct page *g)
{
    free(g->bound);
    g->bound = g->kept[0];
    g->bytes -= strlen(g->bound) + 1;
    g->kept[0] = g->kept[--g->count];
    sift_down(g);
}

static void offer(struct page *g, const char *path)
{
    if ((g->after && strcmp(path, g->after) <= 0) || (g->bound && strcmp(path, g->bound) >= 0))
        return;
    char *copy = strdup(path);
    if (!copy)
        work_fail(g->line, ENOMEM, S_PATH);
    size_t at = g->count++;
    for (; at && strcmp(copy, g->kept[(at - 1) / 2]) > 0; at = (at - 1) / 2)
        g->kept[at] = g->kept[(at - 1) / 2];
    g->kept[at] = copy;
    g->bytes += strlen(copy) + 1;
    while (g->count > g->limit || (g->bytes > PAGE_BYTES && g->count > 1))
        evict(g);
}

/* Everything below a folder lies between "folder/" and "folder0" ('0' follows '/'). */
static bool is_worth_a_look(struct page *g, size_t len)
{
    bool worth = true;
    g->path[len + 1] = 0;
    if (g->bound) {
        g->path[len] = '/';
        worth = strcmp(g->path, g->bound) < 0;
    }
    if (g->after && worth) {
        g->path[len] = '0';
        worth = strcmp(g->path, g->after) > 0;
    }
    g->path[len] = 0;
    return worth;
}

static void stop_if_host_left(struct page *g)
{
    struct pollfd p = {g->line->fd, 0, 0};
    if (++g->seen % LOOK_UP_EVERY == 0 && poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR))
        _exit(0);
}

static bool is_folder(int dir, const struct dirent *d)
{
    struct stat st;
    if (d->d_type != DT_UNKNOWN)
        return d->d_type == DT_DIR;
    return !fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode);
}

/* Takes fd over. `at` is where the folder's own path ends. */
static void walk(struct page *g, int fd, size_t at, uint32_t depth)
{
    DIR *dir = fdopendir(fd);
    struct dirent *d;
    if (!dir) {
        close(fd);
        return;
    }
    while ((d = readdir(dir))) {
        size_t len = strlen(d->d_name);
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") || at + len + 3 >= sizeof g->path)
            continue;
        stop_if_host_left(g);
        g->path[at] = '/';
        memcpy(g->path + at + 1, d->d_name, len + 1);
        offer(g, g->path);
        if (depth <= 1 || !is_folder(fd, d) || !is_worth_a_look(g, at + 1 + len))
            continue;
        int below = openat(fd, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0)
            walk(g, below, at + 1 + len, depth - 1);
    }
    closedir(dir);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The folder in which the rest of a path can be looked up: a path that is too long for one call is walked in parts.
 * `*rest` is that rest; the caller closes what is not AT_FDCWD. */
static int folder_of(const char *path, const char **rest)
{
    int dir = AT_FDCWD;
    while (strlen(path) >= ONE_CALL) {
        char part[ONE_CALL];
        memcpy(part, path, ONE_CALL - 1);
        part[ONE_CALL - 1] = 0;
        char *end = strrchr(part, '/');
        if (!end || end == part)
            break;
        *end = 0;
        int below = openat(dir, part, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (dir != AT_FDCWD)
            close(dir);
        dir = below;
        if (dir < 0)
            break;
        path += end - part + 1;
    }
    *rest = path;
    return dir;
}

static void put_kept(struct buf *b, const char *path, struct text attributes)
{
    struct stat st;
    const char *rest;
    int dir = folder_of(path, &rest);
    if (dir == -1)
        return;
    if (!fstatat(dir, rest, &st, AT_SYMLINK_NOFOLLOW))      /* else it is gone since */
        put_entry(b, dir, rest, path, &st, attributes);
    if (dir != AT_FDCWD)
        close(dir);
}

static _Noreturn void send_page(struct page *g)
{
    struct buf b = {0};
    qsort(g->kept, g->count, sizeof *g->kept, by_path);
    size_t mark = frame_begin(&b, F_ENTRIES);
    for (size_t i = 0; i < g->count; i++) {
        put_kept(&b, g->kept[i], g->attributes);
        if (buf_left(&b) >= ENTRIES_BATCH) {
            frame_end(&b, mark);
            work_send(g->line, &b);
            mark = frame_begin(&b, F_ENTRIES);
        }
    }
    frame_end(&b, mark);
    mark = frame_begin(&b, F_DONE);
    if (g->bound && g->count) {
        tlv_u32(&b, T_FLAGS, FLAG_MORE);
        tlv_text(&b, T_AFTER, g->kept[g->count - 1]);
    }
    frame_end(&b, mark);
    work_send(g->line, &b);
    _exit(0);
}

void file_page(struct line *l, const char *path, int fd, const struct request *r)
{
    static struct page g;
    g.line = l;
    g.attributes = r->attributes;
    g.limit = r->limit < MAX_PAGE ? r->limit : MAX_PAGE;
    g.kept = calloc(g.limit + 1, sizeof *g.kept);
    g.after = r->after.len ? text_dup(r->after) : NULL;
    if (!g.kept || (r->after.len && !g.after))
        work_fail(l, ENOMEM, S_PATH);
    size_t at = strcmp(path, "/") ? strlen(path) : 0;
    memcpy(g.path, path, at);
    walk(&g, fd, at, r->depth < MAX_LIST_DEPTH ? r->depth : MAX_LIST_DEPTH);
    send_page(&g);
}

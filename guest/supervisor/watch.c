/* Watching a folder (or a file) with inotify; recursive watches follow folders as they come. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "worker.h"

enum { BATCH = 32 * 1024, MAX_WATCHES = 65536, MAX_DEPTH = 100 };

static const uint32_t INTEREST = IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                                 IN_DELETE_SELF | IN_MOVE_SELF | IN_EXCL_UNLINK;

struct watch {
    struct line *line;
    int fd;
    bool recursive, root_is_folder;
    char **paths;                       /* by watch descriptor */
    int size;
    struct buf batch;
    size_t mark;
    uint32_t placed;                    /* the cookie of the last file that left a temporary name */
    char last[8192];                    /* the event before, to merge runs of writes */
    enum change last_change;
};

static bool remember(struct watch *w, int wd, const char *path)
{
    if (wd >= w->size) {
        int size = wd + 64;
        char **paths = wd < MAX_WATCHES ? realloc(w->paths, size * sizeof *paths) : NULL;
        if (!paths)
            return false;
        memset(paths + w->size, 0, (size - w->size) * sizeof *paths);
        w->paths = paths;
        w->size = size;
    }
    char *copy = strdup(path);
    if (copy) {
        free(w->paths[wd]);
        w->paths[wd] = copy;
    }
    return copy;
}

static void put_event(struct watch *w, const char *path, enum change change)
{
    if (change == CHANGE_MODIFIED && w->last_change == change && !strcmp(path, w->last))
        return;
    w->last_change = change;
    snprintf(w->last, sizeof w->last, "%s", path);
    size_t entry = tlv_begin(&w->batch, T_ENTRY);
    tlv_text(&w->batch, T_PATH, path);
    tlv_u32(&w->batch, T_CHANGE, change);
    tlv_end(&w->batch, entry);
    if (buf_left(&w->batch) >= BATCH) {
        frame_end(&w->batch, w->mark);
        work_send(w->line, &w->batch);
        w->mark = frame_begin(&w->batch, F_EVENTS);
    }
}

/* Adds a folder and, if asked, all below it. `announce`: entries found are news (they came before the watch). */
static int add(struct watch *w, const char *path, bool announce, int depth)
{
    int wd = inotify_add_watch(w->fd, path, INTEREST | (depth ? IN_DONT_FOLLOW | IN_ONLYDIR : 0));
    if (wd < 0)
        return errno == ENOSPC ? EMFILE : errno;    /* out of watches, not out of disk */
    if (!remember(w, wd, path))
        return EMFILE;
    DIR *dir = w->recursive && depth < MAX_DEPTH ? opendir(path) : NULL;
    struct dirent *d;
    int err = 0;
    while (dir && !err && (d = readdir(dir))) {
        char below[8192];
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
            continue;
        int n = snprintf(below, sizeof below, "%s/%s", strcmp(path, "/") ? path : "", d->d_name);
        if (n >= (int)sizeof below)
            continue;
        if (announce && strncmp(d->d_name, TEMPORARY_PREFIX, strlen(TEMPORARY_PREFIX)) != 0)
            put_event(w, below, CHANGE_CREATED);
        if (d->d_type == DT_DIR)
            err = add(w, below, announce, depth + 1);
        if (err == ENOENT || err == ENOTDIR || err == EACCES)
            err = 0;                    /* gone, or changed its kind, since */
    }
    if (dir)
        closedir(dir);
    return err;
}

static enum change change_of(uint32_t mask)
{
    if (mask & (IN_CREATE | IN_MOVED_TO))
        return CHANGE_CREATED;
    if (mask & (IN_MODIFY | IN_ATTRIB))
        return CHANGE_MODIFIED;
    return mask & (IN_MOVED_FROM | IN_MOVE_SELF) ? CHANGE_MOVED : CHANGE_REMOVED;
}

/* What the kernel calls a file that has no name yet: "#" and its number. */
static bool is_nameless(const char *name)
{
    return *name == '#' && name[1] && !name[1 + strspn(name + 1, "0123456789")];
}

static void on_event(struct watch *w, const struct inotify_event *e)
{
    if (e->mask & IN_Q_OVERFLOW) {
        put_event(w, w->paths[1] ? w->paths[1] : "/", CHANGE_OVERFLOW);
        return;
    }
    const char *folder = e->wd >= 0 && e->wd < w->size ? w->paths[e->wd] : NULL;
    if (!folder)
        return;
    if (e->mask & IN_IGNORED) {
        free(w->paths[e->wd]);
        w->paths[e->wd] = NULL;
        return;
    }
    /* A folder below speaks of itself through its parent; only the root has no parent here. */
    if (!e->len && e->wd != 1)
        return;
    if (e->len && !strncmp(e->name, TEMPORARY_PREFIX, strlen(TEMPORARY_PREFIX))) {
        if (e->mask & IN_MOVED_FROM)
            w->placed = e->cookie;
        return;
    }
    char path[8192];
    if (!e->len)
        snprintf(path, sizeof path, "%s", folder);
    else if (snprintf(path, sizeof path, "%s/%s", strcmp(folder, "/") ? folder : "", e->name) >= (int)sizeof path)
        return;
    if (e->len && is_nameless(e->name) && e->mask & (IN_MODIFY | IN_ATTRIB) && access(path, F_OK))
        return;
    put_event(w, path, change_of(e->mask));
    /* The host wrote it aside: it came, and was written, as by any other program. */
    if (e->mask & IN_MOVED_TO && e->cookie && e->cookie == w->placed)
        put_event(w, path, CHANGE_MODIFIED);
    if (w->recursive && e->mask & IN_ISDIR && e->mask & (IN_CREATE | IN_MOVED_TO))
        if (add(w, path, true, 1) == EMFILE)
            put_event(w, path, CHANGE_OVERFLOW);
}

static void read_events(struct watch *w)
{
    static char events[65536] __attribute__((aligned(8)));
    ssize_t n = read(w->fd, events, sizeof events);
    w->mark = frame_begin(&w->batch, F_EVENTS);
    w->last_change = 0;
    for (char *at = events; n > 0 && at < events + n;) {
        const struct inotify_event *e = (const struct inotify_event *)at;
        on_event(w, e);
        at += sizeof *e + e->len;
    }
    frame_end(&w->batch, w->mark);
    if (buf_left(&w->batch) > HEADER_SIZE)
        work_send(w->line, &w->batch);
    w->batch.off = w->batch.len = 0;
}

void file_watch(struct line *l, const struct request *r)
{
    static struct watch w;
    char *path = work_path(l, r->path);
    w.line = l;
    w.recursive = r->flags & FLAG_RECURSIVE;
    w.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    int err = w.fd < 0 ? errno : add(&w, path, false, 0);
    if (err)
        work_fail(l, err, w.fd < 0 || err == EMFILE ? S_WATCH : S_PATH);
    struct buf b = {0};
    frame_end(&b, frame_begin(&b, F_DONE));
    work_send(l, &b);
    struct pollfd on[2] = {{l->fd, POLLIN, 0}, {w.fd, POLLIN, 0}};
    while (poll(on, 2, -1) > 0 || errno == EINTR) {
        if (on[0].revents)
            _exit(0);                   /* whatever the host says now, it means enough */
        if (on[1].revents)
            read_events(&w);
    }
    _exit(1);
}

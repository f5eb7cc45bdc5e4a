/* Looking at files: stat, list, read. Only regular files are ever opened for their bytes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "worker.h"

static enum kind kind_of(mode_t mode)
{
    return S_ISREG(mode) ? KIND_FILE : S_ISDIR(mode) ? KIND_DIRECTORY : S_ISLNK(mode) ? KIND_SYMLINK : KIND_OTHER;
}

void put_file(struct buf *b, const char *path, const struct stat *st, const char *link)
{
    tlv_text(b, T_PATH, path);
    tlv_u32(b, T_KIND, kind_of(st->st_mode));
    tlv_u64(b, T_SIZE, st->st_size);
    tlv_u32(b, T_MODE, st->st_mode & 07777);
    tlv_u32(b, T_UID, st->st_uid);
    tlv_u32(b, T_GID, st->st_gid);
    tlv_u64(b, T_MTIME, (uint64_t)st->st_mtim.tv_sec * 1000000000u + st->st_mtim.tv_nsec);
    if (link)
        tlv_text(b, T_LINK, link);
}

/* The target of a link, in a buffer that the next call reuses; NULL for anything else. */
static const char *link_at(int dir, const char *name, const struct stat *st)
{
    static char target[4096];
    if (!S_ISLNK(st->st_mode))
        return NULL;
    ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    return target;
}

/* Extended attributes whose names begin as was asked, as long as there is room; what cannot be read has none. */
static void put_attributes(struct buf *b, const char *path, struct text wanted, bool follow)
{
    static char names[64 * 1024], told[MAX_ATTRIBUTES];
    ssize_t all = !wanted.len ? 0 : follow ? listxattr(path, names, sizeof names) : llistxattr(path, names, sizeof names);
    size_t used = 0;
    for (char *name = names; all > 0 && name < names + all; name += strlen(name) + 1) {
        size_t len = strlen(name) + 1;
        if (strncmp(name, wanted.at, wanted.len) || strchr(name, '=') || used + len >= sizeof told)
            continue;
        size_t room = sizeof told - used - len;
        ssize_t n = follow ? getxattr(path, name, told + len, room) : lgetxattr(path, name, told + len, room);
        if (n < 0)
            continue;                   /* gone since, or too much */
        memcpy(told, name, len - 1);
        told[len - 1] = '=';
        tlv_bytes(b, T_ATTRIBUTE, told, len + n);
        used += len + n;
    }
}

void file_stat(struct line *l, const struct request *r)
{
    char *path = work_path(l, r->path);
    struct stat st;
    if (fstatat(AT_FDCWD, path, &st, r->flags & FLAG_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW))
        work_fail(l, errno, S_PATH);
    struct buf b = {0};
    size_t mark = frame_begin(&b, F_FILE);
    put_file(&b, path, &st, link_at(AT_FDCWD, path, &st));
    put_attributes(&b, path, r->attributes, r->flags & FLAG_FOLLOW);
    frame_end(&b, mark);
    work_send(l, &b);
    _exit(0);
}

struct listing {
    struct line *line;
    struct buf batch;
    size_t mark;
    char path[LONGEST_PATH];
};

static void send_batch(struct listing *g)
{
    frame_end(&g->batch, g->mark);
    work_send(g->line, &g->batch);
    g->mark = frame_begin(&g->batch, F_ENTRIES);
}

void put_entry(struct buf *b, int dir, const char *name, const char *path, const struct stat *st, struct text attributes)
{
    size_t entry = tlv_begin(b, T_ENTRY);
    put_file(b, path, st, link_at(dir, name, st));
    /* Attributes are found by a path alone. */
    if (attributes.len && (dir == AT_FDCWD || fchdir(dir) == 0))
        put_attributes(b, name, attributes, false);
    tlv_end(b, entry);
}

/* Takes fd over. `at` is where the folder's own path ends. */
static void list_folder(struct listing *g, int fd, size_t at, uint32_t depth)
{
    DIR *dir = fdopendir(fd);
    struct dirent *d;
    struct stat st;
    if (!dir) {
        close(fd);
        return;
    }
    while ((d = readdir(dir))) {
        size_t len = strlen(d->d_name);
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") || at + 1 + len >= sizeof g->path)
            continue;
        if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;                   /* gone since */
        g->path[at] = '/';
        memcpy(g->path + at + 1, d->d_name, len + 1);
        put_entry(&g->batch, fd, d->d_name, g->path, &st, (struct text){0});
        if (buf_left(&g->batch) >= ENTRIES_BATCH)
            send_batch(g);
        if (depth > 1 && S_ISDIR(st.st_mode)) {
            int below = openat(fd, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (below >= 0)
                list_folder(g, below, at + 1 + len, depth - 1);
        }
    }
    closedir(dir);
}

void file_list(struct line *l, const struct request *r)
{
    static struct listing g;
    char *path = work_path(l, r->path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        work_fail(l, errno, S_PATH);
    if (r->limit)
        file_page(l, path, fd, r);
    g.line = l;
    g.mark = frame_begin(&g.batch, F_ENTRIES);
    size_t at = strcmp(path, "/") ? strlen(path) : 0;
    memcpy(g.path, path, at);
    list_folder(&g, fd, at, r->depth < MAX_LIST_DEPTH ? r->depth : MAX_LIST_DEPTH);
    send_batch(&g);
    g.batch.len = 0;
    work_done(l);
}

/* Looks before it opens: opening a FIFO or a device is already an act. */
static int open_regular(struct line *l, const char *path, struct stat *st)
{
    if (stat(path, st))
        work_fail(l, errno, S_PATH);
    if (S_ISDIR(st->st_mode))
        work_fail(l, EISDIR, S_PATH);
    int fd = -1;
    if (S_ISREG(st->st_mode)) {
        fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, st))
            work_fail(l, errno, S_PATH);
    }
    if (!S_ISREG(st->st_mode))
        work_fail(l, EINVAL, S_NOT_REGULAR);
    return fd;
}

void file_read(struct line *l, const struct request *r)
{
    static uint8_t chunk[CHUNK];
    char *path = work_path(l, r->path);
    struct stat st;
    int fd = open_regular(l, path, &st);
    struct buf b = {0};
    size_t mark = frame_begin(&b, F_FILE);
    put_file(&b, path, &st, NULL);
    frame_end(&b, mark);
    work_send(l, &b);
    if (r->offset && lseek(fd, r->offset, SEEK_SET) < 0)
        work_fail(l, errno, S_PATH);
    uint64_t left = r->has_length ? r->length : UINT64_MAX;
    while (left) {
        ssize_t n = read(fd, chunk, left < CHUNK ? left : CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            work_fail(l, errno, S_PATH);
        if (n == 0)
            break;
        work_send_data(l, chunk, n);
        left -= n;
    }
    work_done(l);
}

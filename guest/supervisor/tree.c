/* Walking trees: make the folders above, remove all below, copy across file systems. Never follows a link. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "worker.h"

enum { MAX_DEPTH = 100, COPY_CHUNK = 1 << 20 };

int make_parents(const char *path, const struct user *owner)
{
    char *copy = strdup(path);
    int err = copy ? 0 : ENOMEM;
    for (char *at = copy ? strchr(copy + 1, '/') : NULL; at && !err; at = strchr(at + 1, '/')) {
        struct stat st;
        *at = 0;
        if (mkdir(copy, 0755) == 0)
            err = owner && lchown(copy, owner->uid, owner->gid) ? errno : 0;
        else if (errno != EEXIST)
            err = stat(copy, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : errno;  /* EROFS, EACCES: it may be there */
        *at = '/';
    }
    free(copy);
    return err;
}

static bool is_dots(const char *name)
{
    return !strcmp(name, ".") || !strcmp(name, "..");
}

/* ---- remove ---- */

struct removal {
    int top;                            /* the folder being emptied */
    unsigned lifted;                    /* how many deep folders were lifted into it */
};

static int empty_folder(struct removal *r, int fd, int depth);

/* A folder deeper than fds and stack allow is moved up to the top, where its turn comes later. */
static int lift(struct removal *r, int fd, const char *name)
{
    char up[64];
    snprintf(up, sizeof up, TEMPORARY_PREFIX "%d-%u", getpid(), r->lifted++);
    return renameat(fd, name, r->top, up) ? errno : 0;
}

static int remove_at(struct removal *r, int fd, const char *name, int depth)
{
    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return errno;
    if (unlinkat(fd, name, AT_REMOVEDIR) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return errno;
    if (depth >= MAX_DEPTH)
        return lift(r, fd, name);
    int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int err = below < 0 ? errno : empty_folder(r, below, depth + 1);
    if (err)
        return err;
    return unlinkat(fd, name, AT_REMOVEDIR) && errno != ENOENT ? errno : 0;
}

/* Takes fd over. Reads again until a pass finds nothing: unlinking while reading may hide entries. */
static int empty_folder(struct removal *r, int fd, int depth)
{
    DIR *dir = fdopendir(fd);
    int err = dir ? 0 : errno;
    if (!dir)
        close(fd);
    for (bool found = true; dir && found && !err; rewinddir(dir)) {
        struct dirent *d;
        found = false;
        while (!err && (d = readdir(dir)))
            if (!is_dots(d->d_name)) {
                found = true;
                err = remove_at(r, fd, d->d_name, depth);
            }
    }
    if (dir)
        closedir(dir);
    return err;
}

int remove_tree(const char *path)
{
    struct removal r = {0};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOTDIR || errno == ELOOP ? (unlink(path) ? errno : 0) : errno;
    r.top = dup(fd);
    int err = empty_folder(&r, fd, 0);
    close(r.top);
    if (!err && rmdir(path))
        err = errno;
    return err;
}

/* ---- copy ---- */

static int copy_bytes(int from, int to)
{
    char *chunk = NULL;
    ssize_t n;
    while ((n = copy_file_range(from, NULL, to, NULL, COPY_CHUNK, 0)) > 0)
        ;
    if (n == 0)
        return 0;
    if (!(chunk = malloc(COPY_CHUNK)))
        return ENOMEM;
    int err = 0;
    while (!err && (n = read(from, chunk, COPY_CHUNK)) > 0)
        for (ssize_t done = 0, w; done < n && !err; done += w)
            if ((w = write(to, chunk + done, n - done)) < 0)
                err = errno;
    free(chunk);
    return n < 0 && !err ? errno : err;
}

/* What users say about a file, where the other file system can keep it. */
static int copy_attributes(int from, int to)
{
    static char names[64 * 1024], value[64 * 1024];
    ssize_t all = flistxattr(from, names, sizeof names), n;
    for (char *name = names; all > 0 && name < names + all; name += strlen(name) + 1)
        if (!strncmp(name, "user.", 5) && (n = fgetxattr(from, name, value, sizeof value)) >= 0 &&
            fsetxattr(to, name, value, n, 0) && errno != ENOTSUP)
            return errno;
    return 0;
}

static int copy_regular(int from_dir, const char *from, int to_dir, const char *to)
{
    int in = openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int out = in < 0 ? -1 : openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int err = out < 0 ? errno : copy_bytes(in, out);
    if (!err)
        err = copy_attributes(in, out);
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out) && !err)
        err = errno;
    return err;
}

static int copy_link(int from_dir, const char *from, int to_dir, const char *to)
{
    char target[4096];
    ssize_t n = readlinkat(from_dir, from, target, sizeof target - 1);
    if (n < 0)
        return errno;
    target[n] = 0;
    return symlinkat(target, to_dir, to) ? errno : 0;
}

static int copy_at(int from_dir, const char *from, int to_dir, const char *to, int depth);

static int copy_folder(int from_dir, const char *from, int to_dir, const char *to, int depth)
{
    if (depth >= MAX_DEPTH)
        return ENAMETOOLONG;
    if (mkdirat(to_dir, to, 0700))
        return errno;
    int in = openat(from_dir, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int out = openat(to_dir, to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = in >= 0 && out >= 0 ? fdopendir(in) : NULL;
    int err = dir ? 0 : errno;
    struct dirent *d;
    while (!err && (d = readdir(dir)))
        if (!is_dots(d->d_name))
            err = copy_at(in, d->d_name, out, d->d_name, depth + 1);
    if (dir)
        closedir(dir);
    if (out >= 0)
        close(out);
    return err;
}

static int copy_at(int from_dir, const char *from, int to_dir, const char *to, int depth)
{
    struct stat st;
    if (fstatat(from_dir, from, &st, AT_SYMLINK_NOFOLLOW))
        return errno;
    int err = EXDEV;                    /* sockets and devices cannot be carried over */
    if (S_ISREG(st.st_mode))
        err = copy_regular(from_dir, from, to_dir, to);
    else if (S_ISDIR(st.st_mode))
        err = copy_folder(from_dir, from, to_dir, to, depth);
    else if (S_ISLNK(st.st_mode))
        err = copy_link(from_dir, from, to_dir, to);
    else if (S_ISFIFO(st.st_mode))
        err = mkfifoat(to_dir, to, 0600) ? errno : 0;
    if (err)
        return err;
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (fchownat(to_dir, to, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW))
        return errno;
    if (!S_ISLNK(st.st_mode) && fchmodat(to_dir, to, st.st_mode & 07777, 0))
        return errno;
    return utimensat(to_dir, to, times, AT_SYMLINK_NOFOLLOW) ? errno : 0;
}

int copy_tree(const char *from, const char *to)
{
    return copy_at(AT_FDCWD, from, AT_FDCWD, to, 0);
}

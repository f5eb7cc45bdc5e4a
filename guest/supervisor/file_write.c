/* Writing a file: aside, and into its place only when the host says that all of it came. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "worker.h"

enum { MAX_LINKS = 40 };

/* A temporary file without a name where the file system knows such a thing, else with one. */
struct draft {
    int fd;
    char *name;                         /* NULL while it has none */
};

char *temporary_beside(const char *path)
{
    uint64_t noise = 0;
    if (getrandom(&noise, sizeof noise, 0) < 0)
        noise = (uint64_t)getpid() << 32 | (uint32_t)(uintptr_t)&noise;
    char *temporary;
    int folder = strrchr(path, '/') - path;
    if (asprintf(&temporary, "%.*s/" TEMPORARY_PREFIX "%016llx", folder, path, (unsigned long long)noise) < 0)
        return NULL;
    return temporary;
}

/* Where the bytes shall go when `path` is a link: what it leads to is replaced, as an editor would. */
static char *resolve(struct line *l, char *path)
{
    for (int i = 0; i < MAX_LINKS; i++) {
        char target[4096], *next;
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n < 0)
            return path;
        target[n] = 0;
        int folder = strrchr(path, '/') - path;
        int made = *target == '/' ? asprintf(&next, "%s", target) : asprintf(&next, "%.*s/%s", folder, path, target);
        if (made < 0)
            work_fail(l, ENOMEM, S_PATH);
        path = next;
    }
    work_fail(l, ELOOP, S_PATH);
}

static void discard(const struct draft *d)
{
    if (d->name)
        unlink(d->name);
}

static struct draft open_draft(struct line *l, const char *path)
{
    char *copy = strdup(path);
    struct draft d = {.fd = copy ? open(dirname(copy), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600) : -1};
    free(copy);
    if (d.fd >= 0)
        return d;
    d.name = temporary_beside(path);
    d.fd = d.name ? open(d.name, O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0600) : -1;
    if (d.fd < 0)
        work_fail(l, errno, S_PATH);
    return d;
}

static void give_name(struct line *l, struct draft *d, const char *path)
{
    char self[32];
    if (d->name)
        return;
    snprintf(self, sizeof self, "/proc/self/fd/%d", d->fd);
    char *name = temporary_beside(path);
    if (!name || linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW))
        work_fail(l, errno, S_PATH);
    d->name = name;
}

static void fill(struct line *l, struct draft *d)
{
    static uint8_t chunk[CHUNK];
    uint8_t type;
    uint32_t len;
    for (;;) {
        if (!work_header(l, &type, &len) || (type != F_DATA && type != F_COMMIT)) {
            discard(d);
            _exit(0);
        }
        if (type == F_COMMIT)
            return;
        if (!work_receive(l, chunk, len)) {
            discard(d);
            _exit(0);
        }
        for (uint32_t done = 0; done < len;) {
            ssize_t n = write(d->fd, chunk + done, len - done);
            if (n < 0 && errno != EINTR) {
                int err = errno;
                discard(d);
                work_fail(l, err, S_PATH);
            }
            done += n > 0 ? n : 0;
        }
    }
}

/* Owner and mode of what is replaced; those that are given win. */
static int dress(int fd, const struct stat *old, const struct user *owner, const struct request *r)
{
    mode_t mode = r->has_mode ? r->mode & 07777 : old ? old->st_mode & 07777 : 0644;
    uid_t uid = owner ? owner->uid : old ? old->st_uid : 0;
    gid_t gid = owner ? owner->gid : old ? old->st_gid : 0;
    if ((owner || old) && fchown(fd, uid, gid))
        return errno;
    return fchmod(fd, mode) ? errno : 0;
}

/* "name=value" each. A file system that has no attributes keeps none, which is no reason to keep no file. */
static int set_attributes(int fd, const struct request *r)
{
    char **list = request_strings(r, T_ATTRIBUTE, r->attribute_count, 0);
    if (!list)
        return ENOMEM;
    for (char **s = list; *s; s++) {
        char *value = strchr(*s, '=');
        if (!value)
            return EINVAL;
        *value++ = 0;
        if (fsetxattr(fd, *s, value, strlen(value), 0) && errno != ENOTSUP)
            return errno;
    }
    request_strings_free(list);
    return 0;
}

void file_write(struct line *l, const struct request *r)
{
    char *asked = work_path(l, r->path), *path = resolve(l, asked);
    const struct user *owner = work_owner(l, r);
    struct stat old, st;
    bool exists = lstat(path, &old) == 0;
    if (exists && S_ISDIR(old.st_mode))
        work_fail(l, EISDIR, S_PATH);
    if (exists && !S_ISREG(old.st_mode))
        work_fail(l, EINVAL, S_NOT_REGULAR);
    int err = !exists && r->flags & FLAG_PARENTS ? make_parents(path, owner) : 0;
    if (err)
        work_fail(l, err, S_PATH);
    struct draft d = open_draft(l, path);
    fill(l, &d);
    err = set_attributes(d.fd, r);
    if (!err)
        err = dress(d.fd, exists ? &old : NULL, owner, r);
    if (!err)
        give_name(l, &d, path);
    if (!err && (rename(d.name, path) || fstat(d.fd, &st)))
        err = errno;
    if (err) {
        discard(&d);
        work_fail(l, err, S_PATH);
    }
    close(d.fd);                        /* before anybody hears of it: what is open for writing cannot be run */
    struct buf b = {0};
    size_t mark = frame_begin(&b, F_FILE);
    put_file(&b, asked, &st, NULL);
    frame_end(&b, mark);
    work_send(l, &b);
    _exit(0);
}

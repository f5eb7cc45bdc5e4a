/* Changing the tree: mkdir, move, remove. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker.h"

void file_mkdir(struct line *l, const struct request *r)
{
    char *path = work_path(l, r->path);
    const struct user *owner = work_owner(l, r);
    struct stat st;
    int err = r->flags & FLAG_PARENTS ? make_parents(path, owner) : 0;
    if (!err && mkdir(path, r->has_mode ? r->mode & 07777 : 0755))
        err = errno;
    else if (!err && owner && lchown(path, owner->uid, owner->gid))
        err = errno;
    if (err == EEXIST && r->flags & FLAG_PARENTS && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        err = 0;
    if (err)
        work_fail(l, err, S_PATH);
    work_done(l);
}

static int rename_as(const char *from, const char *to, bool overwrite)
{
    struct stat st;
    if (overwrite)
        return rename(from, to) ? errno : 0;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL || lstat(from, &st))
        return errno;
    /* EINVAL: a folder into itself, or a file system without this flag. */
    if (lstat(to, &st) == 0)
        return EEXIST;
    return rename(from, to) ? errno : 0;
}

/* Across file systems: a whole copy beside the target first, so that nobody sees half of it. */
static int carry(const char *from, const char *to, bool overwrite)
{
    struct stat st;
    if (!overwrite && lstat(to, &st) == 0)
        return EEXIST;                  /* known before the work, and decided again by the rename after it */
    char *aside = temporary_beside(to);
    if (!aside)
        return ENOMEM;
    int err = copy_tree(from, aside);
    if (!err)
        err = rename_as(aside, to, overwrite);
    if (err)
        remove_tree(aside);
    return err ? err : remove_tree(from);
}

void file_move(struct line *l, const struct request *r)
{
    char *from = work_path(l, r->path), *to = work_path(l, r->target);
    struct stat st;
    bool overwrite = r->flags & FLAG_OVERWRITE;
    if (lstat(from, &st))
        work_fail(l, errno, S_PATH);
    int err = rename_as(from, to, overwrite);
    if (err == EXDEV)
        err = carry(from, to, overwrite);
    if (err)
        work_fail(l, err, S_TARGET);
    work_done(l);
}

void file_remove(struct line *l, const struct request *r)
{
    char *path = work_path(l, r->path);
    struct stat st;
    int err = 0;
    if (lstat(path, &st))
        work_fail(l, errno, S_PATH);
    if (!strcmp(path, "/"))
        err = EBUSY;
    else if (!S_ISDIR(st.st_mode))
        err = unlink(path) ? errno : 0;
    else if (r->flags & FLAG_RECURSIVE)
        err = remove_tree(path);
    else
        err = rmdir(path) ? errno : 0;
    if (err)
        work_fail(l, err, S_PATH);
    work_done(l);
}
